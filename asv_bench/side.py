"""One side of a comparison: a process that imports one version of the library and is asked.

    python -P -m asv_bench.side ROOT SCRATCH NAME=PATH...

Requests are lines of JSON on standard input, and each has one line as its answer: what was
asked for under ``ok``, or why not under ``error``. An operation that fails is an answer like
any other; what the library prints goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .batches import Workbench
from .operations import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from .batches import Batch

_COUNTINGS = 3


class Asked:
    """The operation that is asked for."""

    def __init__(self, paths: dict[str, Path], scratch: Path) -> None:
        self._paths = paths
        self._scratch = scratch
        self._stack = ExitStack()
        self._batch: Batch | None = None

    def answer(self, verb: str, given: Any) -> Any:
        """Return the answer to one request: prepare, run, count."""
        if verb == "prepare":
            return self._prepare(given)
        assert self._batch is not None
        if verb == "run":
            gc.collect()
            return self._batch(given)
        assert verb == "count"
        return min(calls_of(self._batch) for _ in range(_COUNTINGS))

    def _prepare(self, name: str) -> None:
        self._batch = None
        self._stack.close()
        gc.unfreeze()
        scratch = self._scratch / name
        scratch.mkdir()
        self._stack = ExitStack()
        self._batch = OPERATIONS[name].prepare(Workbench(self._paths, scratch, self._stack))
        # what is there already will still be there: no collection need look at it again
        gc.collect()
        gc.freeze()

    def close(self) -> None:
        """Let go of what the last operation holds."""
        self._stack.close()


def calls_of(batch: Batch) -> int:
    """Return how many functions a batch of one operation calls: a cost that no clock measures."""
    calls = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        batch(1)
    finally:
        sys.setprofile(None)
    return calls


def answers(asked: Asked, requests: Iterable[bytes]) -> Iterable[bytes]:
    """Yield the answer to each request."""
    for request in requests:
        verb, given = json.loads(request)
        answer: dict[str, Any]
        try:
            answer = {"ok": asked.answer(verb, given)}
        except Exception as error:  # noqa: BLE001 - whatever a version of the library does
            answer = {"error": f"{type(error).__name__}: {error}"}
        yield json.dumps(answer).encode() + b"\n"


def main() -> None:
    """Answer until the input ends."""
    root, scratch, *named = sys.argv[1:]
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    import mmapstore

    # the other version would be found where this one is not
    assert Path(root).resolve() in Path(mmapstore.__file__).resolve().parents, mmapstore.__file__
    paths = {name: Path(path) for name, _, path in (one.partition("=") for one in named)}
    asked = Asked(paths, Path(scratch))
    gc.disable()
    try:
        for answer in answers(asked, sys.stdin.buffer):
            out.write(answer)
    finally:
        asked.close()


if __name__ == "__main__":
    main()
