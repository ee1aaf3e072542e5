"""Reading ahead: what is presented never depends on the second thread, nor on there being one."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from mmapstore import reading
from mmapstore.fileio import open_regular
from mmapstore.filemap import ReadFile
from mmapstore.reading import AheadReader, CopyReader
from tools.gen_synthetic import Spec, generate

LINES = [b"%06d " % number + b"x" * (number % 40) + b"\n" for number in range(400)]
DATA = b"".join(LINES)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, nbytes in (
        ("STEP_NBYTES", 256),
        ("BUFFER_NBYTES", 1024),
        ("PIECE_NBYTES", 1024),
        ("MARGIN_NBYTES", 2048),
        ("AHEAD_FROM_NBYTES", 4096),
    ):
        monkeypatch.setattr(reading, name, nbytes)
    monkeypatch.setattr(reading, "_processor_count", lambda: 2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_bytes(DATA)
    return path


def opened(path: Path) -> ReadFile:
    return ReadFile(open_regular(str(path)), path.stat().st_size)


def presented(reader: Any, keep: int = 0) -> Iterator[bytes]:
    """Yield the lines that a walk finds, as a scan does: complete ones are let go of."""
    while reader.advance(keep):
        low = keep - reader.base
        data = bytes(memoryview(reader.buffer)[low : reader.stop])
        done = data.rfind(b"\n") + 1
        yield from data[:done].splitlines(keepends=True)
        keep += done


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def wait_for(holds: Callable[[], bool]) -> None:
    """Wait for a thread of the system to have gone, which nobody is told of."""
    event = threading.Event()
    for _ in range(2000):
        if holds():
            return
        event.wait(0.005)
    raise AssertionError("it does not come about")


def test_a_long_walk_is_read_ahead_and_a_short_one_is_not(path: Path) -> None:
    source = opened(path)
    assert isinstance(source.reader(0), AheadReader)
    assert isinstance(source.reader(len(DATA) - 4096), AheadReader)
    assert isinstance(source.reader(len(DATA) - 4095), CopyReader)


def test_one_processor_reads_in_turn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_processor_count", lambda: 1)
    reader = opened(path).reader(0)
    assert isinstance(reader, CopyReader)
    assert list(presented(reader)) == LINES


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), OSError(12, "memory")])
def test_without_a_thread_or_its_memory_it_is_read_in_turn(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_args: object) -> None:
        raise error

    if isinstance(error, OSError):
        monkeypatch.setattr("mmapstore.filemap._scratch", refuse)
    else:
        monkeypatch.setattr(reading, "start_new_thread", refuse)
    reader = opened(path).reader(0)
    assert isinstance(reader, CopyReader)
    assert list(presented(reader)) == LINES


@pytest.mark.parametrize("nbytes", [1000, 2047, 2048, 2049, 5000, 20_000])
def test_a_line_of_any_length_is_presented_whole(tmp_path: Path, nbytes: int) -> None:
    lines = [*LINES[:30], b"y" * nbytes + b"\n", *LINES[30:], b"z" * nbytes + b"\n"]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(lines))
    assert list(presented(opened(path).reader(0))) == lines


def test_a_read_that_fails_is_raised_where_the_walk_comes_to_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(fd: int, views: list[Any], offset: int) -> int:
        if offset + len(views[0]) > 5000:
            raise OSError(5, "Input/output error")
        return preadv(fd, views, offset)

    preadv = os.preadv
    monkeypatch.setattr(reading.os, "preadv", failing)
    reader = opened(path).reader(0)
    found: list[bytes] = []
    with pytest.raises(OSError, match="Input/output"):
        found.extend(presented(reader))
    assert found == LINES[: len(found)]
    assert len(b"".join(found)) > 4096


def test_a_read_that_fails_once_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OSError(5, "once")])

    def failing(fd: int, views: list[Any], offset: int) -> int:
        if offset > 3000:
            for error in failures:
                raise error
        return preadv(fd, views, offset)

    preadv = os.preadv
    monkeypatch.setattr(reading.os, "preadv", failing)
    assert list(presented(opened(path).reader(0))) == LINES


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="threads are counted there")
@pytest.mark.parametrize("count", [0, 1, 9, 100])
def test_the_thread_ends_with_the_walk_wherever_that_ends(path: Path, count: int) -> None:
    before = threads()
    walk = presented(opened(path).reader(0))
    for _ in range(count):
        next(walk)
    del walk
    gc.collect()
    wait_for(lambda: threads() <= before)


def test_a_child_reads_on_by_itself(path: Path, tmp_path: Path) -> None:
    walk = presented(opened(path).reader(0))
    first = [next(walk) for _ in range(20)]
    told = tmp_path / "told"
    pid = os.fork()
    if pid == 0:
        try:
            told.write_bytes(b"".join(walk))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert told.read_bytes() == b"".join(LINES[20:])
    assert [*first, *walk] == LINES


def test_a_layout_is_the_same_however_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(generate(Spec(messages=300, nbytes=500_000, shape="claude", compactions=7)))
    layouts = []
    for nbytes in (4096, 1 << 30):
        monkeypatch.setattr(reading, "AHEAD_FROM_NBYTES", nbytes)
        with mmapstore.open(path, cache_dir=None, access="pread") as transcript:
            layouts.append(transcript.layout)
    ahead, copied = layouts
    assert ahead.message_offsets.tolist() == copied.message_offsets.tolist()
    assert ahead.compaction_offsets.tolist() == copied.compaction_offsets.tolist()
    assert (ahead.file_len, ahead.line_count) == (copied.file_len, copied.line_count)
