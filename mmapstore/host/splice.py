"""Values of a JSON text exchanged in place: every other byte stays what it is.

A text that decodes is walked token by token, and each value is told with its path
and where it stands. Of a key that is repeated the later value is told later, as a
parser has it. Nothing is encoded anew but what is put in.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..decode import decode_object
from ..review import reviews
from .jsonvalue import encode, same_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TOKEN = re.compile(rb'("(?:[^"\\]++|\\.)*+"|[{}\[\],]|[^ \t\r\n{}\[\]:,"]++)', re.DOTALL)

_WHITE = b" \t\r\n"

Path = tuple[str | int, ...]


class Value(NamedTuple):
    """A value and where it stands: keys and indices from the top, half-open byte offsets."""

    path: Path
    start: int
    stop: int


def values(text: bytes, start: int = 0) -> Iterator[Value]:
    """Yield every value of a text that decodes, a container behind what it holds."""
    path: list[Any] = []
    opened: list[int] = []
    wants_key = False
    for match in _TOKEN.finditer(text, start):
        at = match.start()
        token = text[at]
        if token == 0x22:  # "
            if wants_key:
                path[-1] = string(match[0])
                wants_key = False
            else:
                yield Value(tuple(path), at, match.end())
        elif token in b"{[":
            opened.append(at)
            wants_key = token == 0x7B
            path.append(None if wants_key else 0)
        elif token in b"}]":
            path.pop()
            wants_key = False
            yield Value(tuple(path), opened.pop(), match.end())
        elif token == 0x2C:  # a comma
            if text[opened[-1]] == 0x7B:
                wants_key = True
            else:
                path[-1] += 1
        else:
            yield Value(tuple(path), at, match.end())


def string(token: bytes) -> str:
    """Return what a string token spells."""
    if b"\\" in token:
        return str(json.loads(token.decode("utf-8")))
    return token[1:-1].decode("utf-8")


def members(text: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield key, start and stop of each member of the object that a text is."""
    for path, start, stop in values(text, text.index(b"{")):
        if len(path) == 1:
            yield str(path[0]), start, stop


def elements(text: bytes, key: str) -> list[bytes]:
    """Return the texts of the elements of the array at a top-level key."""
    found: list[bytes] = []
    for path, start, stop in values(text, text.index(b"{")):
        if len(path) == 2 and path[0] == key and isinstance(path[1], int):
            del found[path[1] :]  # a repeated key begins anew
            found.append(text[start:stop])
    return found


def replaced(text: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return the text with bytes [start, stop) of each edit exchanged; edits do not overlap."""
    parts = []
    done = 0
    for start, stop, new in sorted(edits):
        parts += [text[done:start], new]
        done = stop
    return b"".join([*parts, text[done:]])


def with_last_member(text: bytes, key: str, value: object) -> bytes:
    """Return an object's text with one more member at its end."""
    end = text.rindex(b"}")
    comma = b"" if text[:end].rstrip(_WHITE).endswith(b"{") else b","
    return text[:end] + comma + encode(key) + b":" + encode(value) + text[end:]


def with_first_member(text: bytes, key: str, value: object) -> bytes:
    """Return an object's text with one more member at its beginning."""
    start = text.index(b"{") + 1
    comma = b"" if text[start:].lstrip(_WHITE).startswith(b"}") else b","
    return text[:start] + encode(key) + b":" + encode(value) + comma + text[start:]


def fold(text: bytes, states: dict[str, str]) -> tuple[bytes, set[str]]:
    """Put the states of its snapshots into a message's text.

    Returns
    -------
    folded : bytes
        The text, changed in the values of these states alone.
    snapshots : set of str
        Whose states are in it now: those that the message owns.

    Notes
    -----
    Decision record: append-only review state, rewrite and archive folding.
    """
    record = decode_object(text)
    owned: set[str] = set()
    if record.get("role") != "tool":
        return text, owned
    for review in reviews(record):
        snapshot_id = review.get("snapshotId")
        if isinstance(snapshot_id, str) and snapshot_id in states:
            review["state"] = states[snapshot_id]
            owned.add(snapshot_id)
    folded = replaced(text, _state_edits(text, states))
    if not same_value(decode_object(folded), record):  # pragma: no cover
        return text, set()
    return folded, owned


def _state_edits(text: bytes, states: dict[str, str]) -> list[tuple[int, int, bytes]]:
    fields: dict[Path, dict[str, tuple[int, int]]] = {}
    edits = []
    for path, start, stop in values(text, text.index(b"{")):
        if _is_review(path):
            of_review = fields.pop(path, {})
            if "snapshotId" not in of_review:
                continue
            token = text[slice(*of_review["snapshotId"])]
            state = states.get(string(token)) if token[:1] == b'"' else None
            if state is None:
                continue
            new = encode(state)
            if "state" in of_review:
                edits.append((*of_review["state"], new))
            else:
                edits.append((start + 1, start + 1, b'"state":' + new + b","))
        elif len(path) > 1 and path[-1] in ("snapshotId", "state") and _is_review(path[:-1]):
            fields.setdefault(path[:-1], {})[str(path[-1])] = (start, stop)
    return edits


def _is_review(path: Path) -> bool:
    """Whether a path is one at which a message has a review record."""
    return (
        len(path) in (5, 6)
        and path[0] == "blocks"
        and isinstance(path[1], int)
        and path[2:4] == ("result", "details")
        and (
            path[4:] == ("review",)
            or (len(path) == 6 and path[4] == "reviews" and isinstance(path[5], int))
        )
    )
