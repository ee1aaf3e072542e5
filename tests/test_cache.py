"""The layout cache's bytes: what they are, and that wrong ones never change an answer."""

from __future__ import annotations

import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import cache, cachedir, proof
from mmapstore.cache import Cache
from mmapstore.columns import BLOCK_NBYTES, Column
from mmapstore.dialect import DIALECTS, NATIVE
from mmapstore.fileio import open_regular
from mmapstore.identity import Identities
from mmapstore.layout import Extents, Layout
from mmapstore.stamp import Stamp, is_racy
from tests.agreement import check_singles, check_window, native_oracle
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]

#: a message whose id is too damaged to read, and one that has none
TORN = b'{"type":"message","id":"torn\n'
SMALL = b"".join(
    [
        HEADER,
        M("a"),
        C("c1"),
        M("b", "x" * 40, role="tool"),
        R("b", "s1", "rolledBack"),
        TORN,
        M(None),
        C("c2", throughMessageId="b"),
        M("a", "again"),
        R("b", "s1", "active"),
        b"\n",
    ]
)


def settle(path: Path) -> None:
    """Wait until the file system's clock can tell the next change of a file from the last."""
    descriptor = open_regular(str(path))
    while is_racy(descriptor.stamp(), str(path.parent), remote=False):
        pass


