"""What lies on the disk, read in the plainest way: split at newlines, every line parsed."""

from __future__ import annotations

import copy
import functools
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from .model import Branch, Key, SessionModel

TRANSCRIPT = ".jsonl"
REVISIONS = ".revisions.jsonl"


class Remains(NamedTuple):
    """A session's files.

    Attributes
    ----------
    session : SessionModel
        What they say.
    damaged : int
        Complete lines that are no object.
    torn : bytes
        What stands behind the last newline of the transcript.
    positions : list of (str or None)
        The ids of the message lines; None for one that is damaged.
    """

    session: SessionModel
    damaged: int
    torn: bytes
    positions: list[str | None]


def session_ids(directory: Path) -> list[str]:
    """Return the sessions that have a transcript in a data directory."""
    names = os.listdir(directory / "sessions")
    return sorted(
        name.removesuffix(TRANSCRIPT)
        for name in names
        if name.endswith(TRANSCRIPT) and not name.endswith(REVISIONS)
    )


def transcript_path(directory: Path, session_id: str) -> Path:
    """Return where a session's transcript lies."""
    return directory / "sessions" / (session_id + TRANSCRIPT)


def strays(directory: Path) -> list[str]:
    """Return the temporary files in a data directory."""
    return sorted(name for name in os.listdir(directory / "sessions") if name.endswith(".tmp"))


def orphans(directory: Path, session_id: str) -> list[str]:
    """Return the files of a session besides its transcript."""
    names = os.listdir(directory / "sessions")
    return [n for n in names if n.startswith(session_id + ".") and n != session_id + TRANSCRIPT]


def reviews_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the review records in a message."""
    found = []
    for block in message["blocks"] if message.get("role") == "tool" else ():
        details = block.get("result", {}).get("details", {})
        found += [details["review"]] if "review" in details else []
        found += details.get("reviews", [])
    return found


def read(directory: Path, session_id: str) -> Remains:
    """Return what the files of a session say."""
    transcript = _bytes(transcript_path(directory, session_id))
    archive = _bytes(directory / "sessions" / (session_id + REVISIONS))
    return copy.deepcopy(_read(transcript, archive))


# files are asked about again and again between changes; the bytes decide, not their times
@functools.lru_cache(maxsize=16)
def _read(transcript: bytes, archive: bytes) -> Remains:
    *lines, torn = transcript.split(b"\n")
    session = SessionModel("")
    positions: list[str | None] = []
    states: dict[tuple[str, str], str] = {}
    damaged = 0
    for line in lines:
        record = _object(line)
        if record is None:
            damaged += bool(line.strip())
            if line.startswith(b'{"type":"message"'):
                positions.append(None)
            continue
        kind = record.pop("type", None)
        if kind == "session":
            session.title = record.get("title", "")
        elif kind == "message":
            session.messages.append(record)
            positions.append(record["id"])
        elif kind == "compaction":
            session.compactions.append(record)
        elif kind == "tool_review_state":
            states[record["messageId"], record["snapshotId"]] = record["state"]
    for message in session.messages:
        for review in reviews_of(message):
            said = states.get((message["id"], review["snapshotId"]))
            review["state"] = review["state"] if said is None else said
    session.damaged = positions.count(None)
    _read_archive(archive, session)
    return Remains(session, damaged, torn, positions)


def _read_archive(data: bytes, session: SessionModel) -> None:
    for line in data.split(b"\n")[:-1]:
        record = _object(line)
        if record is None or record["type"] == "aside":
            continue
        key: Key = record["rootUserId"], record["revisionIndex"]
        session.archive[key] = None
        if record["type"] == "revision":
            messages: Branch = record["messages"]
            for message in messages:
                message.pop("type", None)
            session.archive[key] = session.stored[key] = messages
            session.places.pop(key, None)
            if "followsMessageId" in record:
                session.places[key] = record["followsMessageId"]


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def index_rows(directory: Path) -> dict[str, tuple[Any, ...]]:
    """Return what the index says of each session: title, messages, branches."""
    with closing(sqlite3.connect(directory / "index.sqlite")) as db:
        found: dict[str, tuple[Any, ...]] = {}
        for session_id, title, count in db.execute(
            "SELECT id, title, message_count FROM sessions"
        ).fetchall():
            messages = db.execute(
                "SELECT seq, id, turn_id, role FROM messages WHERE session_id = ? ORDER BY seq",
                (session_id,),
            ).fetchall()
            branches = db.execute(
                "SELECT root_user_id, revision_index FROM revisions WHERE session_id = ?"
                " ORDER BY root_user_id, revision_index",
                (session_id,),
            ).fetchall()
            found[session_id] = (title, count, messages, branches)
        others = db.execute(
            "SELECT session_id FROM messages UNION SELECT session_id FROM revisions"
        ).fetchall()
    for (session_id,) in others:
        found.setdefault(session_id, ())
    return found
