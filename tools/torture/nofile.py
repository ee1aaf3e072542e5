"""A host of 200 sessions with 64 descriptors, and then with none left at all.

The operations work, nothing leaks, and where the system gives no descriptor an operation
says so and can be asked for again.
"""

from __future__ import annotations

import os
import random
import resource
from pathlib import Path

import mmapstore

from . import disk
from .children import Child, Tell
from .drawing import Drawer
from .model import World
from .operations import MAKING, Operation, applied, is_possible, perform
from .oracle import check_closed, judge, look, require
from .report import Report
from .trial import descriptors

#: operations
CYCLES = 3000
SESSIONS = 200
LIMIT = 64


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Perform so many operations."""
    child = Child(lambda tell: _limited(directory, cycles, random.Random(seed), tell))
    for what in child.told():
        report.step(what)
    child.wait()
    require(child.failure is None and child.status == 0, f"it failed: {child.failure}")


def _limited(directory: Path, cycles: int, rng: random.Random, tell: Tell) -> None:
    opened = descriptors()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, hard))
    world: World = {}
    drawer = Drawer(rng)
    with mmapstore.Host(directory / "data") as host:
        for number in range(SESSIONS):
            names: dict[str, str] = {}
            first = Operation("create", "new", {"title": f"title {number}"})
            second = Operation("append", "new", {"messages": [drawer.message()], "look": True})
            for op in (first, second):
                perform(op, host, names)
                world = applied(op, world)
            world = {names.get(name, name): session for name, session in world.items()}
        for number in range(cycles):
            world = _one(host, drawer, world, tell, is_starved=number % 5 == 0)
        require(len(world) > 1, "sessions are gone")
        world = judge(look(host), world, world, None)
    require(descriptors() == opened, "a descriptor was left open", opened, descriptors())
    with mmapstore.Host(directory / "data") as host:
        judge(look(host), world, world, None)
    check_closed(directory / "data")
    require(descriptors() == opened, "a descriptor was left open", opened, descriptors())


def _one(
    host: mmapstore.Host, drawer: Drawer, world: World, tell: Tell, *, is_starved: bool
) -> World:
    """Perform an operation on one of the sessions."""
    name = drawer.rng.choice(sorted(world))
    op = drawer.draw({name: world[name]})
    names: dict[str, str] = {}
    if is_starved and op.kind not in (*MAKING, "outbox", "delete", "reindex"):
        return {**world, **_starved(host, op, {name: world[name]}, drawer.rng.randrange(6), tell)}
    perform(op, host, names)
    tell("operations")
    world = applied(op, world)
    return {names.get(key, key): session for key, session in world.items()}


def _starved(host: mmapstore.Host, op: Operation, before: World, left: int, tell: Tell) -> World:
    """Perform an operation while only so many descriptors are left, and again if that fails."""
    goal = applied(op, before)
    held = _take_all(left)
    try:
        perform(op, host, {})
    except (OSError, mmapstore.MmapStoreError):
        is_acknowledged = False
    else:
        is_acknowledged = True
    finally:
        for fd in held:
            os.close(fd)
    if is_acknowledged:
        tell("operations without a descriptor to spare")
        return judge(_there(host, op), goal, goal, None)
    tell("operations that were told that there is none")
    world = judge(_there(host, op), before, goal, op)
    if not is_possible(op, world):
        return world
    perform(op, host, {})
    goal = applied(op, world)
    return judge(_there(host, op), goal, goal, None)


def _there(host: mmapstore.Host, op: Operation) -> World:
    return {op.session: disk.read(Path(host.data_dir), op.session).session}


def _take_all(left: int) -> list[int]:
    """Open files until no more than so many can be opened."""
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for fd in held[:left]:
            os.close(fd)
    return held[left:]
