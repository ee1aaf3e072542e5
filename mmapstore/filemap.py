"""The bytes of one generation of a file: mapped, or read with pread.

Two classes with one face. :class:`MappedFile` gives views of a mapping and costs
nothing until a byte is touched; it is for files whose writers replace by rename
and never truncate in place, since a page past the end of a shrunken file is a
signal that Python cannot catch. :class:`ReadFile` copies what is asked for and is
safe under any writer. Both keep the file open as long as anything that they gave
out lives; neither is ever resized: a file that has grown gets a new one.

Both are walked by a *reader* (:mod:`mmapstore.reading`), which presents the file as a
buffer with a part that is new, and keeps whatever line is not finished yet contiguous.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .reading import copying_reader

if TYPE_CHECKING:
    from .fileio import Descriptor
    from .reading import Reader
    from .scan import Searchable

#: bytes that a walk of a mapping presents at a time
SPAN_NBYTES = 8 << 20


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
        """Return a walk over [start, nbytes) through memory that is used again."""
        return copying_reader(self.descriptor, start, self.nbytes, _scratch)


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


def _scratch(nbytes: int) -> mmap.mmap:
    """Return memory that is zero, and is there when it is touched."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel may be built without
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
