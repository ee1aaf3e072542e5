r"""The layout cache: a layout and its identities as a file that is mapped and used in place.

The file is disposable. Whatever is wrong with it costs one scan of the transcript and
never an answer: what does not look right at a glance is not opened at all, and a
column is proven block by block, each when a value of it is first used. So opening
costs the same for any transcript, and a flipped bit costs a rebuild.

Format 3. All integers are little-endian; every section starts at a multiple of 64 bytes::

    offset  nbytes  header
         0       8  magic: 89 4D 4D 53 4C 0D 0A 1A
         8       4  format, 3
        12       4  CRC-32 of the header from byte 16 to its end
        16       8  nbytes of the header: where the first section starts
        24       8  nbytes of this file
        32      40  stamp: device, inode, nbytes; mtime_ns, ctime_ns (signed)
        72       8  stamp: generation of the inode
        80       8  file_len: end of the last complete line
        88       8  lines of every kind
        96       4  witness: CRC-32 of the last 4096 bytes in front of file_len
       100       4  flags: 1 the last compaction line is an open boundary
                           2 the dialect was asked for, not detected
                           4 a line shows the dialect, so growth cannot change it
                           8 the identities are here
                          16 part of it is proven by no more than a caller's word
       104       4  CRC-32 of what the dialect's rules are
       108       4  nbytes of the transcript's path
       112      16  name of the dialect, padded with NUL
       128     160  ten sections: offset and count of each, 8 bytes each
       288          the transcript's path, padded with NUL to a multiple of 64

    section             width  what
         0  starts          8  message lines: byte offsets
         1  ends            8  message lines: byte offsets behind the newline
       2 3  starts, ends    8  compaction lines
       4 5  starts, ends    8  review-state lines
         6  checkpoints     8  indices into the compaction lines
         7  checksums       4  CRC-32 of message ids, ascending
         8  positions       4  the message line of each checksum
         9  unresolved      4  message lines whose id could not be read

    behind the last section, at a multiple of 64, and up to the end of the file:
            4 bytes for each block of 8192 bytes of each section, in order:
            CRC-32 of the block, begun with (CRC-32 of bytes 32 to 80) XOR (number of the block)

Formats 1 and 2 are of other programs; they and anything unknown are built anew.
Decision record: append-only review state.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .columns import BLOCK_NBYTES, Column
from .errors import MmapStoreError
from .fileio import on_remote_filesystem, open_regular, replace_file
from .filemap import MappedFile, ReadFile
from .identity import Identities
from .layout import Extents, Layout
from .proof import Group, Proof, checksum
from .stamp import Stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .grammar import Dialect
    from .proof import Recompute

MAGIC = b"\x89MMSL\r\n\x1a"
FORMAT = 3

_PREFIX = struct.Struct("<8sII")
_FIELDS = struct.Struct("<QQ QQQqqQ QQ IIII 16s 20Q")
_STAMP_BYTES = slice(32, 80)
_ALIGNMENT = 64

_OPEN_BOUNDARY, _ASKED, _CLAIMED, _IDENTIFIED, _ON_TRUST = 1, 2, 4, 8, 16
_TYPES = tuple(map(np.dtype, ["<u8"] * 6 + ["<i8"] + ["<u4"] * 3))
_EMPTY = tuple(Column(np.zeros(0, kind)) for kind in _TYPES)
_LAYOUT_SECTIONS = 7


def _block_counts(counts: Sequence[int]) -> list[int]:
    """Return how many blocks each section has."""
    return [
        -(-count * kind.itemsize // BLOCK_NBYTES)
        for count, kind in zip(counts, _TYPES, strict=True)
    ]


class Header(NamedTuple):
    """What a cache file says of itself and of its transcript.

    Attributes
    ----------
    path : str
        The transcript's path when the cache was written.
    stamp : Stamp
        The transcript's stamp, taken before it was read.
    file_len, line_count
        As in the layout.
    witness : int
        Checksum of the last bytes in front of `file_len`.
    dialect_name : str
        The dialect's name.
    dialect_rules : int
        Checksum of the dialect's rules.
    open_boundary, asked, claimed, identified, on_trust : bool
        Whether the last compaction line may be completed by the next; whether the dialect
        was asked for; whether a line shows it; whether the identities are in the file;
        whether growth was taken for an append on the word of a caller.
    offsets, counts : tuple of int
        Where each section starts, bytes, and how many values it has.
    nbytes : int
        Size of the cache file.
    """

    path: str
    stamp: Stamp
    file_len: int
    line_count: int
    witness: int
    dialect_name: str
    dialect_rules: int
    open_boundary: bool
    asked: bool
    claimed: bool
    identified: bool
    on_trust: bool
    offsets: tuple[int, ...]
    counts: tuple[int, ...]
    nbytes: int

    @property
    def message_count(self) -> int:
        """Message lines of the transcript."""
        return self.counts[0]


class Cache:
    """A cache file that is open.

    Parameters
    ----------
    header : Header
        What it says of itself.
    memory : memoryview
        The whole file.
    """

    def __init__(self, header: Header, memory: memoryview) -> None:
        self.header = header
        self._memory = memory
        self._layout_group: Group | None = None

    def layout(self, dialect: Dialect, last: bytes, recompute: Recompute) -> Layout:
        """Return the layout, its columns in place.

        Parameters
        ----------
        dialect : Dialect
            The one that the header names.
        last : bytes
            The last bytes in front of ``file_len``, which the header's checksum is of.
        recompute : callable
            Returns the layout's columns as a scan gives them; called when a block is bad.
        """
        self._layout_group, column = self._columns(range(_LAYOUT_SECTIONS), recompute)
        header = self.header
        return Layout(
            header.file_len,
            header.stamp,
            header.line_count,
            Extents(column[0], column[1]),
            Extents(column[2], column[3]),
            Extents(column[4], column[5]),
            column[6],
            dialect,
            header.open_boundary,
            last,
        )

    def identities(self, recompute: Recompute) -> Identities | None:
        """Return the identities, their columns in place, or None if they are not here."""
        if not self.header.identified:
            return None
        _, column = self._columns(range(_LAYOUT_SECTIONS, len(_TYPES)), recompute)
        return Identities(self.header.message_count, *column)

    def renew_layout(self) -> None:
        """Put what a scan gives in place of the layout's columns.

        Raises
        ------
        TranscriptChangedError
            The scan finds other lines than the cache says there are.
        """
        if self._layout_group is not None:
            self._layout_group.renew()

    def _columns(self, numbers: range, recompute: Recompute) -> tuple[Group, list[Column]]:
        counts, offsets = self.header.counts, self.header.offsets
        group = Group(self.header.path, counts[numbers.start : numbers.stop], recompute)
        salt = zlib.crc32(self._memory[_STAMP_BYTES])
        block_counts = _block_counts(counts)
        first = sum(block_counts[: numbers.start])
        table = self.header.nbytes - 4 * sum(block_counts)
        columns = []
        for number in numbers:
            count, kind = counts[number], _TYPES[number]
            if not count:
                columns.append(_EMPTY[number])
                continue
            offset, block_count = offsets[number], block_counts[number]
            blocks = self._memory[offset : offset + count * kind.itemsize]
            checks = self._memory[table + 4 * first : table + 4 * (first + block_count)]
            proof = Proof(group, number - numbers.start, blocks, kind, checks, salt, first)
            columns.append(Column(proof.values, proof))
            first += block_count
        return group, columns


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def rules_of(dialect: Dialect) -> int:
    """Return a checksum of a dialect's rules: a cache of other rules is of no use."""
    return zlib.crc32(repr(dialect).encode())


