"""Any window of any file is the slice that the naive reading gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from tests.agreement import check_all, check_layout, check_window, native_oracle
from tests.oracle import BOM, Oracle
from tests.strategies import HEADER, IDS, transcripts

limits = st.one_of(st.none(), st.integers(1, 20), st.just(100))


def windows_of(draw: st.DrawFn, oracle: Oracle) -> dict[str, Any]:
    """Draw the keywords of one window that exists."""
    kwargs: dict[str, Any] = {}
    if draw(st.booleans()):
        kwargs["limit"] = draw(limits)
    known = sorted({oracle.address_of(line) for line in oracle.messages if line.record})
    ways = ["newest", "before", "after", *(["around"] if known else [])]
    match draw(st.sampled_from(ways)):
        case "around":
            kwargs["around"] = draw(st.sampled_from(known))
        case "newest":
            pass
        case way:
            kwargs[way] = draw(st.integers(0, oracle.total + 2))
    return kwargs


@given(data=transcripts(), draw=st.data())
def test_a_file_reads_as_the_oracle_reads_it(data: bytes, draw: st.DataObject) -> None:
    oracle = native_oracle(data)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        asked = [windows_of(draw.draw, oracle) for _ in range(3)]
        for access in ("mmap", "pread"):
            try:
                t = mmapstore.open(path, dialect="native", access=access)
            except mmapstore.NotATranscriptError:
                pieces = data.removeprefix(BOM).split(b"\n")
                assert not any(piece.lstrip(b" \t\r").startswith(b"{") for piece in pieces)
                continue
            with t:
                assert t.access == access
                check_all(t, oracle)
                for kwargs in asked:
                    check_window(t.window(**kwargs), oracle, *oracle.range_of(**kwargs))


@given(
    data=transcripts(),
    limit=st.integers(1, 6),
    max_nbytes=st.one_of(st.none(), st.integers(1, 2000)),
)
def test_pages_cover_every_position_once(data: bytes, limit: int, max_nbytes: int | None) -> None:
    data = HEADER + data.removeprefix(BOM)
    oracle = native_oracle(data)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        with mmapstore.open(path) as t:
            w = t.window(limit=limit, max_nbytes=max_nbytes)
            assert w.stop == oracle.total
            backward = [w]
            while w.has_before:
                w = t.window(before=w.start, limit=limit, max_nbytes=max_nbytes)
                assert w.stop == backward[-1].start
                backward.append(w)
            assert w.start == 0
            w = t.window(after=0, limit=limit, max_nbytes=max_nbytes)
            assert w.start == 0
            forward = [w]
            while w.has_after:
                w = t.window(after=w.stop, limit=limit, max_nbytes=max_nbytes)
                assert w.start == forward[-1].stop
                forward.append(w)
            assert w.stop == oracle.total
            for pages in (backward[::-1], forward):
                lines = [bytes(line) for page in pages for line in page.lines]
                assert lines == [line.raw for line in oracle.messages]
                check_page_sizes(pages, limit, max_nbytes)


def check_page_sizes(pages: list[mmapstore.Window], limit: int, max_nbytes: int | None) -> None:
    for page in pages:
        assert len(page) <= limit
        nbytes = sum(len(line) for line in page.lines)
        if page.total:
            assert len(page) >= 1
        if max_nbytes is not None:
            assert nbytes <= max_nbytes or len(page) == 1


@given(data=transcripts(), draw=st.data())
def test_any_slice_of_iteration(data: bytes, draw: st.DataObject) -> None:
    data = HEADER + data.removeprefix(BOM)
    oracle = native_oracle(data)
    start = draw.draw(st.integers(0, oracle.total + 2))
    stop = draw.draw(st.one_of(st.none(), st.integers(0, oracle.total + 2)))
    expected = [
        oracle.effective(line) for line in oracle.messages[start:stop] if line.record is not None
    ]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        for access in ("mmap", "pread"):
            with mmapstore.open(path, access=access) as t:
                assert list(t.iter(start, stop)) == expected
                assert list(t.iter(start, stop, reverse=True)) == expected[::-1]


@given(data=transcripts())
def test_unknown_ids_are_unknown(data: bytes) -> None:
    data = HEADER + data.removeprefix(BOM)
    oracle = native_oracle(data)
    known = {oracle.address_of(line) for line in oracle.messages if line.record}
    readable = bool([line for line in oracle.messages if line.damaged])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        with mmapstore.open(path) as t:
            for message_id in ["no such id", "@0", f"@{len(data)}", "@-1", "", "\ud800", *IDS]:
                if message_id in known:
                    continue
                # of damaged lines alone an id may be readable
                allowed = (mmapstore.LineDecodeError,) if readable else ()
                with pytest.raises((mmapstore.MessageNotFoundError, *allowed)):
                    t.message(message_id)
                with pytest.raises((mmapstore.MessageNotFoundError, *allowed)):
                    t.window(around=message_id)
                if not readable:
                    assert t.position(message_id) is None


@given(data=transcripts())
def test_verify_finds_every_damaged_line_and_its_kind(data: bytes) -> None:
    data = HEADER + data.removeprefix(BOM)
    oracle = native_oracle(data)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        for access in ("mmap", "pread"):
            with mmapstore.open(path, access=access) as t:
                found = {finding.offset: finding for finding in t.verify()}
            for line in oracle.lines:
                if not line.damaged:
                    continue
                finding = found[line.offset]
                assert finding.line_number == line.number
                assert finding.kind == line.kind
                assert finding.reason
                expected = oracle.messages.index(line) if line in oracle.messages else None
                assert finding.position == expected


@given(data=transcripts(damage=False))
def test_without_damage_nothing_is_found(data: bytes) -> None:
    data = HEADER + data.removeprefix(BOM)
    oracle = Oracle(data)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        with mmapstore.open(path) as t:
            check_layout(t, oracle)
            assert [finding.reason for finding in t.verify()] == []
