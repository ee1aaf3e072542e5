"""Every system call of every operation fails in every way, and the process ends before each.

The calls that Python code makes: see :mod:`.seam`. SQLite makes its own, and they fail
in :mod:`.strace`.
"""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .children import Child, Tell
from .oracle import require
from .report import Report
from .seam import Fault, Seam, faults
from .trial import Trial, Trials, descriptors, some

#: all of them
CYCLES = 0
#: operations that are tried on a session that has just been appended to as well
_WARM = ("append", "review", "update", "truncate", "save active", "close")


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Let every call fail in every way; with `cycles`, so many of them."""
    torture = _Syscalls(directory, report)
    cases = [
        (name, first, fault)
        for name, first in some(list(torture.variants()), cycles, seed)
        for fault in faults(torture.made(name, first))
    ]
    if cycles and cycles < len(cases):
        cases = random.Random(seed).sample(cases, cycles)
    report.total = len(cases)
    for name, first, fault in cases:
        try:
            torture.one(name, first, fault)
        except BaseException as error:
            when = "an open session" if first else "a session"
            error.add_note(f"{name} on {when}, call {fault.at}: {fault.how}")
            raise
        report.step("faults")


class _Syscalls:
    def __init__(self, directory: Path, report: Report) -> None:
        self.directory = directory
        self.report = report
        self.trials = Trials(directory)

    def variants(self) -> Iterator[tuple[str, bool]]:
        for name in self.trials.operations:
            yield name, False
            if name in _WARM:
                yield name, True

    def made(self, name: str, first: bool) -> list[str]:
        """Return the calls that an operation makes when nothing fails."""
        child = Child(
            lambda tell: _try(self.trials.another(name, is_open=first), Fault(-1, ""), tell)
        )
        values = list(child.told())
        child.wait()
        require(child.failure is None, f"{name}: a host failed by itself: {child.failure}")
        return list(values[-1]["made"])

    def one(self, name: str, first: bool, fault: Fault) -> None:
        """Let one call fail."""
        trial = self.trials.another(name, is_open=first)
        child = Child(lambda tell: _try(trial, fault, tell))
        told: list[Any] = list(child.told())
        status = child.wait()
        require(child.failure is None, f"something that nobody expects was raised: {child.failure}")
        if status == -signal.SIGKILL:
            trial.recover(told)
            self.report.add("processes that ended")
            return
        require(status == 0 and len(told) == 2, "a process ended by itself", status)
        self.report.add("acknowledged all the same" if told[0]["acknowledged"] else "told to fail")
        hit = told[1]["hit"]
        must_be_told = (
            hit is not None
            and hit[0] in ("write", "fdatasync", "fsync", "replace")
            and fault.how != "short"
            and not any(part in hit[1] for part in (".layout", "(deleted)", "/#"))
        )
        require(
            not (must_be_told and told[0]["acknowledged"]),
            "acknowledged although a call that it stands on has failed",
            hit,
        )


def _try(trial: Trial, fault: Fault, tell: Tell) -> None:
    opened = descriptors()
    seam = Seam(fault)

    @contextlib.contextmanager
    def failing() -> Iterator[None]:
        seam.install()
        try:
            yield
        finally:
            seam.remove()

    trial.attempt(trial.host(), failing(), tell)
    left = descriptors()
    require(left == opened, "a descriptor was left open", opened, left)
    tell({"made": seam.made, "hit": seam.hit})
