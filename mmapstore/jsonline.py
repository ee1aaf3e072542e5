"""One JSON value on one line, for programs that split lines in their own ways.

The bytes are valid JSON and UTF-8, and hold no character that any program takes for
the end of a line or a terminal for a command: those, and lone surrogates, are escaped. A
number that JSON has no word for (NaN, an infinity) is null.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson

# as UTF-8: DEL and the C1 controls (NEL is one), the line and paragraph separators, and the
# characters that turn text around; none of these byte sequences starts inside a character
_ESCAPED = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


class _Spelled(str):
    """A piece of JSON, as opposed to a string that is to become one."""

    __slots__ = ()


def encode(value: Any, *, indent: bool = False) -> bytes:
    r"""Return a JSON value as bytes, without a newline at the end.

    Parameters
    ----------
    value : any JSON value
        Strings may hold anything; nesting may be of any depth.
    indent : bool
        Spread it over lines, for people; not done where only the slow way can spell it.

    Examples
    --------
    >>> encode({"text": "a\u2028b\ud83d"})
    b'{"text":"a\\u2028b\\ud83d"}'
    """
    try:
        data = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None)
    except orjson.JSONEncodeError:  # a lone surrogate, a large integer, deep nesting
        return "".join(_pieces(value)).encode("ascii")
    return _ESCAPED.sub(_escape, data)


def _escape(match: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(match[0].decode())


def _pieces(value: Any) -> list[str]:
    """Spell a value in ASCII without recursion: orjson reads more levels than Python calls."""
    pieces: list[str] = []
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, _Spelled):
            pieces.append(item)
        elif isinstance(item, dict):
            pieces.append("{")
            todo.append(_Spelled("}"))
            for index, (key, member) in reversed(list(enumerate(item.items()))):
                todo += [member, _Spelled(f"{',' if index else ''}{json.dumps(key)}:")]
        elif isinstance(item, list):
            pieces.append("[")
            todo.append(_Spelled("]"))
            for index, member in reversed(list(enumerate(item))):
                todo += [member, _Spelled("," if index else "")]
        elif isinstance(item, float) and not math.isfinite(item):
            pieces.append("null")
        else:
            pieces.append(json.dumps(item))
    # DEL is the one control character that json leaves alone
    return [piece.replace("\x7f", "\\u007f") for piece in pieces]
