"""The layout: where a transcript's message, compaction and review-state lines are.

A layout is built in one pass over the bytes and is immutable. It holds, for each
kind of line that reading cares about, where those lines start and end, in file
order: duplicates and damaged lines included, a torn tail excluded. Everything a
window needs is a slice of these arrays, so a window costs the window and not the
history in front of it. Decision record: 0127, layout index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .classify import Classifier
from .columns import Column
from .grammar import Kind
from .walk import batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .filemap import FileBytes
    from .grammar import Dialect
    from .stamp import Stamp
    from .walk import Progress

    Offsets = NDArray[np.uint64]

#: bytes in front of `file_len` that tell whether they are still the same
LAST_NBYTES = 4096


class Extents:
    """Where lines of one sort lie: half-open byte ranges in file order.

    Parameters
    ----------
    starts, ends : Column of little-endian uint64, bytes
        ``[starts[i], ends[i])`` is line *i* with its newline.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, starts: Column, ends: Column) -> None:
        self._starts = starts
        self._ends = ends

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._starts)

    @property
    def starts(self) -> Offsets:
        """Where each line starts: (count,) little-endian uint64, bytes, read-only."""
        return self._starts.whole()

    @property
    def ends(self) -> Offsets:
        """Where each line ends, behind its newline: as :attr:`starts`."""
        return self._ends.whole()

    def __repr__(self) -> str:
        """Show the count."""
        return f"<Extents of {len(self)} lines>"

    def at(self, index: int) -> tuple[int, int]:
        """Return where one line starts and ends."""
        return self._starts.at(index), self._ends.at(index)

    def part(self, start: int, stop: int) -> tuple[Offsets, Offsets]:
        """Return where lines [start, stop) start and end."""
        return self._starts.part(start, stop), self._ends.part(start, stop)

    def first_from(self, offset: int) -> int:
        """Return the index of the first line that starts at `offset` or behind it."""
        return self._starts.search(offset)

    def stop_within(self, offset: int) -> int:
        """Return the index behind the last line that ends at `offset` or before it."""
        return self._ends.search(offset, "right")

    def grown(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Extents:
        """Return the extents with more lines behind these."""
        return Extents(self._starts.grown(starts), self._ends.grown(ends))


class Layout(NamedTuple):
    """Offsets of the lines of one generation of a transcript.

    Attributes
    ----------
    file_len : int
        Bytes up to the end of the last complete line; what follows is a torn tail.
    stamp : Stamp
        The file's stamp before its bytes were read.
    line_count : int
        Complete lines of every kind, blank ones included.
    messages, compactions, reviews : Extents
        The lines of these kinds.
    checkpoints : Column of int64
        Indices into `compactions` of the lines that stand for a checkpoint: where a
        dialect writes a boundary line and then a summary, the summary.
    dialect : Dialect
        What decided the kinds.
    last : bytes
        The last bytes in front of `file_len`, by which an append is told from a rewrite.

    Notes
    -----
    16 bytes a line of these kinds. ``message_offsets`` and its siblings are the starts.
    """

    file_len: int
    stamp: Stamp
    line_count: int
    messages: Extents
    compactions: Extents
    reviews: Extents
    checkpoints: Column
    dialect: Dialect
    #: whether the last compaction line is a boundary that the next summary may complete
    open_boundary: bool
    last: bytes = b""

    def __repr__(self) -> str:
        """Show the counts."""
        return (
            f"<Layout of {self.file_len} bytes: {len(self.messages)} messages, "
            f"{len(self.compactions)} compaction lines, {len(self.reviews)} review states, "
            f"{self.line_count} lines>"
        )

    @property
    def message_offsets(self) -> Offsets:
        """Byte offsets of the message lines: (count,) little-endian uint64, read-only."""
        return self.messages.starts

    @property
    def compaction_offsets(self) -> Offsets:
        """Byte offsets of the compaction lines: (count,) little-endian uint64, read-only."""
        return self.compactions.starts

    @property
    def review_offsets(self) -> Offsets:
        """Byte offsets of the review-state lines: (count,) little-endian uint64, read-only."""
        return self.reviews.starts


def build(
    source: FileBytes, dialect: Dialect, stamp: Stamp, *, progress: Progress | None = None
) -> Layout:
    """Scan a whole file once and return its layout.

    Parameters
    ----------
    source : FileBytes
        The file's bytes.
    dialect : Dialect
        Decides the kinds.
    stamp : Stamp
        Taken from the open file before this call.
    progress : callable, optional
        Called with (bytes done, bytes in all) after each part.

    Notes
    -----
    O(nbytes), one pass. Nothing is kept but the offsets.
    """
    none = Column(np.zeros(0, "<u8"))
    nothing = Extents(none, none)
    checkpoints = Column(np.zeros(0, "<i8"))
    empty = Layout(0, stamp, 0, nothing, nothing, nothing, checkpoints, dialect, False)
    return extend(empty, source, stamp, progress=progress)


def is_behind(layout: Layout, source: FileBytes) -> bool:
    """Whether the last lines of a layout are still where they were in a file that has grown.

    Notes
    -----
    Reads a few kilobytes. It tells an append from a rewrite of the same file in all but
    contrived cases; it proves nothing of the lines before them.
    """
    return source.nbytes >= layout.file_len and last_bytes(source, layout.file_len) == layout.last


def last_bytes(source: FileBytes, file_len: int) -> bytes:
    """Return the bytes by which a layout that ends at `file_len` recognises its file."""
    return bytes(source.view(max(0, file_len - LAST_NBYTES), file_len))


def extend(
    layout: Layout, source: FileBytes, stamp: Stamp, *, progress: Progress | None = None
) -> Layout:
    """Return the layout of a file that has grown, scanning only what is behind `layout`.

    Right only if the first ``layout.file_len`` bytes are those that `layout` was built
    from. Lines are classified as :func:`build` classifies them.
    """
    starts: list[NDArray[np.int64]] = []
    ends: list[NDArray[np.int64]] = []
    kinds: list[NDArray[np.uint8]] = []
    line_count = layout.line_count
    file_len = layout.file_len
    for batch in batches(source, layout.dialect, file_len, progress):
        wanted = np.flatnonzero(batch.kinds)
        starts.append(batch.starts[wanted] + batch.base)
        ends.append(batch.ends[wanted] + batch.base)
        kinds.append(batch.kinds[wanted])
        line_count += len(batch.ends)
        file_len = batch.base + int(batch.ends[-1])
    return _grown(layout, source, stamp, file_len, line_count, starts, ends, kinds)


def with_few(layout: Layout, added: bytes, stamp: Stamp) -> Layout | None:
    """Return the layout with a few lines more, told one by one; None where arrays must tell.

    Parameters
    ----------
    layout : Layout
        What is known.
    added : bytes
        What stands in the file behind ``layout.file_len``.
    stamp : Stamp
        Of the file that has grown.

    Notes
    -----
    O(len(added)), whatever the layout's length.
    """
    if layout.open_boundary or not layout.file_len:
        return None
    glance = Classifier(layout.dialect).at_a_glance
    messages: list[tuple[int, int]] = []
    reviews: list[tuple[int, int]] = []
    line_count = layout.line_count
    start = 0
    while end := added.find(b"\n", start) + 1:
        kind = glance(added[start:end])
        if kind is Kind.MESSAGE:
            messages.append((layout.file_len + start, layout.file_len + end))
        elif kind is Kind.REVIEW:
            reviews.append((layout.file_len + start, layout.file_len + end))
        elif kind is not Kind.OTHER:
            return None
        line_count += 1
        start = end
    file_len = layout.file_len + start
    return Layout(
        file_len,
        stamp,
        line_count,
        layout.messages.grown(*_columns(messages)) if messages else layout.messages,
        layout.compactions,
        layout.reviews.grown(*_columns(reviews)) if reviews else layout.reviews,
        layout.checkpoints,
        layout.dialect,
        False,
        (layout.last + added[:start])[-LAST_NBYTES:],
    )


def _columns(extents: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(extents, np.int64).T


def _grown(
    layout: Layout,
    source: FileBytes,
    stamp: Stamp,
    file_len: int,
    line_count: int,
    starts: list[NDArray[np.int64]],
    ends: list[NDArray[np.int64]],
    kinds: list[NDArray[np.uint8]],
) -> Layout:
    of_line = np.concatenate(kinds) if kinds else np.zeros(0, np.uint8)
    start = np.concatenate(starts) if starts else np.zeros(0, np.int64)
    end = np.concatenate(ends) if ends else np.zeros(0, np.int64)
    counts = np.bincount(of_line, minlength=len(Kind))
    checkpoints, open_boundary = layout.checkpoints, layout.open_boundary
    if counts[Kind.COMPACTION] or counts[Kind.SUMMARY] or (open_boundary and len(of_line)):
        checkpoints, open_boundary = _checkpoints(layout, of_line)

    def grown(old: Extents, *wanted: Kind) -> Extents:
        count = counts[list(wanted)].sum()
        if not count:
            return old
        if count == len(of_line):
            return old.grown(start, end)
        chosen = np.flatnonzero(np.isin(of_line, wanted))
        return old.grown(start[chosen], end[chosen])

    return Layout(
        file_len,
        stamp,
        line_count,
        grown(layout.messages, Kind.MESSAGE),
        grown(layout.compactions, Kind.COMPACTION, Kind.SUMMARY),
        grown(layout.reviews, Kind.REVIEW),
        checkpoints,
        layout.dialect,
        open_boundary,
        last_bytes(source, file_len),
    )


def _checkpoints(layout: Layout, kinds: NDArray[np.uint8]) -> tuple[Column, bool]:
    """Return which compaction lines stand for checkpoints, and whether one is half written.

    A boundary and the summary behind it are one checkpoint if neither a message nor
    another boundary stands between them; the summary stands for it.
    """
    standing = layout.checkpoints.whole().tolist()
    index = len(layout.compactions)
    boundary = layout.open_boundary
    relevant = kinds[kinds != Kind.REVIEW]
    # A run of messages is one event: only what stands directly before a compaction matters.
    at = np.flatnonzero(relevant != Kind.MESSAGE)
    previous = -1
    for position, kind in zip(at.tolist(), relevant[at].tolist(), strict=True):
        if position != previous + 1:
            boundary = False
        previous = position
        if kind == Kind.SUMMARY and boundary:
            standing[-1] = index
        else:
            standing.append(index)
        boundary = kind == Kind.COMPACTION
        index += 1
    if len(relevant) and previous != len(relevant) - 1:
        boundary = False
    return Column(np.array(standing, dtype="<i8")), boundary
