"""Message ids to positions: a checksum for each message line, in search order.

The ids themselves are not kept: a look-up finds the lines whose id has the same
CRC-32 and reads the id off each of them, so a checksum that collides costs a
reading and never an answer. A line whose id the scan cannot read stays
unresolved and does not stop the others.
"""

from __future__ import annotations

import re
import zlib
from _thread import allocate_lock
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import Column
from .decode import UndecodableError, decode_object, decode_value, without_mark
from .errors import TranscriptChangedError
from .grammar import Probe, as_id
from .keys import find_path, token_at
from .probe import blocks, plain_values, string_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from .filemap import FileBytes
    from .grammar import Dialect
    from .layout import Extents
    from .scan import Searchable

#: bytes of message lines that are looked at together
_SPAN_NBYTES = 4 << 20
#: lines that are read one by one: less than the arrays cost
_FEW_COUNT = 8
#: ids that may stand aside before they are sorted in
RECENT_COUNT = 8192

#: how a message without an id is addressed: by the offset of its line
_BY_OFFSET = r"@(0|[1-9][0-9]{0,19})"


class _Recent:
    """The ids of the lines behind the sorted ones, which are too few to be sorted again."""

    __slots__ = ("lock", "positions", "stop", "unresolved")

    def __init__(self, stop: int) -> None:
        #: held while lines are entered: any thread may be the first to look one up
        self.lock = allocate_lock()
        #: checksum -> positions, in file order
        self.positions: dict[int, list[int]] = {}
        self.unresolved: list[int] = []
        #: the position behind the last one that is in here
        self.stop = stop


