"""The promises of the host: what a durable line costs above the disk, whatever the history.

A host and a bare ``write`` and ``fdatasync`` take turns on the same file system, so a disk
that is busy is busy for both.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

import mmapstore

from .measure import interleave, ratio
from .verdict import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .data import Files
    from .measure import Contender
    from .promises import Effort

_US = 1e3
_BATCH = 1000
_LINE_NBYTES = 1000
_NUMBER = 20


@contextmanager
def _host(files: Files, *names: str) -> Iterator[tuple[mmapstore.Host, dict[str, str]]]:
    """Give a host that keeps the named files as sessions, and the id of each."""
    with tempfile.TemporaryDirectory(dir=files.directory) as directory:
        sessions = Path(directory, "sessions")
        sessions.mkdir()
        for name in names:
            shutil.copyfile(files.path(name), sessions / f"{name}.jsonl")
        with mmapstore.Host(directory) as host:
            yield host, {name: name for name in names}


def _message(number: int) -> dict[str, Any]:
    message = {"id": f"new-{number}", "role": "user", "blocks": [{"type": "text", "text": ""}]}
    text = "x" * (_LINE_NBYTES - len(orjson.dumps({"type": "message", **message})) - 45)
    return {**message, "blocks": [{"type": "text", "text": text}]}


def _each(
    operation: Callable[..., object],
    made: Callable[[], object] | None = None,
    number: int = _NUMBER,
) -> Contender:
    """Return a contender: the best of some calls, since a disk only ever adds.

    What `made` returns is what the call is given; making it is the caller's and not counted.
    """

    def batch() -> float:
        times = []
        for _ in range(number):
            given = () if made is None else (made(),)
            start = time.perf_counter_ns()
            operation(*given)
            times.append(time.perf_counter_ns() - start)
        return float(min(times))

    return batch


def appending(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure durable appends, one by one and in batches."""
    numbers = count()
    with _host(files, "records-small") as (host, ids), ExitStack() as stack:
        session = ids["records-small"]
        path = Path(host.data_dir, "bare")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stack.callback(os.close, fd)
        data = bytes(_LINE_NBYTES)

        def bare(times: int = 1) -> None:
            os.write(fd, data * times)
            os.fdatasync(fd)

        samples = interleave(
            {
                "host": _each(
                    lambda message: host.append_message(session, message),
                    lambda: _message(next(numbers)),
                ),
                "bare": _each(bare),
            },
            effort.warm,
        )
        batches = interleave(
            {
                "host": _each(
                    lambda messages: host.append_messages(session, messages),
                    lambda: [_message(next(numbers)) for _ in range(_BATCH)],
                    1,
                ),
                "bare": _each(lambda: bare(_BATCH), number=1),
            },
            effort.read,
        )
    us = {name: min(samples[name]) / _US for name in samples}
    detail = f"{us['host']:.0f} us by {us['bare']:.0f} us"
    yield Row("append", *ratio(samples, "host", "bare"), detail)
    best = {name: min(batches[name]) / _BATCH / _US for name in batches}
    detail = f"a bare write and sync of the same bytes {best['bare']:.1f} us a message"
    yield Row("append_batch", best["host"], detail=detail)


def reviewing(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure a review state over histories of two sizes, and count what it writes."""
    small, large = "records-small", "records-large"
    states = ("active", "rolledBack")
    written = {}
    with _host(files, small, large) as (host, ids):
        contenders = {}
        for name, session in ids.items():
            message = _message(0) | {"id": f"tool-{name}", "role": "tool"}
            review = {"snapshotId": "s", "state": "active"}
            message["blocks"] = [{"type": "tool_call", "result": {"details": {"review": review}}}]
            host.append_message(session, message)
            numbers = count(1)

            def review_state(
                session: str = session, name: str = name, numbers: Iterator[int] = numbers
            ) -> None:
                state = states[next(numbers) % 2]
                assert host.set_review_state(session, f"tool-{name}", "s", state)

            path = Path(host.data_dir, "sessions", f"{session}.jsonl")
            before = path.stat().st_size
            review_state()
            added = path.read_bytes()[before:]
            assert added.count(b"\n") == 1
            written[name] = len(added) - len(f"tool-{name}")
            contenders[name] = _each(review_state)
        samples = interleave(contenders, effort.warm)
    detail = f"{min(samples[large]) / _US:.0f} us by {min(samples[small]) / _US:.0f} us"
    yield Row("review_longer", *ratio(samples, large, small), detail)
    detail = f"{written[large]} bytes and the message's id, on either"
    yield Row("review_nbytes", written[large] / written[small], detail=detail)


#: in the order of the budget
PROMISES: tuple[Callable[[Files, Effort], Iterator[Row]], ...] = (appending, reviewing)
