"""Size: no cap on a line, a file or a history, and memory for the window, not for the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mmapstore
from mmapstore import fileio, filemap, layout, lookup
from mmapstore.dialect import NATIVE
from mmapstore.generation import Generation
from tests.agreement import check_layout, check_window, native_oracle
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]

ROOT = Path(__file__).parent.parent
KIB = 1 << 10
MIB = 1 << 20


def line_of(nbytes: int, message_id: str, *, type_first: bool = True) -> bytes:
    """Return a message line of exactly `nbytes` bytes, newline included."""
    start = b'{"type":"message","id":"%s","blocks":"' % message_id.encode()
    end = b'"}\n'
    if not type_first:
        start = b'{"blocks":"'
        end = b'","id":"%s","type":"message"}\n' % message_id.encode()
    return start + b"x" * (nbytes - len(start) - len(end)) + end


#: sizes that readers are known to stop at, and those at which this one changes its way
CAPS = [384, 480, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 20 * MIB]


@pytest.mark.parametrize("cap", CAPS)
def test_lines_about_as_long_as_any_buffer(write: Write, access: str, cap: int) -> None:
    """A4.1: lines of cap - 1, cap and cap + 1 bytes are lines like all others."""
    shifts = (-1, 0, 1) if cap <= MIB else (0,)
    lines = [M("a")]
    for shift in shifts:
        lines += [
            line_of(cap + shift, f"f{shift}"),
            line_of(cap + shift, f"l{shift}", type_first=False),
        ]
    lines.append(M("b"))
    path = write(HEADER + b"".join(lines))
    with mmapstore.open(path, access=access) as t:
        w = t.window()
        assert [bytes(line) for line in w.lines] == lines
        assert [t.message_id(p) for p in range(1, len(lines) - 1)] == [
            f"{end}{shift}" for shift in shifts for end in "fl"
        ]
        assert t.position("b") == len(lines) - 1
        assert len(t[1]["blocks"]) == len(lines[1]) - lines[1].index(b"x") - 3


@pytest.mark.parametrize("edge", [256 * KIB, 4 * MIB, 16 * MIB])
def test_line_feeds_next_to_any_edge(write: Write, access: str, edge: int) -> None:
    """A4.1: a newline just before, at and behind the edge of what is looked at together."""
    for shift in (-1, 0, 1):
        first = line_of(edge + shift - len(HEADER), "long")
        rest = [M("a"), C("x"), R("a", "s", "y"), M("b")]
        with mmapstore.open(write(HEADER + first + b"".join(rest)), access=access) as t:
            assert t.layout.line_count == 6
            assert t.layout.messages.ends.tolist()[0] == edge + shift
            assert t.layout.message_offsets.tolist()[1] == edge + shift
            assert [bytes(line) for line in t.window().lines] == [first, M("a"), M("b")]
            assert len(t.window().compactions) == len(t.layout.review_offsets) == 1


def test_a_line_of_seventy_mebibytes(write: Write, access: str) -> None:
    """A4.1: indexed and served, its neighbours too; by mapping without a copy."""
    long = line_of(70 * MIB, "long", type_first=access == "mmap")
    path = write(HEADER + M("a") + long + M("b"))
    with mmapstore.open(path, access=access) as t:
        w = t.window()
        assert w.total == 3
        assert w.lines[1] == long
        assert t.message_id(1) == "long"
        assert w.message_ids == ["a", "long", "b"]
        assert bytes(t.window(limit=1).lines[0]) == M("b")
        cut = t.window(limit=None, max_nbytes=MIB)
        assert (cut.start, cut.stop) == (2, 3)
        assert len(t.window(before=2, max_nbytes=MIB)) == 1


def test_zero_copy_where_it_is_mapped(write: Write) -> None:
    """A4.1: every view of a mapped file is a slice of the one mapping."""
    path = write(HEADER + b"".join(M(str(index)) for index in range(50)))
    with mmapstore.open(path, access="mmap") as t:
        views = [*t.window().lines, t.line(0), *t.window(after=3, limit=7).lines]
        assert len({id(view.obj) for view in views}) == 1
        assert all(view.readonly for view in views)


_TAIL_OF_A_LARGE_FILE = """
import json, sys
import mmapstore

