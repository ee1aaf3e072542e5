"""Readers in processes of their own look all the time while a host rewrites under them.

Every window is one state that the session had, and they come in the order in which they
were made. Two readers map and two use pread; of each one keeps a cache of its own and
one has none.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import orjson

import mmapstore

from .children import Child, Tell
from .disk import transcript_path
from .drawing import Drawer
from .model import SessionModel, World
from .operations import GROWING, Operation, applied, is_possible, perform
from .oracle import require, without_type
from .report import Report

Access = Literal["mmap", "pread"]

CYCLES = 1000
_ACCESS: tuple[Access, ...] = ("mmap", "mmap", "pread", "pread")
_REWRITES = ("update", "replace", "truncate", "save", "save active", "activate")
_OTHERS = ("append", "review", "compact", "delete revision")
#: windows that a reader keeps, to look at them again at the end
_KEPT = 40
#: looks after which a reader begins anew
_LOOKS = 200
#: messages of the session beyond which it is cut
_MOST = 30
#: archived branches beyond which the first is deleted
_MOST_BRANCHES = 12


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Rewrite so many times under four readers."""
    report.total = cycles
    data = directory / "data"
    with mmapstore.Host(data) as host:
        session = host.create_session("read").id
    end = directory / "over"
    readers = []
    for number, access in enumerate(_ACCESS):
        cache = None if number % 2 else str(directory / f"cache {number}")
        log = directory / f"reader {number}"
        readers.append(
            (Child(_reader(transcript_path(data, session), access, cache, log, end)), log)
        )
    telling = [child.told() for child, _ in readers]
    for told in telling:
        # all of them look before anything is written
        require(next(told, None) == "ready", "a reader did not begin")
    states: dict[str, list[int]] = defaultdict(list)
    try:
        for number, digest in enumerate(_rewritten(data, session, cycles, seed, report)):
            states[digest].append(number)
    finally:
        end.touch()
        for (child, _), told in zip(readers, telling, strict=True):
            report.add("looks refused with TranscriptChangedError", sum(told))
            child.wait()
    for child, log in readers:
        require(child.failure is None and child.status == 0, f"a reader failed: {child.failure}")
        _check(log, states, report)


def _check(log: Path, states: dict[str, list[int]], report: Report) -> None:
    at = -1
    for count, line in enumerate(log.read_text().splitlines()):
        digest, what = line.split(" ", 1)
        require(digest in states, "a window is no state that the session had", count, what)
        later = [number for number in states[digest] if number >= at]
        require(bool(later), "a window is older than the one before it", count, what)
        at = later[0]
        report.add("windows that differed from the one before")
    require(at in states[digest], "no window was seen")
    require(max(map(max, states.values())) in states[digest], "the last state was not seen", at)


def _digest(messages: list[dict[str, Any]], compactions: list[dict[str, Any]]) -> str:
    compactions = sorted(compactions, key=lambda record: str(record["id"]))
    text = orjson.dumps([messages, compactions], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).hexdigest()


# -- the host -----------------------------------------------------------------------------


def _rewritten(
    directory: Path, session: str, cycles: int, seed: int, report: Report
) -> Iterator[str]:
    """Rewrite a session; yield each state that it may be seen in, in order."""
    world: World = {session: SessionModel("read")}
    drawer = Drawer(random.Random(seed), (30, 300, 3000))
    rewrites = 0
    yield _state(world[session])
    with mmapstore.Host(directory) as host:
        while rewrites < cycles:
            op = _next(drawer, session, world)
            perform(op, host, {})
            before, world = world, applied(op, world)
            if op.kind in GROWING:
                # of lines that are written at once, the first may be seen before the last
                for count in range(len(before[session].messages) + 1, len(world[session].messages)):
                    part = copy.deepcopy(world[session])
                    del part.messages[count:]
                    yield _state(part)
            yield _state(world[session])
            if op.kind in _REWRITES:
                rewrites += 1
                report.step("rewrites")
            else:
                report.add(f"operations: {op.kind}")


def _next(drawer: Drawer, session: str, world: World) -> Operation:
    messages = world[session].messages
    if len(messages) > _MOST:
        return Operation("truncate", session, {"id": messages[drawer.rng.randrange(5)]["id"]})
    if len(world[session].archive) > _MOST_BRANCHES:
        # else it grows until the drawer would rather have the session deleted
        for family, index in world[session].archive:
            op = Operation("delete revision", session, {"family": family, "index": index})
            if is_possible(op, world):
                return op
    while True:
        op = drawer.draw(world)
        if op.kind in (*_REWRITES, *_OTHERS):
            return op


def _state(model: SessionModel) -> str:
    return _digest(model.messages, model.compactions)


# -- a reader -----------------------------------------------------------------------------


def _reader(
    path: Path, access: Access, cache: str | None, log: Path, end: Path
) -> Callable[[Tell], None]:
    def read(tell: Tell) -> None:
        kept: list[tuple[str, mmapstore.Window]] = []
        refused = 0
        last = ""
        is_last_look = is_over = False
        tell("ready")
        with log.open("w") as file:
            while not is_over:
                with mmapstore.open(path, access=access, cache_dir=cache) as t:
                    for look in range(_LOOKS):
                        is_last_look = end.exists()
                        try:
                            if not t.refresh() and look % 10 and not is_last_look:
                                continue
                            window = t.window(limit=None)
                            digest = _seen(window)
                        except mmapstore.TranscriptChangedError:
                            refused += 1
                            t.refresh()
                            digest = _seen(window := t.window(limit=None))
                        if digest != last:
                            file.write(f"{digest} {len(window)} messages\n")
                            if len(kept) < _KEPT:
                                kept.append((digest, window))
                        last = digest
                        if is_last_look:
                            is_over = True
                            break
        for digest, window in kept:
            require(_seen(window) == digest, "a window that was kept is another one now")
        tell(refused)

    return read


def _seen(window: mmapstore.Window) -> str:
    require(not window.damaged, "a window has damaged lines", window.damaged)
    require(len(window.messages) == len(window.lines) == window.total, "messages are left out")
    return _digest(without_type(window.messages), without_type(list(window.compactions)))
