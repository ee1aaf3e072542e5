"""The operations that two versions of the library are compared by: one for each hot path.

An operation is prepared once in a process and then asked for batches; only what the row is
about is timed. It takes nothing but the library's public names, each where it is used, so
that a version that lacks one lacks that row and no other. The files are small: what is
compared are two versions, not a version and a limit.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from itertools import count, repeat
from typing import TYPE_CHECKING, Any

import orjson

from .batches import Spent, in_one_go, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from .batches import Batch, Workbench

WINDOW_COUNT = 100
_LOOKUPS = 100
_SESSIONS = 300
_BATCH_MESSAGES = 100


def specs() -> dict[str, Any]:
    """Return what the files hold, by name."""
    # the side that measures only reads them: it need not load the generator
    from tools.gen_synthetic import MILLION, RECORDS_LARGE, SHORT_LINES, Spec

    records = replace(RECORDS_LARGE, messages=1500, nbytes=16_000_000)
    return {
        "compared-first": records,
        "compared-last": replace(records, key_order="last"),
        "compared-short": replace(SHORT_LINES, messages=11_400, nbytes=16_000_000),
        "compared-claude": Spec(
            messages=3500, nbytes=16_000_000, shape="claude", compactions=5, escaped=0.5
        ),
        "compared-many": replace(MILLION, messages=100_000, nbytes=30_000_000),
        "compared-session": replace(records, messages=200, nbytes=2_000_000),
    }


# -- reading ------------------------------------------------------------------------------


def _cold(name: str) -> Callable[[Workbench], Batch]:
    def prepare(bench: Workbench) -> Batch:
        import mmapstore

        path = bench.paths[name]
        return in_one_go(lambda: mmapstore.open(path, cache_dir=None).close())

    return prepare


def _opened(bench: Workbench, name: str, **options: Any) -> Any:
    import mmapstore

    return bench.stack.enter_context(mmapstore.open(bench.paths[name], cache_dir=None, **options))


def _window(bench: Workbench) -> Batch:
    transcript = _opened(bench, "compared-first")

    def run() -> object:
        transcript.refresh()
        return transcript.window(limit=WINDOW_COUNT).lines[0][0]

    return in_one_go(run)


def _decoded(bench: Workbench) -> Batch:
    transcript = _opened(bench, "compared-first")
    return in_one_go(lambda: transcript.window(limit=WINDOW_COUNT).messages)


def _lookup(bench: Workbench) -> Batch:
    transcript = _opened(bench, "compared-many")
    total = transcript.message_count
    # spread over the file, in an order that no cache of the processor foresees
    ids = [transcript.message_id(number * 7919 * 1009 % total) for number in range(_LOOKUPS)]
    return in_one_go(lambda: [transcript.position(each) for each in ids])


def _reopen(bench: Workbench) -> Batch:
    import mmapstore

    path, cache = bench.paths["compared-many"], bench.scratch / "cache"
    mmapstore.open(path, cache_dir=cache).close()
    assert mmapstore.open(path, cache_dir=cache).cache == "hit"

    def run() -> object:
        return mmapstore.open(path, cache_dir=cache).window(limit=WINDOW_COUNT).lines[0][0]

    return in_one_go(run)


def _line(number: int) -> dict[str, Any]:
    return {"id": f"new-{number}", "role": "user", "blocks": [{"type": "text", "text": "x" * 900}]}


def _grown(bench: Workbench) -> Batch:
    import mmapstore

    path = bench.copied("compared-first", bench.scratch / "grown.jsonl")
    transcript = bench.stack.enter_context(
        mmapstore.open(path, cache_dir=None, trust="append-only")
    )
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    bench.stack.callback(os.close, fd)
    numbers = count()

    def append() -> None:
        os.write(fd, orjson.dumps({"type": "message", **_line(next(numbers))}) + b"\n")

    def refresh(_: None) -> None:
        assert transcript.refresh()

    return one_by_one(append, refresh)


def _listing(bench: Workbench) -> Batch:
    from mmapstore.sessions import listing

    home = bench.scratch / "sessions"
    lines = bench.paths["compared-session"].read_bytes()[:200_000].splitlines(keepends=True)
    for number in range(_SESSIONS):
        path = home / f"project-{number % 10}" / f"{number:04d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines[: 1 + number % 3]))
    assert len(listing([str(home)]).sessions) == _SESSIONS
    return in_one_go(lambda: listing([str(home)]))


# -- a host -------------------------------------------------------------------------------


def _host(bench: Workbench, name: str) -> tuple[Any, str]:
    import mmapstore

    bench.copied(name, bench.scratch / "host" / "sessions" / "session.jsonl")
    return bench.stack.enter_context(mmapstore.Host(bench.scratch / "host")), "session"


def _append(bench: Workbench) -> Batch:
    host, session = _host(bench, "compared-first")
    numbers = count()
    return one_by_one(
        lambda: _line(next(numbers)), lambda message: host.append_message(session, message)
    )


def _append_batch(bench: Workbench) -> Batch:
    host, session = _host(bench, "compared-first")
    numbers = count()
    return one_by_one(
        lambda: [_line(next(numbers)) for _ in range(_BATCH_MESSAGES)],
        lambda messages: host.append_messages(session, messages),
    )


def _review(bench: Workbench) -> Batch:
    host, session = _host(bench, "compared-first")
    review = {"snapshotId": "s", "state": "active"}
    blocks = [{"type": "tool_call", "result": {"details": {"review": review}}}]
    host.append_message(session, {"id": "tool", "role": "tool", "blocks": blocks})
    numbers = count(1)

    def change(state: str) -> None:
        assert host.set_review_state(session, "tool", "s", state)

    return one_by_one(lambda: ("active", "rolledBack")[next(numbers) % 2], change)


def _update(bench: Workbench) -> Batch:
    host, session = _host(bench, "compared-session")
    host.append_message(session, _line(0))
    numbers = count()

    def changed() -> dict[str, Any]:
        return {**_line(0), "blocks": [{"type": "text", "text": f"{next(numbers):09d}"}]}

    return one_by_one(changed, lambda message: host.update_message(session, message))


def _truncate(bench: Workbench) -> Batch:
    host, session = _host(bench, "compared-session")
    numbers = count()

    def appended() -> str:
        message = _line(next(numbers))
        host.append_message(session, message)
        return str(message["id"])

    return one_by_one(
        appended, lambda message_id: host.truncate_from(session, message_id=message_id)
    )


# -- processes ----------------------------------------------------------------------------


def _interpreter(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def _import(bench: Workbench) -> Batch:
    # Timed inside the interpreter: its own start and numpy's are many times what is asked for.
    code = (
        "import time, numpy, orjson; cpu, elapsed = time.process_time_ns(), time.perf_counter_ns(); "
        "import mmapstore; print(time.process_time_ns() - cpu, time.perf_counter_ns() - elapsed)"
    )

    def batch(number: int) -> Spent:
        runs = [_interpreter("-c", code).split() for _ in range(number)]
        return Spent(*(sum(map(float, clock)) / number for clock in zip(*runs, strict=True)))

    return batch


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e9


def _command(bench: Workbench) -> Batch:
    path = str(bench.paths["compared-session"])

    def batch(number: int) -> Spent:
        before, start = _children_cpu(), time.perf_counter_ns()
        for _ in repeat(None, number):
            _interpreter("-m", "mmapstore", "info", path)
        cpu, elapsed = _children_cpu() - before, time.perf_counter_ns() - start
        return Spent(cpu / number, elapsed / number)

    return batch


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of a comparison.

    Attributes
    ----------
    prepare : callable
        Given a workbench, returns the batch.
    what : str
        What one operation is.
    number, turns : int
        Operations in a batch, and turns of a pair. A batch is as short as the clock and the
        pipe between two of them allow: the shorter, the likelier that nothing disturbs it.
    waits : bool
        Whether it waits for a disk, and elapsed time is a row, too.
    elsewhere : bool
        Whether it is done by another process, whose calls are not counted.
    """

    prepare: Callable[[Workbench], Batch]
    what: str
    number: int = 1
    turns: int = 100
    waits: bool = False
    elsewhere: bool = False

    @property
    def clocks(self) -> tuple[str, ...]:
        """The clocks that it is compared by."""
        return Spent._fields if self.waits else ("cpu",)


