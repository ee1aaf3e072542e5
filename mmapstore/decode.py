"""One line to one JSON object, or the reason why not.

orjson first; what it refuses goes to the standard library's json over strict
UTF-8 text, which also takes lone surrogate escapes, NaN and numbers out of range.
A line that neither turns into one object is damaged. The verdict depends on the
bytes alone: not on the locale, the platform's codec or the way the line was reached.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import orjson

from .keys import depth

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: nesting that the standard library parses on every stack that Python allows by default
MAX_DEPTH = 900


class UndecodableError(ValueError):
    """Is raised, inside the package, with the reason why a line is damaged."""


class Undecodable(NamedTuple):
    """Stands in a list of records for a line that is damaged.

    Attributes
    ----------
    reason : str
        What the decoder objected to.
    """

    # not the exception: its traceback would hold the list that holds it
    reason: str


def without_mark(line: memoryview) -> memoryview:
    """Return a file's first line without the byte order mark that it may begin with."""
    return line[3:] if line[:3] == BYTE_ORDER_MARK else line


def decode_object(line: bytes | memoryview) -> dict[str, Any]:
    """Return the JSON object that a line holds.

    Parameters
    ----------
    line : bytes-like
        One line; a line end and white space around the object may be there, a byte
        order mark may not.

    Returns
    -------
    record : dict
        Decoded; of a repeated key the last value counts.

    Raises
    ------
    UndecodableError
        With the reason, in one clause.
    """
    record = decode_value(line)
    if type(record) is not dict:
        names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
        reason = f"a JSON {names.get(type(record), 'null')}, not an object"
        raise UndecodableError(reason)
    return record


def decode_distinct(texts: list[memoryview], key: str) -> dict[str, dict[str, Any]] | None:
    """Return the objects by their strings at a top-level key, in order, if those are distinct.

    None if a text does not decode to an object, or has no string there, an empty one, or one
    that another has.
    """
    # The loop of every decoded window: one call and one look-up a line.
    try:
        by_key = {record[key]: record for record in map(orjson.loads, texts)}
        "".join(by_key)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        # of JSON's types only an object takes a string as index, and only strings are joined
        return None
    return by_key if len(by_key) == len(texts) and "" not in by_key else None


def decode_each(texts: list[memoryview]) -> list[dict[str, Any] | Undecodable]:
    """Return the object that each text holds, or why it holds none."""
    found: list[dict[str, Any] | Undecodable] = []
    for text in texts:
        try:
            found.append(decode_object(text))
        except UndecodableError as error:
            found.append(Undecodable(str(error)))
    return found


def decode_value(text: bytes | memoryview) -> Any:
    """Return the one JSON value that `text` holds, or raise :class:`UndecodableError`."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _decode_leniently(bytes(text))


def _decode_leniently(line: bytes) -> Any:
    if b"\0" in line:
        offset = line.index(b"\0")
        reason = f"a NUL byte at byte {offset} of the line"
        raise UndecodableError(reason)
    if depth(line) > MAX_DEPTH:
        reason = f"nested more than {MAX_DEPTH} deep"
        raise UndecodableError(reason)
    try:
        # Text is decoded here and not by json, which would guess at UTF-16 and UTF-32.
        text = line.decode("utf-8", "strict")
        try:
            return json.loads(text)
        except RecursionError:
            # json counts against the caller's stack: the verdict must not depend on that
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(1) as fresh:
                return fresh.submit(json.loads, text).result()
    except RecursionError as error:  # the limit was set lower than Python's own
        reason = "nested too deeply for the recursion limit"
        raise UndecodableError(reason) from error
    except UnicodeDecodeError as error:
        reason = f"not UTF-8 at byte {error.start} of the line"
        raise UndecodableError(reason) from error
    except json.JSONDecodeError as error:
        reason = f"{error.msg.removesuffix(' at')} at character {error.pos} of the line"
        raise UndecodableError(reason) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise UndecodableError(str(error)) from error