def columns_of(*columns: list[int]) -> list[np.ndarray[Any, Any]]:
    kinds = ["<u8"] * 6 + ["<i8"] + ["<u4"] * 3
    return [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def layout_of(columns: list[np.ndarray[Any, Any]], **fields: Any) -> Layout:
    held = [Column(column) for column in columns[:7]]
    pairs = [Extents(held[at], held[at + 1]) for at in (0, 2, 4)]
    known: dict[str, Any] = {
        "file_len": 0,
        "stamp": Stamp(1, 2, 3, 4, 5, 6),
        "line_count": 0,
        "dialect": NATIVE,
        "open_boundary": False,
        "last": b"",
    }
    known |= fields
    return Layout(
        known["file_len"],
        known["stamp"],
        known["line_count"],
        *pairs,
        held[6],
        known["dialect"],
        known["open_boundary"],
        known["last"],
    )


# -- the format --------------------------------------------------------------------------

GOLDEN_COLUMNS = columns_of(
    [82, 300],
    [200, 450],
    [200],
    [300],
    [450, 500, 2**40],
    [500, 560, 2**40 + 60],
    [0],
    [0x11111111, 0xFEDCBA98],
    [1, 0],
    [],
)
GOLDEN_LAYOUT = layout_of(
    GOLDEN_COLUMNS,
    file_len=2**40 + 60,
    stamp=Stamp(65024, 2**33 + 1, 2**40 + 64, -1, 1_700_000_000_123_456_789, 4241376739),
    line_count=9,
    last=b'"}\n',
)
GOLDEN_PATH = "/home/u/é\udcff.jsonl"
GOLDEN_FLAGS = 1 | 2 | 4 | 8 | 16
GOLDEN_RULES = 0x01020304

#: the rows of 16 bytes that are not all zero
GOLDEN = """
000: 894d4d534c0d0a1a03000000ef8b9c28
010: 4001000000000000a403000000000000
020: 00fe0000000000000100000002000000
030: 4000000000010000ffffffffffffffff
040: 15cd853dfe9c9717e345cefc00000000
050: 3c000000000100000900000000000000
060: 39a5ccbe1f0000000403020111000000
070: 6e617469766500000000000000000000
080: 40010000000000000200000000000000
090: 80010000000000000200000000000000
0a0: c0010000000000000100000000000000
0b0: 00020000000000000100000000000000
0c0: 40020000000000000300000000000000
0d0: 80020000000000000300000000000000
0e0: c0020000000000000100000000000000
0f0: 00030000000000000200000000000000
100: 40030000000000000200000000000000
110: 80030000000000000000000000000000
120: 2f686f6d652f752fc3a9ff2e6a736f6e
130: 6c000000000000000000000000000000
140: 52000000000000002c01000000000000
180: c800000000000000c201000000000000
1c0: c8000000000000000000000000000000
200: 2c010000000000000000000000000000
240: c201000000000000f401000000000000
250: 00000000000100000000000000000000
280: f4010000000000003002000000000000
290: 3c000000000100000000000000000000
300: 1111111198badcfe0000000000000000
340: 01000000000000000000000000000000
380: 3002b160b4cdea163ff35b928ed31cff
390: 9404061966c90ecc47a152bf9f8fff50
3a0: ebb37266
"""


def golden_bytes() -> bytes:
    rows = [line.split(": ") for line in GOLDEN.split("\n") if line]
    end, packed = int(rows[-1][0], 16), {int(at, 16): bytes.fromhex(row) for at, row in rows}
    return b"".join(packed.get(at, bytes(16)) for at in range(0, end + 16, 16))[
        : end + len(packed[end])
    ]


def packed_by_hand(
    path: bytes,
    stamp: tuple[int, ...],
    facts: tuple[int, int, int],
    flags: int,
    rules: int,
    name: bytes,
    sections: list[tuple[str, list[int]]],
) -> bytes:
    """Follow the format's description with nothing but struct and zlib."""
    file_len, line_count, witness = facts

    def padded(octets: bytes) -> bytes:
        return octets + bytes(-len(octets) % 64)

    bodies = [struct.pack(f"<{len(values)}{code}", *values) for code, values in sections]
    header_nbytes = len(padded(bytes(288) + path))
    table, at = b"", header_nbytes
    for body, (_, values) in zip(bodies, sections, strict=True):
        table += struct.pack("<QQ", at, len(values))
        at += len(padded(body))
    blocks = [body[i : i + 8192] for body in bodies for i in range(0, len(body), 8192)]
    device, inode, nbytes, mtime_ns, ctime_ns, inode_generation = stamp
    stamp_bytes = struct.pack(
        "<QQQqqQ", device, inode, nbytes, mtime_ns, ctime_ns, inode_generation
    )
    rest = struct.pack("<QQ", header_nbytes, at + 4 * len(blocks)) + stamp_bytes
    rest += struct.pack("<QQII", file_len, line_count, witness, flags)
    rest += struct.pack("<II16s", rules, len(path), name) + table + path
    rest += bytes(header_nbytes - 16 - len(rest))
    magic = bytes.fromhex("894D4D534C0D0A1A")
    header = magic + struct.pack("<II", 3, zlib.crc32(rest)) + rest
    assert header[32:80] == stamp_bytes
    salt = zlib.crc32(header[32:80])
    checks = [zlib.crc32(block, salt ^ number) for number, block in enumerate(blocks)]
    return header + b"".join(map(padded, bodies)) + struct.pack(f"<{len(checks)}I", *checks)


@pytest.fixture
def golden_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    # a dialect's rules may grow; how they are recorded must not change with them
    monkeypatch.setattr(cache, "rules_of", lambda dialect: GOLDEN_RULES)


@pytest.mark.usefixtures("golden_rules")
def test_the_bytes_are_those_of_the_description() -> None:
    parts = cache.pack(GOLDEN_PATH, GOLDEN_LAYOUT, GOLDEN_COLUMNS, GOLDEN_FLAGS)
    codes = "QQQQQQqIII"
    by_hand = packed_by_hand(
        GOLDEN_PATH.encode("utf-8", "surrogateescape"),
        GOLDEN_LAYOUT.stamp,
        (2**40 + 60, 9, zlib.crc32(b'"}\n')),
        GOLDEN_FLAGS,
        GOLDEN_RULES,
        b"native",
        [(code, c.tolist()) for code, c in zip(codes, GOLDEN_COLUMNS, strict=True)],
    )
    assert b"".join(parts) == by_hand


@pytest.mark.usefixtures("golden_rules")
def test_the_bytes_are_what_they_have_always_been() -> None:
    parts = cache.pack(GOLDEN_PATH, GOLDEN_LAYOUT, GOLDEN_COLUMNS, GOLDEN_FLAGS)
    assert b"".join(parts) == golden_bytes()


def test_what_was_always_written_can_be_read(write: Write) -> None:
    found = cache.read(str(write(golden_bytes(), "golden.layout")))
    assert found is not None
    header = found.header
    assert (header.path, header.stamp) == (GOLDEN_PATH, GOLDEN_LAYOUT.stamp)
    assert (header.file_len, header.line_count) == (2**40 + 60, 9)
    assert (header.witness, header.dialect_rules) == (zlib.crc32(b'"}\n'), GOLDEN_RULES)
    assert (header.dialect_name, header.message_count) == ("native", 2)
    assert header.open_boundary and header.asked and header.claimed
    assert header.identified and header.on_trust
    assert all_columns(found) == [column.tolist() for column in GOLDEN_COLUMNS]
    assert all(offset % 64 == 0 for offset in header.offsets)


@pytest.mark.parametrize(
    ("bit", "name"),
    [(1, "open_boundary"), (2, "asked"), (4, "claimed"), (8, "identified"), (16, "on_trust")],
)
def test_each_flag_is_its_own(write: Write, bit: int, name: str) -> None:
    columns = columns_of(*[[]] * 10)
    octets = b"".join(cache.pack("/t", layout_of(columns), columns, bit))
    assert struct.unpack_from("<I", octets, 100) == (bit,)
    header = cache.read_header(str(write(octets, "flags.layout")))
    assert header is not None
    flags = ["open_boundary", "asked", "claimed", "identified", "on_trust"]
    assert [flag for flag in flags if getattr(header, flag)] == [name]


def test_many_blocks_are_checked_in_the_order_of_the_sections() -> None:
    columns = columns_of(
        list(range(0, 30000, 10)),
        list(range(10, 30010, 10)),
        [5],
        [10],
        [],
        [],
        [0],
        list(range(2500)),
        list(range(2500)),
        [7] * 2049,
    )
    parts = cache.pack("/t", layout_of(columns), columns, 8)
    by_hand = packed_by_hand(
        b"/t",
        (1, 2, 3, 4, 5, 6),
        (0, 0, 0),
        8,
        cache.rules_of(NATIVE),
        b"native",
        [(code, c.tolist()) for code, c in zip("QQQQQQqIII", columns, strict=True)],
    )
    assert b"".join(parts) == by_hand


def test_every_dialect_has_rules_of_its_own_and_a_name_that_fits() -> None:
    assert len({cache.rules_of(dialect) for dialect in DIALECTS}) == len(DIALECTS)
    assert all(len(dialect.name.encode("ascii")) <= 16 for dialect in DIALECTS)


# -- there and back ----------------------------------------------------------------------


def refused() -> list[Any]:
    message = "a good block was refused"
    raise AssertionError(message)


def all_columns(found: Cache) -> list[list[int]]:
    layout = found.layout(NATIVE, b"", refused)
    identities = found.identities(refused)
    columns = cache.layout_columns(layout)
    columns += [] if identities is None else cache.identity_columns(identities)
    return [column.tolist() for column in columns]


u8 = st.integers(0, 2**64 - 1)
u4 = st.integers(0, 2**32 - 1)
i8 = st.integers(-(2**63), 2**63 - 1)
counts = st.sampled_from([0, 1, 7, 8, 9, 1023, 1024, 1025, 2048, 2049, 5000])


@st.composite
def some_columns(draw: st.DrawFn) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = [draw(counts) for _ in range(3)]
    sizes = [n for n in pairs for _ in range(2)] + [draw(counts)]
    resolved = draw(counts)
    sizes += [resolved, resolved, draw(counts)]
    kinds = ["<u8"] * 6 + ["<i8"] + ["<u4"] * 3
    return [
        rng.integers(0, 2**31, size).astype(kind) for size, kind in zip(sizes, kinds, strict=True)
    ]


@given(
    some_columns(),
    st.builds(Stamp, u8, u8, u8, i8, i8, u8),
    st.tuples(u8, u8, st.binary(max_size=5000)),
    st.tuples(*[st.booleans()] * 5),
    st.sampled_from(DIALECTS),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300),
)
def test_what_is_written_is_what_is_read(
    columns: list[np.ndarray[Any, Any]],
    stamp: Stamp,
    facts: tuple[int, int, bytes],
    flags: tuple[bool, bool, bool, bool, bool],
    dialect: mmapstore.Dialect,
    path: str,
) -> None:
    open_boundary, asked, claimed, identified, on_trust = flags
    layout = layout_of(
        columns,
        file_len=facts[0],
        stamp=stamp,
        line_count=facts[1],
        dialect=dialect,
        open_boundary=open_boundary,
        last=facts[2],
    )
    identities = Identities(len(columns[0]), *map(Column, columns[7:])) if identified else None
    with tempfile.TemporaryDirectory() as directory:
        place = f"{directory}/x.layout"
        nbytes = cache.write(
            place, path, layout, identities, asked=asked, claimed=claimed, on_trust=on_trust
        )
        assert Path(place).stat().st_size == nbytes
        found = cache.read(place)
        assert found is not None
        assert cache.read_header(place) == found.header
    header = found.header
    assert (header.path, header.stamp, header.nbytes) == (path, stamp, nbytes)
    assert (header.file_len, header.line_count) == facts[:2]
    assert header.witness == zlib.crc32(facts[2])
    assert flags == (
        header.open_boundary,
        header.asked,
        header.claimed,
        header.identified,
        header.on_trust,
    )
    assert (header.dialect_name, header.dialect_rules) == (dialect.name, cache.rules_of(dialect))
    read = found.layout(dialect, facts[2], refused)
    assert (read.file_len, read.line_count, read.last) == facts
    assert (read.open_boundary, read.dialect, read.stamp) == (open_boundary, dialect, stamp)
    wanted = columns if identified else columns[:7]
    assert all_columns(found) == [column.tolist() for column in wanted]


