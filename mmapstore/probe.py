"""Many lines at once: where a top-level key has its string value, proven near the ends.

A key is looked for where writers put it, with array operations over fixed windows
of every line. A place found counts only with a proof that holds for every valid
line:

* FIRST: the line starts with ``{"key":"``;
* HEAD: a ``"key":"`` follows no backslash, and neither ``{`` nor ``[`` stands
  between the line's opening brace and it: nothing is nested yet;
* TAIL: the last ``"key":"`` follows no backslash, and the line's last byte is the
  only ``}`` or ``]`` behind it: nothing is nested any more.

What none of them proves is left to the walk of :mod:`mmapstore.keys`, a line at a
time. The answer is a function of each line's bytes alone: lines near the ends of
a buffer are copied into a margin of zero bytes, so that no window is ever short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .grammar import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from .scan import Searchable

    Offsets = NDArray[np.int64]

#: bytes of a line's beginning and end that a probe looks at
_HEAD_NBYTES = 384
_TAIL_NBYTES = 512
#: bytes of a value that are compared before the line is walked instead
VALUE_NBYTES = 96
#: zero bytes that must be readable around every line that a probe looks at
_MARGIN_NBYTES = max(_HEAD_NBYTES, _TAIL_NBYTES) + VALUE_NBYTES

#: lines whose windows are gathered at once: a few megabytes, however short the lines are
_BLOCK_COUNT = 4096

OPEN_BRACE = 0x7B
_CLOSE_BRACE = 0x7D
_BACKSLASH = 0x5C
_CARRIAGE_RETURN = 0x0D


class Block:
    """Lines of one buffer, gathered by array operations.

    Parameters
    ----------
    buffer : buffer
        The memory that the lines lie in, with a margin of readable bytes around them.
    starts, ends : (count,) int64, bytes
        Half-open extents in the buffer; each line ends with its newline.
    """

    __slots__ = ("buffer", "ends", "octets", "starts")

    def __init__(self, buffer: Searchable, starts: Offsets, ends: Offsets) -> None:
        self.buffer = buffer
        self.octets = np.frombuffer(memoryview(buffer), dtype=np.uint8)
        self.starts = starts
        self.ends = ends

    def texts(self, at: Offsets, nbytes: int) -> NDArray[np.bytes_]:
        """Return `nbytes` bytes from each offset of `at` on, as (count,) S-strings."""
        count = len(self.octets) - nbytes + 1
        windows: NDArray[np.bytes_] = np.ndarray(
            (count,),
            f"S{nbytes}",
            self.octets,
            0,
            (1,),
        )
        return windows[at]

    def line(self, index: int) -> bytes:
        """Return a copy of one line."""
        start, end = int(self.starts[index]), int(self.ends[index])
        return bytes(memoryview(self.buffer)[start:end])


def first_values(block: Block, opening: bytes, todo: Offsets) -> Offsets:
    """Return where the value behind `opening` starts in lines that begin with it, else -1."""
    opening = b"{" + opening
    starts = block.starts[todo]
    hit = block.texts(starts, len(opening)) == opening
    return np.where(hit, starts + len(opening), -1)


def head_values(block: Block, opening: bytes, todo: Offsets) -> Offsets:
    """Return where the value behind `opening` starts, if proven from the line's front, else -1."""
    starts = block.starts[todo]
    rows = block.texts(starts, _HEAD_NBYTES)
    # bytes of the line before its first nested container
    flat = np.minimum(_first(rows, b"{"), _first(rows, b"["))
    flat = np.minimum(flat, block.ends[todo] - starts)
    if b"{" in opening:
        # the key of an object: it is proven if that object is the first nested container
        at = flat - opening.index(b"{")
        there = block.texts(starts + np.maximum(at, 0), len(opening)) == opening
        at = np.where(there, at, -1)
    else:
        # backwards, since writers put the key right before the container
        at = np.strings.rfind(rows, opening, 0, flat)
    hit = (
        (at > 0)
        & (block.octets[starts] == OPEN_BRACE)
        & (block.octets[starts + at - 1] != _BACKSLASH)
    )
    return np.where(hit, starts + at + len(opening), -1)


def _first(rows: NDArray[np.bytes_], octet: bytes) -> Offsets:
    at = np.strings.find(rows, octet, 1)
    return np.where(at < 0, _HEAD_NBYTES, at)


def tail_values(block: Block, opening: bytes, todo: Offsets) -> Offsets:
    """Return where the value behind `opening` starts, if proven from the line's end, else -1."""
    # A line ends with "}\n" or "}\r\n" here, or it is left to the walk.
    last = block.ends[todo] - 2
    last -= block.octets[last] == _CARRIAGE_RETURN
    base = last - _TAIL_NBYTES
    rows = block.texts(base, _TAIL_NBYTES)
    at = np.strings.rfind(rows, opening)
    hit = (
        (at > 0)
        & (np.strings.find(rows, b"}", at) < 0)
        & (np.strings.find(rows, b"]", at) < 0)
        & (block.octets[last] == _CLOSE_BRACE)
        & (base + at > block.starts[todo])
        & (block.octets[block.starts[todo]] == OPEN_BRACE)
        & (block.octets[base + at - 1] != _BACKSLASH)
    )
    return np.where(hit, base + at + len(opening), -1)


