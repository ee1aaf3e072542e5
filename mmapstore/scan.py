"""Bytes to line ends: one pass that finds every newline and nothing else.

A line is the bytes up to and including one 0x0A; no other byte ends a line, and
no codec takes part. Two searches give the same answer at different prices:
``find`` costs a call a line and nothing a byte, so it wins on long lines; a
vectorised comparison costs the same for every byte and next to nothing a line,
so it wins on short ones. :class:`LineFinder` picks by the density of the lines
that it saw last; the crossing was measured at about one line in 2.2 KB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Buffer  # the type checker's own: nothing to install

    class Searchable(Buffer, Protocol):
        """What a scan needs of memory: the buffer protocol, and ``find`` beside it."""

        def find(self, sub: bytes, start: int = ..., stop: int = ..., /) -> int:
            """Return the first offset of `sub` in [start, stop), or -1."""


NEWLINE = b"\n"

#: mean line length, bytes, from which searching line by line is cheaper
SPARSE_FROM_NBYTES = 2200

#: bytes compared at once: the block, its comparison and its bit mask stay in the L2 cache
_STRIDE_NBYTES = 1 << 18

#: bytes of the beginning that tell how long lines are
_SAMPLE_NBYTES = 1 << 16


class LineFinder:
    """Finds where lines end, by whichever search suits the lines seen last.

    One finder serves one pass; it holds the scratch memory of the comparison.
    """

    __slots__ = ("_equal", "_sparse")

    def __init__(self) -> None:
        self._equal: NDArray[np.bool_] | None = None
        self._sparse: bool | None = None

    def ends(
        self, buffer: Searchable, octets: NDArray[np.uint8], start: int, stop: int
    ) -> NDArray[np.int64]:
        r"""Return where each line that ends in ``[start, stop)`` ends.

        Parameters
        ----------
        buffer : bytes, bytearray or mmap
            Searched with ``find``.
        octets : (nbytes,) uint8
            The same memory as an array.
        start, stop : int
            Bytes to look at, half-open.

        Returns
        -------
        ends : (count,) int64, bytes, ascending
            One past each ``\n``, counted from the beginning of the buffer.

        Notes
        -----
        O(stop - start). Bytes after the last end are a torn tail or belong to the next call.
        """
        if self._sparse is None:
            sample = octets[start : min(start + _SAMPLE_NBYTES, stop)]
            self._sparse = len(sample) >= SPARSE_FROM_NBYTES * int((sample == 0x0A).sum())
        if self._sparse:
            ends = ends_by_search(buffer, start, stop)
        else:
            if self._equal is None:
                self._equal = np.empty(_STRIDE_NBYTES, dtype=np.bool_)
            ends = ends_by_comparison(octets, start, stop, self._equal)
        if stop - start >= _SAMPLE_NBYTES:
            self._sparse = stop - start >= SPARSE_FROM_NBYTES * len(ends)
        return ends


def ends_by_search(buffer: Searchable, start: int, stop: int) -> NDArray[np.int64]:
    """Find line ends with one ``find`` a line."""
    find = buffer.find
    ends: list[int] = []
    append = ends.append
    at = start
    while at := find(NEWLINE, at, stop) + 1:
        append(at)
    return np.array(ends, dtype=np.int64)


def ends_by_comparison(
    octets: NDArray[np.uint8], start: int, stop: int, scratch: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Find line ends by comparing every byte, ``len(scratch)`` of them at a time."""
    # One bit a byte, then one test per 64 bits: most words of text hold no newline,
    # and finding the few that do is what keeps numpy's own nonzero off the bytes.
    words = np.zeros((stop - start + 63) // 64, dtype="<u8")
    bits = words.view(np.uint8)
    for low in range(start, stop, len(scratch)):
        high = min(low + len(scratch), stop)
        equal = scratch[: high - low]
        np.equal(octets[low:high], 0x0A, out=equal)
        packed = np.packbits(equal, bitorder="little")
        at = (low - start) // 8
        bits[at : at + len(packed)] = packed
    index = np.flatnonzero(words != 0)
    rest = words[index]
    found: list[NDArray[np.int64]] = []
    while len(index):
        lowest = rest & (~rest + np.uint64(1))
        # a power of two is exact in a float64, and its exponent is the bit's number
        exponent = (lowest.astype(np.float64).view(np.int64) >> 52) - 1023
        found.append(index * 64 + exponent)
        rest ^= lowest
        more = np.flatnonzero(rest)
        index, rest = index[more], rest[more]
    if not found:
        return np.zeros(0, dtype=np.int64)
    ends = found[0] if len(found) == 1 else np.sort(np.concatenate(found))
    ends += start + 1
    return ends
