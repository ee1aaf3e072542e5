"""One operation under one fault: what it leaves, and that it can be asked for again."""

from __future__ import annotations

import gc
import os
import random
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import mmapstore

from . import disk
from .children import Tell
from .model import World
from .operations import MAKING, Operation, applied, compaction, is_possible, message, perform
from .oracle import Violation, check_closed, judge, look, require

_META = {"revisionRootId": "u1", "revisionCount": 2, "activeRevision": 2}
#: performed before the operation, where it is to meet a session that is open
_WARM = message("w1", "assistant", "before it")


def prepared(directory: Path) -> tuple[World, str]:
    """Make a directory in which every operation has something to do; return what it shows."""
    world: World = {}
    names: dict[str, str] = {}
    one = [message("u1", "user", "q"), message("a1", "assistant", "r"), message("x1", "tool", "s")]
    two = [message("u2", "user", "q", meta=_META), message("a2", "assistant", "r" * 300)]
    two.append(message("x2", "tool", "s"))
    with mmapstore.Host(directory) as host:
        for op in (
            Operation("create", "beside", {"title": "beside"}),
            Operation("append", "beside", {"messages": [message("b", "user", "")], "look": False}),
            Operation("create", "main", {"title": "main"}),
            Operation("append", "main", {"messages": one, "look": False}),
            Operation("truncate", "main", {"id": "u1"}),
            Operation("append", "main", {"messages": two, "look": False}),
            Operation("compact", "main", {"record": compaction("c1", "a2")}),
            Operation("review", "main", {"id": "x2", "snapshot": "s2", "state": "rolledBack"}),
        ):
            perform(op, host, names)
            world = applied(op, world)
    return {names[name]: session for name, session in world.items()}, names["main"]


def operations(world: World, main: str) -> dict[str, Operation]:
    """Return every mutation of a host, by name, as a prepared directory takes it."""
    new = [message("n1", "user", "", turnId="t9"), message("n2", "tool", "é" * 99, turnId="t9")]
    shown = world[main].messages
    save = {"family": "u1", "branch": [message("r1", "assistant", "")], "active": False}
    more: dict[str, dict[str, Any]] = {
        "append": {"messages": new, "turn": "t9", "look": False},
        "outbox": {"messages": new},
        "compact": {"record": compaction("c2", "a2")},
        "review": {"id": "x2", "snapshot": "s1", "state": "rolledBack"},
        "update": {"message": {**shown[1], "edited": True}},
        "replace": {"messages": [shown[2], new[0]]},
        "truncate": {"id": "a2"},
        "save": save,
        "save active": {},
        "activate": {"family": "u1", "index": 1},
        "delete revision": {"family": "u1", "index": 1},
        "delete": {},
        "reindex": {},
        "open": {},
        "close": {},
    }
    found = {kind: Operation(kind, main, each) for kind, each in more.items()}
    found["cut of all"] = Operation("truncate", main, {"id": "u2"})
    found["save and show"] = Operation("save", main, {**save, "active": True})
    found["create"] = Operation("create", "new", {"title": "new"})
    found["fork"] = Operation("fork", "new", {"parent": main, "through": "a2", "title": "new"})
    return found


