"""Following: what a follower pays for a poll that finds nothing, and for a line that arrived.

A poll is one turn of the iteration with nothing to wait for in between, so no clock of the
waiting is in the number; an arrived line is one write and the window that it becomes.
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

import mmapstore

from . import measure

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

#: polls in one call, so that beginning to follow is a hundredth of it
POLLS = 100

_TEXT_NBYTES = 900


def copied(path: Path, directory: Path, stack: ExitStack) -> mmapstore.Transcript:
    """Return a transcript of a copy, which is only appended to."""
    copy = directory / path.name
    shutil.copyfile(path, copy)
    return stack.enter_context(mmapstore.open(copy, cache_dir=None, trust="append-only"))


def polled(transcript: mmapstore.Transcript) -> Callable[[], object]:
    """Return following a transcript for some polls in which nothing has changed."""

    def run() -> None:
        left = iter(range(POLLS))
        for _ in transcript.follow(wait=lambda: next(left, None) is not None):
            raise AssertionError(transcript.path)

    return run


def stat_calls(transcript: mmapstore.Transcript) -> Callable[[], object]:
    """Return the floor of as many polls: one ``stat`` each."""
    path = transcript.path

    def run() -> None:
        for _ in range(POLLS):
            os.stat(path)

    return run


def arrived(transcript: mmapstore.Transcript, stack: ExitStack) -> Callable[[], object]:
    """Return writing one line of 1 KB and taking it from the follower, decoded."""
    write = appender(transcript.path, stack)
    follower = transcript.follow(wait=lambda: False)

    def run() -> object:
        write()
        (message,) = next(follower).messages
        return message

    return run


def appender(path: str | os.PathLike[str], stack: ExitStack) -> Callable[[], object]:
    """Return the floor of an arrived line: the write alone."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    stack.callback(os.close, fd)
    text = "x" * _TEXT_NBYTES
    numbers = count()

    def run() -> None:
        record = {"type": "message", "id": f"new-{next(numbers)}", "role": "user"}
        os.write(fd, orjson.dumps({**record, "blocks": [{"type": "text", "text": text}]}) + b"\n")

    return run


def poll_by_stat(path: Path, directory: Path, stack: ExitStack, rounds: int) -> float:
    """Return what a poll in which nothing changed costs, in calls of ``stat``."""
    transcript = copied(path, directory, stack)
    samples = measure.interleave(
        {
            "poll": measure.timed(polled(transcript), warm=True),
            "stat": measure.timed(stat_calls(transcript), warm=True),
        },
        rounds,
    )
    return measure.ratio(samples, "poll", "stat")[0]


def line_by_history(
    small: Path, large: Path, directory: Path, stack: ExitStack, rounds: int, number: int
) -> float:
    """Return what an arrived line costs behind a long history, by the same behind a short one."""
    samples = measure.interleave(
        {
            name: measure.timed(arrived(copied(path, directory, stack), stack), number, warm=True)
            for name, path in (("small", small), ("large", large))
        },
        rounds,
    )
    return measure.ratio(samples, "large", "small")[0]
