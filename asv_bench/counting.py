"""Counts that do not jitter: bytes and calls of writing and reading, page faults.

The system counts them for each process, whatever else the machine does. They are of this
process, so nothing else may run in it meanwhile; the median of some turns is taken, for the
odd one in which an index or a heap is enlarged.
"""

from __future__ import annotations

import resource
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_IO = Path("/proc/self/io")
_TURNS = 9


def available() -> bool:
    """Whether the system counts what a process reads and writes."""
    return _IO.exists()


def io_counts() -> dict[str, int]:
    """Return what this process has read and written since it began.

    ``rchar`` and ``wchar`` are bytes, ``syscr`` and ``syscw`` calls, whatever the page cache
    had of them.
    """
    return {
        name: int(value)
        for name, value in (row.split(": ") for row in _IO.read_text().splitlines())
    }


def spent(operation: Callable[[], object], count: str) -> float:
    """Return by how much a call adds to one of the counts of :func:`io_counts`."""

    def once() -> int:
        before = io_counts()
        operation()
        return io_counts()[count] - before[count]

    operation()
    return statistics.median(once() for _ in range(_TURNS)) - _own(count)


def _own(count: str) -> int:
    """Return what looking at a count adds to it."""
    first, second = (io_counts()[count] for _ in range(2))
    return second - first


def faults(operation: Callable[[], object]) -> float:
    """Return how many pages a call takes in that were not mapped before."""

    def once() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        operation()
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    operation()
    return statistics.median(once() for _ in range(_TURNS))
