"""Measuring: the contenders, and the rounds in which they are measured against each other.

Each round measures every contender once, in an order that rotates from round to
round, so that what disturbs the machine for a while disturbs all of them. Nothing
is compared across runs.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections import deque
from contextlib import contextmanager
from itertools import count, repeat
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

import mmapstore
from mmapstore.provenance import note_append
from mmapstore.stamp import stamp_of_open

from .compiled import MESSAGE_TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import ExitStack

    from .compiled import CompiledScan

    #: measures once, returns ns an operation
    Contender = Callable[[], float]
    #: ns an operation of each contender, one number a round
    Samples = dict[str, list[float]]

WINDOW_COUNT = 100
COMPILED_REPETITIONS = 2
_APPENDS = 20
_BARE_NBYTES = 1 << 18


def interleave(contenders: Mapping[str, Contender], rounds: int) -> Samples:
    """Return what each contender took in each of `rounds` rounds, after one that does not count.

    Garbage is collected between the rounds and not within them, for all alike: what one
    contender leaves behind must not be cleared away in the time of another.
    """
    names = list(contenders)
    samples: Samples = {name: [] for name in names}
    with _collector_held():
        for name in names:
            contenders[name]()
        for number in range(rounds):
            gc.collect()
            first = number % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(contenders[name]())
    return samples


@contextmanager
def _collector_held() -> Iterator[None]:
    gc.collect()
    # What is there already will still be there: a collection need not look at it each time.
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def ratio(samples: Samples, name: str, base: str) -> tuple[float, float]:
    """Return the ratio of the minima, and the median of the ratios of the rounds."""
    rounds = zip(samples[name], samples[base], strict=True)
    return min(samples[name]) / min(samples[base]), statistics.median(a / b for a, b in rounds)


def timed(operation: Callable[[], object], number: int = 1, *, warm: bool = False) -> Contender:
    """Return a contender that calls `operation` `number` times in one go.

    With `warm` a call that does not count comes first, so that a batch begins where the one
    before it ended, whatever was measured in between.
    """

    def batch() -> float:
        if warm:
            operation()
        start = time.perf_counter_ns()
        for _ in repeat(None, number):
            operation()
        return (time.perf_counter_ns() - start) / number

    return batch


def bare_pass(path: Path) -> Callable[[], object]:
    """Return the floor of every cold scan: readv through the file into one buffer."""
    buffer = bytearray(_BARE_NBYTES)

    def run() -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            while os.readv(fd, [buffer]):
                pass
        finally:
            os.close(fd)

    return run


def cold_layout(path: Path, repetitions: int = 1) -> Contender:
    """Return opening a transcript as a contender: one full scan, since no cache is used.

    The transcript is closed when the time has been taken: in use it stays open, and its
    mapping with it. Of several repetitions the best counts.
    """

    def once() -> int:
        start = time.perf_counter_ns()
        transcript = mmapstore.open(path, cache_dir=None)
        taken = time.perf_counter_ns() - start
        transcript.close()
        return taken

    return lambda: float(min(once() for _ in range(repetitions)))


def compiled_scan(program: CompiledScan, path: Path, dialect: str) -> Contender:
    """Return the compiled scan as a contender: the best of its passes by its own clock.

    More than one, because each run is a new process, and its first pass pays for that.
    """

    def batch() -> float:
        runs = program.run(path, MESSAGE_TYPES[dialect], repetitions=COMPILED_REPETITIONS)
        return float(min(runs["ns"]))

    return batch


def warm_window(transcript: mmapstore.Transcript) -> Callable[[], object]:
    """Return what a host does on every look: refresh, newest window, first line touched."""

    def run() -> int:
        transcript.refresh()
        return transcript.window(limit=WINDOW_COUNT).lines[0][0]

    return run


def decoded_window(transcript: mmapstore.Transcript) -> Callable[[], object]:
    """Return the newest window with its messages decoded."""
    return lambda: transcript.window(limit=WINDOW_COUNT).messages


def newest_messages(transcript: mmapstore.Transcript) -> Callable[[], object]:
    """Return the records' own case: refresh, newest window, decoded."""

    def run() -> object:
        transcript.refresh()
        return transcript.window(limit=WINDOW_COUNT).messages

    return run


