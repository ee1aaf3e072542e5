"""A generation checks every line that it hands out, and notices a file changed under it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmapstore import generation as module
from mmapstore import identity, layout, lookup
from mmapstore.decode import Undecodable
from mmapstore.dialect import dialect_named
from mmapstore.errors import LineDecodeError, TranscriptChangedError
from mmapstore.fileio import open_regular
from mmapstore.filemap import MappedFile, ReadFile
from mmapstore.generation import Generation
from tests.file_support import shrink_steps
from tests.strategies import HEADER

SOURCES = {"mmap": MappedFile, "pread": ReadFile}


def generation_of(path: Path, access: str, dialect: str = "native") -> Generation:
    descriptor = open_regular(str(path))
    source = SOURCES[access](descriptor, path.stat().st_size)
    built = layout.build(source, dialect_named(dialect), descriptor.stamp())
    return Generation(0, str(path), built, lambda: source, descriptor)


def decoded(of: Generation, start: int, stop: int) -> list[Any]:
    return of.decoded(of.layout.messages, start, stop)


def message(message_id: str, nbytes: int = 0) -> bytes:
    return b'{"type":"message","id":"%s","p":"%s"}\n' % (message_id.encode(), b"x" * nbytes)


def touch_in_place(path: Path, offset: int, new: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(new)


def is_a_line(data: bytes, start: int, end: int) -> bool:
    """Whether [start, end) is one line that holds an object, by the contract's words."""
    line = data[start:end]
    text = line.removeprefix(b"\xef\xbb\xbf") if start == 0 else line
    return (
        line.count(b"\n") == 1
        and line.endswith(b"\n")
        and data[:start][-1:] in (b"", b"\n")
        and text.lstrip(b" \t\r\n").startswith(b"{")
    )


# -- changed in place -----------------------------------------------------------------

THREE = message("a") + b' {"type" : "message","id":"b"}\n' + message("c")
FILE = HEADER + THREE + b'{"type":"compaction","id":"k"}\n' + message("d")


