"""Message ids to positions: a checksum for each message line, in search order.

The ids themselves are not kept: a look-up finds the lines whose id has the same
CRC-32 and reads the id off each of them, so a checksum that collides costs a
reading and never an answer. A line whose id the scan cannot read stays
unresolved and does not stop the others.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .decode import UndecodableError, decode_value, without_mark
from .errors import TranscriptChangedError
from .grammar import Probe, as_id
from .keys import find_path, token_at
from .probe import blocks, plain_values, string_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from .filemap import FileBytes
    from .grammar import Dialect
    from .layout import Extents
    from .scan import Searchable

#: bytes of message lines that are looked at together
_SPAN_NBYTES = 4 << 20

#: how a message without an id is addressed: by the offset of its line
_BY_OFFSET = re.compile(r"@(0|[1-9][0-9]{0,19})")


class Identities:
    """The ids of the message lines of one layout.

    Parameters
    ----------
    checksums : (count,) uint32
        CRC-32 of each resolved id, ascending.
    positions : (count,) uint32
        The position that each checksum belongs to; equal checksums in file order.
    unresolved : (count,) int64
        Positions whose id could not be read.

    Notes
    -----
    8 bytes a message.
    """

    __slots__ = ("checksums", "positions", "unresolved")

    def __init__(
        self,
        checksums: NDArray[np.uint32],
        positions: NDArray[np.uint32],
        unresolved: NDArray[np.int64],
    ) -> None:
        self.checksums = checksums
        self.positions = positions
        self.unresolved = unresolved

    def candidates(self, message_id: str) -> Iterator[int]:
        """Yield the positions that may have this id, the last in the file first."""
        checksum = np.uint32(zlib.crc32(_encoded(message_id)))
        first = int(np.searchsorted(self.checksums, checksum, "left"))
        stop = int(np.searchsorted(self.checksums, checksum, "right"))
        for index in range(stop - 1, first - 1, -1):
            yield int(self.positions[index])


def build(source: FileBytes, messages: Extents, dialect: Dialect) -> Identities:
    """Read the ids of all message lines.

    Notes
    -----
    O(count) where ids stand near an end of their line, which is where writers put them.
    """
    count = len(messages)
    if not dialect.id_path.keys:
        nothing = np.zeros(0, dtype=np.uint32)
        return Identities(nothing, nothing, np.arange(count))
    checksums = np.zeros(count, dtype=np.uint32)
    resolved = np.zeros(count, dtype=np.bool_)
    for first, stop in spans(messages, 0, count):
        run = source.run(int(messages.starts[first]), int(messages.ends[stop - 1]))
        if run.base + len(run.octets) < messages.ends[stop - 1]:
            raise TranscriptChangedError(
                "the file has become shorter",
                path=source.descriptor.path,
                offset=run.base + len(run.octets),
                hint="refresh() reads it anew",
            )
        starts = messages.starts[first:stop].astype(np.int64) - run.base
        ends = messages.ends[first:stop].astype(np.int64) - run.base
        if run.base + starts[0] == 0:
            # a byte order mark belongs to the first line's bytes but not to its text
            starts[0] = ends[0] - len(without_mark(run.view[: ends[0]]))
        for index, message_id in enumerate(_ids(run.buffer, starts, ends, dialect), first):
            if message_id is not None:
                checksums[index] = zlib.crc32(message_id)
                resolved[index] = True
    positions = np.flatnonzero(resolved)
    order = np.argsort(checksums[positions], kind="stable")
    positions = positions[order]
    return Identities(checksums[positions], positions.astype(np.uint32), np.flatnonzero(~resolved))


def spans(extents: Extents, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield half-open index ranges of lines that lie within a few megabytes of each other."""
    while start < stop:
        # a uint64, or numpy would convert the whole column to compare it
        limit = extents.starts[start] + np.uint64(_SPAN_NBYTES)
        end = stop
        if extents.ends[stop - 1] > limit:
            end = max(start + 1, int(np.searchsorted(extents.ends, limit, "right")))
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
                read = read_id(block.line(index), dialect)
                ids[lines.start + index] = None if read is None else _encoded(read)
    return ids


def _printable_ascii(rows: NDArray[np.bytes_], lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows hold no control character and no byte beyond ASCII before their length."""
    octets = rows.view(np.uint8).reshape(len(rows), rows.itemsize)
    other = (octets - np.uint8(0x20) >= 0x60) & (np.arange(rows.itemsize) < lengths[:, None])
    return np.logical_not(other.any(axis=1))


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
    match = _BY_OFFSET.fullmatch(message_id)
    return int(match[1]) if match else None


def _encoded(message_id: str) -> bytes:
    return message_id.encode("utf-8", "surrogatepass")
