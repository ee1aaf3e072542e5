"""One state of a transcript: a layout and the bytes that it was proven for.

A generation is immutable but for what it works out once and keeps: the replayed
review states and the message identities. Every line is checked when it is handed
out: it begins at a line start, is an object, and holds its newline at its end and
nowhere else. A layout that fails the check no longer describes the file.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import identity
from .decode import Undecodable, decode_each, without_mark
from .errors import LineDecodeError, MessageNotFoundError, TranscriptChangedError
from .keys import object_start
from .review import overlay, replay
from .scan import NEWLINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .filemap import FileBytes, Run
    from .grammar import Dialect
    from .identity import Identities
    from .layout import Extents, Layout
    from .review import ReviewStates

_OPEN_BRACE = 0x7B
_LINE_FEED = 0x0A
#: a part is read whole if its lines are at least one in so many of its bytes
_BRIDGED = 8
#: lines without a readable id that an error looks at for its hint
_UNRESOLVED_LOOKED_AT = 1000


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
    source : FileBytes
        Its bytes.
    claimed : bool
        Whether the dialect is settled, whatever is appended.
    """

    def __init__(
        self, number: int, path: str, layout: Layout, source: FileBytes, *, claimed: bool = True
    ) -> None:
        self.number = number
        self.path = path
        self.layout = layout
        self.source = source
        self.claimed = claimed
        #: set by a failed check: the next refresh builds anew, whatever the stamp says
        self.doubted = False
        # Message lines of a mapping are checked when they are first touched. What is read
        # anew is checked each time: it may be other bytes.
        self._touched = np.zeros(len(layout.messages), dtype=np.bool_)

    @property
    def dialect(self) -> Dialect:
        """What the lines are written in."""
        return self.layout.dialect

    # -- lines ------------------------------------------------------------------------

    def runs(self, extents: Extents, start: int, stop: int) -> Iterator[tuple[int, int, Run]]:
        """Yield lines [start, stop) as half-open index ranges of one run of memory each.

        A run ends after a few megabytes; one that is read also where much else lies between.
        """
        for first, end in self.parts(extents, start, stop):
            if self.source.access == "mmap":
                yield first, end, self.source.run(0, self.source.nbytes)
                continue
            held = int((extents.ends[first:end] - extents.starts[first:end]).sum())
            if _BRIDGED * held >= int(extents.ends[end - 1] - extents.starts[first]):
                # what lies between costs less than as many reads as there are gaps
                yield first, end, self.read_run(extents, first, end)
                continue
            for low, high in pairwise(self.edges(extents, first, end)):
                yield low, high, self.read_run(extents, low, high)

    def edges(self, extents: Extents, start: int, stop: int) -> list[int]:
        """Return where lines [start, stop) fall apart: between two edges all are adjacent."""
        gaps = np.flatnonzero(extents.starts[start + 1 : stop] != extents.ends[start : stop - 1])
        return [start, *(gaps + start + 1).tolist(), stop]

    def parts(self, extents: Extents, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield lines [start, stop) as half-open index ranges of a few megabytes each."""
        return identity.spans(extents, start, stop)

    def read_run(self, extents: Extents, start: int, stop: int) -> Run:
        """Return memory that holds adjacent lines [start, stop) and the byte before them."""
        first = int(extents.starts[start])
        return self.source.run(max(first - 1, 0), int(extents.ends[stop - 1]))

    def line(self, extents: Extents, index: int, run: Run | None = None) -> memoryview:
        """Return one line, checked; see :meth:`check`."""
        start, end = int(extents.starts[index]), int(extents.ends[index])
        if run is None:
            run = self.read_run(extents, index, index + 1)
        self.check(run, start, end)
        return run.view[start - run.base : end - run.base]

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
                and object_start(bytes(_text(run.view[start - base : end - base], start))) < 0
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
        records = decode_each(texts)
        for index, record in enumerate(records):
            if isinstance(record, Undecodable) and object_start(bytes(texts[index])) < 0:
                self.doubt(int(extents.starts[start + index]))
        return records

    def texts(self, extents: Extents, start: int, stop: int) -> list[memoryview]:
        """Return lines [start, stop) without newline and byte order mark.

        They are checked as by :meth:`check`, but for being objects: what decodes to one is one.
        """
        if self.source.access == "mmap":
            return self._texts_of_run(extents, start, stop, self.source.run(0, 0))
        found: list[memoryview] = []
        for first, end, run in self.runs(extents, start, stop):
            found += self._texts_of_run(extents, first, end, run)
        return found

    def _texts_of_run(self, extents: Extents, start: int, stop: int, run: Run) -> list[memoryview]:
        firsts = extents.starts[start:stop]
        if run.base:
            firsts = firsts - np.uint64(run.base)
        starts: list[int] = firsts.tolist()
        lasts: list[int] = (extents.ends[start:stop] - np.uint64(run.base + 1)).tolist()
        if not starts:
            return []
        touched = self._touched[start:stop] if extents is self.layout.messages else None
        if touched is None or not touched.all():
            self._check_all(run, starts, lasts)
            if touched is not None and self.source.access == "mmap":
                touched[:] = True
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
        (record,) = self.decoded(extents, index, index + 1)
        if isinstance(record, Undecodable):
            offset = int(extents.starts[index])
            raise LineDecodeError(
                record.reason,
                path=self.path,
                offset=offset,
                line_number=self.line_number(offset),
                hint="its neighbours are intact",
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

    @cached_property
    def review_states(self) -> ReviewStates:
        """The last state of each snapshot, replayed from the review-state lines."""
        reviews = self.layout.reviews
        found = self.records(reviews, 0, len(reviews))
        return replay(record for _, record in found if isinstance(record, dict))

    @cached_property
    def damaged_aside(self) -> list[Damaged]:
        """The checkpoint and review-state lines that do not decode."""
        return [
            Damaged(None, int(extents.starts[index]), record.reason)
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

    # -- identities -------------------------------------------------------------------

    @cached_property
    def identities(self) -> Identities:
        """The message identities, read on the first look-up."""
        return identity.build(self.source, self.layout.messages, self.dialect)

    def message_id(self, position: int) -> str:
        """Return a message's id, as far as a damaged line's can be read; else its ``@offset``."""
        messages = self.layout.messages
        offset = int(messages.starts[position])
        (record,) = self.decoded(messages, position, position + 1)
        if isinstance(record, Undecodable):
            line = bytes(_text(self.line(messages, position), offset))
            return identity.read_id(line, self.dialect) or identity.offset_address(offset)
        return self.dialect.id(record) or identity.offset_address(offset)

    @cached_property
    def _escaped_ids(self) -> dict[str, int]:
        """The last positions of ids whose key is spelled with an escape, which a parser reads."""
        messages = self.layout.messages
        unresolved = self.identities.unresolved if self.dialect.id_path.keys else np.zeros(0, int)
        found: dict[str, int] = {}
        for first, end in self.parts(messages, 0, len(messages)):
            here = unresolved[slice(*np.searchsorted(unresolved, (first, end)))].tolist()
            texts = self.texts(messages, first, end) if here else []
            for position in here:
                text = texts[position - first]
                if b"\\u" not in bytes(text):
                    continue
                (record,) = decode_each([text])
                message_id = None if isinstance(record, Undecodable) else self.dialect.id(record)
                if message_id:
                    found[message_id] = position
        return found

    @cached_property
    def _damaged_unresolved(self) -> list[int]:
        """The first positions of damaged lines whose id cannot be read, as far as it is looked."""
        # where no message of the dialect has an id, a look at each would tell nothing
        looked_at = _UNRESOLVED_LOOKED_AT if self.dialect.id_path.keys else 0
        return [
            position
            for position in self.identities.unresolved[:looked_at].tolist()
            if isinstance(
                self.decoded(self.layout.messages, position, position + 1)[0], Undecodable
            )
        ]

    def position(self, message_id: str) -> int | None:
        """Return the last position with that id whose line decodes, or None.

        Raises
        ------
        LineDecodeError
            Lines have that id, and none of them decodes.
        """
        messages = self.layout.messages
        damaged = None
        escaped = self._escaped_ids.get(message_id, -1)
        for position in self.identities.candidates(message_id):
            if position < escaped:
                break
            (record,) = self.decoded(messages, position, position + 1)
            if isinstance(record, Undecodable):
                if damaged is None and self.message_id(position) == message_id:
                    damaged = position
            elif message_id and self.dialect.id(record) == message_id:
                return position
        if escaped >= 0:
            return escaped
        if damaged is not None:
            self.record(messages, damaged)  # raises, with the line's number
        return self._position_at(identity.addressed_offset(message_id))

    def _position_at(self, offset: int | None) -> int | None:
        starts = self.layout.messages.starts
        if offset is None or offset > self.layout.file_len:
            return None
        position = int(np.searchsorted(starts, np.uint64(offset)))
        if position == len(starts) or int(starts[position]) != offset:
            return None
        # a message that has an id is not addressed by its offset
        address = identity.offset_address(offset)
        return position if self.message_id(position) == address else None

    def not_found(self, message_id: str) -> MessageNotFoundError:
        """Return the error for an id that no message has."""
        damaged = list(map(str, self._damaged_unresolved))
        hint = None
        if damaged:
            shown = ", ".join(damaged[:10]) + (" and more" if len(damaged) > 10 else "")
            hint = f"damaged message lines without a readable id are at position {shown}"
        return MessageNotFoundError(
            f"no message with the id {message_id!r}", path=self.path, hint=hint
        )

    def tool_parent(self, call_id: str) -> dict[str, Any]:
        """Return the newest effective message that holds a tool call, or raise."""
        messages = self.layout.messages
        for start, stop in reversed(list(self.parts(messages, 0, len(messages)))):
            for position in self._lines_that_may_hold(start, stop, call_id):
                (message,) = self.decoded(messages, position, position + 1)
                if isinstance(message, Undecodable) or call_id not in self.dialect.calls(message):
                    continue
                overlay(message, self.review_states)
                return message
        raise MessageNotFoundError(f"no message holds the tool call {call_id!r}", path=self.path)

    def _lines_that_may_hold(self, start: int, stop: int, call_id: str) -> Iterator[int]:
        """Yield, from the last on, positions in [start, stop) whose lines may spell a string."""
        plain = call_id.isascii() and call_id.isprintable() and not set(call_id) & {'"', "\\"}
        needle = f'"{call_id}"'.encode() if plain else b""
        texts = self.texts(self.layout.messages, start, stop)
        for position in range(stop - 1, start - 1, -1):
            text = bytes(texts[position - start])
            # any character may be spelled by an escape, and a slash by one more
            if needle in text or b"\\u" in text or b"\\/" in text:
                yield position


def _text(line: memoryview, offset: int) -> memoryview:
    return line if offset else without_mark(line)