@given(some_columns(), st.data())
def test_a_part_of_a_column_in_place_is_that_part(
    columns: list[np.ndarray[Any, Any]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = f"{directory}/x.layout"
        cache.write(
            place, "/t", layout_of(columns), None, asked=False, claimed=True, on_trust=False
        )
        found = cache.read(place)
    assert found is not None
    layout = found.layout(NATIVE, b"", refused)
    count = len(columns[0])
    start = data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    starts, ends = layout.messages.part(start, stop)
    assert starts.tolist() == columns[0][start:stop].tolist()
    assert ends.tolist() == columns[1][start:stop].tolist()
    if start < count:
        assert layout.messages.at(start) == (columns[0][start], columns[1][start])
    assert not starts.flags.writeable


# -- wrong bytes -------------------------------------------------------------------------


def check_all(t: mmapstore.Transcript, data: bytes) -> None:
    """Compare every answer with the naive reading of these bytes."""
    oracle = native_oracle(data)
    check_window(t.window(limit=None), oracle, 0, oracle.total)
    check_singles(t, oracle)
    assert (t.layout.line_count, t.layout.file_len) == (len(oracle.lines), oracle.file_len)
    assert t.torn_tail == oracle.torn_tail


class Cached:
    """A transcript with a cache, and what is true of it."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.path = path
        self.directory = directory
        self.place = Path(cachedir.within(str(directory), str(path)))
        settle(path)
        with mmapstore.open(path, cache_dir=None, access="pread") as t:
            self.truth = facts(t)
        with self.open() as t:
            facts(t)
        self.good = self.place.read_bytes()
        header = cache.read_header(str(self.place))
        assert header is not None
        assert header.identified
        self.header = header
        self.header_nbytes = header.offsets[0]

    def open(self, access: str = "pread") -> mmapstore.Transcript:
        return mmapstore.open(self.path, cache_dir=self.directory, access=access)

    def check(self, octets: bytes, access: str, *, may_stay: bool = False) -> str:
        """Serve the transcript with a cache of these bytes; return what became of the cache."""
        self.place.write_bytes(octets)
        with self.open(access) as t:
            assert facts(t) == self.truth
            state = t.cache
        left = self.place.read_bytes()
        assert left == self.good or (may_stay and left == octets)
        assert [entry.name for entry in self.directory.iterdir()] == [self.place.name]
        return state

    def padding(self) -> set[int]:
        """Return the bytes of the file that nothing is in."""
        used: set[int] = set(range(self.header_nbytes))
        widths = [8] * 7 + [4] * 3
        for offset, count, width in zip(
            self.header.offsets, self.header.counts, widths, strict=True
        ):
            used |= set(range(offset, offset + count * width))
        blocks = sum(
            -(-count * width // 8192)
            for count, width in zip(self.header.counts, widths, strict=True)
        )
        used |= set(range(self.header.nbytes - 4 * blocks, self.header.nbytes))
        return set(range(self.header.nbytes)) - used


def facts(t: mmapstore.Transcript) -> tuple[Any, ...]:
    """Return everything that a cache could get wrong."""
    layout = t.layout
    w = t.window(limit=None)
    ids = ["a", "b", "torn", "nobody", *w.message_ids]
    return (
        [bytes(line) for line in w.lines],
        w.messages,
        w.message_ids,
        w.message_positions,
        [found[:2] for found in w.damaged],
        list(w.compactions),
        w.compaction_positions,
        [position_of(t, message_id) for message_id in ids],
        hint_of_unknown(t),
        (layout.file_len, layout.line_count, layout.open_boundary, t.torn_tail, t.dialect.name),
        [column.tolist() for column in cache.layout_columns(layout)],
    )


def position_of(t: mmapstore.Transcript, message_id: str) -> int | str | None:
    try:
        return t.position(message_id)
    except mmapstore.LineDecodeError as error:
        return f"damaged at {error.offset}"


def hint_of_unknown(t: mmapstore.Transcript) -> str | None:
    """Return what the error for an id that nobody has says of the lines without one."""
    with pytest.raises(mmapstore.MessageNotFoundError) as caught:
        t.message("nobody")
    return caught.value.hint


@pytest.fixture
def cached(write: Write, tmp_path: Path) -> Iterator[Cached]:
    yield Cached(write(SMALL), tmp_path / "caches")


def test_the_truth_that_caches_are_held_against_is_the_oracles(cached: Cached, access: str) -> None:
    with cached.open(access) as t:
        assert t.cache == "hit"
        check_all(t, SMALL)


def test_any_bit_of_the_header_may_be_wrong(cached: Cached) -> None:
    good = cached.good
    for at in range(cached.header_nbytes):
        for bit in range(8):
            octets = bytearray(good)
            octets[at] ^= 1 << bit
            cached.place.write_bytes(octets)
            assert cache.read(str(cached.place)) is None
        octets = bytearray(good)
        octets[at] ^= 1 << at % 8
        assert cached.check(bytes(octets), ("mmap", "pread")[at % 2]) != "hit"


def test_any_byte_behind_the_header_may_be_wrong(cached: Cached) -> None:
    good = cached.good
    padding = cached.padding()
    for at in range(cached.header_nbytes, len(good)):
        octets = bytearray(good)
        octets[at] ^= 1 << at % 8
        access = ("mmap", "pread")[at % 2]
        assert cached.check(bytes(octets), access, may_stay=at in padding) == "hit"


def test_the_cache_may_end_anywhere(cached: Cached) -> None:
    for nbytes in range(len(cached.good)):
        cached.place.write_bytes(cached.good[:nbytes])
        assert cache.read(str(cached.place)) is None
        assert cache.read_header(str(cached.place)) is None
        if nbytes % 5 == 0:
            access = ("mmap", "pread")[nbytes % 2]
            assert cached.check(cached.good[:nbytes], access) != "hit"


@pytest.mark.parametrize("more", [b"\0", b"\n\n", bytes(4), b"x" * 64, bytes(8192)], ids=len)
def test_bytes_behind_the_end_make_it_no_cache(cached: Cached, more: bytes, access: str) -> None:
    assert cached.check(cached.good + more, access) != "hit"


def test_a_cache_of_nothing_but_zeros_is_none(cached: Cached, access: str) -> None:
    assert cached.check(bytes(len(cached.good)), access) != "hit"


def test_zeros_from_anywhere_on_are_noticed(cached: Cached, access: str) -> None:
    # what a machine that went down leaves of a file whose size was written first
    good = cached.good
    for at in range(0, len(good), 32):
        octets = good[:at] + bytes(len(good) - at)
        cached.check(octets, access, may_stay=octets == good)


def test_garbage_is_no_cache(cached: Cached, access: str) -> None:
    rng = random.Random(7)
    for nbytes in [1, 15, 16, 287, 288, 320, len(cached.good), 10_000]:
        assert cached.check(rng.randbytes(nbytes), access) != "hit"
        head = cached.good[:16]
        assert cached.check(head + rng.randbytes(nbytes), access) != "hit"


@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 3 << 24, 2**32 - 1])
def test_other_formats_are_built_anew(cached: Cached, number: int, access: str) -> None:
    octets = cached.good[:8] + struct.pack("<I", number) + cached.good[12:]
    assert cached.check(octets, access) != "hit"


def test_the_other_byte_order_is_another_format(cached: Cached, access: str) -> None:
    little = struct.Struct("<8sII QQ QQQqqQ QQ IIII 16s 20Q")
    fields = list(little.unpack_from(cached.good))
    big = struct.Struct(">" + little.format[1:])
    rest = (big.pack(*fields) + cached.good[little.size : cached.header_nbytes])[16:]
    for order in ("<", ">"):
        head = fields[0] + struct.pack(f"{order}II", 3, zlib.crc32(rest))
        octets = head + rest + cached.good[cached.header_nbytes :]
        assert cached.check(octets, access) != "hit"
    assert cached.check(cached.good[7::-1] + cached.good[8:], access) != "hit"


@given(st.data())
def test_several_wrong_bytes_are_noticed_together(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        path = directory / "t.jsonl"
        path.write_bytes(SMALL)
        cached = Cached(path, directory / "caches")
        octets = bytearray(cached.good)
        ats = data.draw(st.lists(st.integers(0, len(octets) - 1), min_size=2, max_size=12))
        for at in ats:
            octets[at] = data.draw(st.integers(0, 255))
        access = data.draw(st.sampled_from(["mmap", "pread"]))
        # padding that is wrong beside a part that is right stays as it is
        padding = cached.padding()
        changed = {at for at in ats if octets[at] != cached.good[at]}
        cached.check(bytes(octets), access, may_stay=changed <= padding)


# -- blocks ------------------------------------------------------------------------------

MANY = 3000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Cached:
    directory = tmp_path_factory.mktemp("many")
    path = directory / "t.jsonl"
    path.write_bytes(HEADER + b"".join(M(f"m{index}") for index in range(MANY)))
    return Cached(path, directory / "caches")


@pytest.fixture
def checksums(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """List the blocks that are proven."""
    proven: list[int] = []
    checksum = proof.checksum

    def counted(octets: memoryview, salt: int, number: int) -> int:
        proven.append(number)
        return checksum(octets, salt, number)

    monkeypatch.setattr(proof, "checksum", counted)
    return proven


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """List the times that a cache's columns were worked out anew."""
    renewed: list[object] = []
    renew = proof.Group.renew

    def counted(group: proof.Group) -> None:
        renewed.append(group)
        renew(group)

    monkeypatch.setattr(proof.Group, "renew", counted)
    return renewed


def test_a_page_proves_a_few_blocks_whatever_the_history(
    many: Cached, access: str, checksums: list[int], renewals: list[object]
) -> None:
    many.place.write_bytes(many.good)
    with many.open(access) as t:
        assert t.cache == "hit"
        assert checksums == []
        w = t.window(limit=100)
        assert [record["id"] for record in w.messages] == [f"m{n}" for n in range(2900, 3000)]
        assert len(checksums) == len(set(checksums)) == 2  # a block of the starts, one of the ends
        assert t.window(limit=100).messages == w.messages
        assert len(checksums) == 2
        assert t.position("m17") == 17
        # a search of the checksums and the position of what it found, and that line's place
        assert len(checksums) <= 2 + 3 + 2 + 2
    assert renewals == []
    assert many.place.read_bytes() == many.good


def test_every_block_is_proven_before_it_is_used(many: Cached, renewals: list[object]) -> None:
    blocks = [
        (number, offset + at)
        for number, (offset, count) in enumerate(
            zip(many.header.offsets, many.header.counts, strict=True)
        )
        for at in range(0, count * (8 if number < 7 else 4), BLOCK_NBYTES)
    ]
    assert len(blocks) == 3 + 3 + 2 + 2
    for index, (number, at) in enumerate(blocks):
        octets = bytearray(many.good)
        octets[at + 2] ^= 0x40
        del renewals[:]
        assert many.check(bytes(octets), ("mmap", "pread")[index % 2]) == "hit"
        assert len(renewals) == 1, number


def test_columns_that_are_used_whole_are_proven_whole(
    many: Cached, access: str, renewals: list[object]
) -> None:
    for number in (0, 1):
        for block in range(3):
            octets = bytearray(many.good)
            octets[many.header.offsets[number] + block * BLOCK_NBYTES] ^= 1
            many.place.write_bytes(octets)
            del renewals[:]
            with many.open(access) as t:
                column = (t.layout.messages.starts, t.layout.messages.ends)[number]
                assert column.tolist() == many.truth[-1][number]
            assert len(renewals) == 1


def test_a_wrong_block_that_is_not_used_costs_nothing(
    many: Cached, access: str, renewals: list[object]
) -> None:
    octets = bytearray(many.good)
    octets[many.header.offsets[0] + 3] ^= 1
    many.place.write_bytes(octets)
    with many.open(access) as t:
        w = t.window(limit=100)
        assert [record["id"] for record in w.messages] == [f"m{n}" for n in range(2900, 3000)]
        assert renewals == []
        assert bytes(t.line(0)) == M("m0")
        assert len(renewals) == 1
    assert many.place.read_bytes() == many.good


def test_a_block_of_another_place_is_a_wrong_one(many: Cached, access: str) -> None:
    # each block is as it was written, and its checksum with it
    table = many.header.nbytes - 4 * 10
    first = many.header.offsets[0]
    octets = bytearray(many.good)
    one, other = slice(first, first + 8192), slice(first + 8192, first + 16384)
    octets[one], octets[other] = octets[other], octets[one]
    checks = octets[table : table + 4], octets[table + 4 : table + 8]
    octets[table + 4 : table + 8], octets[table : table + 4] = checks
    assert many.check(bytes(octets), access) == "hit"


def test_a_block_of_another_cache_is_a_wrong_one(many: Cached, access: str, tmp_path: Path) -> None:
    # lines of other lengths, so every place but the first is another
    path = tmp_path / "other.jsonl"
    path.write_bytes(HEADER + b"".join(M(f"m{index}", "tt") for index in range(MANY)))
    other = Cached(path, tmp_path / "caches")
    assert other.header.counts == many.header.counts
    sections = len(many.good) - sum((len(many.good) - many.header.offsets[0],))
    theirs = other.good[other.header.offsets[0] :]
    assert many.check(many.good[:sections] + theirs, access) == "hit"


def test_an_unreadable_column_is_worked_out_from_the_lines_it_was_made_of(
    write: Write, tmp_path: Path, access: str
) -> None:
    cached = Cached(write(SMALL), tmp_path / "caches")
    octets = bytearray(cached.good)
    octets[cached.header.offsets[0]] ^= 1
    cached.place.write_bytes(octets)
    with cached.open(access) as t:
        # what is appended behind the cache's lines is none of its business
        with cached.path.open("ab") as file:
            file.write(M("new"))
        check_all(t, SMALL)
        t.refresh()
        check_all(t, SMALL + M("new"))
