"""A file's complete lines with their kinds, batch by batch, from front to back.

The one loop that a layout is built by and that a verification runs in: read a
step, find its newlines while it is in the cache, and classify the lines of many
steps together before their bytes leave the buffer. A torn tail is never presented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .classify import Classifier
from .decode import BYTE_ORDER_MARK
from .scan import LineFinder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from .filemap import FileBytes
    from .grammar import Dialect
    from .scan import Searchable

    #: called with (bytes done, bytes in all)
    Progress = Callable[[int, int], object]


class Batch(NamedTuple):
    """Adjacent complete lines in memory.

    Attributes
    ----------
    buffer : bytes-like with ``find``
        Holds them until the next batch is asked for.
    base : int
        File offset of the buffer's first byte.
    starts, ends : (count,) int64, bytes
        Half-open extents in the buffer.
    kinds : (count,) uint8
        Values of :class:`~mmapstore.dialect.Kind`.
    """

    buffer: Searchable
    base: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    kinds: NDArray[np.uint8]


def batches(
    source: FileBytes, dialect: Dialect, start: int, progress: Progress | None = None
) -> Iterator[Batch]:
    """Yield the complete lines from file offset `start`, which is a line start, on.

    Parameters
    ----------
    source : FileBytes
        The file's bytes.
    dialect : Dialect
        Decides the kinds.
    start : int
        Byte offset.
    progress : callable, optional
        Called with (bytes done, bytes in all) after each step.
    """
    classifier = Classifier(dialect)
    finder = LineFinder()
    reader = source.reader(start)
    keep = start
    found: list[NDArray[np.int64]] = []
    more = True
    while more:
        more = reader.advance(keep)
        if more:
            ends = finder.ends(reader.buffer, reader.octets, reader.start, reader.stop)
            if len(ends):
                found.append(ends)
            if progress is not None:
                progress(reader.base + reader.stop, source.nbytes)
            if not reader.full:
                continue
        if found:
            ends = found[0] if len(found) == 1 else np.concatenate(found)
            found.clear()
            starts = np.empty_like(ends)
            starts[0] = keep - reader.base
            starts[1:] = ends[:-1]
            kinds = _kinds(classifier, reader.buffer, starts, ends, at_top=keep == 0)
            yield Batch(reader.buffer, reader.base, starts, ends, kinds)
            keep = reader.base + int(ends[-1])


def _kinds(
    classifier: Classifier,
    buffer: Searchable,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    *,
    at_top: bool,
) -> NDArray[np.uint8]:
    if at_top and bytes(memoryview(buffer)[:3]) == BYTE_ORDER_MARK:
        # the mark belongs to the line's bytes but not to its text
        starts = starts.copy()
        starts[0] += len(BYTE_ORDER_MARK)
    return classifier.kinds(buffer, starts, ends)
