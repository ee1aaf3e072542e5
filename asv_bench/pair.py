"""Two processes, one a version, that measure one operation in turns.

Where a process has its memory can make it faster or slower than the next for as long as it
lives, so one pair is one number: the ratio of what each took at its best. Within a pair the
sides take turns (base, head, head, base, ...) on one processor and only one works at a time,
so that what disturbs the machine for a while, or that processor, disturbs both. What else might
favour a side for no reason of its own, who is started first and the size of its environment,
changes from pair to pair.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

from .batches import Spent
from .operations import OPERATIONS
from .trees import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .trees import Tree

_PATIENCE_S = 600
_MOST_PADDING_NBYTES = 4096


class CannotMeasureError(Exception):
    """Is raised with the reason why a side did not measure an operation."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What one pair measured.

    Attributes
    ----------
    base, head : Spent
        An operation at its best, by either clock.
    base_calls, head_calls : int or None
        Calls of functions in one operation and what makes it ready, where they were counted.
    """

    base: Spent
    head: Spent
    base_calls: int | None = None
    head_calls: int | None = None

    def ratio(self, clock: str) -> float:
        """Return how many times what the base takes the head takes."""
        head, base = getattr(self.head, clock), getattr(self.base, clock)
        return float(head / base)


class Side:
    """A process that runs one version; a context manager.

    Parameters
    ----------
    label : str
        Which side it is, for errors.
    root : Path
        The directory that holds its package.
    paths : mapping of str to Path
        The measured files.
    scratch : Path
        Where it may write.
    seed : int
        Of its hashes: the same for both sides of a pair, another for every pair.
    """

    def __init__(
        self, label: str, root: Path, paths: Mapping[str, Path], scratch: Path, seed: int
    ) -> None:
        self._label = label
        scratch.mkdir()
        # neither its own compiled files, nor caches and sessions of the user
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {
            "PYTHONPATH": os.pathsep.join((str(root), str(PROJECT))),
            "PYTHONHASHSEED": str(seed),
            "MMAPSTORE_CACHE_DIR": str(scratch / "user-cache"),
            "HOME": str(scratch),
            # moves the stack, and with it what lies next to what in the processor's caches
            "ASV_BENCH_PADDING": "x" * Random(f"{label} {seed}").randrange(_MOST_PADDING_NBYTES),
        }
        named = [f"{name}={path}" for name, path in paths.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "asv_bench.side", str(root), str(scratch), *named],
            bufsize=0,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()
        with suppress(OSError):
            self._process.communicate()

    def pin(self, processor: int) -> None:
        """Keep the process on one processor, where the system can."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, {processor})

    def ask(self, verb: str, given: Any = None) -> Any:
        """Return the answer to one request.

        Raises
        ------
        CannotMeasureError
            The operation failed, or the process ended or said nothing for long.
        """
        self.send(verb, given)
        return self.receive()

    def send(self, verb: str, given: Any = None) -> None:
        """Send a request whose answer is received later."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # there will be no answer, which says why
            self._process.stdin.write(json.dumps([verb, given]).encode() + b"\n")

    def receive(self) -> Any:
        """Return the next answer; see :meth:`ask`."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], _PATIENCE_S)
        if not readable:
            raise self._failed(f"no answer within {_PATIENCE_S} s")
        answer = self._process.stdout.readline()
        if not answer.endswith(b"\n"):
            self._process.kill()
            _, errors = self._process.communicate()
            told = errors.decode(errors="replace").strip().splitlines()
            raise self._failed(told[-1] if told else "the process ended")
        found = json.loads(answer)
        if "error" in found:
            raise self._failed(found["error"])
        return found["ok"]

    def _failed(self, reason: str) -> CannotMeasureError:
        return CannotMeasureError(f"{self._label}: {reason}")


def alternate(
    base: Callable[[], Spent], head: Callable[[], Spent], turns: int
) -> tuple[Spent, Spent]:
    """Return the least that each side gives in `turns` turns: base, head, head, base, ..."""
    of_base, of_head = [], []
    for turn in range(turns):
        if turn % 2:
            of_head.append(head())
            of_base.append(base())
        else:
            of_base.append(base())
            of_head.append(head())
    return least(of_base), least(of_head)


def least(batches: Sequence[Spent]) -> Spent:
    """Return the least by either clock."""
    return Spent(*map(min, zip(*batches, strict=True)))


def allowed_processors() -> list[int]:
    """Return the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class Bench:
    """Measures operations of two versions over the same files.

    Attributes
    ----------
    base, head : Tree
        The versions.
    paths : mapping of str to Path
        The measured files.
    directory : Path
        Where the sides write: on the file system of the files.
    """

    base: Tree
    head: Tree
    paths: Mapping[str, Path]
    directory: Path

    def __call__(self, name: str, repetition: int) -> Timing:
        """Measure one operation by a new pair of processes.

        Raises
        ------
        CannotMeasureError
            One of them could not.
        """
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.directory)))
            trees = [("base", self.base), ("head", self.head)]
            if repetition % 2:
                trees.reverse()
            sides = {
                label: stack.enter_context(
                    Side(label, tree.root, self.paths, scratch / label, repetition + 1)
                )
                for label, tree in trees
            }
            for side in sides.values():
                side.send("prepare", name)
            for side in sides.values():
                side.receive()
            processors = allowed_processors()
            for side in sides.values():
                side.pin(processors[repetition % len(processors)])
            base, head = sides["base"], sides["head"]
            counted: tuple[int, ...] = ()
            if not repetition and not OPERATIONS[name].elsewhere:
                counted = (base.ask("count"), head.ask("count"))
            number = OPERATIONS[name].number
            spent = alternate(
                lambda: Spent(*base.ask("run", number)),
                lambda: Spent(*head.ask("run", number)),
                OPERATIONS[name].turns,
            )
        return Timing(*spent, *counted)
