"""A process is killed at any moment, again and again, and nothing acknowledged is lost.

A child performs operations on a few small sessions and tells each when it has returned.
The parent, which knows what they lead to, kills it, opens the directory and holds it
against the model. The operation that was not acknowledged is then asked for again, or
left as it is: the next child goes on from there.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import mmapstore

from . import disk
from .children import Child, Tell, spin
from .drawing import Drawer
from .model import World
from .operations import MAKING, Operation, applied, is_possible, message, perform
from .oracle import check_closed, judge, look, require
from .report import Report

CYCLES = 10_000
SIZES = (*(20, 60, 200, 500) * 4, 5000, 100_000)
_OPERATIONS = 10
#: a text this large takes a while to write, so that a kill may tear it
_LARGE = 2_000_000


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Kill a host so many times."""
    report.total = cycles
    torture = _Kills(directory, random.Random(seed), report)
    for cycle in range(cycles):
        try:
            torture.cycle()
        except BaseException as error:
            error.add_note(f"in cycle {cycle}, of {torture.said()}")
            raise
        report.step("kills")


class _Kills:
    def __init__(self, directory: Path, rng: random.Random, report: Report) -> None:
        self.directory = directory
        self.rng = rng
        self.report = report
        self.drawer = Drawer(rng, SIZES)
        self.world: World = {}
        self.torn: dict[str, int] = {}
        self.operations: list[Operation] = []
        self.acknowledged = 0
        # how long each kind takes, seconds: where in it the kill falls is drawn from that
        self.durations: dict[str, float] = defaultdict(lambda: 0.01)

    def said(self) -> str:
        """Return what was asked for, for a report."""
        said = [f"{op.kind} {op.session}" for op in self.operations]
        return f"{said[: self.acknowledged]} acknowledged, then {said[self.acknowledged :][:1]}"

    def cycle(self) -> None:
        count = self.rng.randrange(1, _OPERATIONS)
        worlds = [self.world]
        self.operations = []
        for _ in range(count):
            self.operations.append(self.drawer.draw(worlds[-1]))
            worlds.append(applied(self.operations[-1], worlds[-1]))
        if self.rng.random() < 0.3 and worlds[-1]:
            self.operations.append(self._large(worlds[-1]))
            worlds.append(applied(self.operations[-1], worlds[-1]))
        count = len(self.operations)
        names, is_open = self._killed(worlds)
        before = worlds[self.acknowledged]
        unknown = None
        if self.acknowledged < count and is_open:
            unknown = self.operations[self.acknowledged]
        after = before if unknown is None else applied(unknown, before)
        torn = self._look_at_files()
        with mmapstore.Host(self.directory) as host:
            require(not disk.strays(self.directory), "a temporary file outlived the opening")
            self.world = _found(host, names, before, after, unknown)
            ask = unknown is not None and (torn or self.rng.random() < 0.5)
            if unknown is not None and ask:
                self._ask_again(host, unknown, names)
        check_closed(self.directory)
        self._check_damage()

    def _large(self, world: World) -> Operation:
        name = self.rng.choice(sorted(world))
        text = "large " * (self.rng.randrange(_LARGE // 3, _LARGE) // 6)
        large = message(self.drawer.fresh("m"), "assistant", text)
        return Operation("append", name, {"messages": [large], "look": False, "is large": True})

    def _killed(self, worlds: list[World]) -> tuple[dict[str, str], bool]:
        """Run a child and kill it; return the ids of the sessions that it told of."""
        child = Child(lambda tell: _child(self.directory, self.operations, worlds, tell))
        # -1: while it opens the directory
        target = self.rng.randrange(-1, len(self.operations))
        if self.operations[-1].more.get("is large"):
            target = len(self.operations) - 1
        names: dict[str, str] = {}
        self.acknowledged = 0
        is_open = False
        told = child.told()
        value: Any = None
        if target >= 0:
            for value in told:
                is_open = True
                self._note(value, names)
                if value[0] >= target:
                    break
        if is_open and self._kind(target) == "large":
            self._wait_for_bytes(self.operations[target], names)
        else:
            spin(self.rng.uniform(0, 1.2) * self.durations[self._kind(target)])
        child.kill()
        for value in told:
            is_open = True
            self._note(value, names)
        child.wait()
        require(child.failure is None, f"a host failed by itself: {child.failure}")
        return names, is_open

    def _wait_for_bytes(self, op: Operation, names: dict[str, str]) -> None:
        """Wait until part of a line is in the file, or it is too late."""
        path = disk.transcript_path(self.directory, names.get(op.session, op.session))
        wanted = path.stat().st_size + self.rng.randrange(1, _LARGE // 4)
        until_s = perf_counter() + 5 * self.durations["large"]
        while os.stat(path).st_size < wanted and perf_counter() < until_s:
            pass

    def _kind(self, number: int) -> str:
        if number < 0:
            return "opening"
        op = self.operations[number]
        return "large" if op.more.get("is large") else op.kind

    def _note(self, value: Any, names: dict[str, str]) -> None:
        done, made, duration_s = value
        kind = self._kind(done - 1)
        self.durations[kind] = 0.8 * self.durations[kind] + 0.2 * duration_s
        self.acknowledged = done
        self.report.add("operations acknowledged", int(done > 0))
        if made is not None:
            names[self.operations[done - 1].session] = made

    def _look_at_files(self) -> bool:
        """Count what the kill has left; whether a torn line may be completed by what comes next."""
        whole = False
        if not (self.directory / "sessions").exists():
            return False
        strays = len(disk.strays(self.directory))
        self.report.add("temporary files left by a kill", strays)
        for session_id in disk.session_ids(self.directory):
            torn = disk.read(self.directory, session_id).torn
            if torn:
                self.torn[session_id] = self._allowed(session_id) + 1
                self.report.add("lines torn by a kill")
                whole |= torn.endswith(b"}")
        return whole

    def _ask_again(self, host: mmapstore.Host, op: Operation, names: dict[str, str]) -> None:
        is_left = op.kind == "delete" and op.session not in self.world
        if is_left and disk.orphans(self.directory, op.session):
            perform(op, host, {})
            require(not disk.orphans(self.directory, op.session), "files of a deleted session")
        if op.kind in MAKING or not is_possible(op, self.world):
            return
        perform(op, host, names)
        self.report.add("asked again")
        goal = applied(op, self.world)
        self.world = judge(look(host), goal, goal, None)

    def _allowed(self, session_id: str) -> int:
        """Return how many lines may be damaged: a fork takes those of its parent along."""
        return self.torn.get(session_id, max(self.torn.values(), default=0))

    def _check_damage(self) -> None:
        for session_id in disk.session_ids(self.directory):
            damaged = disk.read(self.directory, session_id).damaged
            self.torn[session_id] = self._allowed(session_id)
            require(
                damaged <= self.torn[session_id],
                f"{session_id}: more lines are damaged than were torn",
                damaged,
                self.torn[session_id],
            )


def _found(
    host: mmapstore.Host,
    names: dict[str, str],
    before: World,
    after: World,
    unknown: Operation | None,
) -> World:
    """Return what a host shows, judged, by session id."""
    name_of = {session_id: name for name, session_id in names.items()}
    found = {name_of.get(key, key): session for key, session in look(host).items()}
    world = judge(found, before, after, unknown)
    return {names.get(name, name): session for name, session in world.items()}


def _child(directory: Path, operations: list[Operation], worlds: list[World], tell: Tell) -> None:
    rng = random.Random(len(worlds))
    names: dict[str, str] = {}
    started_s = perf_counter()
    host = mmapstore.Host(directory)
    tell([0, None, perf_counter() - started_s])
    for number, op in enumerate(operations, 1):
        started_s = perf_counter()
        made = perform(op, host, names)
        tell([number, made, perf_counter() - started_s])
        if rng.random() < 0.05:
            _found(host, names, worlds[number], worlds[number], None)
    host.close()