# -- reading ------------------------------------------------------------------------------


def read(path: str) -> Cache | None:
    """Open a cache file; None if there is none or it is not one that can be used.

    Notes
    -----
    Looks at the header alone.
    """
    try:
        descriptor = open_regular(path)
        stamp = descriptor.stamp()
        header = _header(descriptor.read(0, _HEADER_READ_NBYTES), stamp.nbytes)
        if header is None:
            return None
        if on_remote_filesystem(stamp.device):
            source: MappedFile | ReadFile = ReadFile(descriptor, stamp.nbytes)
        else:
            source = MappedFile(descriptor, stamp.nbytes)
        memory = source.view(0, stamp.nbytes)
    except (OSError, MmapStoreError):
        return None
    return Cache(header, memory) if len(memory) == header.nbytes else None


def read_header(path: str) -> Header | None:
    """Return the header of a cache file, or None if it is not one that can be used."""
    try:
        descriptor = open_regular(path)
        return _header(descriptor.read(0, _HEADER_READ_NBYTES), descriptor.stamp().nbytes)
    except (OSError, MmapStoreError):
        return None


#: a header with the longest path that a system takes
_HEADER_READ_NBYTES = _PREFIX.size + _FIELDS.size + 4096 + _ALIGNMENT


def _header(octets: bytes, file_nbytes: int) -> Header | None:
    fixed = _PREFIX.size + _FIELDS.size
    if len(octets) < fixed:
        return None
    magic, number, checksum = _PREFIX.unpack_from(octets)
    if magic != MAGIC or number != FORMAT:
        return None
    header_nbytes, nbytes, *rest = _FIELDS.unpack_from(octets, _PREFIX.size)
    if (
        nbytes != file_nbytes
        or not fixed <= header_nbytes <= len(octets)
        or zlib.crc32(octets[_PREFIX.size : header_nbytes]) != checksum
    ):
        return None
    device, inode, size, mtime_ns, ctime_ns, inode_generation, file_len, line_count = rest[:8]
    witness, flags, rules, path_nbytes, name = rest[8:13]
    return Header(
        path=octets[fixed : fixed + path_nbytes].decode("utf-8", "surrogateescape"),
        stamp=Stamp(device, inode, size, mtime_ns, ctime_ns, inode_generation),
        file_len=file_len,
        line_count=line_count,
        witness=witness,
        dialect_name=name.rstrip(b"\0").decode("ascii"),
        dialect_rules=rules,
        open_boundary=bool(flags & _OPEN_BOUNDARY),
        asked=bool(flags & _ASKED),
        claimed=bool(flags & _CLAIMED),
        identified=bool(flags & _IDENTIFIED),
        on_trust=bool(flags & _ON_TRUST),
        offsets=tuple(rest[13::2]),
        counts=tuple(rest[14::2]),
        nbytes=nbytes,
    )


