"""One state of a transcript: a layout and the bytes that it was proven for.

A generation is immutable but for what it works out once and keeps: the replayed
review states and the message identities. Every line is checked when it is handed
out: it begins at a line start, is an object, and holds its newline at its end and
nowhere else. A layout that fails the check no longer describes the file; one that
came from a cache is then worked out from the file, and the lines are read again.
What a generation has worked out is handed on to the one that an append makes of it.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import identity
from .decode import Undecodable, decode_each, without_mark
from .errors import LineDecodeError, TranscriptChangedError
from .keys import object_start
from .review import ReviewStates, overlay
from .scan import NEWLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .fileio import Descriptor
    from .filemap import FileBytes, Run
    from .grammar import Dialect
    from .identity import Identities
    from .layout import Extents, Layout

_OPEN_BRACE = 0x7B
_LINE_FEED = 0x0A
#: positions whose being touched is noted together
_TOUCHED_COUNT = 1024
#: a part is read whole if its lines are at least one in so many of its bytes
_BRIDGED = 8


class Damaged(NamedTuple):
    """A line of the layout that does not decode.

    Attributes
    ----------
    position : int or None
        Its position if it is a message line.
    offset : int
        Byte offset of the line.
    reason : str
        What the decoder objected to.
    """

    position: int | None
    offset: int
    reason: str


class _Touched:
    """The positions that were touched: a byte for each, in blocks of those that were."""

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: dict[int, bytearray] = {}

    def clear(self) -> None:
        self._blocks.clear()

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        while start < stop:
            block = start // _TOUCHED_COUNT
            end = min(stop, (block + 1) * _TOUCHED_COUNT)
            first = block * _TOUCHED_COUNT
            yield block, start - first, end - first
            start = end

    def has(self, start: int, stop: int) -> bool:
        """Whether all of [start, stop) were touched."""
        for block, low, high in self._parts(start, stop):
            known = self._blocks.get(block)
            if known is None or known.find(0, low, high) >= 0:
                return False
        return True

    def add(self, start: int, stop: int) -> None:
        """Note that [start, stop) were touched."""
        for block, low, high in self._parts(start, stop):
            known = self._blocks.setdefault(block, bytearray(_TOUCHED_COUNT))
            known[low:high] = bytes([1]) * (high - low)


class Generation:
    """A layout over the bytes it was built from.

    Parameters
    ----------
    number : int
        Counts the generations of one transcript, from 0.
    path : str
        Where the file was opened, for errors.
    layout : Layout
        Where its lines are.
    source : callable
        Returns its bytes; called when they are first looked at, since of most states that a
        host's appends lead through none are.
    descriptor : Descriptor
        The open file.
    claimed : bool
        Whether the dialect is settled, whatever is appended.
    proven : bool
        Whether the stamp was the same before and after the bytes were read, and stands for
        them from then on: whether the layout may be kept.
    racy : bool
        Whether a foreign edit might have left the stamp as it is.
    on_trust : bool
        Whether growth was taken for an append on the word of a caller.
    renew : callable, optional
        For a layout out of a cache: works it out from the file and puts that in place of what
        the cache gave; raises :class:`TranscriptChangedError` where the file has other lines.
    before : Generation, optional
        The one that this one is an append to.
    identities : Identities, optional
        Those of all messages, where they are known.
    """

    from_cache: bool
    _renewal: Callable[[], None] | None
    _touched: _Touched
    _identities: Identities | None

    def __init__(
        self,
        number: int,
        path: str,
        layout: Layout,
        source: Callable[[], FileBytes],
        descriptor: Descriptor,
        *,
        claimed: bool = True,
        proven: bool = True,
        racy: bool = False,
        on_trust: bool = False,
        renew: Callable[[], None] | None = None,
        before: Generation | None = None,
        identities: Identities | None = None,
    ) -> None:
        self.number = number
        self.path = path
        self.layout = layout
        self.descriptor = descriptor
        self._open_source = source
        self.claimed = claimed
        self.proven = proven
        self.racy = racy
        self.on_trust = on_trust
        #: set by a failed check: the next refresh builds anew, whatever the stamp says
        self.doubted = False
        self.from_cache = renew is not None or (before is not None and before.from_cache)
        self._renewal = renew if before is None else before._renewal
        # Message lines of a mapping are checked when they are first touched. What is read
        # anew is checked each time: it may be other bytes.
        self._vouched: set[tuple[int, int]] = set()
        self._touched = _Touched() if before is None else before._touched
        if before is not None:
            self._identities = identities or before._identities
            self._review_states: ReviewStates = before._review_states
        else:
            self._identities = identities
            self._review_states = ReviewStates()

    @cached_property
    def source(self) -> FileBytes:
        """The bytes of the file in this state."""
        return self._open_source()

    @property
    def dialect(self) -> Dialect:
        """What the lines are written in."""
        return self.layout.dialect

    def continues(self, earlier: Generation) -> bool:
        """Whether appends alone led here from an earlier state: every position still holds."""
        # handed on by an append, and by nothing else
        return self._touched is earlier._touched

    # -- lines ------------------------------------------------------------------------

    def runs(self, extents: Extents, start: int, stop: int) -> Iterator[tuple[int, int, Run]]:
        """Yield lines [start, stop) as half-open index ranges of one run of memory each.

        A run ends after a few megabytes; one that is read also where much else lies between.
        """
        for first, end in self.parts(extents, start, stop):
            if self.source.access == "mmap":
                yield first, end, self.source.run(0, self.source.nbytes)
                continue
            starts, ends = extents.part(first, end)
            if _BRIDGED * int((ends - starts).sum()) >= int(ends[-1] - starts[0]):
                # what lies between costs less than as many reads as there are gaps
                yield first, end, self.read_run(extents, first, end)
                continue
            for low, high in pairwise(self.edges(extents, first, end)):
                yield low, high, self.read_run(extents, low, high)

    def edges(self, extents: Extents, start: int, stop: int) -> list[int]:
        """Return where lines [start, stop) fall apart: between two edges all are adjacent."""
        starts, ends = extents.part(start, stop)
        gaps = np.flatnonzero(starts[1:] != ends[:-1])
        return [start, *(gaps + start + 1).tolist(), stop]

    def parts(self, extents: Extents, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield lines [start, stop) as half-open index ranges of a few megabytes each."""
        return identity.spans(extents, start, stop)

    def read_run(self, extents: Extents, start: int, stop: int) -> Run:
        """Return memory that holds adjacent lines [start, stop) and the byte before them."""
        return self.source.run(max(extents.at(start)[0] - 1, 0), extents.at(stop - 1)[1])

    def line(self, extents: Extents, index: int, run: Run | None = None) -> memoryview:
        """Return one line, checked; see :meth:`check`."""
        try:
            return self._line(extents, index, run)
        except TranscriptChangedError as error:
            self._renew(error)
            return self._line(extents, index, None)

    def _line(self, extents: Extents, index: int, run: Run | None) -> memoryview:
        start, end = extents.at(index)
        if run is None:
            run = self.source.run(max(start - 1, 0), end)
        self.check(run, start, end)
        return run.view[start - run.base : end - run.base]

    def vouch(self, start: int, stop: int) -> None:
        """Check the outer lines of a page, once.

        So a layout that has gone wrong is found out before anyone relies on its positions.
        """
        if (start, stop) not in self._vouched:
            self.line(self.layout.messages, start)
            self.line(self.layout.messages, stop - 1)
            self._vouched.add((start, stop))

    def _renew(self, error: TranscriptChangedError) -> None:
        """Do without the cache after a failed check; pass the error on if there is none."""
        renew, self._renewal = self._renewal, None
        if renew is None:
            raise error
        renew()
        self._touched.clear()
        self._identities, self._review_states = None, ReviewStates()
        self.doubted = False

    def check(self, run: Run, start: int, end: int) -> None:
        """Check that file bytes [start, end) are one line that holds an object.

        Raises
        ------
        TranscriptChangedError
            They are not: the file was changed in place.
        """
        buffer, base = run.buffer, run.base
        if (
            buffer.find(NEWLINE, start - base, end - base) != end - base - 1
            or (start and buffer[start - base - 1] != _LINE_FEED)
            or (
                buffer[start - base] != _OPEN_BRACE
                and object_start(bytes(text_of(run.view[start - base : end - base], start))) < 0
            )
        ):
            self.doubt(start)

    def doubt(self, offset: int) -> None:
        """Say that the file is no longer what the layout describes."""
        self.doubted = True
        raise TranscriptChangedError(
            "the file was changed in place",
            path=self.path,
            offset=offset,
            hint="refresh() reads it anew",
        )

    # -- records ----------------------------------------------------------------------

    def records(
        self, extents: Extents, start: int, stop: int
    ) -> Iterator[tuple[int, dict[str, Any] | Undecodable]]:
        """Yield (index, decoded line or why it does not decode) of lines [start, stop)."""
        for first, end in self.parts(extents, start, stop):
            yield from enumerate(self.decoded(extents, first, end), first)

    def one(self, extents: Extents, index: int) -> dict[str, Any] | Undecodable:
        """Return one line decoded, or why it does not decode."""
        line = self.line(extents, index)[:-1]
        (record,) = decode_each([line if index else without_mark(line)])
        return record

    def decoded(
        self, extents: Extents, start: int, stop: int
    ) -> list[dict[str, Any] | Undecodable]:
        """Return what :meth:`records` yields, without the indices."""
        return self.decode(extents, start, self.texts(extents, start, stop))

    def decode(
        self, extents: Extents, start: int, texts: list[memoryview]
    ) -> list[dict[str, Any] | Undecodable]:
        """Return the records of lines whose texts are at hand, from index `start` on.

        Raises
        ------
        TranscriptChangedError
            A line is no object any more: such a line has never been in the layout.
        """
        try:
            return self._decode(extents, start, texts)
        except TranscriptChangedError as error:
            self._renew(error)
            again = self.texts(extents, start, start + len(texts))
            return self._decode(extents, start, again)

    def _decode(
        self, extents: Extents, start: int, texts: list[memoryview]
    ) -> list[dict[str, Any] | Undecodable]:
        records = decode_each(texts)
        for index, record in enumerate(records):
            if isinstance(record, Undecodable) and object_start(bytes(texts[index])) < 0:
                self.doubt(extents.at(start + index)[0])
        return records

    def texts(self, extents: Extents, start: int, stop: int) -> list[memoryview]:
        """Return lines [start, stop) without newline and byte order mark.

        They are checked as by :meth:`check`, but for being objects: what decodes to one is one.
        """
        try:
            return self._texts(extents, start, stop)
        except TranscriptChangedError as error:
            self._renew(error)
            return self._texts(extents, start, stop)

    def _texts(self, extents: Extents, start: int, stop: int) -> list[memoryview]:
        if self.source.access == "mmap":
            return self._texts_of_run(extents, start, stop, self.source.run(0, 0))
        found: list[memoryview] = []
        for first, end, run in self.runs(extents, start, stop):
            found += self._texts_of_run(extents, first, end, run)
        return found

    def _texts_of_run(self, extents: Extents, start: int, stop: int, run: Run) -> list[memoryview]:
        if start == stop:
            return []
        firsts, ends = extents.part(start, stop)
        if run.base:
            firsts = firsts - np.uint64(run.base)
        starts: list[int] = firsts.tolist()
        lasts: list[int] = (ends - np.uint64(run.base + 1)).tolist()
        touched = self._touched if extents is self.layout.messages else None
        if touched is None or not touched.has(start, stop):
            self._check_all(run, starts, lasts)
            if touched is not None and self.source.access == "mmap":
                touched.add(start, stop)
        view = run.view
        texts = [view[first:last] for first, last in zip(starts, lasts, strict=True)]
        if run.base + starts[0] == 0:
            texts[0] = without_mark(texts[0])
        return texts

    def _check_all(self, run: Run, starts: list[int], lasts: list[int]) -> None:
        """Check lines of a run, given by first and last byte in it, but for being objects."""
        # in one call a line, whatever its length
        if list(map(run.buffer.find, repeat(NEWLINE), starts)) != lasts:
            for first, last in zip(starts, lasts, strict=True):
                self.check(run, run.base + first, run.base + last + 1)
        # Behind a line that was checked a line begins: of adjacent ones the first is looked at.
        nbytes = sum(lasts) - sum(starts) + len(starts)
        adjacent = nbytes == lasts[-1] + 1 - starts[0]
        for first in starts[:1] if adjacent else starts:
            if run.base + first and run.buffer[first - 1] != _LINE_FEED:
                self.doubt(run.base + first)

    def record(self, extents: Extents, index: int) -> dict[str, Any]:
        """Return one line, decoded, or raise :class:`LineDecodeError`."""
        record = self.one(extents, index)
        if isinstance(record, Undecodable):
            offset = extents.at(index)[0]
            raise LineDecodeError(
                record.reason,
                path=self.path,
                offset=offset,
                line_number=self.line_number(offset),
                hint=f"line({index}) gives its bytes",
            )
        return record

    def line_number(self, offset: int) -> int:
        """Return the physical number, from 1, of the line at `offset`; counted each time."""
        number = 1
        reader = self.source.reader(0)
        keep = 0
        while reader.advance(keep):
            stop = min(reader.stop, offset - reader.base)
            number += int(np.count_nonzero(reader.octets[reader.start : stop] == _LINE_FEED))
            keep = reader.base + reader.stop
            if keep >= offset:
                break
        return number

    @property
    def review_states(self) -> ReviewStates:
        """The last state of each snapshot, replayed from the review-state lines."""
        reviews = self.layout.reviews
        states = self._review_states
        if states.count < len(reviews):
            found = self.records(reviews, states.count, len(reviews))
            records = (record if isinstance(record, dict) else None for _, record in found)
            states = self._review_states = states.grown(records, len(reviews))
        return states

    @property
    def identities(self) -> Identities:
        """The message identities; those that are not known yet are read off their lines."""
        messages = self.layout.messages
        known = self._identities
        if known is None:
            known = self._identities = identity.build(self.source, messages, self.dialect)
        elif known.count < len(messages):
            known = self._identities = known.grown(self.source, messages, self.dialect)
        return known

    @property
    def known_identities(self) -> Identities | None:
        """The identities of all messages if at most a few have yet to be read, else None."""
        known = self._identities
        if known is None or len(self.layout.messages) - known.count > identity.RECENT_COUNT:
            return None
        return self.identities

    @cached_property
    def damaged_aside(self) -> list[Damaged]:
        """The checkpoint and review-state lines that do not decode."""
        return [
            Damaged(None, extents.at(index)[0], record.reason)
            for extents in (self.layout.compactions, self.layout.reviews)
            for index, record in self.records(extents, 0, len(extents))
            if isinstance(record, Undecodable)
        ]

    def message(self, position: int) -> dict[str, Any]:
        """Return the effective message at a position, or raise :class:`LineDecodeError`."""
        message = self.record(self.layout.messages, position)
        if len(self.layout.reviews):
            overlay(message, self.review_states)
        return message


def text_of(line: memoryview, offset: int) -> memoryview:
    """Return the line at an offset without the byte order mark that a file may begin with."""
    return line if offset else without_mark(line)