_PROBES: dict[Probe, Callable[[Block, bytes, Offsets], Offsets]] = {
    Probe.FIRST: first_values,
    Probe.HEAD: head_values,
    Probe.TAIL: tail_values,
}


def string_values(block: Block, key: bytes, probes: tuple[Probe, ...], todo: Offsets) -> Offsets:
    """Return where lines' top-level string value of `key` starts, as far as probes prove.

    Parameters
    ----------
    block : Block
        The lines.
    key : bytes
        As it is spelled between its quotes. ``a":{"b`` is the key b of the object a, where
        it is that object's first.
    probes : tuple of Probe
        Tried in this order.
    todo : (count,) int64
        Indices of the lines to look at.

    Returns
    -------
    offsets : (count,) int64, bytes
        For each of `todo`, of the byte behind the value's opening quote, in the buffer; -1
        where a walk of the line has to tell.
    """
    found = np.full(len(todo), -1, dtype=np.int64)
    rest = np.arange(len(todo))
    # as compact writers spell it, and as those do that put a space behind a colon
    for opening in (b'"' + key + b'":"', b'"' + key + b'": "'):
        for probe in probes:
            if not len(rest):
                return found
            values = _PROBES[probe](block, opening, todo[rest])
            found[rest] = values
            rest = rest[values < 0]
    return found


def without_key(block: Block, key: bytes, todo: Offsets) -> NDArray[np.bool_]:
    """Return which of the lines are objects, short enough to be seen whole, without that key."""
    starts = block.starts[todo]
    nbytes = block.ends[todo] - starts
    rows = block.texts(starts, _HEAD_NBYTES)
    absent = np.strings.find(rows, b'"' + key + b'"', 0, nbytes) < 0
    keyless: NDArray[np.bool_] = absent & (nbytes <= _HEAD_NBYTES)
    keyless &= block.octets[starts] == OPEN_BRACE
    return keyless


def may_be_objects(block: Block) -> NDArray[np.bool_]:
    """Return which lines begin with a brace, or with white space that one may follow."""
    first = block.octets[block.starts]
    white = (first == 0x20) | (first == 0x09) | (first == _CARRIAGE_RETURN)
    some: NDArray[np.bool_] = (first == OPEN_BRACE) | (white & (block.ends - block.starts > 2))
    return some


def plain_values(block: Block, at: Offsets, lines: Offsets) -> tuple[NDArray[np.bytes_], Offsets]:
    """Return strings that start at `at`, and how long each is.

    Parameters
    ----------
    block : Block
        The lines.
    at : (count,) int64, bytes
        Offsets in the buffer.
    lines : (count,) int64
        Indices of the lines that they are in.

    Returns
    -------
    rows : (count,) S-strings
        What stands at each offset, cut short of nothing that the lengths speak of.
    lengths : (count,) int64
        Bytes before the closing quote; -1 where an escape, the end of the line or the end
        of what was looked at comes first.
    """
    rows = block.texts(at, VALUE_NBYTES)
    quote = np.strings.find(rows, b'"')
    escape = np.strings.find(rows, b"\\")
    plain = ((escape < 0) | (escape > quote)) & (at + quote < block.ends[lines])
    return rows, np.where(plain, quote, -1)


def blocks(buffer: Searchable, starts: Offsets, ends: Offsets) -> Iterator[tuple[slice, Block]]:
    """Yield the lines in blocks that every probe can look at, with their places in `starts`.

    Parameters
    ----------
    buffer : bytes, bytearray, memoryview or mmap
        Holds the lines.
    starts, ends : (count,) int64, bytes, ascending
        Half-open extents in the buffer, newline included.
    """
    whole = Block(buffer, starts, ends)
    inner = _inner_lines(len(whole.octets), starts, ends)
    for first in range(inner.start, inner.stop, _BLOCK_COUNT):
        lines = slice(first, min(first + _BLOCK_COUNT, inner.stop))
        yield lines, Block(buffer, starts[lines], ends[lines])
    for outer in (slice(0, inner.start), slice(inner.stop, len(starts))):
        if outer.start < outer.stop:
            # few: what lies so near an end is not longer than the margin, or is one line
            copies = [whole.line(index) for index in range(outer.start, outer.stop)]
            yield outer, _with_margin(copies)


def _with_margin(lines: list[bytes]) -> Block:
    """Return copies of `lines` as a block with a margin of zero bytes around them."""
    margin = bytes(_MARGIN_NBYTES)
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    ends = np.cumsum(lengths) + _MARGIN_NBYTES
    return Block(margin + b"".join(lines) + margin, ends - lengths, ends)


def _inner_lines(nbytes: int, starts: Offsets, ends: Offsets) -> slice:
    """Return which lines lie so far inside a buffer of `nbytes` that no window leaves it."""
    first = int(np.searchsorted(ends, _MARGIN_NBYTES))
    # a value proven near the end of a long line is compared past the line, too
    last = min(
        int(np.searchsorted(starts, nbytes - _MARGIN_NBYTES, "right")),
        int(np.searchsorted(ends, nbytes - VALUE_NBYTES, "right")),
    )
    return slice(min(first, last), last)
