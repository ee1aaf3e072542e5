"""Torn tails: what a crash, or a look while the writer is busy, leaves behind the last newline."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from mmapstore import Refresh
from tests.agreement import check_all, native_oracle
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]
Unchanged = Callable[[Path], Any]

WHOLE = HEADER + M("a") + M("b")


def ids(t: mmapstore.Transcript) -> list[str]:
    return list(t.window(limit=None).message_ids)


def test_one_torn_last_line(write: Write, access: str, unchanged: Unchanged) -> None:
    """A1.1: for every length of the fragment the lines before it are served and it is not."""
    last = M("c", "é行😀")
    for k in range(1, len(last)):
        path = write(WHOLE + last[:k])
        with unchanged(path), mmapstore.open(path, access=access) as t:
            assert ids(t) == ["a", "b"]
            assert t.message_count == len(t) == t.window().total == 2
            assert [m["id"] for m in t.iter()] == ["a", "b"]
            assert t.position("c") is None
            assert t.layout.file_len == len(WHOLE)
            assert t.torn_nbytes == k
            assert t.torn_tail == last[:k]
            assert t.layout.line_count == 3
            assert list(t.verify()) == []


@pytest.mark.parametrize("line", [C("c"), R("a", "s", "active"), b'{"type":"sleep"}\n', HEADER])
def test_a_torn_line_of_any_kind(write: Write, access: str, line: bytes) -> None:
    """A1.1: a torn checkpoint or review state does not count either, whole JSON or not."""
    for k in range(1, len(line)):
        path = write(WHOLE + line[:k])
        with mmapstore.open(path, access=access) as t:
            check_all(t, native_oracle(WHOLE + line[:k]))
            assert len(t.layout.compaction_offsets) == len(t.layout.review_offsets) == 0


def test_a_fragment_that_was_sealed(write: Write, access: str) -> None:
    """A1.2: a fragment with a newline behind it is one damaged line, its neighbours are whole."""
    torn = M("c", "x" * 40)
    for k in range(1, len(torn) - 1):
        data = WHOLE + torn[:k] + b"\n" + M("d") + M("e")
        with mmapstore.open(write(data), access=access) as t:
            assert ids(t) == ["a", "b", "d", "e"]
            check_all(t, native_oracle(data))
            (finding,) = t.verify()
            assert (finding.offset, finding.line_number) == (len(WHOLE), 4)


def test_a_fragment_that_was_glued_over(write: Write, access: str) -> None:
    """A1.2: where a careless writer appended behind a fragment, one line is lost, not the next."""
    torn = M("c")
    for k in range(1, len(torn) - 1):
        data = WHOLE + torn[:k] + M("d") + M("e")
        with mmapstore.open(write(data), access=access) as t:
            assert [m["id"] for m in t.iter()] == ["a", "b", "e"]
            check_all(t, native_oracle(data))


@pytest.mark.parametrize("trust", ["none", "append-only"])
@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_a_look_while_the_writer_is_mid_line(
    write: Write, access: str, trust: str, pieces: int
) -> None:
    """A1.3: a line written in pieces comes exactly once, from its start."""
    line = M("c", "é" * 20)
    edges = [len(line) * index // pieces for index in range(pieces + 1)]
    path = write(WHOLE)
    with mmapstore.open(path, access=access, trust=trust) as t:
        for start, stop in pairwise(edges):
            with path.open("ab") as file:
                file.write(line[start:stop])
            assert t.refresh()
            assert t.torn_nbytes == (stop if stop < len(line) else 0)
            assert ids(t) == (["a", "b"] if stop < len(line) else ["a", "b", "c"])
        assert bytes(t.line(2)) == line
        assert t.layout.message_offsets.tolist()[-1] == len(WHOLE)
        with mmapstore.open(path, access=access) as cold:
            assert ids(cold) == ids(t)


@pytest.mark.parametrize("trust", ["none", "append-only"])
def test_a_bad_line_does_not_block(write: Write, access: str, trust: str) -> None:
    """A1.3: a newline-ended bad line is passed, what comes after it is found."""
    path = write(WHOLE)
    with mmapstore.open(path, access=access, trust=trust) as t:
        data = WHOLE
        for part in (M("c")[:-9], b"\n", M("d"), b"garbage", b"\n", M("e")):
            data += part
            with path.open("ab") as file:
                file.write(part)
            assert t.refresh()
            check_all(t, native_oracle(data))
        assert [m["id"] for m in t.iter()] == ["a", "b", "d", "e"]


def test_whole_json_without_its_newline(write: Write, access: str, unchanged: Unchanged) -> None:
    """A1.4: the newline is the commit mark, for every reader alike; with it the line is there."""
    data = HEADER + M("a") + M("b").rstrip(b"\n")
    path = write(data)
    with unchanged(path), mmapstore.open(path, access=access) as t:
        assert ids(t) == ["a"]
        assert t.message_count == 1
        assert len(list(t.iter())) == 1
        assert t.position("b") is None
        with pytest.raises(mmapstore.PositionError):
            t[1]
        assert t.torn_tail == M("b").rstrip(b"\n")
    with mmapstore.open(path, access=access) as t:
        with path.open("ab") as file:
            file.write(b"\n" + M("c"))
        assert t.refresh() is Refresh.REBUILT
        assert ids(t) == ["a", "b", "c"]
        check_all(t, native_oracle(HEADER + M("a") + M("b") + M("c")))


@pytest.mark.parametrize("phase", range(3))
@pytest.mark.parametrize("nbytes", [4096, 1 << 16, 1 << 18])
def test_tears_inside_a_character(write: Write, access: str, phase: int, nbytes: int) -> None:
    """A1.5: whatever phase of a character a tear, or a fixed distance from the end, falls on."""
    first = M("a", "p" * phase + "行" * (nbytes // 3 + 40))
    for tear in range(3):
        torn = M("b", "行行行").partition("行".encode())[0] + "行".encode()[:tear]
        data = HEADER + first + torn
        assert len(data) > nbytes
        with mmapstore.open(write(data), access=access) as t:
            assert t.torn_tail == torn
            assert bytes(t.window(limit=1).lines[0]) == first
            check_all(t, native_oracle(data))


@pytest.mark.parametrize("limit", [1, 2, 3, 100, None])
@pytest.mark.parametrize(
    "lines",
    [
        [M("a")],
        [M("a"), M("b")],
        [M("a"), M("b", "x" * (3 << 20))],
        [M("a", "x" * (200 << 10))],
        [M("a", "x" * (200 << 10)), M("b"), M("c")],
        [M("a", "x" * (3 << 20)), M("b", "y" * (3 << 20)), M("c", "z" * (3 << 20))],
    ],
    ids=["one", "two", "last of 3 MiB", "only one, of 200 KiB", "first of 200 KiB", "3 of 3 MiB"],
)
def test_no_first_or_last_line_is_dropped(
    write: Write, access: str, lines: list[bytes], limit: int | None
) -> None:
    """A1.6: a window begins at a line start, at byte 0 too, and where a line exceeds any buffer."""
    path = write(b"".join(lines))
    with mmapstore.open(path, access=access) as t:
        assert t.dialect.name == "native"
        expected = lines if limit is None else lines[-limit:]
        assert [bytes(line) for line in t.window(limit=limit).lines] == expected
        first = lines if limit is None else lines[:limit]
        assert [bytes(line) for line in t.window(after=0, limit=limit).lines] == first
        for max_nbytes in (1, 4096, 1 << 20):
            w = t.window(limit=limit, max_nbytes=max_nbytes)
            assert len(w) >= 1
            assert [bytes(line) for line in w.lines] == lines[-len(w) :]
