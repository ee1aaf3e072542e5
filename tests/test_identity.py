"""Ids to positions: a look-up finds what a parser finds, whatever the ids look like."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmapstore import identity, layout
from mmapstore.columns import Column
from mmapstore.dialect import DIALECTS, Dialect, dialect_named
from mmapstore.errors import TranscriptChangedError
from mmapstore.fileio import open_regular
from mmapstore.filemap import MappedFile, ReadFile
from mmapstore.identity import Identities, addressed_offset, offset_address, read_id, spans
from mmapstore.layout import Extents
from tests.strategies import IDS, message_records, seeds, spelled, values

NATIVE = dialect_named("native")
#: two texts of equal CRC-32
TWINS = ("plumless", "buckeroo")


def identities_of(path: Path, dialect: Dialect = NATIVE, *, mapped: bool = False) -> Identities:
    descriptor = open_regular(str(path))
    source = (MappedFile if mapped else ReadFile)(descriptor, path.stat().st_size)
    built = layout.build(source, dialect, descriptor.stamp())
    return identity.build(source, built.messages, dialect)


@pytest.fixture
def positions(write: Callable[..., Path]) -> Callable[..., list[int]]:
    """Return a function that looks an id up among lines, the last of them first."""

    def look_up(lines: list[bytes], message_id: str, dialect: str = "native") -> list[int]:
        path = write(b"".join(line + b"\n" for line in lines))
        ways = [
            list(identities_of(path, dialect_named(dialect), mapped=mapped).candidates(message_id))
            for mapped in (False, True)
        ]
        assert ways[0] == ways[1]
        return ways[0]

    return look_up


def message(message_id: Any, **more: Any) -> bytes:
    record = {"type": "message", "id": message_id, **more}
    return json.dumps(record, separators=(",", ":")).encode()


def test_the_last_line_of_an_id_comes_first(positions: Callable[..., list[int]]) -> None:
    lines = [message(name) for name in "abacabb"]
    assert positions(lines, "a") == [4, 2, 0]
    assert positions(lines, "b") == [6, 5, 1]
    assert positions(lines, "c") == [3]
    assert positions(lines, "d") == []
    assert positions([], "a") == []


def test_ids_of_equal_checksum_are_all_candidates(positions: Callable[..., list[int]]) -> None:
    one, other = TWINS
    assert zlib.crc32(one.encode()) == zlib.crc32(other.encode())
    lines = [message(one), message(other), message("x"), message(one)]
    assert positions(lines, one) == positions(lines, other) == [3, 1, 0]


@pytest.mark.parametrize(
    ("spelling", "message_id"),
    [
        (b'"plain"', "plain"),
        (b'"\\u0061\\u0062"', "ab"),
        (b'"a\\"b"', 'a"b'),
        (b'"a\\\\"', "a\\"),
        (b'"a\\/b"', "a/b"),
        ('"é行😀"'.encode(), "é行😀"),
        (b'"\\u00e9\\u884c\\ud83d\\ude00"', "é行😀"),
        (b'"\\ud83d"', "\ud83d"),
        (b'"\\udc00\\ud83d"', "\udc00\ud83d"),
        (b'"\\u0000"', "\0"),
        (b"7", "7"),
        (b"-7", "-7"),
        (b"18446744073709551615", "18446744073709551615"),
        (b'"' + b"x" * 95 + b'"', "x" * 95),
        (b'"' + b"x" * 96 + b'"', "x" * 96),
        (b'"' + b"x" * 97 + b'"', "x" * 97),
        (b'"' + b"x" * 5000 + b'"', "x" * 5000),
        (b'"' + b"x" * 95 + b'\\n"', "x" * 95 + "\n"),
        (b'" spaced "', " spaced "),
        (b'"@0"', "@0"),
    ],
)
@pytest.mark.parametrize(
    "shape",
    [
        b'{"type":"message","id":%s,"b":[1]}',
        b'{"type":"message","id": %s,"b":[1]}',
        b'{ "id" : %s , "b":[{"id":"no"}],"type":"message"}',
        b'{"type":"message","b":[{"id":"no"}],"id":%s}',
        b'{"type":"message","b":{"id":"no"},"c":"\\"id\\":\\"no","id":%s,"d":[]}',
        b'{"type":"message","l":"' + b"x" * 600 + b'","id":%s,"m":"' + b"y" * 600 + b'"}',
    ],
)
def test_ids_of_every_spelling_and_place(
    positions: Callable[..., list[int]], spelling: bytes, message_id: str, shape: bytes
) -> None:
    line = shape % spelling
    other = shape % b'"other"'
    assert positions([other, line, other], message_id) == [1]
    assert positions([other, line, other], "no") == []
    assert read_id(line, NATIVE) == message_id
    assert message_id == NATIVE.id(json.loads(line))


@pytest.mark.parametrize(
    "value", [b"null", b"true", b"1.5", b"1e3", b"[]", b"{}", b'{"id":"a"}', b'["a"]']
)
def test_what_is_no_id_stays_unresolved(write: Callable[..., Path], value: bytes) -> None:
    line = b'{"type":"message","id":%s,"a":"id"}\n' % value
    none = b'{"type":"message","a":{"id":"a"}}\n'
    path = write(line + message("a") + b"\n" + none)
    found = identities_of(path)
    assert found.unresolved.whole().tolist() == [0, 2]
    assert list(found.candidates("a")) == [1]
    assert read_id(line, NATIVE) is None


@settings(max_examples=settings.default.max_examples // 2)
@given(
    records=st.lists(message_records(), max_size=12),
    seed=seeds,
    asked=st.sampled_from([*IDS, "0", "1", "none", ""]),
)
def test_candidates_are_where_a_parser_finds_the_id(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[dict[str, Any]],
    seed: int,
    asked: str,
) -> None:
    path = tmp_path_factory.getbasetemp() / "identity.jsonl"
    lines = [spelled(record, seed and seed + index) for index, record in enumerate(records)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    found = identities_of(path)
    ids = [NATIVE.id(json.loads(line)) for line in lines]
    assert list(found.candidates(asked)) == [
        position for position in reversed(range(len(ids))) if ids[position] == asked
    ]
    assert found.unresolved.whole().tolist() == [at for at, each in enumerate(ids) if each is None]
    assert [read_id(line, NATIVE) for line in lines] == ids


# -- the scan's id and the parser's ---------------------------------------------------

PLACES = sorted(
    {alternative for dialect in DIALECTS for alternative in dialect.id_path.expression.split("|")}
    - {""}
)


def with_ids(record: dict[str, Any], ids: dict[str, Any]) -> dict[str, Any]:
    for place, value in ids.items():
        at = record
        *above, last = place.split(".")
        for key in above:
            inner = at.get(key)
            at[key] = inner if isinstance(inner, dict) else {}
            at = at[key]
        at[last] = value
    return record


ids_of_any_sort = st.one_of(
    st.sampled_from(["a", "é", "\ud800", ""]), st.integers(-9, 9), st.none(), st.booleans()
)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@settings(max_examples=settings.default.max_examples // 4)
@given(
    record=st.dictionaries(st.sampled_from(["k", "role"]), values, max_size=2),
    ids=st.dictionaries(st.sampled_from(PLACES), ids_of_any_sort),
)
def test_the_scan_reads_the_id_that_a_parser_gives(
    dialect: Dialect, record: dict[str, Any], ids: dict[str, Any]
) -> None:
    line = json.dumps(with_ids(record, ids)).encode() + b"\n"
    assert read_id(line, dialect) == dialect.id(json.loads(line))


def test_of_a_repeated_id_key_one_of_the_literal_ones_is_read() -> None:
    line = b'{"type":"message","id":"a","id":"b"}\n'
    assert read_id(line, NATIVE) in ("a", "b")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("codex", b'{"payload":{"id":[],"call_id":"x"}}\n'),
        ("kimi", b'{"event":{"uuid":{}},"message":{"id":"x"}}\n'),
        ("native", b'{"type":"message","id":123456789012345678901,"a":"\\ud800"}\n'),
        ("codex", b'{"payload":{"id":1.5,"call_id":"x"}}\n'),
        ("codex", b'{"payload":{"id":null,"call_id":"x"}}\n'),
        ("codex", b'{"payload":{"id":null},"ordinal":3}\n'),
        ("codex", b'{"payload":[],"ordinal":3}\n'),
        ("kimi", b'{"event":{"toolCallId":"t"},"message":{"id":"x"}}\n'),
    ],
)
def test_the_id_where_there_is_more_than_one_place(name: str, line: bytes) -> None:
    dialect = dialect_named(name)
    assert read_id(line, dialect) == dialect.id(json.loads(line))


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "codex",
            [
                b'{"type":"response_item","payload":{"type":"message","id":"a"}}',
                b'{"type":"response_item","payload":{"type":"message","call_id":"b"}}',
                b'{"type":"response_item","payload":{"type":"message"},"ordinal":3}',
                b'{"type":"response_item","payload":{"type":"message"}}',
            ],
        ),
        (
            "kimi",
            [
                b'{"type":"context.append_message","message":{"id":"a"}}',
                b'{"type":"context.append_message","event":{"toolCallId":"b"}}',
                b'{"type":"context.append_message","event":{"uuid":3}}',
                b'{"type":"context.append_message","message":{}}',
            ],
        ),
    ],
)
def test_ids_at_nested_places(
    positions: Callable[..., list[int]], write: Callable[..., Path], name: str, lines: list[bytes]
) -> None:
    for position, message_id in enumerate(["a", "b", "3"]):
        assert positions(lines, message_id, name) == [position]
    path = write(b"\n".join(lines) + b"\n")
    assert identities_of(path, dialect_named(name)).without_id(9) == [3]


def test_a_dialect_without_ids_resolves_nothing(write: Callable[..., Path]) -> None:
    path = write(message("a") + b"\n" + message("b") + b"\n")
    found = identities_of(path, dialect_named("generic"))
    # there is nothing that a look-up would have to read
    assert found.without_id(9) == []
    assert list(found.candidates("a")) == []
    assert list(found.candidates("")) == []


def test_damaged_lines_resolve_as_far_as_their_id_reads(write: Callable[..., Path]) -> None:
    lines = [
        b'{"type":"message","id":"cut","b":[',
        b'{"type":"message","id"',
        b'{"type":"message","id":"x"}}}',
        message("x"),
    ]
    found = identities_of(write(b"".join(line + b"\n" for line in lines)))
    assert list(found.candidates("cut")) == [0]
    assert list(found.candidates("x")) == [3, 2]
    assert found.unresolved.whole().tolist() == [1]


def test_an_id_that_is_cut_off_is_not_readable(write: Callable[..., Path]) -> None:
    line = b'{"type":"message","id":"half\n'
    assert read_id(line, NATIVE) is None
    assert identities_of(write(line + message("x") + b"\n")).without_id(9) == [0]


@pytest.mark.parametrize("raw", [b"\xff", b"\xed\xa0\x80", b"a\x01b"])
def test_an_id_that_is_no_text_is_not_readable(write: Callable[..., Path], raw: bytes) -> None:
    line = b'{"type":"message","id":"%s"}\n' % raw
    assert read_id(line, NATIVE) is None
    assert identities_of(write(line)).without_id(9) == [0]


def test_eight_bytes_a_message(write: Callable[..., Path]) -> None:
    found = identities_of(write(b"".join(message(f"id-{n}") + b"\n" for n in range(1000))))
    columns = (found.checksums.whole(), found.positions.whole())
    assert sum(column.nbytes for column in columns) == 8000
    assert len(found.unresolved) == 0
    assert (np.diff(columns[0].astype(np.int64)) >= 0).all()


def test_more_lines_than_are_looked_at_together(
    positions: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_SPAN_NBYTES", 100)
    lines = [message(f"id-{n}", pad="x" * (n % 7) * 30) for n in range(60)]
    for position in (0, 1, 29, 58, 59):
        assert positions(lines, f"id-{position}") == [position]


def test_a_file_that_has_shrunk_is_said_to_have_changed(write: Callable[..., Path]) -> None:
    path = write(b"".join(message(name) + b"\n" for name in "abc"))
    descriptor = open_regular(str(path))
    source = ReadFile(descriptor, path.stat().st_size)
    built = layout.build(source, NATIVE, descriptor.stamp())
    os.truncate(path, 40)
    with pytest.raises(TranscriptChangedError) as caught:
        identity.build(source, built.messages, NATIVE)
    assert (caught.value.path, caught.value.offset) == (str(path), 40)


# -- growth ---------------------------------------------------------------------------


def first_lines(extents: Extents, count: int) -> Extents:
    return Extents(Column(extents.starts[:count]), Column(extents.ends[:count]))


def columns_of(found: Identities) -> tuple[list[int], ...]:
    in_order = found.sorted_in()
    assert in_order.count == found.count
    for column in (in_order.checksums, in_order.positions, in_order.unresolved):
        assert column.whole().dtype == np.dtype("<u4")
    return (
        in_order.checksums.whole().tolist(),
        in_order.positions.whole().tolist(),
        in_order.unresolved.whole().tolist(),
    )


def check_identities(found: Identities, ids: list[str | None]) -> None:
    """Compare with a list of the ids, None for one that cannot be read."""
    assert found.count == len(ids)
    of_checksum: dict[int, list[int]] = {}
    for position, message_id in enumerate(ids):
        if message_id is not None:
            checksum = zlib.crc32(message_id.encode("utf-8", "surrogatepass"))
            of_checksum.setdefault(checksum, []).append(position)
    for message_id in {*NAMES, "none", ""}:
        checksum = zlib.crc32(message_id.encode("utf-8", "surrogatepass"))
        assert list(found.candidates(message_id)) == of_checksum.get(checksum, [])[::-1]
        # whether one by one or all in one go
        for others in ([], ["none"] * 2, ["none"] * 200):
            may = found.may_have_any([*others, message_id])
            assert may or checksum not in of_checksum
    assert not found.may_have_any(["none"])
    assert not found.may_have_any(["none", ""] * 100)
    assert not found.may_have_any([])
    unresolved = [position for position, message_id in enumerate(ids) if message_id is None]
    for limit in {0, 1, 2, len(unresolved), len(ids), len(ids) + 1}:
        assert found.without_id(limit) == unresolved[:limit]
    assert columns_of(found) == (
        [checksum for checksum in sorted(of_checksum) for _ in of_checksum[checksum]],
        [position for checksum in sorted(of_checksum) for position in of_checksum[checksum]],
        unresolved,
    )


NAMES = ["a", "b", *TWINS, "é", "\ud83d", "x" * 120]
LINES = [
    *((name, message(name) + b"\n") for name in NAMES),
    ("a", b'{"type":"message","b":[{"id":"no"}],"\\u0069d":"a"}\n'),
    ("b", b'{"type":"message","id":"b","torn\n'),
    (None, b'{"type":"message","id":null}\n'),
    (None, b'{"type":"message"}\n'),
    (None, b'{"type":"message","id":"half\n'),
]


class File:
    """A file of messages whose ids are known."""

    def __init__(self, path: Path, lines: list[tuple[str | None, bytes]], *, mark: bool) -> None:
        path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + b"".join(line for _, line in lines))
        self.ids = [message_id for message_id, _ in lines]
        descriptor = open_regular(str(path))
        self.source = ReadFile(descriptor, path.stat().st_size)
        self.messages = layout.build(self.source, NATIVE, descriptor.stamp()).messages
        assert len(self.messages) == len(lines)

    def built(self, count: int) -> Identities:
        return identity.build(self.source, first_lines(self.messages, count), NATIVE)

    def grown(self, known: Identities, count: int) -> Identities:
        return known.grown(self.source, first_lines(self.messages, count), NATIVE)


def few(patch: pytest.MonkeyPatch, one_by_one: int, recent: int) -> None:
    patch.setattr(identity, "_FEW_COUNT", one_by_one)
    patch.setattr(identity, "RECENT_COUNT", recent)


@pytest.mark.parametrize("mark", [False, True])
@pytest.mark.parametrize("recent", [0, 3, 100])
@pytest.mark.parametrize("one_by_one", [0, 2, 100])
def test_identities_that_grew_are_those_that_are_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_by_one: int, recent: int, mark: bool
) -> None:
    """In two steps, at every split."""
    few(monkeypatch, one_by_one, recent)
    file = File(tmp_path / "t.jsonl", [*LINES, *LINES[:3]], mark=mark)
    total = len(file.ids)
    whole = file.built(total)
    check_identities(whole, file.ids)
    for split in range(total + 1):
        before = file.built(split)
        grown = file.grown(before, total)
        check_identities(grown, file.ids)
        check_identities(before, file.ids[:split])
        assert columns_of(grown) == columns_of(whole)


@settings(max_examples=settings.default.max_examples * 2)
@given(
    lines=st.lists(st.sampled_from(LINES), min_size=1, max_size=30),
    steps=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.booleans()), min_size=1, max_size=8
    ),
    one_by_one=st.sampled_from([0, 2, 100]),
    recent=st.sampled_from([0, 1, 4, 100]),
    mark=st.booleans(),
)
@example(
    lines=[LINES[0]] * 6,
    steps=[(0, 2, False), (1, 4, False), (1, 5, False), (2, 6, False)],
    one_by_one=100,
    recent=100,
    mark=False,
).via("two that grow out of one, and a third out of the first of them")
@example(
    lines=[LINES[-1]] * 6,
    steps=[(0, 2, False), (1, 4, False), (1, 5, True), (2, 6, False)],
    one_by_one=100,
    recent=100,
    mark=False,
).via("the same of lines that are not resolved")
def test_every_identities_of_a_family_knows_its_own_lines(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str | None, bytes]],
    steps: list[tuple[int, int, bool]],
    one_by_one: int,
    recent: int,
    mark: bool,
) -> None:
    """Each step grows any of those before it by any number of lines, or sorts it in."""
    file = File(tmp_path_factory.getbasetemp() / "family.jsonl", lines, mark=mark)
    with pytest.MonkeyPatch.context() as patch:
        few(patch, one_by_one, recent)
        family = [file.built(0)]
        for parent, more, sorted_in in steps:
            known = family[parent % len(family)]
            if sorted_in:
                known = known.sorted_in()
            family.append(file.grown(known, min(known.count + more, len(lines))))
        for known in family:
            check_identities(known, file.ids[: known.count])


def test_growth_reads_the_new_lines_alone(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = File(write(b""), [(f"m{n}", message(f"m{n}") + b"\n") for n in range(40)], mark=False)
    starts, ends = file.messages.starts.tolist(), file.messages.ends.tolist()
    known = file.built(10)
    reads: list[tuple[int, int]] = []
    pread = os.pread

    def counted(fd: int, nbytes: int, offset: int) -> bytes:
        reads.append((offset, offset + nbytes))
        return pread(fd, nbytes, offset)

    monkeypatch.setattr(os, "pread", counted)
    for count in (11, 14, 40, 40):
        reads.clear()
        grown = file.grown(known, count)
        assert sum(high - low for low, high in reads) == sum(ends[known.count : count]) - sum(
            starts[known.count : count]
        )
        assert all(low >= starts[known.count] for low, _ in reads)
        known = grown
    assert [list(known.candidates(f"m{n}")) for n in range(40)] == [[n] for n in range(40)]


def test_what_stands_aside_is_sorted_in_when_it_is_much(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, 8, 5)
    file = File(write(b""), [(f"m{n}", message(f"m{n}") + b"\n") for n in range(20)], mark=False)
    known = file.built(4)
    sorted_counts = []
    for count in range(5, 21):
        known = file.grown(known, count)
        sorted_counts.append(len(known.checksums))
    assert sorted_counts == [4] * 5 + [10] * 6 + [16] * 5
    # nothing to do where nothing stands aside
    assert known.sorted_in().sorted_in() is not known
    in_order = known.sorted_in()
    assert in_order.sorted_in() is in_order


def test_growth_of_a_dialect_without_ids(write: Callable[..., Path]) -> None:
    generic = dialect_named("generic")
    path = write(message("a") * 3)
    file = File(path, [("a", message("a") + b"\n")] * 12, mark=False)
    known = identity.build(file.source, first_lines(file.messages, 3), generic)
    for count in (4, 12):
        known = known.grown(file.source, first_lines(file.messages, count), generic)
        assert (known.count, known.without_id(20), list(known.candidates("a"))) == (count, [], [])
        assert columns_of(known) == ([], [], [])


@pytest.mark.parametrize("count", [2, 20], ids=["one by one", "by arrays"])
def test_growth_of_a_file_that_has_shrunk_changes_nothing(
    write: Callable[..., Path], count: int
) -> None:
    path = write(b"")
    file = File(path, [(f"m{n}", message(f"m{n}") + b"\n") for n in range(3 + count)], mark=False)
    data = path.read_bytes()
    known = file.built(3)
    cut = int(file.messages.ends[3]) + 5
    os.truncate(path, cut)
    with pytest.raises(TranscriptChangedError) as caught:
        file.grown(known, 3 + count)
    assert (caught.value.path, caught.value.offset) == (str(path), cut)
    path.write_bytes(data)
    grown = file.grown(known, 3 + count)
    assert [list(grown.candidates(f"m{n}")) for n in range(3 + count)] == [
        [n] for n in range(3 + count)
    ]


# -- spans ----------------------------------------------------------------------------


@given(
    sizes=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=40),
    edges=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    span=st.sampled_from([1, 50, 100, 1000]),
)
@example(sizes=[], edges=(0, 0), span=1)
def test_spans_are_adjacent_and_small(
    sizes: list[tuple[int, int]], edges: tuple[int, int], span: int
) -> None:
    bounds = np.cumsum([nbytes for pair in sizes for nbytes in pair], dtype="<u8")
    extents = Extents(Column(bounds[::2]), Column(bounds[1::2]))
    start, stop = sorted(min(edge, len(sizes)) for edge in edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "_SPAN_NBYTES", span)
        parts = list(spans(extents, start, stop))
    assert [index for low, high in parts for index in range(low, high)] == list(range(start, stop))
    assert all(one[1] == other[0] for one, other in pairwise(parts))
    for low, high in parts:
        nbytes = int(extents.ends[high - 1] - extents.starts[low])
        assert high - low == 1 or nbytes <= span
        # no part could have been longer
        if high < stop:
            assert int(extents.ends[high] - extents.starts[low]) > span


# -- addresses ------------------------------------------------------------------------


@given(offset=st.integers(0, 2**64))
def test_an_address_names_its_offset(offset: int) -> None:
    assert addressed_offset(offset_address(offset)) == offset


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "7",
        "@-1",
        "@+1",
        "@01",
        "@1 ",
        " @1",
        "@1\n",
        "@1.0",
        "@0x1",
        "@\u0661",
        "@1_0",
        "@@1",
        "a@1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    assert addressed_offset(text) is None


def test_an_address_of_any_length_is_none_or_an_offset() -> None:
    addressed_offset("@" + "1" * 5000)