def some(variants: list[tuple[str, bool]], cycles: int, seed: int) -> list[tuple[str, bool]]:
    """Return as many operations as so many faults are enough for; all of them for none."""
    if not cycles:
        return variants
    return random.Random(seed).sample(variants, max(1, min(len(variants), cycles // 8)))


def warm(main: str) -> Operation:
    """Return what is performed before an operation, so that the session is open."""
    return Operation("append", main, {"messages": [_WARM], "look": False})


def descriptors() -> list[str]:
    """Return what this process has open."""
    gc.collect()
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue  # that of the directory itself
    return sorted(found)


class Trial:
    """An operation on a copy of a prepared directory.

    Parameters
    ----------
    directory : Path
        The copy.
    op : Operation
        What is asked for.
    before : World
        What is there.
    first : Operation, optional
        What is performed before it.
    """

    def __init__(
        self, directory: Path, op: Operation, before: World, first: Operation | None = None
    ) -> None:
        self.directory = directory
        self.op = op
        self.first = first
        self.before = before if first is None else applied(first, before)
        self.after = applied(op, self.before) if op.kind != "open" else self.before

    # -- in a child -------------------------------------------------------------------

    def host(self) -> mmapstore.Host | None:
        """Return the host that is asked; None for one that is to be opened."""
        if self.op.kind == "open":
            return None
        host = mmapstore.Host(self.directory)
        if self.first is not None:
            perform(self.first, host, {})
        return host

    def attempt(
        self, host: mmapstore.Host | None, fault: AbstractContextManager[object], tell: Tell
    ) -> bool:
        """Ask for the operation, tell what became of it, ask again; whether it was acknowledged."""
        error: BaseException | None = None
        names: dict[str, str] = {}
        with fault:
            try:
                if host is None:
                    host = mmapstore.Host(self.directory)
                else:
                    perform(self.op, host, names)
            except (OSError, mmapstore.MmapStoreError) as failure:
                # of a type that a caller expects; anything else ends the child
                error = failure
        tell({"acknowledged": error is None, "error": repr(error), "names": names})
        if host is None or self.op.kind == "close":
            if host is not None:
                host.close()
            host = mmapstore.Host(self.directory)
        with host:
            world = self._judged(host, names, unknown=error is not None)
            world = self._asked_again(host, world, unknown=error is not None)
        found = {i: disk.read(self.directory, i).session for i in disk.session_ids(self.directory)}
        judge(found, world, world, None)
        try:
            check_closed(self.directory)
        except Violation:
            # where the index could not be written to, the next opening brings it up to date
            mmapstore.Host(self.directory).close()
            check_closed(self.directory)
        return error is None

    def _judged(self, host: mmapstore.Host, names: dict[str, str], *, unknown: bool) -> World:
        before = self.before if unknown else self.after
        op = self.op if unknown else None
        name_of = {session_id: name for name, session_id in names.items()}
        found = {name_of.get(key, key): session for key, session in look(host).items()}
        world = judge(found, before, self.after, op)
        return {names.get(name, name): session for name, session in world.items()}

    def _asked_again(self, host: mmapstore.Host, world: World, *, unknown: bool) -> World:
        op = self.op
        if op.kind == "delete" and op.session not in world:
            if disk.orphans(self.directory, op.session):
                require(unknown, "files of a deleted session are left")
                perform(op, host, {})
                require(not disk.orphans(self.directory, op.session), "files were left")
            return world
        if not unknown or op.kind in ("open", "close") or not is_possible(op, world):
            return world
        if op.kind in MAKING and set(world) - set(self.before):
            return world
        names: dict[str, str] = {}
        perform(op, host, names)
        goal = applied(op, world)
        goal = {names.get(name, name): session for name, session in goal.items()}
        return judge(look(host), goal, goal, None)

    # -- in the parent, after a kill ----------------------------------------------------

    def recover(self, told: list[Any]) -> None:
        """Open what a kill has left, and hold it against what the child has told."""
        unknown = not (told and told[0]["acknowledged"])
        names = told[0]["names"] if told else {}
        try:
            with mmapstore.Host(self.directory) as host:
                world = self._judged(host, names, unknown=unknown)
                world = self._asked_again(host, world, unknown=unknown)
        except mmapstore.LockedError as error:
            raise Violation("the lock of a dead host is not free") from error
        with mmapstore.Host(self.directory) as host:
            judge(look(host), world, world, None)
        check_closed(self.directory)


class Trials:
    """Operations to try, each on a copy of one prepared directory.

    Parameters
    ----------
    directory : Path
        To work in.

    Attributes
    ----------
    operations : dict
        By name.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._world, self._main = prepared(directory / "prepared")
        self.operations = operations(self._world, self._main)

    def another(self, name: str, *, is_open: bool) -> Trial:
        """Return a trial of an operation, on a session that is open already or is not."""
        copy = self._directory / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self._directory / "prepared", copy)
        first = warm(self._main) if is_open else None
        return Trial(copy, self.operations[name], self._world, first)