def anonymous():
    with open("/proc/self/status") as status:
        return sum(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

before = anonymous()
with mmapstore.open(sys.argv[1], access=sys.argv[2]) as t:
    w = t.window(limit=2)
    lines = [bytes(line).decode() for line in w.lines]
    size = t.nbytes
    grown = anonymous() - before
    offsets = t.layout.message_offsets.tolist()
    lines_in_all = t.layout.line_count
    position = t.position("last")
print(json.dumps([size, lines, grown, offsets, lines_in_all, position]))
"""


def sparse_file(path: Path, nbytes: int, *, end: bytes) -> int:
    """Write a file of holes with a line feed every few megabytes; return where its end begins."""
    step = 4 * MIB
    with path.open("wb") as file:
        file.write(HEADER + M("first"))
        for offset in range(step, nbytes, step):
            file.seek(offset - 1)
            file.write(b"\n")
        file.seek(nbytes - 1)
        file.write(b"\n" + end)
    return nbytes


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in /proc")
def test_files_past_half_a_gibibyte(tmp_path: Path) -> None:
    """A4.2: opened, and its tail served in memory that has nothing to do with its size."""
    path = tmp_path / "large.jsonl"
    tail = sparse_file(path, 513 * MIB, end=M("a") + M("last"))
    result = subprocess.run(
        [sys.executable, "-c", _TAIL_OF_A_LARGE_FILE, str(path), "pread"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=120,
    )
    size, lines, grown, offsets, line_count, position = json.loads(result.stdout)
    assert size > 512 * MIB
    assert [line.encode() for line in lines] == [M("a"), M("last")]
    assert offsets == [len(HEADER), tail, tail + len(M("a"))]
    assert line_count == 2 + -(-513 // 4) + 2
    assert position == 2
    assert grown < 48 * MIB
    path.unlink()


def test_offsets_past_four_gibibytes(tmp_path: Path, access: str) -> None:
    """A4.4: an offset has 64 bits, from the scan to the error message."""
    path = tmp_path / "large.jsonl"
    bad = b'{"type":"message","id":"bad"\n'
    start = sparse_file(
        path, (1 << 32) + 12345, end=M("a") + bad + C("x") + R("a", "s", "y") + M("b")
    )
    descriptor = fileio.open_regular(str(path))
    sources = {"mmap": filemap.MappedFile, "pread": filemap.ReadFile}
    source = sources[access](descriptor, descriptor.stamp().nbytes)
    # as if all that comes before had been scanned: it is the tail that is looked at here
    known = layout.build(filemap.ReadFile(descriptor, 0), NATIVE, descriptor.stamp())
    known = known._replace(file_len=start)
    grown = layout.extend(known, source, descriptor.stamp())
    assert grown.message_offsets.tolist() == [
        start,
        start + len(M("a")),
        path.stat().st_size - len(M("b")),
    ]
    assert grown.file_len == path.stat().st_size
    generation = Generation(0, str(path), grown, lambda: source, descriptor)
    w = mmapstore.Window(generation, 0, 3)
    assert [bytes(line) for line in w.lines] == [M("a"), bad, M("b")]
    assert list(w.message_ids) == ["a", "b"]
    assert [d.offset for d in w.damaged] == [start + len(M("a"))]
    assert [c["id"] for c in w.compactions] == ["x"]
    assert list(w.compaction_positions) == [2]
    assert lookup.position(generation, "b") == 2
    path.unlink()


def test_payload_before_and_behind_the_type(write: Write, access: str) -> None:
    """A4.5: a few payloads are most of the file; the kind is found on either side of them."""
    image = b"iVBORw0KGgo" * ((512 * KIB) // 11)
    lines = []
    for index in range(300):
        lines.append(M(f"m{index}"))
        if index % 25 == 0:
            lines.append(
                b'{"type":"message","id":"f%d","blocks":[{"data":"%s"},{"data":"%s"}]}\n'
                % (index, image, image)
            )
            lines.append(
                b'{"blocks":[{"data":"%s","type":"compaction"}],"id":"l%d","type":"message"}\n'
                % (image, index)
            )
            lines.append(
                b'{"details":{"data":"%s"},"id":"c%d","type":"compaction"}\n' % (image, index)
            )
    path = write(HEADER + b"".join(lines))
    with mmapstore.open(path, access=access) as t:
        assert t.message_count == 300 + 2 * 12
        assert len(t.layout.compaction_offsets) == 12
        assert [t.message_id(p) for p in range(3)] == ["m0", "f0", "l0"]
        assert t.position("l275") == 275 + 1 + 2 * 11 + 1
        w = t.window(limit=3)
        assert w.message_ids == ["m297", "m298", "m299"]


def test_a_history_that_was_appended_again(write: Write, access: str) -> None:
    """A4.6: served as on disk; a window shows an id once, first place, last content."""
    count = 1500
    first = [M(f"m{index}", "first") for index in range(count)]
    again = [M(f"m{index}", "again") for index in range(count)]
    data = HEADER + b"".join(first) + C("x") + b"".join(again) + C("y")
    with mmapstore.open(write(data), access=access) as t:
        assert t.message_count == 2 * count
        check_layout(t, native_oracle(data))
        assert [bytes(line) for line in t.window(limit=None).lines] == first + again
        w = t.window(limit=None)
        assert len(w.messages) == count
        assert list(w.message_positions) == list(range(count))
        assert all(m["blocks"][0]["text"] == "again" for m in w.messages)
        page = t.window(before=count, limit=10)
        assert page.messages[0]["blocks"][0]["text"] == "first"
        assert t.position("m0") == count
        assert sum(1 for _ in t.iter()) == 2 * count
        assert list(w.compaction_positions) == [count, 2 * count]


@pytest.mark.parametrize("count", [10_001, 100_001])
def test_paging_reaches_every_line(write: Write, access: str, count: int) -> None:
    """A4.7: no cap looks like lost history; has_before holds until the very first line."""
    lines = [b'{"type":"message","id":"%d"}\n' % index for index in range(count)]
    with mmapstore.open(write(HEADER + b"".join(lines)), access=access) as t:
        assert t.message_count == count
        limit = 1000 if count > 20_000 else 100
        w = t.window(limit=limit)
        stop = count
        while True:
            assert w.stop == stop
            assert bytes(w.lines[0]) == lines[w.start]
            assert bytes(w.lines[-1]) == lines[stop - 1]
            assert len(w) == len(w.lines)
            stop = w.start
            assert w.has_before == (stop > 0)
            if not w.has_before:
                break
            w = t.window(before=w.start, limit=limit)
        assert stop == 0
        assert t.position("0") == 0
        assert t.position(str(count - 1)) == count - 1
        assert t.position(str(count)) is None
        everything = t.window(limit=None)
        assert len(everything) == count
        assert b"".join(everything.lines) == b"".join(lines)


@pytest.mark.parametrize("nbytes", [30, 300, 3000, 3600, 5000, 30_000])
def test_lines_of_any_usual_length(write: Write, access: str, nbytes: int) -> None:
    """Dense and sparse files, and files that change from one to the other, are searched alike."""

    def some(length: int, many: int, name: str) -> list[bytes]:
        return [line_of(max(length, 60), f"{name}{index}") for index in range(many)]

    lines = (
        some(nbytes, 200, "a") + some(60, 3000, "b") + some(400_000, 3, "c") + some(nbytes, 50, "d")
    )
    data = HEADER + b"".join(lines)
    oracle = native_oracle(data)
    with mmapstore.open(write(data), access=access) as t:
        check_layout(t, oracle)
        w = t.window(limit=20)
        check_window(w, oracle, oracle.total - 20, oracle.total)


def test_windows_of_few_bytes(write: Write, access: str) -> None:
    """max_nbytes cuts the end that is farthest from what was asked for, and leaves one line."""
    lines = [line_of(100 + index, f"m{index}") for index in range(20)]
    with mmapstore.open(write(HEADER + b"".join(lines)), access=access) as t:
        room = len(lines[19]) + len(lines[18])
        assert (t.window(max_nbytes=room).start, t.window(max_nbytes=room).stop) == (18, 20)
        assert len(t.window(max_nbytes=room - 1)) == 1
        w = t.window(before=10, limit=5, max_nbytes=len(lines[9]) + len(lines[8]))
        assert (w.start, w.stop) == (8, 10)
        w = t.window(after=10, limit=5, max_nbytes=len(lines[10]) + len(lines[11]))
        assert (w.start, w.stop) == (10, 12)
        w = t.window(around="m10", limit=7, max_nbytes=1)
        assert (w.start, w.stop) == (10, 11)
        w = t.window(around="m10", limit=7, max_nbytes=350)
        assert w.start <= 10 < w.stop
        assert sum(map(len, w.lines)) <= 350
        w = t.window(limit=None, max_nbytes=10**12)
        assert (w.start, w.stop) == (0, 20)
        assert len(t.window(before=0, max_nbytes=1)) == 0
    assert os.path.getsize(t.path) == len(HEADER + b"".join(lines))
