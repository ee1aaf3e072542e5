"""The one walk: every complete line once, in its place, with the kind that it has alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmapstore.classify import Classifier
from mmapstore.dialect import dialect_named
from mmapstore.fileio import open_regular
from mmapstore.filemap import ReadFile
from mmapstore.walk import batches
from tests.file_support import SOURCES, shrink_steps
from tests.strategies import transcripts

NATIVE = dialect_named("native")
BOM = b"\xef\xbb\xbf"


def kind_alone(line: bytes) -> int:
    (kind,) = Classifier(NATIVE).kinds(line, np.array([0]), np.array([len(line)])).tolist()
    return kind


def walked(source: Any, start: int = 0, progress: Any = None) -> list[tuple[int, bytes, int]]:
    """Return (offset, line, kind) of every line, copied while its batch is the newest."""
    found = []
    for batch in batches(source, NATIVE, start, progress):
        assert len(batch.starts) == len(batch.ends) == len(batch.kinds) > 0
        memory = memoryview(batch.buffer)
        for low, high, kind in zip(
            batch.starts.tolist(), batch.ends.tolist(), batch.kinds.tolist(), strict=True
        ):
            found.append((batch.base + low, bytes(memory[low:high]), kind))
        memory.release()
    return found


def naive(data: bytes, start: int = 0) -> list[tuple[int, bytes, int]]:
    found, at = [], start
    for piece in data[start:].split(b"\n")[:-1]:
        line = piece + b"\n"
        found.append((at, line, kind_alone(line.removeprefix(BOM) if at == 0 else line)))
        at += len(line)
    return found


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@settings(max_examples=settings.default.max_examples // 2)
@given(
    data=transcripts(max_lines=10, damage=False),
    step=st.sampled_from([8, 32, 1 << 18]),
    resume=st.integers(0, 10),
)
def test_every_complete_line_once(
    tmp_path_factory: pytest.TempPathFactory, source: Any, data: bytes, step: int, resume: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "walk.jsonl"
    path.write_bytes(data)
    starts = [0, *(at + 1 for at, octet in enumerate(data) if octet == 0x0A)]
    start = starts[min(resume, len(starts) - 1)]
    with pytest.MonkeyPatch.context() as patch:
        shrink_steps(patch, step, max(step, 64))
        of_file = source(open_regular(str(path)), len(data))
        assert walked(of_file) == naive(data)
        assert walked(of_file, start) == naive(data, start)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_steps(monkeypatch, 32, 128)


def open_read(path: Path) -> ReadFile:
    return ReadFile(open_regular(str(path)), path.stat().st_size)


@pytest.mark.usefixtures("small_steps")
def test_progress_comes_with_every_step_and_ends_with_the_file(write: Any) -> None:
    data = b'{"type":"message"}\n' * 20 + b"torn"
    calls: list[tuple[int, int]] = []
    walked(open_read(write(data)), 0, lambda done, total: calls.append((done, total)))
    assert [total for _, total in calls] == [len(data)] * len(calls)
    done = [done for done, _ in calls]
    assert done == sorted(set(done))
    assert (done[0], done[-1]) == (32, len(data))


@pytest.mark.usefixtures("small_steps")
def test_lines_of_many_steps_are_classified_together(write: Any) -> None:
    data = b'{"type":"message"}\n' * 20
    steps: list[int] = []
    source = open_read(write(data))
    found = list(batches(source, NATIVE, 0, lambda done, total: steps.append(done)))
    assert sum(len(batch.ends) for batch in found) == 20
    assert len(found) <= len(steps) / 2


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("left", [0, 5, 19, 20, 100, 128, 200])
def test_a_file_that_shrinks_on_the_way_ends_at_its_last_whole_line(write: Any, left: int) -> None:
    line = b'{"type":"message"}\n'
    data = line * 40
    path = write(data)
    source = open_read(path)

    def shrink(done: int, total: int) -> None:
        with path.open("r+b") as file:
            file.truncate(left)

    found = walked(source, 0, shrink)
    assert [offset for offset, _, _ in found] == [at * len(line) for at in range(len(found))]
    assert all(each == line for _, each, _ in found)
    # the first step was read before, and nothing behind what is left after it
    assert len(found) == max(left, 32) // len(line)


@pytest.mark.usefixtures("small_steps")
def test_a_file_that_grows_on_the_way_is_read_as_far_as_it_was_long(write: Any) -> None:
    line = b'{"type":"message"}\n'
    path = write(line * 10)

    def grow(done: int, total: int) -> None:
        with path.open("ab") as file:
            file.write(line)

    assert len(walked(open_read(path), 0, grow)) == 10


@pytest.mark.usefixtures("small_steps")
def test_a_torn_tail_of_any_length_is_never_presented(write: Any) -> None:
    line = b'{"type":"message"}\n'
    for nbytes in (1, 31, 32, 33, 127, 128, 129, 1000):
        for source in SOURCES.values():
            path = write(line * 3 + b"t" * nbytes)
            found = walked(source(open_regular(str(path)), path.stat().st_size))
            assert [each for _, each, _ in found] == [line] * 3