def decoded_lines(lines: list[bytes]) -> Callable[[], object]:
    """Return the floor of every decoded window: orjson over the same lines, held in memory."""
    return lambda: [orjson.loads(line) for line in lines]


def sequential_read(path: Path) -> Callable[[], object]:
    """Return what a tool without offsets does for the newest messages: decode every line."""

    def run() -> object:
        newest: deque[object] = deque(maxlen=WINDOW_COUNT)
        with open(path, "rb") as file:
            for line in file:
                record = orjson.loads(line)
                if record.get("type") == "message":
                    newest.append(record)
        return list(newest)

    return run


def reopened(path: Path, cache_dir: Path) -> Callable[[], object]:
    """Return opening a transcript whose layout is cached, and touching the newest window."""

    def run() -> int:
        transcript = mmapstore.open(path, cache_dir=cache_dir)
        return transcript.window(limit=WINDOW_COUNT).lines[0][0]

    return run


def fresh_reopened(path: Path, cache_dir: Path) -> Contender:
    """Return the same as the first thing that a fresh interpreter does."""
    code = (
        "import time, mmapstore; start = time.perf_counter_ns(); "
        f"t = mmapstore.open({str(path)!r}, cache_dir={str(cache_dir)!r}); "
        f"t.window(limit={WINDOW_COUNT}).lines[0][0]; "
        "print(time.perf_counter_ns() - start); assert t.cache == 'hit'"
    )
    return lambda: float(_fresh(code))


def appended(transcript: mmapstore.Transcript, stack: ExitStack) -> Contender:
    """Return taking in an append of one line of 1 KB, the append itself not counted."""
    fd = os.open(transcript.path, os.O_WRONLY | os.O_APPEND)
    stack.callback(os.close, fd)
    text = "x" * 900
    numbers = count()

    def batch() -> float:
        taken = 0
        for _ in range(_APPENDS):
            record = {"type": "message", "id": f"new-{next(numbers)}", "role": "user"}
            data = orjson.dumps({**record, "blocks": [{"type": "text", "text": text}]}) + b"\n"
            before = stamp_of_open(fd)
            os.write(fd, data)
            after = stamp_of_open(fd)
            start = time.perf_counter_ns()
            note_append(before, after)
            assert transcript.refresh() is mmapstore.Refresh.APPENDED
            taken += time.perf_counter_ns() - start
        return taken / _APPENDS

    return batch


def private_nbytes(code: str, *, release: bool = False) -> int:
    """Return by how much some code grows an interpreter's private memory, bytes.

    The interpreter has imported the library before. With `release` what the code only needed
    for a while is given back to the system first.
    """
    program = (
        "import ctypes, gc, mmapstore, orjson\n"
        "def private():\n"
        "    with open('/proc/self/status') as status:\n"
        "        return next(int(row.split()[1]) for row in status if row[:7] == 'RssAnon')\n"
        "def settle():\n"
        "    gc.collect()\n"
        f"    {'ctypes.CDLL(None).malloc_trim(0)' if release else ''}\n"
        "settle()\n"
        "before = private()\n"
        f"{code}\n"
        "settle()\n"
        "print((private() - before) * 1024)"
    )
    return int(_fresh(program))


def command(arguments: list[str], *, home: Path, cache: Path) -> Callable[[], object]:
    """Return a command line of the library, run with a home and a cache of its own."""
    environment = _environment()
    environment |= {"HOME": str(home), "MMAPSTORE_CACHE_DIR": str(cache)}
    return lambda: subprocess.run(
        [sys.executable, "-m", "mmapstore", *arguments],
        env=environment,
        capture_output=True,
        check=True,
    )


def fresh_import(module: str, after: str) -> Contender:
    """Return the import of a module by a fresh interpreter that has imported others before.

    Timed inside that interpreter, so that neither its start nor the others' noise, several
    times what is asked for, is in the number.
    """
    code = (
        f"import time, {after}; start = time.perf_counter_ns(); "
        f"import {module}; print(time.perf_counter_ns() - start)"
    )
    return lambda: float(_fresh(code))


def _fresh(code: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _environment() -> dict[str, str]:
    # A library without compiled files beside it would be compiled anew in every interpreter.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(Path(mmapstore.__file__).resolve().parents[1])
    return environment
