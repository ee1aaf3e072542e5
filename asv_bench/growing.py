"""What is measured at every size: the operations, over transcripts that differ in length alone.

All sizes of one operation are measured in the same rounds, so what disturbs the machine
disturbs all of them. Reading comes first, over files as they were generated; the writing
that follows only ever appends.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

import mmapstore

from . import measure
from .measure import interleave, timed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .measure import Contender
    from .sized import Sized

#: how far the full sequential read is taken
READ_NBYTES = 256_000_000

COLD, READ = "cold open", "orjson.loads of every line"
CACHED, WINDOW, DECODED = "cached open", "warm window", "decoded window"
APPEND, REVIEW = "durable append by a host", "review state by a host"
OWN, FOREIGN = "refresh, own append", "refresh, another's append"

#: what each operation is, in the order in which they are shown
OPERATIONS = {
    READ: "read the file from its beginning, decode every line, keep the newest 100",
    COLD: "open a file that was never seen, without a cache: one pass over its bytes",
    CACHED: "open with a cached layout, newest 100, first line touched",
    WINDOW: "refresh of an unchanged file, newest 100, first line touched",
    DECODED: "newest 100, decoded",
    APPEND: "append a message of 1 KB; it is on the disk when the call returns",
    REVIEW: "change one review state of a tool message; on the disk, too",
    OWN: "take in an append that this process has made",
    FOREIGN: "refresh after an append that another writer has made, trust='append-only'",
}

_APPENDED_NBYTES = 1000
# Short batches and many rounds: on a machine with others on it, few long ones are undisturbed.
_WINDOWS = 20
_READER_CALLS = 5


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often everything is measured.

    Attributes
    ----------
    passes, looks, writes, refreshes : int
        Rounds of what reads the whole file, of what answers out of a layout, of a host that
        writes about 1 KB a round, and of a reader for whom 25 KB are written.
    """

    passes: int
    looks: int
    writes: int
    refreshes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operation costs at one size.

    Attributes
    ----------
    operation : str
        One of :data:`OPERATIONS`.
    nbytes : int
        The size.
    ns : float
        Least of all rounds.
    disk_nbytes : int
        What the disk had to give in that round, where that was looked at.
    """

    operation: str
    nbytes: int
    ns: float
    disk_nbytes: int = 0


def costs(files: Sequence[Sized], rounds: Rounds) -> Iterator[Cost]:
    """Measure every operation at every size."""
    yield from _passes(files, rounds.passes)
    with tempfile.TemporaryDirectory() as cache_dir:
        for one in files:
            # its identities are kept, too: a writer asks whether an id is there
            with mmapstore.open(one.path, cache_dir=cache_dir) as transcript:
                transcript.position("")
        yield from _windows(files, Path(cache_dir), rounds.looks)
        yield from _writes(files, rounds.writes)
        yield from _refreshes(files, Path(cache_dir), rounds.refreshes)


def _passes(files: Sequence[Sized], rounds: int) -> Iterator[Cost]:
    """Measure what reads the whole file."""
    fetched: dict[tuple[str, int], list[int]] = defaultdict(list)

    def watched(key: tuple[str, int], contender: Contender) -> Contender:
        def batch() -> float:
            before = disk_nbytes()
            ns = contender()
            fetched[key].append(disk_nbytes() - before)
            return ns

        return batch

    contenders = {(COLD, one.nbytes): measure.cold_layout(one.path) for one in files}
    for one in files:
        if one.nbytes <= READ_NBYTES:
            contenders[READ, one.nbytes] = timed(measure.sequential_read(one.path))
    samples = _interleaved(
        {key: watched(key, contender) for key, contender in contenders.items()}, rounds
    )
    for key, ns in samples.items():
        # the round that does not count has fetched, too
        least = ns.index(min(ns))
        yield Cost(*key, ns[least], fetched[key][1 + least])


def _windows(files: Sequence[Sized], cache_dir: Path, rounds: int) -> Iterator[Cost]:
    """Measure what answers out of a layout."""
    yield from _least(
        CACHED,
        {one: timed(measure.reopened(one.path, cache_dir), warm=True) for one in files},
        rounds,
    )
    with ExitStack() as stack:
        opened = {
            one: stack.enter_context(mmapstore.open(one.path, cache_dir=cache_dir)) for one in files
        }
        for operation, ask, calls in (
            (WINDOW, measure.warm_window, _WINDOWS),
            (DECODED, measure.decoded_window, 1),
        ):
            contenders = {
                one: timed(ask(transcript), calls, warm=True) for one, transcript in opened.items()
            }
            yield from _least(operation, contenders, rounds)


def _writes(files: Sequence[Sized], rounds: int) -> Iterator[Cost]:
    """Measure a host that writes, one for each file, all of them open."""
    with ExitStack() as stack:
        hosts = {one: stack.enter_context(mmapstore.Host(one.data_dir)) for one in files}
        for operation, ask in ((APPEND, _appending), (REVIEW, _reviewing)):
            contenders = {one: ask(host, one.session) for one, host in hosts.items()}
            yield from _least(operation, contenders, rounds)


def _refreshes(files: Sequence[Sized], cache_dir: Path, rounds: int) -> Iterator[Cost]:
    """Measure a reader that takes in what was appended."""
    with ExitStack() as stack:
        opened = {
            one: stack.enter_context(
                mmapstore.open(one.path, cache_dir=cache_dir, trust="append-only")
            )
            for one in files
        }
        for operation, ask in ((OWN, measure.appended), (FOREIGN, _growing)):
            contenders = {one: ask(transcript, stack) for one, transcript in opened.items()}
            yield from _least(operation, contenders, rounds)


def _least(operation: str, contenders: dict[Sized, Contender], rounds: int) -> Iterator[Cost]:
    keyed = {(operation, one.nbytes): contender for one, contender in contenders.items()}
    for key, ns in _interleaved(keyed, rounds).items():
        yield Cost(*key, min(ns))


def _interleaved(
    contenders: dict[tuple[str, int], Contender], rounds: int
) -> dict[tuple[str, int], list[float]]:
    """Return the samples of contenders that are known by operation and size."""
    names = {f"{operation}, {nbytes}": (operation, nbytes) for operation, nbytes in contenders}
    samples = interleave({name: contenders[key] for name, key in names.items()}, rounds)
    return {names[name]: ns for name, ns in samples.items()}


def _appending(host: mmapstore.Host, session: str) -> Contender:
    numbers = count()

    def append() -> None:
        host.append_message(session, _message(f"appended-{next(numbers)}"))

    return timed(append)


def _reviewing(host: mmapstore.Host, session: str) -> Contender:
    review = {"snapshotId": "snapshot", "state": "active"}
    message = _message("reviewed") | {"role": "tool"}
    message["blocks"] = [{"type": "tool_call", "result": {"details": {"review": review}}}]
    host.append_message(session, message)
    numbers = count(1)

    def change() -> None:
        state = ("active", "rolledBack")[next(numbers) % 2]
        if not host.set_review_state(session, "reviewed", "snapshot", state):
            raise AssertionError(state)

    return timed(change)


def _growing(transcript: mmapstore.Transcript, stack: ExitStack) -> Contender:
    """Return a refresh after an append of 1 KB, the append itself not counted."""
    fd = os.open(transcript.path, os.O_WRONLY | os.O_APPEND)
    stack.callback(os.close, fd)
    numbers = count()

    def batch() -> float:
        taken = 0
        for _ in range(_READER_CALLS):
            message = _message(f"grown-{next(numbers)}")
            os.write(fd, orjson.dumps({"type": "message", **message}) + b"\n")
            start = time.perf_counter_ns()
            found = transcript.refresh()
            taken += time.perf_counter_ns() - start
            if found.name != "APPENDED":
                raise AssertionError(found)
        return taken / _READER_CALLS

    return batch


def _message(message_id: str) -> dict[str, Any]:
    text = "x" * (_APPENDED_NBYTES - 100 - len(message_id))
    return {"id": message_id, "role": "user", "blocks": [{"type": "text", "text": text}]}


def disk_nbytes() -> int:
    """Return what this process has had the disk fetch so far; 0 where the system does not say."""
    with suppress(OSError), open("/proc/self/io", encoding="ascii") as rows:
        for row in rows:
            name, _, value = row.partition(": ")
            if name == "read_bytes":
                return int(value)
    return 0
