"""What :mod:`.syscalls` does, to every call of the process: SQLite's as well, by strace.

A child opens a host and waits; strace is attached to it with one fault, and then it
performs its operation. Nothing is done where strace cannot be used.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .children import Child, Tell
from .oracle import require
from .report import Report
from .trial import Trial, Trials, some

#: all of them
CYCLES = 0
#: calls that touch files
CALLS = (
    *("openat", "read", "pread64", "preadv", "write", "pwrite64", "fdatasync", "fsync", "rename"),
    *("unlink", "mkdir", "newfstatat", "fstat", "lstat", "stat", "statx", "fcntl", "ioctl"),
    *("ftruncate", "fchmod", "getdents64", "lseek", "access", "close", "mmap", "munmap"),
)
#: without a map Python itself may run out of memory; for a lock SQLite tries seconds on end
_NEVER_REFUSED = ("close", "mmap", "munmap", "read", "fcntl")
ERRORS = ("EIO", "ENOSPC", "EINTR", "EMFILE")
_WARM = ("append", "review", "truncate")


def is_usable() -> str | None:
    """Return why strace cannot be used, or None if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(
        ["strace", "-o", os.devnull, "-e", "inject=fsync:signal=KILL:when=1", "true"],
        capture_output=True,
        check=False,
    )
    return None if done.returncode == 0 else f"strace does not work here: {done.stderr!r:.200}"


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Let every call fail in every way; with `cycles`, so many of them."""
    why = is_usable()
    if why is not None:
        report.add(f"skipped: {why}")
        return
    torture = _Strace(directory, report)
    cases = []
    # strace counts the calls of each thread: an outbox has one of its own
    names = [name for name in torture.trials.operations if name != "outbox"]
    variants = [(name, False) for name in names] + [(name, True) for name in _WARM]
    variants = some(variants, cycles, seed)
    for name, first in variants:
        for call, count in torture.made(name, first).items():
            ways = ["signal=KILL"]
            if call not in _NEVER_REFUSED:
                ways += [f"error={error}" for error in ERRORS]
            cases += [(name, first, call, at + 1, how) for how in ways for at in range(count)]
    if cycles and cycles < len(cases):
        cases = random.Random(seed).sample(cases, cycles)
    report.total = len(cases)
    for name, first, call, at, how in cases:
        try:
            torture.one(name, first, f"inject={call}:{how}:when={at}")
        except BaseException as error:
            when = "an open session" if first else "a session"
            error.add_note(f"{name} on {when}, {call} {at}: {how}")
            raise
        report.step("faults")


class _Strace:
    def __init__(self, directory: Path, report: Report) -> None:
        self.directory = directory
        self.report = report
        self.trials = Trials(directory)

    def made(self, name: str, first: bool) -> Counter[str]:
        """Return how many calls of each name an operation makes."""
        log = self.directory / "log"
        self.one(name, first, f"trace={','.join(CALLS)}", log)
        text = log.read_text(errors="replace").partition("acknowledged")[0]
        # without the call that tells it
        text = text[: text.rindex("\n") + 1]
        calls = re.findall(r"^(?:\d+ +)?(\w+)\(", text, re.MULTILINE)
        return Counter(calls)

    def one(self, name: str, first: bool, fault: str, log: Path | None = None) -> None:
        """Perform an operation with one fault."""
        trial = self.trials.another(name, is_open=first)
        reader, writer = os.pipe()
        child = Child(lambda tell: _work(trial, reader, writer, tell))
        os.close(reader)
        told = child.told()
        require(next(told, None) == "ready", "a host did not begin", child.failure)
        traced = f"trace={','.join(CALLS)}" if log else f"trace={fault.split('=')[1].split(':')[0]}"
        command = ["strace", "-f", "-p", str(child.pid), "-o", str(log or os.devnull), "-e", traced]
        command += [] if log else ["-e", fault]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert tracer.stderr is not None
        said = tracer.stderr.readline()
        require(b"attached" in said, "strace is not attached", said)
        os.write(writer, b"!")
        os.close(writer)
        values: list[Any] = list(told)
        status = child.wait()
        tracer.communicate()
        require(child.failure is None, f"something unexpected was raised: {child.failure}")
        if status == -signal.SIGKILL:
            trial.recover(values)
            self.report.add("processes that ended")
            return
        require(status == 0 and bool(values), "a process ended by itself", status)
        is_acknowledged = values[0]["acknowledged"]
        self.report.add("acknowledged all the same" if is_acknowledged else "told to fail")


def _work(trial: Trial, reader: int, writer: int, tell: Tell) -> None:
    os.close(writer)
    host = trial.host()
    tell("ready")

    @contextlib.contextmanager
    def traced() -> Iterator[None]:
        os.read(reader, 1)
        yield

    trial.attempt(host, traced(), tell)
