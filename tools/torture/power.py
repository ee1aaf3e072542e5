"""The power fails at any moment, and what was acknowledged is on the disk.

A host's calls are watched, and after each the states are made that a power cut may
leave then: see :mod:`.simulation`. Each is opened and held against the model. Some cuts
come after a process has died and another has found what it left in the system's cache.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import mmapstore

from .drawing import Drawer
from .model import World
from .operations import MAKING, Operation, applied, is_possible, perform
from .oracle import Violation, check_closed, judge, look
from .report import Report
from .simulation import INDEX, Disk, Recorder

CYCLES = 100
_OPERATIONS = 6
_STATES_A_POINT = 12
_STATES_A_ROUND = 120
#: what is left of the index, which says nothing that the files do not say
_INDEXES = ("none", "old", "new", "damaged")


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Cut the power in so many rounds."""
    report.total = cycles
    for cycle in range(cycles):
        torture = _Power(directory, random.Random(f"{seed} {cycle}"), report)
        try:
            torture.round()
        except BaseException as error:
            error.add_note(f"in round {cycle}, {torture.said}")
            raise
        report.step("rounds")


@dataclass(frozen=True, slots=True)
class _Moment:
    """What may be there: what was acknowledged, and perhaps what was asked for then."""

    before: World
    after: World
    unknown: Operation | None

    def judged(self, found: World) -> World:
        return judge(found, self.before, self.after, self.unknown, any_order=True)


@dataclass(frozen=True, slots=True)
class _Script:
    """What was performed on a directory, and what it led to.

    Attributes
    ----------
    recorder : Recorder
        The disk at each step.
    operations : list of Operation
        In order.
    worlds : list of World
        What is there before the first of them, and after each.
    death : _Moment, optional
        When a process died before; what nobody relied on since then may still come or go.
    """

    recorder: Recorder
    operations: list[Operation]
    worlds: list[World]
    death: _Moment | None

    def moment(self, acknowledged: int) -> _Moment:
        """Return what may be there after so many operations."""
        unknown = next(iter(self.operations[acknowledged:]), None)
        after = self.worlds[min(acknowledged + 1, len(self.worlds) - 1)]
        return _Moment(self.worlds[acknowledged], after, unknown)

    def judged(self, found: World, acknowledged: int) -> World:
        """Hold what is found against what may be there after so many operations."""
        moment = self.moment(acknowledged)
        death = self.death
        try:
            return moment.judged(found)
        except Violation:
            if death is None or death.unknown is None:
                raise
            name = death.unknown.session
            done = self.operations[:acknowledged]
            if any(op.session == name and op.kind not in _NOT_RELYING for op in done):
                raise
        worlds = (death.before, death.after, found, moment.before, moment.after)
        before, after, here = ({n: w[n] for n in w if n == name} for w in worlds[:3])
        world = _Moment(before, after, death.unknown).judged(here)
        before, after, here = ({n: w[n] for n in w if n != name} for w in (*worlds[3:], found))
        unknown = moment.unknown
        others = _Moment(before, after, None if unknown and unknown.session == name else unknown)
        return {**world, **others.judged(here)}


#: what is refused, or looks at no session in particular, says nothing of the disk
_NOT_RELYING = ("conflict", "unknown", "reindex")


class _Power:
    def __init__(self, directory: Path, rng: random.Random, report: Report) -> None:
        self.root = directory
        self.rng = rng
        self.report = report
        self.drawer = Drawer(rng, (20, 100, 3000, 9000))
        self.said = ""

    def round(self) -> None:
        first = self._empty("first")
        with mmapstore.Host(first):
            pass
        script = self._recorded(first, Disk.of(first), {}, None)
        self._cut(first, script, "a cut")
        # a process dies, and the next one relies on what the system has in its cache
        disk, acknowledged = self.rng.choice(script.recorder.points)
        death = script.moment(acknowledged)
        second = self._empty("second")
        _put(second, disk.cached())
        with mmapstore.Host(self._copied(second)) as host:
            world = death.judged(look(host))
        again = self._recorded(second, copy.deepcopy(disk), world, death)
        self._cut(second, again, "a cut after a death")

    def _recorded(
        self, directory: Path, disk: Disk, world: World, death: _Moment | None
    ) -> _Script:
        """Perform operations, the first of them one that is asked for again, and watch."""
        recorder = Recorder(directory, disk)
        worlds = [world]
        done: list[Operation] = []
        names: dict[str, str] = {}
        with recorder.watching(), mmapstore.Host(directory) as host:
            for _ in range(_OPERATIONS):
                op = self.drawer.draw(worlds[-1])
                first = None if death is None or done else death.unknown
                if first is not None and first.kind not in MAKING and is_possible(first, world):
                    op = first
                perform(op, host, names)
                recorder.acknowledge()
                done.append(op)
                worlds.append(applied(op, worlds[-1]))
        worlds = [{names.get(n, n): s for n, s in each.items()} for each in worlds]
        done = [_named(op, names) for op in done]
        return _Script(recorder, done, worlds, death)

    def _cut(self, directory: Path, script: _Script, what: str) -> None:
        seen = set()
        points = script.recorder.points
        chances = _STATES_A_ROUND / max(1, len(points) * _STATES_A_POINT)
        for number, (disk, acknowledged) in enumerate(points):
            for state in disk.states(self.rng, _STATES_A_POINT):
                key = hashlib.sha256(repr((sorted(state.items()), acknowledged)).encode()).digest()
                if key in seen or self.rng.random() > chances:
                    continue
                seen.add(key)
                self.said = f"{what} behind step {number} of {len(points)}, index "
                self._opened(directory, script, state, acknowledged)
                self.report.add(f"states of {what}")

    def _opened(
        self, directory: Path, script: _Script, state: dict[str, bytes], acknowledged: int
    ) -> None:
        left = self._empty("left")
        _put(left, state)
        index = self.rng.choice(_INDEXES)
        self.said += index
        if index == "new":
            shutil.copy(directory / INDEX, left / INDEX)
        elif index != "none":
            (left / INDEX).write_bytes(
                b"" if index == "old" else b"SQLite format 3\0" + b"?" * 5000
            )
        unknown = script.moment(acknowledged).unknown
        self.said += f", {[op.kind for op in script.operations[:acknowledged]]}, then {unknown}"
        with mmapstore.Host(left) as host:
            world = script.judged(look(host), acknowledged)
            if unknown is not None and unknown.kind not in MAKING and is_possible(unknown, world):
                perform(unknown, host, {})
                goal = applied(unknown, world)
                judge(look(host), goal, goal, None)
        check_closed(left)

    def _empty(self, name: str) -> Path:
        directory = self.root / name
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "sessions").mkdir(parents=True)
        return directory

    def _copied(self, directory: Path) -> Path:
        copied = self.root / "copied"
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(directory, copied)
        return copied


def _named(op: Operation, names: dict[str, str]) -> Operation:
    more = dict(op.more)
    if "parent" in more:
        more["parent"] = names.get(more["parent"], more["parent"])
    return dataclasses.replace(op, session=names.get(op.session, op.session), more=more)


def _put(directory: Path, state: dict[str, bytes]) -> None:
    for name, data in state.items():
        (directory / name).write_bytes(data)
