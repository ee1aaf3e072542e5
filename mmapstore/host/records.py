"""Records to lines: what the format allows, spelled so that it is read back as it was given.

Nothing is written before it has been checked here. Where a line changes, a field that
keeps its value keeps its bytes.
"""

from __future__ import annotations

import datetime
import functools
import re
import time
from typing import Any

from ..decode import decode_object, without_mark
from ..errors import InvalidRecordError, InvalidSessionIdError
from ..identity import addressed_offset
from .jsonvalue import encode, encode_line, same_value
from .splice import members

SCHEMA = 2
ROLES = ("user", "assistant", "tool", "system")

_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
_TIME = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)"
    r"(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)


def check_session_id(session_id: object) -> str:
    """Return a session id that is allowed as a file name, or raise :class:`InvalidSessionIdError`."""
    if not isinstance(session_id, str) or not _SESSION_ID.fullmatch(session_id):
        raise InvalidSessionIdError(
            f"{session_id!r:.100} is no session id",
            hint="ids are 1 to 200 of A-Z a-z 0-9 - _",
        )
    return session_id


def now() -> str:
    """Return the time as records have it: RFC 3339, UTC, milliseconds."""
    return rfc3339(time.time_ns())


def rfc3339(ns: int) -> str:
    """Return a Unix time as records have it."""
    s, ms = divmod(ns // 1_000_000, 1000)
    return f"{_second(s)}.{ms:03d}Z"


@functools.lru_cache(maxsize=8)
def _second(s: int) -> str:
    # most records are made in the same second as the one before
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(s))


def instant(text: object) -> datetime.datetime | None:
    """Return the instant that a record's time names, or None if it names none."""
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        return None
    try:
        return datetime.datetime.fromisoformat(text.upper().replace(" ", "T"))
    except ValueError:  # the 30th of February, a leap second
        return None


def decode_line(line: bytes | memoryview, offset: int) -> dict[str, Any]:
    """Return the object of a line at a file offset, or raise :class:`UndecodableError`."""
    view = memoryview(line)
    return decode_object(view if offset else without_mark(view))


# -- fields -----------------------------------------------------------------------------


def _text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _time(value: object) -> bool:
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def _own_id(value: object) -> bool:
    # what begins so may be the address of a message without an id
    return (
        isinstance(value, str)
        and value != ""
        and (value[0] != "@" or addressed_offset(value) is None)
    )


_MESSAGE_FIELDS = {
    "type": lambda value: value == "message",
    "id": _own_id,
    "role": lambda value: isinstance(value, str) and value in ROLES,
    "toolName": lambda value: isinstance(value, str),
    "isError": lambda value: isinstance(value, bool),
    "meta": lambda value: isinstance(value, dict),
    "turnId": _text,
    "createdAt": _time,
}
_COMPACTION_FIELDS = {
    "type": lambda value: value == "compaction",
    "id": _text,
    "summary": _text,
    "throughMessageId": _text,
    "tokensBefore": _count,
    "firstKeptMessageId": _text,
    "tokensAfter": _count,
    "providerId": lambda value: isinstance(value, str),
    "modelId": lambda value: isinstance(value, str),
    "createdAt": _time,
}


_STRING = "a string that is not empty"
#: what a field has to be, in words
_ALLOWED = {
    "type": "the kind of the record",
    "id": f"{_STRING} and not an address like @20",
    "role": f"one of {', '.join(ROLES)}",
    "toolName": "a string",
    "isError": "true or false",
    "meta": "an object",
    "turnId": _STRING,
    "createdAt": "a time of RFC 3339, as 2026-01-31T12:00:00.000Z",
    "summary": _STRING,
    "throughMessageId": _STRING,
    "firstKeptMessageId": _STRING,
    "tokensBefore": "an integer from 0",
    "tokensAfter": "an integer from 0",
    "providerId": "a string",
    "modelId": "a string",
}


