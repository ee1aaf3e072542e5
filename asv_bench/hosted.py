"""One session of a host, to be written to: the operations that the graphs of the host show.

The host's directory is made beside the measured files, so that what is written goes to the
same file system as with the promises.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mmapstore

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from .data import Files

BATCH = 1000
_TEXT_NBYTES = 850
_STATES = ("active", "rolledBack")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A host that has one session, a copy of a measured file."""

    host: mmapstore.Host
    session_id: str
    path: Path


def hosted(files: Files, name: str, stack: ExitStack) -> Hosted:
    """Return a host over a copy of a measured file."""
    source = files.path(name)
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=files.directory)))
    path = directory / "sessions" / f"{name}.jsonl"
    path.parent.mkdir()
    shutil.copyfile(source, path)
    return Hosted(stack.enter_context(mmapstore.Host(directory)), name, path)


def appends(session: Hosted) -> Callable[[], object]:
    """Return appending one durable message of 1 KB."""
    numbers = count()
    return lambda: session.host.append_message(session.session_id, _message(next(numbers)))


def batches(session: Hosted) -> Callable[[], object]:
    """Return appending :data:`BATCH` such messages in one go."""
    numbers = count()
    return lambda: session.host.append_messages(
        session.session_id, [_message(next(numbers)) for _ in range(BATCH)]
    )


def reviews(session: Hosted) -> Callable[[], object]:
    """Return setting the review state of one tool call, to and fro."""
    details = {"review": {"snapshotId": "s", "state": _STATES[0]}}
    blocks = [{"type": "tool_call", "result": {"details": details}}]
    message = {"id": "reviewed", "role": "tool", "blocks": blocks}
    session.host.append_message(session.session_id, message)
    states = cycle(reversed(_STATES))

    def run() -> None:
        state = next(states)
        assert session.host.set_review_state(session.session_id, "reviewed", "s", state)

    return run


def bare_writes(session: Hosted, stack: ExitStack, number: int = 1) -> Callable[[], object]:
    """Return the floor: as many bytes written and synced, in a file beside the session."""
    beside = session.path.with_name("bare")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stack.callback(os.close, fd)
    data = bytes(1000 * number)

    def run() -> None:
        os.write(fd, data)
        os.fdatasync(fd)

    return run


def _message(number: int) -> dict[str, Any]:
    # digits of one width: the count of bytes written must not grow with the number
    text = f"{number:08d}" + "x" * _TEXT_NBYTES
    return {
        "id": f"new-{number:08d}",
        "role": "user",
        "blocks": [{"type": "text", "text": text}],
    }
