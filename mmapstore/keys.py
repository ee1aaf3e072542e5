"""The depth-aware scan: where a key of an object has its value, without parsing the line.

A transcript line is never turned into a value to be classified. The literal
``"key"`` is searched for, and each place where it stands is proven or dismissed:

* preceded by a backslash it is text inside a string;
* not preceded by one it is a string token of the line (for valid JSON: an
  unescaped quote opens a token there, and the key's own letters close it);
* it is the key asked for if the nesting between the object's brace and that
  place comes out at one level, and a colon follows.

Nesting is counted on what is left of the text when escapes, strings and
everything that is not structure are deleted, so braces in strings never count.

For a valid line the answer is a parser's answer, but for a key that is spelled
with an escape (not seen) or repeated (the first one is found). For an invalid
line it is whatever this scan says, always the same for the same bytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHITE: Final = re.compile(rb"[ \t\r\n]*")
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_SCALAR: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,{}\[\]":]+', re.DOTALL)
_BACKSLASH: Final = 0x5C
_ROUNDS: Final = 8

_BRACKETS_AS_BRACES: Final = bytes.maketrans(b"[]", b"{}")
_NOT_STRUCTURE: Final = bytes(octet for octet in range(256) if octet not in b'"{}[]')


def object_start(line: bytes) -> int:
    """Return the offset of the brace that opens the line's object, or -1.

    Only JSON white space may stand before it.
    """
    at = _WHITE.match(line).end()  # type: ignore[union-attr]  # matches the empty string
    return at if line[at : at + 1] == b"{" else -1


def find_value(line: bytes, brace: int, key: bytes) -> int:
    """Return where the value of `key` starts in the object that opens at `brace`.

    Parameters
    ----------
    line : bytes
        One line.
    brace : int
        Byte offset of the object's ``{``.
    key : bytes
        The key as it is spelled between its quotes, without escapes.

    Returns
    -------
    offset : int
        Byte offset of the value's first byte, or -1 if the object has no such key.

    Notes
    -----
    Bytes up to the key are looked at once, most of them by ``find`` alone.
    """
    quoted = b'"' + key + b'"'
    depth = 1
    mark = at = brace + 1
    while (found := line.find(quoted, at)) >= 0:
        at = found + len(quoted)
        if line[found - 1] == _BACKSLASH:
            continue
        change, lowest = nesting(line[mark:found])
        if depth + lowest <= 0:
            return -1
        depth += change
        mark = found
        if depth == 1 and (colon := _COLON.match(line, at)):
            return colon.end()
    return -1


def nesting(text: bytes) -> tuple[int, int]:
    """Return by how much `text` changes the nesting, and the lowest level on the way.

    `text` begins outside strings. Brackets and braces count alike.
    """
    if b"{" not in text and b"[" not in text and b"}" not in text and b"]" not in text:
        return 0, 0
    bare = _brackets(text)
    # what closes at once says nothing; a few rounds leave next to nothing of most text
    for _ in range(_ROUNDS):
        if b"{}" not in bare:
            closed = bare.count(b"}")
            return len(bare) - 2 * closed, -closed
        bare = bare.replace(b"{}", b"")
    levels = _levels(bare)
    return int(levels[-1]), int(levels.min())


def depth(text: bytes) -> int:
    """Return how many containers are open at once at the deepest place of `text`."""
    return int(_levels(_brackets(text)).max())


def _brackets(text: bytes) -> bytes:
    """Return the brackets of `text` outside strings, all as braces."""
    bare = text.translate(_BRACKETS_AS_BRACES, _NOT_STRUCTURE)
    if b'"' in bare:
        if b"\\" in text:
            # in pairs from the left, as a parser reads a run of backslashes
            text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
            bare = text.translate(_BRACKETS_AS_BRACES, _NOT_STRUCTURE)
        bare = b"".join(bare.split(b'"')[::2])
    return bare


def _levels(bare: bytes) -> NDArray[np.int64]:
    """Return the level before the first brace, which is 0, and behind each."""
    # an opening brace is one less than the letter between the two, a closing one more
    steps = ord("|") - np.frombuffer(b"|" + bare, dtype=np.uint8).astype(np.int64)
    levels: NDArray[np.int64] = np.cumsum(steps)
    return levels


def token_at(line: bytes, offset: int) -> bytes:
    """Return the JSON scalar that starts at `offset`, or a container's opening byte.

    Returns
    -------
    token : bytes
        As it stands in the line, quotes included; empty where nothing readable stands.
    """
    if line[offset : offset + 1] in (b"{", b"["):
        return line[offset : offset + 1]
    match = _SCALAR.match(line, offset)
    return match.group() if match else b""


def find_path(line: bytes, path: tuple[bytes, ...]) -> int:
    """Return where the value at a path of keys from the top starts, or -1.

    An empty key stands for the first element of an array.
    """
    at = object_start(line)
    for key in path:
        if at < 0 or line[at : at + 1] != (b"{" if key else b"["):
            return -1
        at = find_value(line, at, key) if key else _first_element(line, at)
    return at


def _first_element(line: bytes, bracket: int) -> int:
    at = _WHITE.match(line, bracket + 1).end()  # type: ignore[union-attr]
    return -1 if line[at : at + 1] in (b"]", b"") else at
