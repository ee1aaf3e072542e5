"""A file read from front to back through memory that is used again.

Two readers with one face, :class:`Reader`. :class:`CopyReader` reads a step when it is
asked for one. :class:`AheadReader` has a second thread read the next piece while the last
one is looked at: reading is a third of a scan, and waits for no lock of the interpreter.
What is presented is the same, whoever reads it and when; a file that becomes shorter
meanwhile ends early for both.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread
from itertools import cycle
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .fileio import Descriptor
    from .scan import Searchable

#: bytes presented at a time: still in the cache when looked at
STEP_NBYTES = 1 << 19
#: bytes of the copy reader's buffer: lines stay in it until there is no room for another step
BUFFER_NBYTES = 4 << 20
#: bytes that are read at once by the second thread: enough to be worth waking it
PIECE_NBYTES = 8 << 20
#: bytes in front of each piece, for the line that it finishes; touched as far as that is long
MARGIN_NBYTES = 8 << 20
#: bytes of a walk from which on a second thread pays
AHEAD_FROM_NBYTES = 16 << 20


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


class CopyReader:
    """Reads into one buffer, step by step, and moves what is kept only to make room.

    The buffer doubles while a line is longer than half of it, so a line of n bytes is
    moved O(n) bytes in all and the memory held is at most four times the longest line.

    Parameters
    ----------
    descriptor : Descriptor
        The open file.
    start, end : int
        Bytes of it, half-open.
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
        """See :class:`Reader`."""
        return len(self._memory) - self.stop < STEP_NBYTES

    def advance(self, keep: int) -> bool:
        """See :class:`Reader`."""
        self.start = self.stop
        step = min(STEP_NBYTES, self._end - self.base - self.stop)
        if step <= 0:
            return False
        if len(self._memory) - self.stop < step:
            self._make_room(keep)
        view = memoryview(self._memory)[self.stop : self.stop + step]
        self.stop += _read(self._descriptor, view, self.base + self.stop)
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


def _read(descriptor: Descriptor, view: memoryview, offset: int) -> int:
    """Read bytes from a file offset on; return how many, fewer where the file ends."""
    at = 0
    while at < len(view) and (nbytes := os.preadv(descriptor.fd, [view[at:]], offset + at)):
        at += nbytes
    return at


class _Piece:
    """Memory for a piece of the file, with a margin before it, and whose it is."""

    __slots__ = (
        "buffer",
        "failed",
        "is_begun",
        "is_free",
        "is_last",
        "is_read",
        "nbytes",
        "octets",
        "view",
    )

    def __init__(self, buffer: Searchable) -> None:
        self.buffer = buffer
        self.view = memoryview(buffer)[MARGIN_NBYTES:]
        self.octets = np.frombuffer(memoryview(buffer), dtype=np.uint8)
        self.nbytes = 0
        self.failed = self.is_last = False
        # held until it may be read into, until that begins where somebody waits, and is done
        self.is_free, self.is_begun, self.is_read = (allocate_lock() for _ in range(3))
        self.is_read.acquire()

    def hand_over(self) -> None:
        """Let it be read into again, and wait until that has begun.

        Else the second thread would wait for the interpreter, which a search does not let
        go of, and read when there is nothing else to do.
        """
        self.is_begun.acquire(blocking=False)
        self.is_free.release()
        self.is_begun.acquire()


class _Ahead:
    """What the second thread works on; it knows nothing of who walks, who may walk away."""

    __slots__ = ("at", "descriptor", "end", "pieces", "stopped")

    def __init__(self, descriptor: Descriptor, at: int, end: int, pieces: list[_Piece]) -> None:
        self.descriptor = descriptor
        self.at = at
        self.end = end
        self.pieces = pieces
        self.stopped = False

    def work(self) -> None:
        for piece in cycle(self.pieces):
            piece.is_free.acquire()
            if self.stopped:
                return
            if piece.is_begun.locked():
                piece.is_begun.release()
            wanted = min(len(piece.view), self.end - self.at)
            try:
                piece.nbytes = _read(self.descriptor, piece.view[:wanted], self.at)
            except OSError:
                piece.failed = True
            self.at += piece.nbytes
            is_last = piece.is_last = piece.nbytes < wanted or self.at == self.end or piece.failed
            piece.is_read.release()
            if is_last:
                return

    def stop(self) -> None:
        self.stopped = True
        for piece in self.pieces:
            if piece.is_free.locked():
                piece.is_free.release()