class Identities:
    """The ids of the message lines of one layout.

    Parameters
    ----------
    count : int
        Message lines.
    checksums : Column of uint32
        CRC-32 of each resolved id, ascending.
    positions : Column of uint32
        The position that each checksum belongs to; equal checksums in file order.
    unresolved : Column of uint32
        Positions whose id could not be read; none where the dialect has no ids.

    Notes
    -----
    8 bytes a message. What is appended stands aside until it is worth sorting in, shared
    by all identities that grew from one: each goes by its own count.
    """

    __slots__ = ("_recent", "_sorted_stop", "checksums", "count", "positions", "unresolved")

    def __init__(
        self, count: int, checksums: Column, positions: Column, unresolved: Column
    ) -> None:
        self.count = count
        self.checksums = checksums
        self.positions = positions
        self.unresolved = unresolved
        self._sorted_stop = count
        self._recent = _Recent(count)

    def candidates(self, message_id: str) -> Iterator[int]:
        """Yield the positions that may have this id, the last in the file first."""
        checksum = zlib.crc32(_encoded(message_id))
        for position in reversed(self._recent.positions.get(checksum, ())):
            if position < self.count:
                yield position
        first = self.checksums.search(checksum)
        stop = first
        while stop < len(self.checksums) and self.checksums.at(stop) == checksum:
            stop += 1
        yield from reversed(self.positions.part(first, stop).tolist())

    def may_have_any(self, message_ids: Sequence[str]) -> bool:
        """Whether one of these ids may be there; if not, :meth:`candidates` yields nothing for any.

        Notes
        -----
        O(log count) an id.
        """
        checksums = [
            zlib.crc32(message_id.encode("utf-8", "surrogatepass")) for message_id in message_ids
        ]
        if not self._recent.positions.keys().isdisjoint(checksums):
            return True
        known = self.checksums.at_hand
        if len(checksums) > _FEW_COUNT:
            known = self.checksums.whole() if known is None else known
            wanted = np.array(checksums, known.dtype)
            found = known.take(known.searchsorted(wanted), mode="clip") if len(known) else wanted
            return bool(len(known) and (found == wanted).any())
        for checksum in checksums:
            if known is None:
                at = self.checksums.search(checksum)
                if at < len(self.checksums) and self.checksums.at(at) == checksum:
                    return True
            else:
                # of a few values, cheaper than an array's own search
                at = bisect_left(known.data, checksum)
                if at < len(known) and known.item(at) == checksum:
                    return True
        return False

    def without_id(self, limit: int) -> list[int]:
        """Return the first positions, at most `limit`, whose id could not be read."""
        sorted_in = self.unresolved.part(0, min(limit, len(self.unresolved))).tolist()
        recent = [position for position in self._recent.unresolved if position < self.count]
        return [*sorted_in, *recent][:limit]

    def grown(self, source: FileBytes, messages: Extents, dialect: Dialect) -> Identities:
        """Return the identities of a layout that has grown, reading the new lines alone."""
        count = len(messages)
        recent = self._recent
        checksums, resolved = _read(source, messages, dialect, self.count)
        with recent.lock:
            if count - self._sorted_stop > RECENT_COUNT or recent.stop != self.count:
                # too many to stand aside, or another has grown from here
                return self._merged(count, checksums, resolved)
            for position, (checksum, known) in enumerate(
                zip(checksums.tolist(), resolved.tolist(), strict=True), self.count
            ):
                if known:
                    recent.positions.setdefault(checksum, []).append(position)
                else:
                    recent.unresolved.append(position)
            recent.stop = count
        grown = Identities(count, self.checksums, self.positions, self.unresolved)
        grown._recent, grown._sorted_stop = recent, self._sorted_stop
        return grown

    def sorted_in(self) -> Identities:
        """Return the same identities with nothing standing aside.

        Notes
        -----
        O(count) where something does.
        """
        if self._sorted_stop == self.count:
            return self
        return self._merged(self.count, np.zeros(0, np.uint32), np.zeros(0, np.bool_))

    def _merged(
        self, count: int, checksums: NDArray[np.uint32], resolved: NDArray[np.bool_]
    ) -> Identities:
        """Return the identities of these lines and of new ones, all in search order."""
        aside = sorted(
            (position, checksum)
            for checksum, positions in list(self._recent.positions.items())
            for position in positions
            if position < self.count
        )
        new = np.flatnonzero(resolved)
        every = [
            self.checksums.whole(),
            np.array([checksum for _, checksum in aside], "<u4"),
            checksums[new].astype("<u4"),
        ]
        at = [
            self.positions.whole(),
            np.array([position for position, _ in aside], "<u4"),
            (new + self.count).astype("<u4"),
        ]
        unresolved = [
            np.array(self.without_id(self.count), "<u4"),
            (np.flatnonzero(~resolved) + self.count).astype("<u4"),
        ]
        # those at hand are in file order wherever they are equal, and stay so
        order = np.argsort(np.concatenate(every), kind="stable")
        return Identities(
            count,
            Column(np.concatenate(every)[order]),
            Column(np.concatenate(at)[order]),
            Column(np.concatenate(unresolved)),
        )


def build(source: FileBytes, messages: Extents, dialect: Dialect) -> Identities:
    """Read the ids of all message lines.

    Notes
    -----
    O(count) where ids stand near an end of their line, which is where writers put them.
    """
    none = Column(np.zeros(0, "<u4"))
    return Identities(0, none, none, none).grown(source, messages, dialect).sorted_in()


def _read(
    source: FileBytes, messages: Extents, dialect: Dialect, start: int
) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the checksums of the ids from position `start` on, and which could be read."""
    count = len(messages)
    checksums = np.zeros(count - start, dtype=np.uint32)
    resolved = np.zeros(count - start, dtype=np.bool_)
    if not dialect.id_path.keys:
        return checksums[:0], resolved[:0]
    if count - start <= _FEW_COUNT:
        for position in range(start, count):
            low, high = messages.at(position)
            line = source.view(low, high)
            if len(line) < high - low:
                raise _shorter(source, low + len(line))
            single = _id_by_parser(bytes(line if low else without_mark(line)), dialect)
            if single is not None:
                checksums[position - start] = zlib.crc32(_encoded(single))
                resolved[position - start] = True
        return checksums, resolved
    for first, stop in spans(messages, start, count):
        file_starts, file_ends = messages.part(first, stop)
        run = source.run(int(file_starts[0]), int(file_ends[-1]))
        if run.base + len(run.octets) < int(file_ends[-1]):
            raise _shorter(source, run.base + len(run.octets))
        starts = file_starts.astype(np.int64) - run.base
        ends = file_ends.astype(np.int64) - run.base
        if run.base + starts[0] == 0:
            # a byte order mark belongs to the first line's bytes but not to its text
            starts[0] = ends[0] - len(without_mark(run.view[: ends[0]]))
        for index, message_id in enumerate(_ids(run.buffer, starts, ends, dialect), first - start):
            if message_id is not None:
                checksums[index] = zlib.crc32(message_id)
                resolved[index] = True
    return checksums, resolved


def spans(extents: Extents, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield half-open index ranges of lines that lie within a few megabytes of each other."""
    while start < stop:
        limit = extents.at(start)[0] + _SPAN_NBYTES
        end = stop
        if extents.at(stop - 1)[1] > limit:
            end = max(start + 1, extents.stop_within(limit))
        yield start, end
        start = end


