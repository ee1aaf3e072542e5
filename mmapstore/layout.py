"""The layout: where a transcript's message, compaction and review-state lines are.

A layout is built in one pass over the bytes and is immutable. It holds, for each
kind of line that reading cares about, where those lines start and end, in file
order: duplicates and damaged lines included, a torn tail excluded. Everything a
window needs is a slice of these arrays, so a window costs the window and not the
history in front of it. Decision record: 0127, layout index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .grammar import Kind
from .walk import batches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .filemap import FileBytes
    from .grammar import Dialect
    from .stamp import Stamp
    from .walk import Progress

    Offsets = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """Where lines of one sort lie: half-open byte ranges in file order.

    Attributes
    ----------
    starts, ends : (count,) little-endian uint64, bytes, read-only
        ``[starts[i], ends[i])`` is line *i* with its newline.
    """

    starts: Offsets
    ends: Offsets

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.starts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout:
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
    checkpoints : (count,) int64
        Indices into `compactions` of the lines that stand for a checkpoint: where a
        dialect writes a boundary line and then a summary, the summary.
    dialect : Dialect
        What decided the kinds.

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
    checkpoints: NDArray[np.int64]
    dialect: Dialect
    #: whether the last compaction line is a boundary that the next summary may complete
    open_boundary: bool

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
    none = _frozen(np.zeros(0, "<u8"), np.zeros(0, np.int64))
    nothing = Extents(none, none)
    empty = Layout(0, stamp, 0, nothing, nothing, nothing, np.zeros(0, np.int64), dialect, False)
    return extend(empty, source, stamp, progress=progress)


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
    return _grown(layout, stamp, file_len, line_count, starts, ends, kinds)


def _grown(
    layout: Layout,
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
        if not counts[list(wanted)].any():
            return old
        if counts[list(wanted)].sum() == len(of_line):
            return Extents(_frozen(old.starts, start), _frozen(old.ends, end))
        chosen = np.flatnonzero(np.isin(of_line, wanted))
        return Extents(_frozen(old.starts, start[chosen]), _frozen(old.ends, end[chosen]))

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
    )


def _checkpoints(layout: Layout, kinds: NDArray[np.uint8]) -> tuple[NDArray[np.int64], bool]:
    """Return which compaction lines stand for checkpoints, and whether one is half written.

    A boundary and the summary behind it are one checkpoint if neither a message nor
    another boundary stands between them; the summary stands for it.
    """
    standing = layout.checkpoints.tolist()
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
    return np.array(standing, dtype=np.int64), boundary


def _frozen(old: Offsets, new: NDArray[np.int64]) -> Offsets:
    joined: Offsets = np.concatenate([old, new.view("<u8")]) if len(old) else new.view("<u8")
    joined.flags.writeable = False
    return joined