class AheadReader:
    """Presents one piece of a file while a second thread reads the next.

    What this cannot do is left to a :class:`CopyReader`: a line that is longer than the
    margin, a read that failed, a process that was forked meanwhile and has no such thread.

    Parameters
    ----------
    descriptor : Descriptor
        The open file.
    start, end : int
        Bytes of it, half-open.
    allocate : callable
        Given a number of bytes, returns memory that costs nothing until it is touched.

    Raises
    ------
    RuntimeError
        The system gives no thread.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        start: int,
        end: int,
        allocate: Callable[[int], Searchable],
    ) -> None:
        self._descriptor = descriptor
        self._end = end
        pieces = [_Piece(allocate(MARGIN_NBYTES + PIECE_NBYTES)) for _ in range(2)]
        self._coming = cycle(pieces)
        self._ahead = _Ahead(descriptor, start, end, pieces)
        self._pid = os.getpid()
        self._rest: CopyReader | None = None
        self._piece: _Piece | None = None
        self.buffer: Searchable = pieces[1].buffer
        self.octets = pieces[1].octets
        # as if a piece that ends at `start` had been looked at
        self.start = self.stop = self._limit = MARGIN_NBYTES
        self.base = start - MARGIN_NBYTES
        start_new_thread(self._ahead.work, ())

    def __del__(self) -> None:
        """Let the thread end."""
        if hasattr(self, "_piece"):
            self._ahead.stop()

    @property
    def full(self) -> bool:
        """See :class:`Reader`."""
        return self.stop == self._limit if self._rest is None else self._rest.full

    def advance(self, keep: int) -> bool:
        """See :class:`Reader`."""
        self.start = self.stop
        if self._rest is None and self.stop == self._limit and not self._turn(keep):
            return False
        if self._rest is not None:
            return self._follow(self._rest, keep)
        self.stop = min(self.start + STEP_NBYTES, self._limit)
        return True

    def _turn(self, keep: int) -> bool:
        """Go on to the next piece; whether there is one."""
        offset = self.base + self._limit
        if self._piece is not None and self._piece.is_last:
            return False
        kept = offset - keep
        if kept > MARGIN_NBYTES or self._pid != os.getpid():
            self._leave(keep, offset)
            return True
        piece = next(self._coming)
        piece.is_read.acquire()
        if piece.failed:
            self._leave(keep, offset)
            return True
        if not piece.nbytes:
            self._piece = piece  # the last one
            return False
        piece.octets[MARGIN_NBYTES - kept : MARGIN_NBYTES] = self.octets[
            self._limit - kept : self._limit
        ]
        if self._piece is not None and not piece.is_last:
            self._piece.hand_over()
        self._piece = piece
        self.buffer, self.octets = piece.buffer, piece.octets
        self.base = offset - MARGIN_NBYTES
        self.start = self.stop = MARGIN_NBYTES
        self._limit = MARGIN_NBYTES + piece.nbytes
        return True

    def _leave(self, keep: int, offset: int) -> None:
        """Let a copy reader go on behind `offset`, with what is kept before it."""
        self._ahead.stop()
        rest = self._rest = CopyReader(self._descriptor, keep, self._end)
        while rest.base + rest.stop < offset and rest.advance(keep):
            pass
        rest.stop = min(rest.stop, offset - rest.base)

    def _follow(self, rest: CopyReader, keep: int) -> bool:
        more = rest.advance(keep)
        self.buffer, self.octets, self.base = rest.buffer, rest.octets, rest.base
        self.start, self.stop = rest.start, rest.stop
        return more


def copying_reader(
    descriptor: Descriptor, start: int, end: int, allocate: Callable[[int], Searchable]
) -> Reader:
    """Return a walk over bytes [start, end) of a file that are read.

    `allocate` is given a number of bytes and returns memory that costs nothing until it is
    touched.
    """
    if end - start >= AHEAD_FROM_NBYTES and _processor_count() > 1:
        try:
            return AheadReader(descriptor, start, end, allocate)
        except (RuntimeError, OSError):  # no thread to be had, or no memory
            pass
    return CopyReader(descriptor, start, end)


def _processor_count() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
