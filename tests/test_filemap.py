"""Both ways to the bytes: what a reader presents, and how long what was given out lives."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore import filemap, reading
from mmapstore.fileio import open_regular
from mmapstore.filemap import FileBytes, MappedFile, ReadFile
from tests.file_support import SOURCES, AheadFile, shrink_steps


@pytest.fixture(params=SOURCES)
def source_of(request: pytest.FixtureRequest) -> Callable[[Path], FileBytes]:
    return lambda path: SOURCES[request.param](open_regular(str(path)), path.stat().st_size)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("filemap") / "t.jsonl"


@pytest.fixture(params=[8, 32])
def small_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_steps(monkeypatch, request.param, 32)
    monkeypatch.setattr(filemap, "SPAN_NBYTES", 32)


def walk(source: FileBytes, data: bytes, start: int, *, hold: bool = False) -> int:
    """Walk a file as a scan does, comparing all that is presented; return the parts seen.

    Finished lines are let go of at once, or held until the reader says that it is full.
    """
    reader = source.reader(start)
    keep = seen = start
    parts = 0
    while reader.advance(keep):
        assert reader.base + reader.start == seen
        assert reader.start < reader.stop
        seen = reader.base + reader.stop
        # the unfinished line and the new part are there, adjacent
        assert reader.base <= keep
        low = keep - reader.base
        assert bytes(memoryview(reader.buffer)[low : reader.stop]) == data[keep:seen]
        assert reader.octets[low : reader.stop].tobytes() == data[keep:seen]
        assert len(reader.octets) == len(memoryview(reader.buffer))
        found = reader.buffer.find(b"\n", low, reader.stop)
        assert (found + reader.base if found >= 0 else -1) == data.find(b"\n", keep, seen)
        last = data.rfind(b"\n", keep, seen)
        keep = last + 1 if last >= 0 and (reader.full or not hold) else keep
        parts += 1
    assert seen == max(len(data), start)
    # the end stays the end
    assert not reader.advance(keep)
    assert reader.start == reader.stop
    return parts


def data_of(lengths: list[int], tail: int) -> bytes:
    lines = [bytes([65 + index % 26]) * length + b"\n" for index, length in enumerate(lengths)]
    return b"".join(lines) + b"t" * tail


@pytest.mark.parametrize("source", SOURCES)
@given(
    lengths=st.lists(
        st.one_of(st.integers(0, 5), st.integers(20, 40), st.integers(0, 300)), max_size=20
    ),
    tail=st.integers(0, 80),
    resume=st.integers(0, 20),
)
def test_a_walk_presents_every_byte_once_and_no_line_in_pieces(
    source: str, scratch: Path, lengths: list[int], tail: int, resume: int
) -> None:
    data = data_of(lengths, tail)
    scratch.write_bytes(data)
    ends = [0, *(at + 1 for at, octet in enumerate(data) if octet == 0x0A)]
    start = ends[min(resume, len(ends) - 1)]
    with pytest.MonkeyPatch.context() as patch:
        shrink_steps(patch, 8, 32)
        for hold in (False, True):
            walk(SOURCES[source](open_regular(str(scratch)), len(data)), data, start, hold=hold)


@pytest.mark.parametrize("nbytes", [1, 30, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000])
@pytest.mark.usefixtures("small_steps")
def test_lines_as_long_as_the_buffer_and_nearly(
    write: Callable[..., Path], source_of: Callable[[Path], FileBytes], nbytes: int
) -> None:
    for lengths in ([nbytes], [3, nbytes], [nbytes, 3], [nbytes, nbytes], [nbytes] * 5):
        for tail in (0, 1, nbytes):
            data = data_of(lengths, tail)
            for hold in (False, True):
                assert walk(source_of(write(data)), data, 0, hold=hold) >= 1


@pytest.mark.usefixtures("small_steps")
def test_a_walk_goes_in_steps(
    write: Callable[..., Path], source_of: Callable[[Path], FileBytes]
) -> None:
    data = data_of([9] * 32, 0)
    assert walk(source_of(write(data)), data, 0) >= 10


@pytest.mark.usefixtures("small_steps")
def test_the_buffer_of_a_copying_reader_follows_the_longest_line(
    write: Callable[..., Path],
) -> None:
    def largest(lengths: list[int]) -> int:
        data = data_of(lengths, 0)
        source = ReadFile(open_regular(str(write(data))), len(data))
        reader = source.reader(0)
        keep = nbytes = 0
        while reader.advance(keep):
            nbytes = max(nbytes, len(reader.octets))
            seen = data.rfind(b"\n", 0, reader.base + reader.stop) + 1
            keep = max(keep, seen)
        return nbytes

    # short lines, however many: one buffer of the size it began with
    assert largest([10] * 500) == 32
    # a long one: at most twice what is held of it, plus what is read at once
    for longest in (40, 100, 1000, 5000):
        assert largest([10] * 50 + [longest] + [10] * 50) <= 4 * longest


def test_an_empty_file_has_nothing_to_present(
    write: Callable[..., Path], source_of: Callable[[Path], FileBytes]
) -> None:
    source = source_of(write(b""))
    assert source.nbytes == 0
    assert walk(source, b"", 0) == 0
    assert bytes(source.view(0, 0)) == b""
    run = source.run(0, 0)
    assert (run.base, bytes(run.view), len(run.octets)) == (0, b"", 0)


def test_a_walk_from_the_end_presents_nothing(
    write: Callable[..., Path], source_of: Callable[[Path], FileBytes]
) -> None:
    source = source_of(write(b"{}\n"))
    assert not source.reader(3).advance(3)


def test_bytes_behind_the_generations_end_are_not_presented(
    write: Callable[..., Path], source_of: Callable[[Path], FileBytes]
) -> None:
    path = write(b'{"a":1}\n')
    source = source_of(path)
    with path.open("ab") as file:
        file.write(b'{"b":2}\n')
    assert source.nbytes == 8
    assert walk(source, b'{"a":1}\n', 0) == 1


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("left", [0, 1, 31, 32, 40, 63, 64, 100])
@pytest.mark.parametrize("kind", [ReadFile, AheadFile])
def test_a_file_that_shrinks_while_it_is_read_ends_early(
    write: Callable[..., Path], kind: type[ReadFile], left: int
) -> None:
    data = data_of([9] * 20, 0)
    path = write(data)
    source = kind(open_regular(str(path)), len(data))
    reader = source.reader(0)
    assert reader.advance(0)
    os.truncate(path, left)
    keep = data.rfind(b"\n", 0, reader.base + reader.stop) + 1
    while reader.advance(keep):
        seen = reader.base + reader.stop
        # what was read ahead before that is there
        assert seen <= left or (kind is AheadFile and seen <= 64)
        assert bytes(memoryview(reader.buffer)[keep - reader.base : reader.stop]) == data[keep:seen]
        keep = data.rfind(b"\n", 0, seen) + 1
    assert reader.start == reader.stop


@pytest.mark.parametrize("most", [1, 7, 31])
def test_short_reads_are_continued(
    write: Callable[..., Path], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of([9, 40, 3, 100], 5)
    path = write(data)

    def short(fd: int, views: list[memoryview], offset: int) -> int:
        return preadv(fd, [views[0][:most]], offset)

    preadv = os.preadv
    monkeypatch.setattr(reading.os, "preadv", short)
    for kind in (ReadFile, AheadFile):
        walk(kind(open_regular(str(path)), len(data)), data, 0)


# -- views and runs -------------------------------------------------------------------


@given(start=st.integers(0, 30), length=st.integers(0, 30))
@pytest.mark.parametrize("source", SOURCES)
def test_views_and_runs_hold_the_bytes_asked_for(
    source: str, scratch: Path, start: int, length: int
) -> None:
    data = bytes(range(30))
    scratch.write_bytes(data)
    stop = min(start + length, len(data))
    start = min(start, stop)
    bytes_of = SOURCES[source](open_regular(str(scratch)), len(data))
    view = bytes_of.view(start, stop)
    assert bytes(view) == data[start:stop]
    assert view.readonly
    run = bytes_of.run(start, stop)
    assert bytes(run.view[start - run.base : stop - run.base]) == data[start:stop]
    assert run.view.readonly
    assert not run.octets.flags.writeable
    assert run.octets.tobytes() == bytes(run.view) == bytes(memoryview(run.buffer))
    with pytest.raises(TypeError):
        run.view[:1] = b"x"


def test_a_mapping_is_one_run_that_is_never_copied(write: Callable[..., Path]) -> None:
    data = b"x" * 5_000_000
    source = MappedFile(open_regular(str(write(data))), len(data))
    tracemalloc.start()
    views = [source.view(at, at + 1_000_000) for at in range(0, 4_000_000, 1_000_000)]
    run = source.run(1_000_000, 2_000_000)
    reader = source.reader(0)
    while reader.advance(0):
        assert reader.buffer is run.buffer
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert len(views) == 4
    assert (run.base, len(run.octets)) == (0, len(data))


def test_a_read_of_a_file_that_has_shrunk_is_short(write: Callable[..., Path]) -> None:
    path = write(b"0123456789")
    source = ReadFile(open_regular(str(path)), 10)
    os.truncate(path, 4)
    assert bytes(source.view(2, 8)) == b"23"
    assert bytes(source.view(6, 8)) == b""
    run = source.run(2, 8)
    assert (run.base, bytes(run.view)) == (2, b"23")


def test_bytes_read_are_those_of_the_moment(write: Callable[..., Path]) -> None:
    path = write(b"old old")
    source = ReadFile(open_regular(str(path)), 7)
    held = source.view(0, 7)
    with path.open("r+b") as file:
        file.write(b"new new")
    assert bytes(held) == b"old old"
    assert bytes(source.view(0, 7)) == b"new new"


# -- lifetimes ------------------------------------------------------------------------


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("what", ["view", "run", "reader"])
def test_what_was_given_out_outlives_its_source(
    write: Callable[..., Path], source_of: Callable[[Path], FileBytes], what: str
) -> None:
    data = data_of([9] * 5, 3)
    path = write(data)
    source = source_of(path)
    held: Any = source.reader(0) if what == "reader" else getattr(source, what)(0, len(data))
    if what == "reader":
        assert held.advance(0)
        held = memoryview(held.buffer)[held.start : held.stop]
    elif what == "run":
        held = held.view[:]
    del source
    gc.collect()
    new = path.with_suffix(".new")
    new.write_bytes(b"another file")
    os.replace(new, path)
    assert bytes(held) == data


def test_the_descriptor_is_closed_with_the_last_holder(
    write: Callable[..., Path],
    source_of: Callable[[Path], FileBytes],
    open_fds: Callable[[], int],
) -> None:
    path = write(b'{"a":1}\n')
    gc.collect()
    before = open_fds()
    source = source_of(path)
    other = source
    fd = source.descriptor.fd
    view = source.view(0, 8)
    assert is_open(fd)
    del source
    gc.collect()
    assert is_open(fd)
    del other
    gc.collect()
    # a view keeps its bytes; the file itself was the source's
    assert not is_open(fd)
    assert bytes(view) == b'{"a":1}\n'
    del view
    gc.collect()
    assert open_fds() == before


@pytest.mark.parametrize(
    "name",
    [
        "mmap",
        pytest.param("pread"),
    ],
)
def test_a_reader_keeps_the_file_open(write: Callable[..., Path], name: str) -> None:
    data = data_of([9] * 5, 3)
    source = SOURCES[name](open_regular(str(write(data))), len(data))
    reader = source.reader(0)
    del source
    gc.collect()
    assert reader.advance(0)
    assert bytes(memoryview(reader.buffer)[: reader.stop]) == data


def mapped_paths() -> str:
    return Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="no list of mappings here")
def test_the_mapping_goes_with_the_last_view(write: Callable[..., Path]) -> None:
    path = write(b"x" * 10_000, "mapped.jsonl")
    source = MappedFile(open_regular(str(path)), 10_000)
    view = source.view(5000, 5010)
    sliced = view[2:4]
    array = np.frombuffer(sliced, dtype=np.uint8)
    for name in ("source", "view", "sliced"):
        assert str(path) in mapped_paths()
        if name == "source":
            del source
        elif name == "view":
            del view
        else:
            del sliced
        gc.collect()
    assert str(path) in mapped_paths()
    assert array.tolist() == [ord("x")] * 2
    del array
    gc.collect()
    assert str(path) not in mapped_paths()


def test_a_mapping_that_the_system_refuses_is_an_error_of_the_system(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(19, "No such device")

    monkeypatch.setattr(filemap.mmap, "mmap", refuse)
    descriptor = open_regular(str(write(b"{}\n")))
    with pytest.raises(OSError, match="No such device"):
        MappedFile(descriptor, 3)
    # an empty file needs no mapping
    assert MappedFile(descriptor, 0).nbytes == 0


def test_a_file_that_has_shrunk_before_it_is_mapped_is_an_error_of_the_system(
    write: Callable[..., Path],
) -> None:
    path = write(b"x" * 10_000)
    descriptor = open_regular(str(path))
    os.truncate(path, 5000)
    with pytest.raises(OSError):
        MappedFile(descriptor, 10_000)
