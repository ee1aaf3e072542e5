"""The layout is what a split and a parser say, however it was built and wherever it was continued."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmapstore import filemap, layout
from mmapstore.classify import kind_of_record
from mmapstore.dialect import Kind, dialect_named
from mmapstore.fileio import open_regular
from mmapstore.filemap import Run
from mmapstore.layout import Layout
from mmapstore.stamp import Stamp
from tests.file_support import SOURCES, shrink_steps
from tests.strategies import HEADER, transcripts

BOM = b"\xef\xbb\xbf"
FEWER = settings(max_examples=settings.default.max_examples // 2)


class InMemory:
    """Bytes that are walked as a mapping is."""

    access = "mmap"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.nbytes = len(data)

    def view(self, start: int, stop: int) -> memoryview:
        return memoryview(self.data)[start:stop]

    def reader(self, start: int) -> Any:
        return filemap._MapReader(Run(0, self.data), start, self.nbytes)


def stamp_for(nbytes: int) -> Stamp:
    return Stamp(1, 2, nbytes, 3, 4)


def build(data: bytes, dialect: str = "native", **kwargs: Any) -> Layout:
    return layout.build(InMemory(data), dialect_named(dialect), stamp_for(len(data)), **kwargs)


def extend(known: Layout, data: bytes) -> Layout:
    """Return the layout of a file that has grown, which is the same by arrays and line by line."""
    scanned = layout.extend(known, InMemory(data), stamp_for(len(data)))
    told = layout.with_few(known, data[known.file_len :], stamp_for(len(data)))
    assert told is None or facts(told) == facts(scanned)
    return scanned


def facts(of: Layout) -> tuple[Any, ...]:
    return (
        of.file_len,
        of.stamp,
        of.line_count,
        of.dialect.name,
        of.open_boundary,
        of.last,
        of.checkpoints.whole().tolist(),
        *(
            (extents.starts.tolist(), extents.ends.tolist())
            for extents in (of.messages, of.compactions, of.reviews)
        ),
    )


def naive_checkpoints(kinds: list[Kind]) -> tuple[list[int], bool]:
    """Return which compaction lines stand, and whether a boundary waits: one line at a time."""
    standing: list[int] = []
    index = 0
    waiting = False
    for kind in kinds:
        if kind is Kind.MESSAGE:
            waiting = False
        elif kind is Kind.COMPACTION:
            standing.append(index)
            waiting = True
            index += 1
        elif kind is Kind.SUMMARY:
            if waiting:
                standing.remove(standing[-1])
            standing.append(index)
            waiting = False
            index += 1
    return standing, waiting


def naive_facts(data: bytes, dialect: str = "native") -> tuple[Any, ...]:
    """Return the facts of the layout of valid lines: split, parse, sort."""
    of_dialect = dialect_named(dialect)
    lines = data.split(b"\n")[:-1]
    spans: dict[Kind, list[tuple[int, int]]] = {kind: [] for kind in Kind}
    kinds, at = [], 0
    for line in lines:
        text = line.removeprefix(BOM) if at == 0 else line
        kind = kind_of_record(of_dialect, json.loads(text)) if text.strip() else Kind.OTHER
        kinds.append(kind)
        spans[kind].append((at, at + len(line) + 1))
        at += len(line) + 1
    checkpoints, waiting = naive_checkpoints(kinds)
    columns = [
        spans[Kind.MESSAGE],
        sorted(spans[Kind.COMPACTION] + spans[Kind.SUMMARY]),
        spans[Kind.REVIEW],
    ]
    return (
        at,
        stamp_for(len(data)),
        len(lines),
        dialect,
        waiting,
        data[:at][-layout.LAST_NBYTES :],
        checkpoints,
        *(([low for low, _ in column], [high for _, high in column]) for column in columns),
    )


@FEWER
@given(data=transcripts(damage=False))
def test_a_layout_is_what_a_parser_says(data: bytes) -> None:
    assert facts(build(data)) == naive_facts(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\n\n\n",
        b"torn",
        b'{"type":"message"}',
        b'{"type":"message"}\n',
        b'{"type":"message"}\n{"type":"message"}',
        b'\n{"type":"message"}\n\n \t\r\n{"type":"message"}\r\n',
        BOM,
        BOM + b"\n",
        BOM + b'{"type":"message"}\n',
        BOM + b'\n{"type":"message"}\n',
        BOM + b' {"type":"message"}\n{"type":"compaction"}\n',
        b'{"type":"message"}\n' * 3 + b'{"type":"tool_review_state"}\n' * 2,
        b'{"a":"' + b"x" * 2000 + b'","type":"message"}\n',
    ],
)
def test_small_files(data: bytes) -> None:
    assert facts(build(data)) == naive_facts(data)
    for cut in range(len(data) if len(data) < 200 else 0):
        assert facts(extend(build(data[:cut]), data)) == naive_facts(data)


def test_a_mark_counts_at_the_top_of_the_file_alone() -> None:
    line = b'{"type":"message"}\n'
    assert build(line + BOM + line).message_offsets.tolist() == [0]
    assert build(BOM + line + line).message_offsets.tolist() == [0, len(BOM + line)]
    # and is part of the line's bytes
    assert build(BOM + line).messages.ends.tolist() == [len(BOM + line)]
    assert build(BOM + BOM + line).message_offsets.tolist() == []


# -- growth ---------------------------------------------------------------------------


@FEWER
@given(data=transcripts(max_lines=8, damage=False), draw=st.data())
def test_growth_at_any_cut_gives_the_same_layout(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=4)))
    whole = facts(build(data))
    grown = build(b"")
    for cut in (*cuts, len(data)):
        grown = extend(grown, data[:cut])
        assert facts(grown) == facts(build(data[:cut]))
    assert facts(grown) == whole


FILE = (
    BOM
    + HEADER
    + b'{"type":"message","id":"a"}\r\n\n{"blocks":[{"type":"x"}],"type":"message"}\n'
    + b'{"type":"compaction","id":"c"}\n{"type":"tool_review_state","messageId":"a"}\n{"x":1}\n'
    + b' {"type" : "mess\\u0061ge"}\ntorn'
)


def test_growth_at_every_byte() -> None:
    expected = naive_facts(FILE)
    assert expected[2] == 8
    for cut in range(len(FILE) + 1):
        before = build(FILE[:cut])
        assert before.file_len == FILE.rfind(b"\n", 0, cut) + 1
        assert facts(extend(before, FILE)) == expected
        # the layout that was extended is what it was
        assert facts(before) == naive_facts(FILE[:cut])


@given(data=transcripts(max_lines=6), cut=st.integers(0, 2000))
@example(
    data=HEADER + b'{"a":1,"type":"message","type":"abc\n' + b'{"b":1}\n' * 99, cut=len(HEADER) + 36
)
def test_growth_at_any_cut_of_a_damaged_file(data: bytes, cut: int) -> None:
    cut = min(cut, len(data))
    assert facts(extend(build(data[:cut]), data)) == facts(build(data))


def test_nothing_new_is_the_same_layout_under_the_new_stamp() -> None:
    known = build(FILE)
    again = layout.extend(known, InMemory(FILE), Stamp(1, 2, len(FILE), 9, 9))
    assert again.stamp == Stamp(1, 2, len(FILE), 9, 9)
    assert facts(again)[2:] == facts(known)[2:]


@pytest.mark.parametrize("count", [1, 16, 4096])
@FEWER
@given(data=transcripts(max_lines=6), cuts=st.tuples(st.integers(0, 2000), st.integers(0, 2000)))
def test_an_append_is_told_from_a_rewrite_by_the_bytes_in_front_of_it(
    count: int, data: bytes, cuts: tuple[int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "LAST_NBYTES", count)
        first, second = sorted(min(cut, len(data)) for cut in cuts)
        known = extend(build(data[:first]), data[:second])
        assert known.last == data[: known.file_len][-count:]
        assert layout.is_behind(known, InMemory(data))
        assert not layout.is_behind(known, InMemory(data[: known.file_len - 1])) or not known.last
        for at in range(max(0, known.file_len - count - 2), known.file_len):
            changed = bytearray(data)
            changed[at] ^= 1
            unseen = at < known.file_len - count
            assert layout.is_behind(known, InMemory(bytes(changed))) is unseen


MESSAGE = b'{"type":"message","id":"a","blocks":[]}\n'
REVIEW = b'{"type":"tool_review_state","messageId":"a"}\n'
COMPACTION = b'{"type":"compaction","id":"c"}\n'
CLAUDE_MESSAGE = b'{"type":"assistant","message":{}}\n'


@pytest.mark.parametrize(
    ("dialect", "head", "added", "told"),
    [
        ("native", MESSAGE, MESSAGE + REVIEW + MESSAGE, True),
        ("native", MESSAGE, MESSAGE + b"torn", True),
        ("native", MESSAGE, b"torn", True),
        # each of these may decide for another line, or be what no line before it was
        ("native", b"", MESSAGE, False),
        ("native", MESSAGE, MESSAGE + COMPACTION, False),
        ("claude", b'{"type":"system","subtype":"compact_boundary"}\n', CLAUDE_MESSAGE, False),
    ],
)
def test_which_appends_are_told_line_by_line(
    dialect: str, head: bytes, added: bytes, told: bool
) -> None:
    data = head + added
    known = build(head, dialect)
    few = layout.with_few(known, added, stamp_for(len(data)))
    assert (few is not None) is told
    assert few is None or facts(few) == naive_facts(head + added, dialect)
    assert facts(extend(known, data)) == naive_facts(data, dialect)


# -- steps ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [8, 64])
@FEWER
@given(data=transcripts(max_lines=8, damage=False))
def test_any_steps_and_every_way_to_the_bytes(
    tmp_path_factory: pytest.TempPathFactory, step: int, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "steps.jsonl"
    path.write_bytes(data)
    expected = naive_facts(data)
    with pytest.MonkeyPatch.context() as patch:
        shrink_steps(patch, step, 64)
        for source_class in SOURCES.values():
            source = source_class(open_regular(str(path)), len(data))
            built = layout.build(source, dialect_named("native"), stamp_for(len(data)))
            assert facts(built) == expected


def test_progress_tells_how_far_the_scan_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filemap, "SPAN_NBYTES", 50)
    calls: list[tuple[int, int]] = []
    build(FILE, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(min(done, len(FILE)), len(FILE)) for done in range(50, len(FILE) + 50, 50)]
    calls.clear()
    build(b"", progress=lambda done, total: calls.append((done, total)))
    assert calls == []


def test_what_progress_raises_ends_the_scan() -> None:
    class StopHereError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise StopHereError

    with pytest.raises(StopHereError):
        build(FILE, progress=stop)


# -- checkpoints ----------------------------------------------------------------------

CLAUDE = {
    "boundary": b'{"type":"system","subtype":"compact_boundary"}\n',
    "summary": b'{"type":"user","isCompactSummary":true,"message":{"content":"s"}}\n',
    "message": b'{"type":"assistant","message":{}}\n',
    "other": b'{"type":"progress"}\n',
}


@pytest.mark.parametrize("count", range(5))
def test_every_sequence_of_boundaries_summaries_and_messages(count: int) -> None:
    for names in product(CLAUDE, repeat=count):
        data = b"".join(CLAUDE[name] for name in names)
        assert facts(build(data, "claude")) == naive_facts(data, "claude"), names


@pytest.mark.parametrize("count", [2, 3])
def test_pairs_are_found_across_growth(count: int) -> None:
    for names in product(CLAUDE, repeat=count):
        expected = naive_facts(b"".join(CLAUDE[name] for name in names), "claude")
        grown = build(b"", "claude")
        data = b""
        for name in names:
            data += CLAUDE[name]
            grown = extend(grown, data)
        assert facts(grown) == expected, names
        head = b"".join(CLAUDE[name] for name in names[:1])
        assert facts(extend(build(head, "claude"), data)) == expected, names


@given(
    names=st.lists(st.sampled_from([*CLAUDE]), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=3),
)
def test_long_sequences_grown_in_parts(names: list[str], cuts: list[int]) -> None:
    grown = build(b"", "claude")
    for cut in sorted({min(cut, len(names)) for cut in (*cuts, len(names))}):
        data = b"".join(CLAUDE[name] for name in names[:cut])
        grown = extend(grown, data)
        assert facts(grown) == naive_facts(data, "claude")


def test_native_compactions_are_never_paired() -> None:
    data = b'{"type":"compaction"}\n' * 3 + b'{"type":"message"}\n{"type":"compaction"}\n'
    assert build(data).checkpoints.whole().tolist() == [0, 1, 2, 3]


# -- columns --------------------------------------------------------------------------


def columns_of(of: Layout) -> list[np.ndarray]:
    extents = (of.messages, of.compactions, of.reviews)
    return [column for each in extents for column in (each.starts, each.ends)]


@pytest.mark.parametrize(
    "data",
    [
        FILE,
        b'{"type":"message"}\n' * 5,
        pytest.param(b""),
    ],
)
def test_columns_are_little_endian_and_read_only(data: bytes) -> None:
    for of in (build(data), extend(build(data), data * 2)):
        for column in columns_of(of):
            assert column.dtype.str == "<u8"
            assert column.ndim == 1
        assert of.message_offsets is of.messages.starts
        assert of.compaction_offsets is of.compactions.starts
        assert of.review_offsets is of.reviews.starts
        assert not any(column.flags.writeable for column in columns_of(of) if len(column))
        assert data or not any(column.flags.writeable for column in columns_of(of))


def test_a_message_costs_sixteen_bytes() -> None:
    of = build(HEADER + b'{"type":"message","id":"some id","blocks":[]}\n' * 5000)
    assert sum(column.nbytes for column in columns_of(of)) == 16 * 5000


def test_a_layout_cannot_be_changed() -> None:
    of = build(FILE)
    with pytest.raises(AttributeError):
        of.file_len = 0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        of.message_offsets[0] = 7
    with pytest.raises(AttributeError):
        of.messages.starts = of.messages.ends  # type: ignore[misc]
