"""JSON values: when two are equal, and the text of one that is read back as it was given.

A value passes only if its text decodes to an equal one: what JSON cannot say, and what a
decoder would round, is refused and not bent.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

from ..decode import UndecodableError, decode_value
from ..errors import InvalidRecordError

# what orjson would turn into a string of its own choice is refused instead
_OPTIONS = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_APPEND_NEWLINE
)


def encode(value: object) -> bytes:
    """Return a value as compact JSON, UTF-8.

    Raises
    ------
    InvalidRecordError
        The value has no JSON text that decodes to it.
    """
    return encode_line(value)[:-1]


def encode_line(value: object) -> bytes:
    """Return a value as :func:`encode` does, and a newline behind it."""
    try:
        line = orjson.dumps(value, option=_OPTIONS)
        if orjson.loads(line) == value:
            return line
    except (TypeError, ValueError, RecursionError):
        pass  # most values are not of that kind, and are not to pay for it
    return _encode_with_care(value) + b"\n"


def _encode_with_care(value: object) -> bytes:
    try:
        text = orjson.dumps(value, option=_OPTIONS)[:-1]
    except TypeError:
        text = _encode_leniently(value)
    try:
        decoded = decode_value(text)
    except UndecodableError as error:
        message = f"a value that would not be read back: {error}"
        raise InvalidRecordError(message) from error
    if not _equal(decoded, value):
        raise InvalidRecordError(
            "a value that would not be read back as it was given",
            hint="use objects, lists, strings, numbers that are finite, true, false and null",
        )
    return text


def _encode_leniently(value: object) -> bytes:
    # lone surrogates, integers beyond 64 bits, nesting that orjson does not enter
    try:
        text = json.dumps(value, allow_nan=False, check_circular=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"not a JSON value: {error}"
        raise InvalidRecordError(message) from error
    return text.encode("ascii")


def _equal(decoded: Any, value: Any) -> bool:
    try:
        return bool(decoded == value)
    except RecursionError:
        return same_value(decoded, value)


def same_value(one: Any, other: Any) -> bool:
    """Whether two decoded JSON values are equal: numbers by value, true is not 1."""
    pairs = [(one, other)]
    while pairs:
        a, b = pairs.pop()
        if isinstance(a, dict):
            if not isinstance(b, dict) or a.keys() != b.keys():
                return False
            pairs += [(a[key], b[key]) for key in a]
        elif isinstance(a, list):
            if not isinstance(b, list) or len(a) != len(b):
                return False
            pairs += zip(a, b, strict=True)
        elif isinstance(a, bool) or isinstance(b, bool):
            if a is not b:
                return False
        elif a != b and not (_is_nan(a) and _is_nan(b)):
            return False
    return True


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