@pytest.mark.parametrize("access", SOURCES)
@given(
    offset=st.integers(0, len(FILE) - 1),
    new=st.sampled_from([b"\n", b"[", b"{", b" ", b"\0", b"x"]),
)
@example(offset=len(HEADER) - 1, new=b" ").via("the newline in front of the first message")
@example(offset=len(HEADER), new=b"[").via("the first message's brace")
@example(offset=len(FILE) - 1, new=b"x").via("the last newline of the file")
def test_a_line_is_checked_when_it_is_touched(
    tmp_path_factory: pytest.TempPathFactory, access: str, offset: int, new: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / f"checked-{access}.jsonl"
    path.write_bytes(FILE)
    of = generation_of(path, access)
    touch_in_place(path, offset, new)
    changed = path.read_bytes()
    for extents in (of.layout.messages, of.layout.compactions):
        for index in range(len(extents)):
            start, end = int(extents.starts[index]), int(extents.ends[index])
            of.doubted = False
            if is_a_line(changed, start, end):
                assert bytes(of.line(extents, index)) == changed[start:end]
                assert not of.doubted
            else:
                with pytest.raises(TranscriptChangedError) as caught:
                    of.line(extents, index)
                assert of.doubted
                assert (caught.value.path, caught.value.offset) == (str(path), start)
                assert "refresh" in (caught.value.hint or "")


def check_decoded(path: Path, access: str, offset: int, new: bytes) -> None:
    """Compare what decoding many lines says of a changed file with what each line is."""
    path.write_bytes(FILE)
    of = generation_of(path, access)
    touch_in_place(path, offset, new)
    changed = path.read_bytes()
    messages = of.layout.messages
    spans = list(zip(messages.starts.tolist(), messages.ends.tolist(), strict=True))
    for start, stop in ((0, 4), (0, 3), (1, 3), (3, 4)):
        of.doubted = False
        if all(is_a_line(changed, low, high) for low, high in spans[start:stop]):
            assert len(decoded(of, start, stop)) == stop - start
            assert [index for index, _ in of.records(messages, start, stop)] == [
                *range(start, stop)
            ]
            assert not of.doubted
        else:
            with pytest.raises(TranscriptChangedError):
                decoded(of, start, stop)
            assert of.doubted
            with pytest.raises(TranscriptChangedError):
                list(of.records(messages, start, stop))


@pytest.mark.parametrize("access", SOURCES)
@given(offset=st.integers(0, len(FILE) - 1), new=st.sampled_from([b"\n", b"x", b"\0", b" "]))
@example(offset=len(HEADER) - 1, new=b" ")
@example(offset=len(FILE) - 1, new=b"x")
@example(offset=len(HEADER) + len(message("a")) - 1, new=b"}")
def test_lines_decoded_together_are_checked_too(
    tmp_path_factory: pytest.TempPathFactory, access: str, offset: int, new: bytes
) -> None:
    braces = [at for at, octet in enumerate(FILE) if octet == ord("{")]
    if offset not in braces:
        check_decoded(tmp_path_factory.getbasetemp() / f"d-{access}.jsonl", access, offset, new)


@pytest.mark.parametrize("new", [b"[", b"x"])
def test_a_line_decoded_that_is_no_object_any_more(tmp_path: Path, access: str, new: bytes) -> None:
    check_decoded(tmp_path / "t.jsonl", access, len(HEADER), new)


def test_a_newline_moved_from_one_line_into_the_next(tmp_path: Path, access: str) -> None:
    """As many newlines as before, in other places."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(FILE)
    of = generation_of(path, access)
    first = FILE.index(b"\n", len(HEADER))
    touch_in_place(path, first, b" ")
    touch_in_place(path, first + 5, b"\n")
    for index in (0, 1):
        with pytest.raises(TranscriptChangedError):
            of.line(of.layout.messages, index)
        with pytest.raises(TranscriptChangedError):
            decoded(of, index, index + 1)
    with pytest.raises(TranscriptChangedError):
        decoded(of, 0, 2)
    # the others are what they were
    assert of.record(of.layout.messages, 3)["id"] == "d"


@pytest.mark.parametrize("left", [0, 1, len(HEADER), len(HEADER) + 10, len(FILE) - 1])
def test_a_file_cut_short_under_pread(tmp_path: Path, left: int) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(FILE)
    of = generation_of(path, "pread")
    os.truncate(path, left)
    messages = of.layout.messages
    for index in range(4):
        if int(messages.ends[index]) <= left:
            assert (
                bytes(of.line(messages, index))
                == FILE[messages.starts[index] : messages.ends[index]]
            )
            continue
        with pytest.raises(TranscriptChangedError):
            of.line(messages, index)
        with pytest.raises(TranscriptChangedError):
            of.record(messages, index)
    with pytest.raises(TranscriptChangedError):
        decoded(of, 0, 4)
    with pytest.raises(TranscriptChangedError):
        lookup.position(of, "d")


def test_a_line_read_anew_is_checked_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(FILE)
    of = generation_of(path, "pread")
    for _ in range(2):
        assert len(decoded(of, 0, 4)) == 4
    touch_in_place(path, len(HEADER) + 5, b"\n")
    with pytest.raises(TranscriptChangedError):
        decoded(of, 0, 4)


def test_lines_of_a_mapping_are_checked_when_first_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(FILE)
    of = generation_of(path, "mmap")
    checked: list[int] = []
    check_all = Generation._check_all
    monkeypatch.setattr(
        Generation, "_check_all", lambda *args: checked.append(len(args[2])) or check_all(*args)
    )
    for start, stop in ((1, 3), (1, 3), (1, 2), (2, 4), (0, 4), (0, 4)):
        assert len(decoded(of, start, stop)) == stop - start
    # every line once, each time with those that stand beside it
    assert checked == [2, 2, 4]
    # what failed the check was not touched
    other = generation_of(path, "mmap")
    touch_in_place(path, len(HEADER) + 5, b"\n")
    for _ in range(2):
        with pytest.raises(TranscriptChangedError):
            decoded(other, 0, 4)


def test_an_edit_that_keeps_the_lines_is_shown_as_it_is(tmp_path: Path, access: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(FILE)
    of = generation_of(path, access)
    touch_in_place(path, FILE.index(b'"id":"a"') + 6, b"A")
    assert of.message(0)["id"] == "A"
    assert not of.doubted


# -- runs -----------------------------------------------------------------------------


def apart() -> bytes:
    """Return messages in groups with other lines between them."""
    parts = [HEADER]
    for group, count in enumerate((3, 1, 4, 2)):
        parts += [message(f"{group}-{n}", 20 * n) for n in range(count)]
        parts.append(b'{"type":"other"}\n' * (group + 1))
    return b"".join(parts)


@pytest.mark.parametrize("span", [1, 100, 4 << 20])
def test_runs_hold_every_line_once_and_only_adjacent_ones_are_read(
    tmp_path: Path, access: str, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_SPAN_NBYTES", span)
    monkeypatch.setattr(module, "_BRIDGED", 0)
    path = tmp_path / "t.jsonl"
    path.write_bytes(data := apart())
    of = generation_of(path, access)
    messages = of.layout.messages
    for start in range(10):
        for stop in range(start, 11):
            seen = []
            for low, high, run in of.runs(messages, start, stop):
                assert low < high
                first, last = int(messages.starts[low]), int(messages.ends[high - 1])
                assert bytes(run.view[first - run.base : last - run.base]) == data[first:last]
                if access == "pread":
                    assert (
                        messages.starts[low + 1 : high].tolist()
                        == messages.ends[low : high - 1].tolist()
                    )
                    # no more is read than the lines and the byte before them
                    assert len(run.octets) == last - first + (first > 0)
                seen += range(low, high)
            assert seen == list(range(start, stop))


@pytest.mark.parametrize(("bridged", "count"), [(0, 4), (8, 1)])
def test_lines_are_read_together_where_little_lies_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bridged: int, count: int
) -> None:
    monkeypatch.setattr(module, "_BRIDGED", bridged)
    path = tmp_path / "t.jsonl"
    path.write_bytes(apart())
    of = generation_of(path, "pread")
    reads = []
    read = type(of.source.descriptor).read
    monkeypatch.setattr(
        type(of.source.descriptor), "read", lambda *args: reads.append(args[1:]) or read(*args)
    )
    assert len(decoded(of, 0, 10)) == 10
    assert len(reads) == count


# -- records --------------------------------------------------------------------------

MIXED = (
    HEADER
    + message("a")
    + b'{"type":"message","id":"cut"\n'
    + b'{"type":"message","id":"nul\0"}\n'
    + b'{"type":"message","id":"two"}{"a":1}\n'
    + message("e")
    + b'{"type":"compaction","summary":\n'
    + b'{"type":"tool_review_state","messageId":\n'
)


def test_one_bad_line_never_costs_another(tmp_path: Path, access: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(MIXED)
    of = generation_of(path, access)
    messages = of.layout.messages
    found = decoded(of, 0, 5)
    assert [isinstance(record, Undecodable) for record in found] == [False, True, True, True, False]
    assert [index for index, record in of.records(messages, 1, 4)] == [1, 2, 3]
    for position in (0, 4):
        assert of.message(position)["id"] in "ae"
    for position, line_number in ((1, 3), (2, 4), (3, 5)):
        with pytest.raises(LineDecodeError) as caught:
            of.message(position)
        error = caught.value
        assert error.path == str(path)
        assert error.offset == messages.starts[position]
        assert error.line_number == line_number
        assert error.reason
    assert [(each.position, each.offset) for each in of.damaged_aside] == [
        (None, MIXED.index(b'{"type":"compaction"')),
        (None, MIXED.index(b'{"type":"tool_review_state"')),
    ]
    assert not of.doubted


@pytest.mark.parametrize("step", [1, 7, 50, 1 << 20])
def test_line_numbers_are_counted_over_the_whole_file(
    tmp_path: Path, access: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = apart()
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    of = generation_of(path, access)
    shrink_steps(monkeypatch, step, max(step, 64))
    at = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        assert of.line_number(at) == number
        at += len(line) + 1


# -- review states --------------------------------------------------------------------


def test_states_are_replayed_once_and_laid_over_tool_messages(
    tmp_path: Path, access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviewed = (
        b'{"type":"message","id":"m","role":"tool","blocks":'
        b'[{"result":{"details":{"review":{"snapshotId":"s","state":"active"}}}}]}\n'
    )
    state = b'{"type":"tool_review_state","messageId":"m","snapshotId":"s","state":"%s"}\n'
    damaged = b'{"type":"tool_review_state","messageId":"m"\n'
    path = tmp_path / "t.jsonl"
    path.write_bytes(reviewed + state % b"x" + damaged + state % b"rolledBack")
    of = generation_of(path, access)
    replays = []
    grown = module.ReviewStates.grown
    monkeypatch.setattr(
        module.ReviewStates,
        "grown",
        lambda self, records, count: replays.append(count) or grown(self, records, count),
    )
    for _ in range(3):
        details = of.message(0)["blocks"][0]["result"]["details"]
        assert details["review"]["state"] == "rolledBack"
    assert replays == [3]
    assert of.review_states.get("m") == {"s": "rolledBack"}
    assert of.review_states.get("s") is None


@settings(max_examples=settings.default.max_examples // 2)
@given(count=st.integers(1, 400), span=st.sampled_from([100, 1000, 4 << 20]))
def test_parts_for_streaming_cover_the_range(
    tmp_path_factory: pytest.TempPathFactory, count: int, span: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.jsonl"
    path.write_bytes(b'{"type":"message"}\n' * count)
    of = generation_of(path, "pread")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "_SPAN_NBYTES", span)
        parts = list(of.parts(of.layout.messages, 0, count))
    assert np.concatenate([np.arange(low, high) for low, high in parts]).tolist() == [*range(count)]