def _ids(
    buffer: Searchable, starts: NDArray[np.int64], ends: NDArray[np.int64], dialect: Dialect
) -> list[bytes | None]:
    ids: list[bytes | None] = [None] * len(starts)
    keys = dialect.id_path.keys
    if not keys:
        return ids
    for lines, block in blocks(buffer, starts, ends):
        at = np.full(len(block.starts), -1, dtype=np.int64)
        if len(keys) == 1 and len(keys[0]) == 1:
            at = string_values(block, keys[0][0], (Probe.HEAD, Probe.TAIL), np.arange(len(at)))
        rows, lengths = plain_values(block, np.maximum(at, 0), np.arange(len(at)))
        texts = rows.tolist()
        plain = (at >= 0) & _printable_ascii(rows, lengths)
        for index, nbytes in enumerate(np.where(plain, lengths, -1).tolist()):
            if nbytes >= 0:
                ids[lines.start + index] = texts[index][:nbytes]
            else:
                read = _id_of_line(block.line(index), dialect)
                ids[lines.start + index] = None if read is None else _encoded(read)
    return ids


def _printable_ascii(rows: NDArray[np.bytes_], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows hold no control character and no byte beyond ASCII before their length."""
    octets = rows.view(np.uint8).reshape(len(rows), rows.itemsize)
    other = (octets - np.uint8(0x20) >= 0x60) & (np.arange(rows.itemsize) < lengths[:, None])
    return np.logical_not(other.any(axis=1))


def _shorter(source: FileBytes, offset: int) -> TranscriptChangedError:
    return TranscriptChangedError(
        "the file has become shorter",
        path=source.descriptor.path,
        offset=offset,
        hint="refresh() reads it anew",
    )


def _id_by_parser(line: bytes, dialect: Dialect) -> str | None:
    try:
        return dialect.id(decode_object(line))
    except UndecodableError:
        return read_id(line, dialect)


def _id_of_line(line: bytes, dialect: Dialect) -> str | None:
    found = read_id(line, dialect)
    if found is None and b"\\u" in line:
        # the key may be spelled with an escape, which a parser reads and the scan does not
        try:
            return dialect.id(decode_object(line))
        except UndecodableError:
            return None
    return found


def read_id(line: bytes, dialect: Dialect) -> str | None:
    """Return the id of a message line as the scan reads it, or None.

    The line need not decode; of the dialect's places the first that is not null counts. Of
    a key that is repeated the first is read: no writer emits that.
    """
    for path in dialect.id_path.keys:
        found = find_path(line, path)
        if found < 0:
            continue
        try:
            value: Any = decode_value(token_at(line, found))
        except UndecodableError:
            return None
        if value is not None:
            return as_id(value)
    return None


def offset_address(offset: int) -> str:
    """Return how a message without an id is addressed."""
    return f"@{offset}"


def addressed_offset(message_id: str) -> int | None:
    """Return the offset that an address names, or None if it is not one."""
    match = re.fullmatch(_BY_OFFSET, message_id)
    return int(match[1]) if match else None


def _encoded(message_id: str) -> bytes:
    return message_id.encode("utf-8", "surrogatepass")
