"""A fork: the beginning of a session under new ids, everything else byte for byte.

Messages and tool calls get new ids wherever the format refers to one; text that only
looks like an id is left alone. Review states are folded, the bookkeeping of branches
stays behind with the archive that it is about, and a compaction comes along if its
boundary does. Decision record: 0127, durable fork commit.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from ..decode import BYTE_ORDER_MARK, UndecodableError
from .jsonvalue import encode
from .records import decode_line, header_line, now
from .rewrite import Put, effective, plan
from .splice import Path, members, replaced, string, values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .journal import Journal

_CALL_KEYS = ("callId", "toolCallId")
_REFERENCES = frozenset({*_CALL_KEYS, "parentToolCallId", "messageId"})
_BOUNDARIES = (("throughMessageId",), ("firstKeptMessageId",))
_BRANCHING = frozenset({"revisionRootId", "revisionCount", "activeRevision"})
_OWN_HEADER = frozenset({"type", "schema", "sessionId", "createdAt", "title", "forkedFrom"})

Ids = dict[str, str]


def new_id() -> str:
    """Return an id that nothing has."""
    return uuid.uuid4().hex


def forked(
    journal: Journal, through: int | None, session_id: str, title: str | None
) -> Iterator[bytes]:
    """Yield the lines of a fork.

    Parameters
    ----------
    journal : Journal
        The parent.
    through : int, optional
        Position of the last message that comes along; without it, all do.
    session_id, title : str
        The child's; without a title, the parent's.
    """
    count = journal.message_count if through is None else through + 1
    positions = _shown(journal, count)
    messages = effective(journal, [last for _, last in positions])
    ids = _new_ids([message.record for message in messages])
    order = []
    for (first, _), message in zip(positions, messages, strict=True):
        line = _message(message.text, ids) + b"\n"
        order.append(Put(line, ids.get(str(message.record.get("id")), ""), first))
    stop = journal.layout.file_len
    if through is not None:
        stop = journal.layout.messages.at(through)[1]
    boundary = messages[-1].record.get("id") if messages else None
    yield _header(journal, session_id, title, boundary)
    for piece in plan(journal, order, cut=stop):
        if piece == BYTE_ORDER_MARK:
            continue  # the child has a beginning of its own
        if isinstance(piece, bytes):
            yield piece
            continue
        for line in journal.read(*piece).split(b"\n")[:-1]:
            yield from _other(line, ids)


def _shown(journal: Journal, count: int) -> list[tuple[int, int]]:
    """Return the positions of the messages before `count`: a repeated id's first and last."""
    found: dict[object, tuple[int, int]] = {}
    for position in range(count):
        record = journal.stored(position)
        if record is None:
            continue
        message_id = journal.transcript.dialect.id(record)
        if not message_id:
            found[position] = (position, position)
        elif message_id not in found:
            last = journal.position(message_id)
            found[message_id] = (position, position if last is None else last)
    return list(found.values())


def _new_ids(messages: list[dict[str, Any]]) -> Ids:
    ids: Ids = {}
    for message in messages:
        blocks = message.get("blocks")
        calls = [
            block.get(key)
            for block in (blocks if isinstance(blocks, list) else [])
            if isinstance(block, dict)
            for key in _CALL_KEYS
        ]
        for old in (message.get("id"), *calls):
            if isinstance(old, str) and old:
                ids.setdefault(old, new_id())
    return ids


def _header(journal: Journal, session_id: str, title: str | None, boundary: object) -> bytes:
    parent = journal.header() or {}
    if title is None and isinstance(parent.get("title"), str):
        title = parent["title"]
    origin = {"sessionId": journal.session_id}
    if isinstance(boundary, str):
        origin["throughMessageId"] = boundary
    more = {key: value for key, value in parent.items() if key not in _OWN_HEADER}
    return header_line(session_id, now(), title, forkedFrom=origin, **more)


def _message(text: bytes, ids: Ids) -> bytes:
    edits = []
    for path, start, stop in values(text):
        if path == ("meta",):
            edits += _without_branching(text, start, stop)
        elif path == ("id",) or _refers(path):
            edits += _renamed(text, start, stop, ids)
    return replaced(text, edits)


def _refers(path: Path) -> bool:
    """Whether a path in a message is one where the format refers to a message or a call."""
    if not path or path[-1] not in _REFERENCES:
        return False
    if path[0] == "meta":
        return len(path) == 2
    if path[0] != "blocks" or len(path) == 1:
        return False
    # what a tool was asked and what it said is its own, but for the review records
    return len(path) == 3 or path[2:4] == ("result", "details")


def _renamed(text: bytes, start: int, stop: int, ids: Ids) -> list[tuple[int, int, bytes]]:
    token = text[start:stop]
    new = ids.get(string(token)) if token[:1] == b'"' else None
    return [] if new is None else [(start, stop, encode(new))]


def _without_branching(text: bytes, start: int, stop: int) -> list[tuple[int, int, bytes]]:
    meta = text[start:stop]
    if meta[:1] != b"{":
        return []
    kept = [(key, meta[a:b]) for key, a, b in members(meta)]
    if not any(key in _BRANCHING for key, _ in kept):
        return []
    parts = [encode(key) + b":" + raw for key, raw in kept if key not in _BRANCHING]
    return [(start, stop, b"{" + b",".join(parts) + b"}")]


def _other(line: bytes, ids: Ids) -> Iterator[bytes]:
    """Yield what becomes of a line that is no message: the header stays with the parent."""
    try:
        record = decode_line(line, 0)
    except UndecodableError:
        yield line + b"\n"
        return
    if record.get("type") == "compaction":
        line = _compaction(line, ids)
    if record.get("type") != "session":
        yield line + b"\n"


def _compaction(text: bytes, ids: Ids) -> bytes:
    edits = []
    for path, start, stop in values(text, text.index(b"{")):
        in_tail = path[:1] == ("retainedTail",) and (
            isinstance(path[-1], int) or path[-1] in ("id", *_REFERENCES)
        )
        if path in _BOUNDARIES or in_tail:
            edits += _renamed(text, start, stop, ids)
    return replaced(text, edits)
