"""Children of a warm process: forked, so that thousands of them can be had, and killed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

#: writes one value to the parent, in one piece
Tell = Callable[[Any], None]


class Child:
    """A forked process that tells its parent things, a JSON value a line.

    Parameters
    ----------
    work : callable
        What the child does; is given a function to tell with.
    """

    def __init__(self, work: Callable[[Tell], None]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(reader)
            gc.freeze()  # what the parent has made is not its to look through
            _work(work, writer)
        os.close(writer)
        self._reader = reader
        self._data = b""
        self._is_over = False
        self.status: int | None = None
        #: what it said when it failed by itself
        self.failure: str | None = None

    def told(self) -> Iterator[Any]:
        """Yield what the child tells, as it comes, until it ends."""
        while True:
            while b"\n" in self._data:
                line, _, self._data = self._data.partition(b"\n")
                value = json.loads(line)
                if isinstance(value, dict) and "failure" in value:
                    self.failure = value["failure"]
                    continue
                yield value
            if self._is_over:
                return
            part = os.read(self._reader, 1 << 16)
            self._data += part
            self._is_over = not part

    def kill(self) -> None:
        """End it, as the kernel does when there is no memory left."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Return how it ended: 0, an exit code, or the negative number of a signal."""
        if self.status is None:
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
            os.close(self._reader)
        return self.status


def _work(work: Callable[[Tell], None], writer: int) -> None:
    code = 1
    try:

        def tell(value: Any) -> None:
            os.write(writer, json.dumps(value).encode() + b"\n")

        try:
            work(tell)
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it was, the parent tells it
            tell({"failure": traceback.format_exc()[-3000:]})
    finally:
        os._exit(code)


def spin(duration_s: float) -> None:
    """Let time pass without giving up the processor: a sleep would end on the clock's tick."""
    until_s = time.perf_counter() + duration_s
    while time.perf_counter() < until_s:
        pass
