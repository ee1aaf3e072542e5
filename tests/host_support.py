"""What the tests of the writing side share: messages, files as they lie, and ways to fail."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import fileio

AT = "2026-01-02T03:04:05.000Z"


def message(
    message_id: str, role: str = "assistant", text: str = "", **more: Any
) -> dict[str, Any]:
    blocks = [{"type": "text", "text": text or f"says {message_id}"}]
    return {"id": message_id, "role": role, "blocks": blocks, "createdAt": AT, **more}


def user(message_id: str, text: str = "", **more: Any) -> dict[str, Any]:
    return message(message_id, "user", text, **more)


def tool(message_id: str, *snapshots: str, state: str = "active", **more: Any) -> dict[str, Any]:
    """Return a tool message that owns snapshots: one alone, several in a list."""
    reviews = [{"snapshotId": name, "state": state, "path": "f"} for name in snapshots]
    details: dict[str, Any] = {"root": "workspace"}
    if len(reviews) == 1:
        details["review"] = reviews[0]
    elif reviews:
        details["reviews"] = reviews
    block = {"type": "tool_call", "callId": f"call-{message_id}", "result": {"details": details}}
    return {"id": message_id, "role": "tool", "blocks": [block], "createdAt": AT, **more}


def compaction(record_id: str, through: str, **more: Any) -> dict[str, Any]:
    return {
        "id": record_id,
        "summary": f"sum {record_id}",
        "throughMessageId": through,
        "tokensBefore": 7,
        "createdAt": AT,
        **more,
    }


def root_meta(family: str, count: int, active: int) -> dict[str, Any]:
    return {"revisionRootId": family, "revisionCount": count, "activeRevision": active}


def transcript(host: mmapstore.Host, session_id: str) -> Path:
    return Path(host.data_dir) / "sessions" / f"{session_id}.jsonl"


def revisions_file(host: mmapstore.Host, session_id: str) -> Path:
    return Path(host.data_dir) / "sessions" / f"{session_id}.revisions.jsonl"


def shown(host: mmapstore.Host, session_id: str) -> list[dict[str, Any]]:
    """Return the effective messages, without their type."""
    window = host.get_session(session_id, limit=None)
    found = copy.deepcopy(window.messages)
    for record in found:
        assert record.pop("type") == "message"
    return found


def ids(host: mmapstore.Host, session_id: str) -> list[str]:
    return [record["id"] for record in shown(host, session_id)]


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def states(record: dict[str, Any]) -> list[str]:
    details = record["blocks"][0]["result"]["details"]
    reviews = [details["review"]] if "review" in details else details.get("reviews", [])
    return [review["state"] for review in reviews]


class Died(BaseException):
    """The process ends here: nothing runs behind it."""


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, at: int, mode: str, only: str | None = None
) -> Iterator[list[str]]:
    """Let the call number `at` to the system fail; yield the names of the calls made.

    Parameters
    ----------
    mode : {"error", "short", "late", "die", "die after"}
        ``error``: refused. ``short``: half is written, then refused. ``late``: done and then
        reported as failed. ``die``: the process ends before the call, ``die after`` behind it.
    only : str, optional
        Count calls of this name alone.
    """
    made: list[str] = []
    dead = False

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal dead
            if dead:
                raise Died
            if any(".layout" in arg for arg in args if isinstance(arg, str)):
                return real(*args, **kwargs)  # a cache: not what this is about
            if only is not None and name != only:
                return real(*args, **kwargs)
            made.append(name)
            if len(made) - 1 != at:
                return real(*args, **kwargs)
            if mode == "die":
                dead = True
                raise Died
            if mode in ("short", "die short") and name == "append":
                fd, data = args
                os.write(fd, bytes(data)[: len(data) // 2])
            if mode == "die short":
                dead = True
                raise Died
            if mode == "late":
                real(*args, **kwargs)
            if mode == "die after":
                real(*args, **kwargs)
                dead = True
                raise Died
            raise OSError(errno.EIO, "injected")

        return call

    with monkeypatch.context() as patch:
        for name in ("append", "sync_data", "sync_directory"):
            patch.setattr(fileio, name, watched(name, getattr(fileio, name)))
        patch.setattr(os, "replace", watched("replace", os.replace))
        patch.setattr(os, "unlink", watched("unlink", os.unlink))
        yield made


def abandon(host: mmapstore.Host) -> None:
    """Let go of a host as the kernel does when its process dies."""
    host._lock_file.close()
    host._index.close()
