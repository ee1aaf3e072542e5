"""A disk that has not written everything yet: what is cached, what is durable, what a power cut leaves.

The model is that of the standard and not of one file system: the content of a file
is durable when it was synced, a name when its directory was; of what is not, any part may
be there, in any combination, zeros included. A rename is one step.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

#: names that SQLite writes to, behind the back of what is watched
INDEX = "index.sqlite"
_ALL_SUBSETS = 4


class Inode:
    """A file: its content, and how much of that is durable."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.durable = data

    def is_dirty(self) -> bool:
        """Whether a power cut may leave something else than its content."""
        return self.data != self.durable

    def left(self, how: str, rng: random.Random) -> bytes:
        """Return what a power cut leaves."""
        old, new = self.durable, self.data
        if how == "nothing" or old == new:
            return old
        if how == "everything":
            return new
        if not new.startswith(old):  # changed in place: the one or the other
            return rng.choice([old, new])
        cut = rng.randrange(len(old), len(new) + 1)
        if how == "torn":
            return new[:cut]
        if how == "zeros":
            return old + bytes(len(new) - len(old))
        if how == "zeros behind":
            return new[:cut] + bytes(len(new) - cut)
        assert how == "zeros before", how
        return old + bytes(cut - len(old)) + new[cut:]


WAYS = ("nothing", "everything", "torn", "zeros", "zeros behind", "zeros before")

#: a change of names: what they become; None for one that goes
Change = dict[str, Inode | None]


class Disk:
    """The files of one directory, by path below it."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.pending: list[tuple[str, Change]] = []

    @classmethod
    def of(cls, directory: Path) -> Disk:
        """Return a disk that has all of a directory durable."""
        disk = cls()
        for path in directory.rglob("*"):
            name = str(path.relative_to(directory))
            if path.is_file() and not name.startswith(INDEX):
                disk.names[name] = Inode(path.read_bytes())
        disk.durable = dict(disk.names)
        return disk

    def change(self, parent: str, change: Change) -> None:
        """Change names at once, and for good when their directory is synced."""
        self.pending.append((parent, change))
        _apply(self.names, change)

    def sync_names(self, parent: str) -> None:
        """Make the names in a directory durable."""
        for where, change in self.pending:
            if where == parent:
                _apply(self.durable, change)
        self.pending = [each for each in self.pending if each[0] != parent]

    def states(self, rng: random.Random, most: int) -> Iterator[dict[str, bytes]]:
        """Yield what a power cut may leave now: at most so many states, the extremes first."""
        subsets = list(self._subsets(rng))
        ways = WAYS if any(inode.is_dirty() for inode in self._inodes()) else WAYS[:1]
        extreme = [(s, w) for s in (subsets[0], subsets[-1]) for w in ways[:2]]
        others = [(s, w) for s in subsets for w in ways if (s, w) not in extreme]
        rng.shuffle(others)
        for subset, way in (extreme + others)[:most]:
            names = dict(self.durable)
            for number in subset:
                _apply(names, self.pending[number][1])
            yield {name: inode.left(way, rng) for name, inode in names.items()}

    def _inodes(self) -> set[Inode]:
        changed = {inode for _, change in self.pending for inode in change.values() if inode}
        return {*self.names.values(), *self.durable.values(), *changed}

    def _subsets(self, rng: random.Random) -> Iterator[tuple[int, ...]]:
        """Yield which of the pending changes have happened: none first, all of them last."""
        every = tuple(range(len(self.pending)))
        if len(every) <= _ALL_SUBSETS:
            for count in range(len(every) + 1):
                yield from combinations(every, count)
            return
        yield ()
        for number in every:
            yield (number,)
            yield tuple(other for other in every if other != number)
        for _ in range(8):
            yield tuple(sorted(rng.sample(every, rng.randrange(len(every)))))
        yield every

    def cached(self) -> dict[str, bytes]:
        """Return what every process sees."""
        return {name: inode.data for name, inode in self.names.items()}


def _apply(names: dict[str, Inode], change: Change) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


class Recorder:
    """Watches what this process does to a directory, and keeps the disk after each step.

    Parameters
    ----------
    directory : Path
        What is watched.
    disk : Disk
        How it begins.

    Attributes
    ----------
    points : list of (Disk, int)
        The disk after each step that changes it, and how many operations had been
        acknowledged then.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk
        self.acknowledged = 0
        self.points: list[tuple[Disk, int]] = [(copy.deepcopy(disk), 0)]
        self._open: dict[int, Inode | str] = {}

    def acknowledge(self) -> None:
        """Note that an operation has returned."""
        self.acknowledged += 1
        self._step()

    def _step(self) -> None:
        self.points.append((copy.deepcopy(self.disk), self.acknowledged))

    def _name(self, path: Any) -> str | None:
        name = os.path.relpath(os.fspath(path), self.directory)
        return None if name.startswith(("..", INDEX)) else name

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the block runs."""
        names = ("open", "close", "write", "pwrite", "fdatasync", "fsync", "replace", "unlink")
        real = {name: getattr(os, name) for name in names}

        def after(name: str, note: Callable[..., None]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                result = real[name](*args, **kwargs)
                note(result, *args)
                return result

            return call

        try:
            for name in names:
                setattr(os, name, after(name, getattr(self, f"_note_{name}")))
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def _note_open(self, fd: int, path: Any, flags: int, *_mode: Any) -> None:
        self._open.pop(fd, None)
        name = self._name(path)
        if name is None or flags & getattr(os, "O_TMPFILE", 0) == getattr(os, "O_TMPFILE", -1):
            return
        if os.path.isdir(path):
            self._open[fd] = name
            return
        if name not in self.disk.names and flags & os.O_CREAT:
            self.disk.change(os.path.dirname(name) or ".", {name: Inode()})
            self._step()
        if name in self.disk.names:
            self._open[fd] = self.disk.names[name]

    def _note_close(self, _result: None, fd: int) -> None:
        self._open.pop(fd, None)

    def _note_write(self, count: int, fd: int, data: Any) -> None:
        inode = self._open.get(fd)
        if isinstance(inode, Inode):
            inode.data += bytes(data)[:count]
            self._step()

    def _note_pwrite(self, count: int, fd: int, data: Any, offset: int) -> None:
        inode = self._open.get(fd)
        if isinstance(inode, Inode):
            inode.data = inode.data[:offset] + bytes(data)[:count] + inode.data[offset + count :]
            self._step()

    def _note_fdatasync(self, _result: None, fd: int) -> None:
        there = self._open.get(fd)
        if isinstance(there, Inode):
            there.durable = there.data
        elif there is not None:
            self.disk.sync_names(there)
        if there is not None:
            self._step()

    _note_fsync = _note_fdatasync

    def _note_replace(self, _result: None, source: Any, target: Any) -> None:
        old, new = self._name(source), self._name(target)
        if old is not None and new is not None:
            inode = self.disk.names[old]
            self.disk.change(os.path.dirname(new) or ".", {old: None, new: inode})
            self._step()

    def _note_unlink(self, _result: None, path: Any) -> None:
        name = self._name(path)
        if name is not None and name in self.disk.names:
            self.disk.change(os.path.dirname(name) or ".", {name: None})
            self._step()