def _check(
    what: str,
    record: object,
    required: tuple[str, ...],
    fields: dict[str, Any],
    known: dict[str, Any],
) -> dict[str, Any]:
    if not isinstance(record, dict):
        message = f"a {what} is an object, not {type(record).__name__}"
        raise InvalidRecordError(message)
    for key in required:
        if key not in record:
            message = f"a {what} needs the field {key!r}"
            raise InvalidRecordError(message)
    for key, value in record.items():
        allowed = fields.get(key)
        if allowed is None or allowed(value):
            continue
        if key in known and same_value(known[key], value):
            continue  # it is there already; refusing it would forbid every other change
        raise InvalidRecordError(
            f"{value!r:.100} is no {key!r} of a {what}", hint=f"it is {_ALLOWED[key]}"
        )
    return record


def check_message(message: object, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a message that the format allows, or raise :class:`InvalidRecordError`.

    What a field has in `known`, the message that is there already, is allowed.
    """
    return _check("message", message, ("id", "role", "blocks"), _MESSAGE_FIELDS, known or {})


def check_text(name: str, value: object) -> str:
    """Return a string that is not empty, or raise :class:`InvalidRecordError`."""
    if not isinstance(value, str) or not value:
        raise InvalidRecordError(f"{value!r:.100} is no {name}", hint=f"it is {_STRING}")
    return value


# -- lines ------------------------------------------------------------------------------


def message_line(message: dict[str, Any], turn_id: str | None) -> bytes:
    """Return the line of a checked message; a turn that is given is the one that is written."""
    # the fields that come first keep their place, and the values that the message gives them
    record = {"type": "message", "id": None, **message}
    if turn_id is not None:
        record["turnId"] = turn_id
    if "createdAt" not in record:
        record["createdAt"] = now()
    return encode_line(record)


def changed_line(message: dict[str, Any], old: bytes, stored: dict[str, Any]) -> bytes:
    """Return the line of a checked message that takes the place of an old line.

    A field that has the old value has the old bytes; a turn and a time that are not given
    stay what they were.
    """
    kept = {key: stored[key] for key in ("turnId", "createdAt") if key in stored}
    new = {"type": "message", "id": stored["id"], **message, "type": "message"}  # noqa: F601
    for key, value in kept.items():
        new.setdefault(key, value)
    raw = {key: old[start:stop] for key, start, stop in members(old)}
    parts = [
        encode(key)
        + b":"
        + (raw[key] if key in raw and same_value(stored.get(key), value) else encode(value))
        for key, value in new.items()
    ]
    return b"{" + b",".join(parts) + b"}\n"


def header_line(session_id: str, created_at: str, title: str | None, **more: Any) -> bytes:
    """Return the first line of a transcript."""
    header: dict[str, Any] = {"type": "session", "schema": SCHEMA, "sessionId": session_id}
    header["createdAt"] = created_at
    if title is not None:
        header["title"] = title
    return encode_line({**header, **more})


def compaction_line(record: object) -> bytes:
    """Return the line of a compaction, or raise :class:`InvalidRecordError`."""
    required = ("id", "summary", "throughMessageId", "tokensBefore")
    checked = _check("compaction", record, required, _COMPACTION_FIELDS, {})
    line = {"type": "compaction", "id": None, **checked}
    line.setdefault("createdAt", now())
    return encode_line(line)


def review_line(message_id: str, snapshot_id: str, state: str) -> bytes:
    """Return the line that says a snapshot's state."""
    record = {"type": "tool_review_state", "messageId": message_id, "snapshotId": snapshot_id}
    return encode_line({**record, "state": state})


def same_message(given: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether a message that is given is the one that is stored.

    Its type and its turn do not matter, nor does a time that is not given.
    """
    aside = {"type", "turnId"} | ({"createdAt"} if "createdAt" not in given else set())
    return same_value(
        {key: value for key, value in given.items() if key not in aside},
        {key: value for key, value in stored.items() if key not in aside},
    )
