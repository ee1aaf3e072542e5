"""Batches: operations performed in one go or one by one, and what each took by two clocks.

The processor's own time does not count what others do on a busy machine; elapsed time is of
use only where an operation waits, for a disk.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    #: performs a number of operations, returns ns an operation by each clock
    Batch = Callable[[int], "Spent"]


class Spent(NamedTuple):
    """What an operation took, ns.

    Attributes
    ----------
    cpu : float
        Of the processor's time, by the process and what it started.
    elapsed : float
        By the clock on the wall.
    """

    cpu: float
    elapsed: float


def _spent() -> Spent:
    return Spent(time.process_time_ns(), time.perf_counter_ns())


@dataclass(frozen=True, slots=True)
class Workbench:
    """What an operation is prepared with.

    Attributes
    ----------
    paths : mapping of str to Path
        The files of the comparison; they are read, never written.
    scratch : Path
        A directory of its own.
    stack : ExitStack
        What is to be let go of afterwards.
    """

    paths: Mapping[str, Path]
    scratch: Path
    stack: ExitStack

    def copied(self, name: str, target: Path) -> Path:
        """Return a copy of a file that may be written to."""
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.paths[name], target)
        return target


def in_one_go(operation: Callable[[], object]) -> Batch:
    """Return a batch that times all operations together, after one that does not count."""

    def batch(number: int) -> Spent:
        operation()  # so that a batch begins where the one before it ended
        start = _spent()
        for _ in repeat(None, number):
            operation()
        end = _spent()
        return Spent((end.cpu - start.cpu) / number, (end.elapsed - start.elapsed) / number)

    return batch


def one_by_one(ready: Callable[[], Any], operation: Callable[[Any], object]) -> Batch:
    """Return a batch that times each operation and not what makes it ready."""

    def batch(number: int) -> Spent:
        cpu = elapsed = 0.0
        for _ in repeat(None, number):
            given = ready()
            start = _spent()
            operation(given)
            end = _spent()
            cpu += end.cpu - start.cpu
            elapsed += end.elapsed - start.elapsed
        return Spent(cpu / number, elapsed / number)

    return batch
