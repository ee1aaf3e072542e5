"""The bytes of one generation of a file: mapped, or read with pread.

Two classes with one face. :class:`MappedFile` gives views of a mapping and costs
nothing until a byte is touched; it is for files whose writers replace by rename
and never truncate in place, since a page past the end of a shrunken file is a
signal that Python cannot catch. :class:`ReadFile` copies what is asked for and is
safe under any writer. Both keep the file open as long as anything that they gave
out lives; neither is ever resized: a file that has grown gets a new one.

Both are walked by a *reader*, which presents the file as a buffer with a part
that is new, and keeps whatever line is not finished yet contiguous.
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .fileio import Descriptor
    from .scan import Searchable

#: bytes that a walk of a mapping presents at a time
SPAN_NBYTES = 8 << 20
#: bytes that a walk that copies presents at a time: still in the cache when looked at
STEP_NBYTES = 1 << 19
#: bytes of its buffer: lines stay in it until there is no room for another step
BUFFER_NBYTES = 4 << 20


class Reader(Protocol):
    """A walk through a file from front to back.

    Attributes
    ----------
    buffer : bytes-like with ``find``
        Holds at least the file's bytes from the offset kept to the last one presented.
    octets : (nbytes,) uint8
        The same memory as an array.
    base : int
        File offset of the buffer's first byte.
    start, stop : int
        The part of the buffer that is new, half-open.
    full : bool
        Whether the next part takes the place of bytes that are not kept.
    """

    buffer: Searchable
    octets: NDArray[np.uint8]
    base: int
    start: int
    stop: int

    @property
    def full(self) -> bool:
        """Whether the buffer has no room for another part."""

    def advance(self, keep: int) -> bool:
        """Present the next part, keeping bytes from file offset `keep` in the buffer.

        Returns False, and presents nothing, at the end of the file.
        """


class Run:
    """Adjacent bytes of a file in memory.

    Attributes
    ----------
    base : int
        File offset of the first byte.
    buffer : bytes or mmap
        The memory, to be searched.
    view : memoryview
        The same memory, read-only; slices of it keep it alive.
    """

    __slots__ = ("base", "buffer", "octets", "view")

    def __init__(self, base: int, buffer: mmap.mmap | bytes) -> None:
        self.base = base
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.octets = np.frombuffer(buffer, dtype=np.uint8)


class FileBytes(Protocol):
    """The bytes [0, nbytes) of one generation of a file."""

    nbytes: int
    access: str
    descriptor: Descriptor

    def view(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop), read-only; the view keeps them alive."""

    def run(self, start: int, stop: int) -> Run:
        """Return memory that holds bytes [start, stop), or what is left of them."""

    def reader(self, start: int) -> Reader:
        """Return a walk over [start, nbytes)."""


class MappedFile:
    """A file under a read-only shared mapping.

    Parameters
    ----------
    descriptor : Descriptor
        The open file.
    nbytes : int
        Its size; the mapping's length.

    Raises
    ------
    OSError
        The mapping was refused: ENODEV, ENOMEM, EMFILE and the like; EINVAL where the file
        has become shorter.

    Notes
    -----
    Never closed: a view that is still out would forbid it. The mapping goes when the
    last view and this object are gone.
    """

    access = "mmap"

    __slots__ = ("_run", "descriptor", "nbytes")

    def __init__(self, descriptor: Descriptor, nbytes: int) -> None:
        self.descriptor = descriptor
        self.nbytes = nbytes
        # an empty file cannot be mapped
        mapped: mmap.mmap | bytes = b""
        if nbytes:
            try:
                mapped = mmap.mmap(
                    descriptor.fd, nbytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ
                )
            except ValueError as error:
                message = f"cannot map {nbytes} bytes of {descriptor.path}: {error}"
                raise OSError(errno.EINVAL, message) from error
        self._run = Run(0, mapped)

    def view(self, start: int, stop: int) -> memoryview:
        """Return bytes [start, stop) without copying; the view keeps the mapping alive."""
        return self._run.view[start:stop]

    def run(self, start: int, stop: int) -> Run:
        """Return the whole mapping, which holds every run."""
        return self._run

    def reader(self, start: int) -> Reader:
        """Return a walk over [start, nbytes) of the mapping itself."""
        return _MapReader(self._run, start, self.nbytes)


class ReadFile:
    """A file that is read with pread, for writers that may do anything to it.

    Parameters
    ----------
    descriptor : Descriptor
        The open file.
    nbytes : int
        Its size when its generation began; bytes past it are not asked for.
    """

    access = "pread"

    __slots__ = ("descriptor", "nbytes")

    def __init__(self, descriptor: Descriptor, nbytes: int) -> None:
        self.descriptor = descriptor
        self.nbytes = nbytes

    def view(self, start: int, stop: int) -> memoryview:
        """Return a copy of bytes [start, stop); shorter where the file has shrunk."""
        return memoryview(self.descriptor.read(start, stop))

    def run(self, start: int, stop: int) -> Run:
        """Read bytes [start, stop) in one go."""
        return Run(start, self.descriptor.read(start, stop))

    def reader(self, start: int) -> Reader:
        """Return a walk over [start, nbytes) through a buffer that is used again."""
        return _CopyReader(self.descriptor, start, self.nbytes)


class _MapReader:
    """Presents a mapping in steps; nothing is copied, so every line stays where it is."""

    __slots__ = ("_end", "base", "buffer", "octets", "start", "stop")

    def __init__(self, run: Run, start: int, end: int) -> None:
        self.buffer: Searchable = run.buffer
        self.octets = run.octets
        self.base = 0
        self.start = self.stop = start
        self._end = end

    @property
    def full(self) -> bool:
        # nothing is ever lost, but what was just looked at is still in the cache
        return True

    def advance(self, keep: int) -> bool:
        self.start = self.stop
        self.stop = min(self.start + SPAN_NBYTES, self._end)
        return self.start < self.stop


class _CopyReader:
    """Reads into one buffer, step by step, and moves what is kept only to make room.

    The buffer doubles while a line is longer than half of it, so a line of n bytes is
    moved O(n) bytes in all and the memory held is at most four times the longest line.
    """

    __slots__ = ("_descriptor", "_end", "_memory", "base", "buffer", "octets", "start", "stop")

    def __init__(self, descriptor: Descriptor, start: int, end: int) -> None:
        self._descriptor = descriptor
        self._end = end
        self._allocate(min(BUFFER_NBYTES, max(end - start, 1)))
        self.base = start
        self.start = self.stop = 0

    def _allocate(self, nbytes: int) -> None:
        self._memory = bytearray(nbytes)
        self.buffer: Searchable = self._memory
        self.octets = np.frombuffer(self._memory, dtype=np.uint8)

    @property
    def full(self) -> bool:
        return len(self._memory) - self.stop < STEP_NBYTES

    def advance(self, keep: int) -> bool:
        self.start = self.stop
        step = min(STEP_NBYTES, self._end - self.base - self.stop)
        if step <= 0:
            return False
        if len(self._memory) - self.stop < step:
            self._make_room(keep)
        view = memoryview(self._memory)
        high = self.stop + step
        while self.stop < high and (
            nbytes := os.preadv(
                self._descriptor.fd, [view[self.stop : high]], self.base + self.stop
            )
        ):
            self.stop += nbytes
        return self.start < self.stop

    def _make_room(self, keep: int) -> None:
        first = keep - self.base
        kept = self.stop - first
        old = self.octets
        if 2 * kept > len(old):
            self._allocate(2 * len(old))
        self.octets[:kept] = old[first : first + kept]
        self.base = keep
        self.start = self.stop = kept