OPERATIONS = {
    "cold_type_first": Operation(_cold("compared-first"), "first scan, type first in a line"),
    "cold_type_last": Operation(_cold("compared-last"), "first scan, type last in a line"),
    "cold_short_lines": Operation(_cold("compared-short"), "first scan, lines of 1.4 KB", turns=60),
    "cold_claude": Operation(_cold("compared-claude"), "first scan, Claude lines", turns=40),
    "window": Operation(_window, "refresh of an unchanged file, window of 100, first line", 100),
    "decoded": Operation(_decoded, "window of 100, decoded"),
    "lookup": Operation(_lookup, "100 positions of ids among 100,000 messages"),
    "grown": Operation(_grown, "refresh after an append of 1 KB, trusted", 10),
    "reopen": Operation(_reopen, "open with a cached layout, window of 100, first line", 5),
    "append": Operation(_append, "durable append of 1 KB by a host", 2, waits=True),
    "append_batch": Operation(
        _append_batch, "durable append of 100 of them at once", turns=60, waits=True
    ),
    "review": Operation(_review, "change of a review state", 2, waits=True),
    "update": Operation(_update, "rewrite of a message in 2 MB", turns=40, waits=True),
    "truncate": Operation(_truncate, "cut of the last message of 2 MB", turns=40, waits=True),
    "listing": Operation(_listing, "list of 300 sessions, second time", turns=80),
    "import": Operation(_import, "import, above numpy and orjson", turns=6, elsewhere=True),
    "command": Operation(_command, "info as a command, the whole process", turns=4, elsewhere=True),
}