# -- writing ------------------------------------------------------------------------------


def layout_columns(layout: Layout) -> list[NDArray[Any]]:
    """Return the columns of a layout in the order of the sections."""
    extents = (layout.messages, layout.compactions, layout.reviews)
    pairs = [column for each in extents for column in (each.starts, each.ends)]
    return [*pairs, layout.checkpoints.whole()]


def identity_columns(identities: Identities) -> list[NDArray[Any]]:
    """Return the columns of identities in the order of the sections."""
    found = identities.sorted_in()
    return [found.checksums.whole(), found.positions.whole(), found.unresolved.whole()]


def write(
    path: str,
    transcript: str,
    layout: Layout,
    identities: Identities | None,
    *,
    asked: bool,
    claimed: bool,
    on_trust: bool,
) -> int:
    """Write a cache file in one step; return its size in bytes.

    Raises
    ------
    OSError
        As the system gives it; nothing is left behind.

    Notes
    -----
    O(lines).
    """
    columns = layout_columns(layout)
    columns += [np.zeros(0, "<u4")] * 3 if identities is None else identity_columns(identities)
    flags = (
        _OPEN_BOUNDARY * layout.open_boundary
        | _ASKED * asked
        | _CLAIMED * claimed
        | _IDENTIFIED * (identities is not None)
        | _ON_TRUST * on_trust
    )
    parts = pack(transcript, layout, columns, flags)
    replace_file(path, parts)
    return sum(map(len, parts))


def pack(
    transcript: str, layout: Layout, columns: Sequence[NDArray[Any]], flags: int
) -> list[bytes | memoryview]:
    """Return the parts of a cache file."""
    name = transcript.encode("utf-8", "surrogateescape")
    fixed = _PREFIX.size + _FIELDS.size
    header_nbytes = offset = _aligned(fixed + len(name))
    table: list[int] = []
    blocks: list[memoryview] = []
    parts: list[bytes | memoryview] = []
    for column, kind in zip(columns, _TYPES, strict=True):
        octets = np.ascontiguousarray(column, kind).view(np.uint8).data
        blocks += [octets[at : at + BLOCK_NBYTES] for at in range(0, len(octets), BLOCK_NBYTES)]
        parts += [octets, bytes(_aligned(len(octets)) - len(octets))]
        table += [offset, len(column)]
        offset += _aligned(len(octets))
    stamp = layout.stamp
    fields = _FIELDS.pack(
        header_nbytes,
        offset + 4 * len(blocks),
        *stamp,
        layout.file_len,
        layout.line_count,
        zlib.crc32(layout.last),
        flags,
        rules_of(layout.dialect),
        len(name),
        layout.dialect.name.encode("ascii"),
        *table,
    )
    rest = (fields + name).ljust(header_nbytes - _PREFIX.size, b"\0")
    header = _PREFIX.pack(MAGIC, FORMAT, zlib.crc32(rest)) + rest
    salt = zlib.crc32(header[_STAMP_BYTES])
    checks = [checksum(octets, salt, number) for number, octets in enumerate(blocks)]
    return [header, *parts, np.array(checks, "<u4").tobytes()]
