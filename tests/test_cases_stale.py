"""Public reports of stale or broken index files: each of them, as far as reading goes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from mmapstore import CacheDir, Extents, Layout, Refresh, Transcript, cache, cachedir, stamp
from mmapstore.columns import Column
from mmapstore.fileio import open_regular
from mmapstore.stamp import is_racy
from tests.agreement import check_singles, check_window, native_oracle
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]

ROOT = Path(__file__).parent.parent
DATA = HEADER + M("a") + C("c1") + M("b", role="tool") + R("b", "s1", "x") + M("c")
OTHER = HEADER + M("x") + C("c1") + M("y", role="tool") + R("b", "s1", "x") + M("z")
assert len(DATA) == len(OTHER)
CLAUDE = b"".join(
    b'{"parentUuid":null,"type":"user","message":{"role":"user","content":"x"},'
    b'"uuid":"u%d","sessionId":"s"}\n' % number
    for number in range(50)
)


def settle(path: Path) -> None:
    """Wait until the file system's clock can tell the next change of a file from the last."""
    descriptor = open_regular(str(path))
    while is_racy(descriptor.stamp(), str(path.parent), remote=False):
        pass


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "user" / "caches"
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(directory))
    return directory


@pytest.fixture
def path(write: Write) -> Path:
    """A transcript with a cache that has everything in it."""
    path = write(DATA)
    settle(path)
    warm(path)
    return path


def warm(path: Path) -> None:
    with mmapstore.open(path) as t:
        t.position("a")
    with mmapstore.open(path) as t:
        assert t.cache == "hit"


def place_of(path: Path) -> Path:
    return Path(cachedir.within(cachedir.user_directory(), str(path)))


def check(t: Transcript, data: bytes) -> None:
    oracle = native_oracle(data)
    assert t.message_count == oracle.total
    check_window(t.window(limit=None), oracle, 0, oracle.total)
    check_singles(t, oracle)


def check_opened(path: Path, data: bytes, access: str = "auto") -> None:
    """Open twice: out of what is there, and out of what that left."""
    for _ in range(2):
        with mmapstore.open(path, access=access) as t:
            check(t, data)


# -- A2.2: a side file of the right size that is all NUL ------------------------------------


def test_a_side_file_of_zeros_does_not_hide_the_transcript(path: Path, access: str) -> None:
    nbytes = place_of(path).stat().st_size
    place_of(path).write_bytes(bytes(nbytes))
    with mmapstore.open(path, access=access) as t:
        assert t.cache != "hit"
        check(t, DATA)
    assert place_of(path).stat().st_size == nbytes
    with mmapstore.open(path, access=access) as t:
        assert t.cache == "hit"
        check(t, DATA)


def test_a_side_file_of_zeros_beside_a_hosts_transcript(path: Path, access: str) -> None:
    beside = path.with_name("t.jsonl.layout")
    beside.write_bytes(bytes(place_of(path).stat().st_size))
    check_opened(path, DATA, access)
    with mmapstore.open(path, cache_dir=CacheDir.BESIDE, access=access) as t:
        assert t.cache != "hit"
        check(t, DATA)
    with mmapstore.open(path, cache_dir=CacheDir.BESIDE, access=access) as t:
        assert t.cache == "hit"


# -- A4.3: looking at sessions takes as much memory as they are large -----------------------

_MEMORY = """
import json, re, sys
import mmapstore

def anonymous_nbytes():
    with open("/proc/self/smaps_rollup") as table:
        return int(re.search(r"^Anonymous: +([0-9]+) kB", table.read(), re.M)[1]) * 1024

access, *paths = sys.argv[1:]
# what is imported late, and the first use of everything, is no matter of the files
with mmapstore.open(paths[0], access=access) as t:
    t.window(limit=100).messages
    t.position("m1")
before = anonymous_nbytes()
most, states, counts = before, [], []
for path in paths[1:]:
    with mmapstore.open(path, access=access) as t:
        w = t.window(limit=100)
        ids = [record["id"] for record in w.messages]
        assert ids == [f"m{n}" for n in range(t.message_count - 100, t.message_count)]
        assert t.position("m7") == 7
        states.append(t.cache)
        counts.append(t.message_count)
        most = max(most, anonymous_nbytes())
print(json.dumps([most - before, states, sum(counts)]))
"""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """A small session, many of middle size and a large one."""
    directory = tmp_path_factory.mktemp("sessions")
    sizes = [110] + [1000] * 10 + [24_000]
    made = []
    for number, count in enumerate(sizes):
        path = directory / f"s{number}.jsonl"
        with path.open("wb") as file:
            file.write(HEADER)
            file.writelines(M(f"m{index}", "x" * 2000) for index in range(count))
        made.append(path)
    settle(made[-1])
    yield made
    for path in made:
        path.unlink()


def in_child(code: str, *args: str) -> Any:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="nothing tells private memory here"
)
def test_private_memory_does_not_grow_with_the_sessions(
    sessions: list[Path], access: str, caches: Path
) -> None:
    nbytes = sum(path.stat().st_size for path in sessions)
    assert nbytes > 64 << 20
    scanned, states, count = in_child(_MEMORY, access, *map(str, sessions))
    assert set(states) == {"miss"}
    # the buffers of a scan and 40 bytes a message of the largest, whatever lies in the files
    assert scanned < (16 << 20) + 40 * count
    cached, states, again = in_child(_MEMORY, access, *map(str, sessions))
    assert set(states) == {"hit"}
    assert again == count
    assert cached < 4 << 20


# -- A9.1: fresh by the modification time alone ---------------------------------------------


@pytest.mark.parametrize("now", [DATA + M("new"), DATA[: -len(M("c"))], OTHER])
def test_a_restored_modification_time_fools_nobody(path: Path, now: bytes, access: str) -> None:
    before = path.stat()
    held = mmapstore.open(path, access="pread")
    with path.open("r+b") as file:
        file.write(now)
        file.truncate()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    check_opened(path, now, access)
    assert held.refresh() is Refresh.REBUILT
    check(held, now)
    held.close()


# -- A9.2: older or newer than the data only because files were copied ----------------------


@pytest.mark.parametrize("order", ["transcript first", "cache first"])
@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2], ids=["now", "times kept"])
@pytest.mark.parametrize("other_first", [False, True], ids=["empty place", "over another"])
def test_a_session_copied_with_its_cache(
    path: Path, tmp_path: Path, order: str, copy: Callable[..., object], other_first: bool
) -> None:
    mmapstore.open(path, cache_dir=CacheDir.BESIDE).close()
    target = tmp_path / "target"
    target.mkdir()
    copied = target / path.name
    if other_first:
        copied.write_bytes(OTHER)
        settle(copied)
        warm(copied)
    names = [path.name, path.name + ".layout"]
    for name in names if order == "transcript first" else reversed(names):
        copy(tmp_path / name, target / name)
    check_opened(copied, DATA)


def test_the_whole_root_is_moved(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    inside = root / "t.jsonl"
    inside.write_bytes(DATA)
    settle(inside)
    mmapstore.open(inside, cache_dir=CacheDir.BESIDE).close()
    mmapstore.open(inside, cache_dir=root / "caches").close()
    moved = root.rename(tmp_path / "moved")
    check_opened(moved / "t.jsonl", DATA)
    # nothing about the file has changed: its caches are as good as they were
    for place in (CacheDir.BESIDE, CacheDir.USER):
        with mmapstore.open(moved / "t.jsonl", cache_dir=place) as t:
            assert t.cache == "hit"
            check(t, DATA)
    with mmapstore.open(moved / "t.jsonl", cache_dir=moved / "caches") as t:
        check(t, DATA)


def test_a_cache_that_is_older_or_newer_than_the_data_is_as_good(path: Path) -> None:
    for when_s in (1, 2**33, path.stat().st_mtime - 1):
        os.utime(place_of(path), (when_s, when_s))
        with mmapstore.open(path) as t:
            assert t.cache == "hit"
            check(t, DATA)


# -- A9.3: a new file at the same path, with the same inode number --------------------------


@pytest.mark.parametrize(
    "now", [OTHER, OTHER + M("more"), HEADER + M("x")], ids=["equal", "larger", "smaller"]
)
def test_a_new_file_at_the_path_is_read_anew(path: Path, now: bytes, access: str) -> None:
    for _ in range(5):
        path.unlink(missing_ok=True)
        path.write_bytes(DATA)
        settle(path)
        warm(path)
        path.unlink()
        path.write_bytes(now)
        check_opened(path, now, access)
        # a word for a writer that appends does not make it the old file
        path.unlink()
        path.write_bytes(DATA)
        settle(path)
        warm(path)
        path.unlink()
        path.write_bytes(now)
        with mmapstore.open(path, trust="append-only", access=access) as t:
            check(t, now)


def test_a_new_file_under_an_open_transcript_has_another_inode(path: Path, access: str) -> None:
    with mmapstore.open(path, access=access) as t:
        w = t.window()
        inode = path.stat().st_ino
        path.unlink()
        path.write_bytes(OTHER)
        # the old file is still held, so its number cannot be handed out
        assert path.stat().st_ino != inode
        assert t.refresh() is Refresh.REBUILT
        check(t, OTHER)
        assert [bytes(line) for line in w.lines] == [M("a"), M("b", role="tool"), M("c")]


# -- A9.4: shrunk in place ------------------------------------------------------------------


def test_offsets_behind_a_shrunken_files_end_are_not_used(write: Write) -> None:
    path = write(CLAUDE)
    settle(path)
    mmapstore.open(path).close()
    half = CLAUDE[: len(CLAUDE) // 2]
    with mmapstore.open(path) as held:
        assert (held.cache, held.access) == ("hit", "pread")
        shutil.copy2(path, path.with_name("t.jsonl.1"))
        os.truncate(path, 0)
        with path.open("ab") as file:
            file.write(half)
        with mmapstore.open(path) as t:
            expected = [line + b"\n" for line in half.split(b"\n")[:-1]]
            assert [bytes(line) for line in t.window(limit=None).lines] == expected
        assert held.refresh() is Refresh.REBUILT
        assert [bytes(line) for line in held.window(limit=None).lines] == expected


# -- A9.5: replaced by rename, the same length, the same second -----------------------------


def test_replaced_by_rename_with_the_same_length_and_times(path: Path, access: str) -> None:
    with mmapstore.open(path, access=access) as held:
        check(held, DATA)
        new = path.with_name("new")
        new.write_bytes(OTHER)
        shutil.copystat(path, new)
        assert new.stat().st_mtime_ns == path.stat().st_mtime_ns
        new.replace(path)
        check_opened(path, OTHER, access)
        assert held.refresh() is Refresh.REBUILT
        check(held, OTHER)


# -- A9.6: the stamp was taken while the file was still changing ----------------------------


def test_a_layout_made_within_the_tick_of_the_last_write_is_not_trusted(
    write: Write, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(DATA)
    monkeypatch.setattr(stamp, "_granule_ns", lambda *args: stamp.TICK_NS)
    monkeypatch.setattr(stamp, "_now_ns", lambda: path.stat().st_ctime_ns + stamp.TICK_NS)
    with mmapstore.open(path) as t:
        assert t.refresh() is Refresh.REBUILT
        check(t, DATA)
    assert not caches.exists()
    monkeypatch.setattr(stamp, "_now_ns", lambda: path.stat().st_ctime_ns + stamp.TICK_NS + 1)
    with mmapstore.open(path) as t:
        assert t.refresh() is Refresh.SAME
    with mmapstore.open(path) as t:
        assert t.cache == "hit"


# -- A9.7: the size was taken before the scan, the data read to a later end -----------------


def test_what_a_writer_adds_during_the_scan_comes_once(write: Write, access: str) -> None:
    path = write(DATA)
    settle(path)
    late = [M("late"), M("later")]

    def writer(done: int, total: int) -> None:
        if late:
            with path.open("ab") as file:
                file.write(late.pop(0))

    with mmapstore.open(path, access=access, progress=writer) as t:
        assert t.layout.file_len == t.nbytes == len(DATA)
        check(t, DATA)
        assert t.refresh() is Refresh.REBUILT
        check(t, DATA + M("late"))
        assert t.refresh() is Refresh.REBUILT
        check(t, DATA + M("late") + M("later"))
    check_opened(path, DATA + M("late") + M("later"), access)


# -- A9.8: a cache directory that cannot be used --------------------------------------------


@pytest.mark.parametrize(
    "number",
    [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR],
    ids=lambda number: errno.errorcode[number],
)
def test_no_room_for_a_cache_is_no_reason_not_to_read(
    write: Write, caches: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = write(DATA)
    settle(path)
    refused = []

    def refuse(name: str, *args: object, **fields: object) -> None:
        refused.append(name)
        raise OSError(number, os.strerror(number), name)

    monkeypatch.setattr(os, "makedirs", refuse)
    check_opened(path, DATA)
    assert refused
    assert not caches.exists()


def test_a_file_where_the_directory_should_be(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"theirs")
    for directory in ("file", "file/below"):
        monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / directory))
        path = write(DATA)
        settle(path)
        check_opened(path, DATA)
    assert (tmp_path / "file").read_bytes() == b"theirs"


def test_a_device_without_room(write: Write, caches: Path) -> None:
    path = write(DATA)
    settle(path)
    caches.parent.mkdir()
    caches.symlink_to("/dev/full")
    check_opened(path, DATA)
    caches.unlink()
    caches.mkdir()
    place_of(path).symlink_to("/dev/full")
    check_opened(path, DATA)
    assert place_of(path).is_file()


# -- A9.9: the index was sized in advance when the machine went down ------------------------


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9])
def test_a_cache_that_is_partly_zeros_is_made_good_once(
    path: Path, share: float, access: str
) -> None:
    good = place_of(path).read_bytes()
    kept = int(len(good) * share)
    place_of(path).write_bytes(good[:kept] + bytes(len(good) - kept))
    with mmapstore.open(path, access=access) as t:
        check(t, DATA)
    # no loop of rebuilding: it is as it was, and is left so
    repaired = place_of(path).stat()
    assert place_of(path).read_bytes() == good
    with mmapstore.open(path, access=access) as t:
        assert t.cache == "hit"
        check(t, DATA)
    assert place_of(path).stat().st_ino == repaired.st_ino


def test_a_cache_larger_than_it_says_or_smaller_is_made_good_once(path: Path) -> None:
    good = place_of(path).read_bytes()
    for octets in (good + bytes(4096), good[:-1], good[:100], b""):
        place_of(path).write_bytes(octets)
        check_opened(path, DATA)
        assert place_of(path).read_bytes() == good


# -- A9.10: "no cache" that still serves what was cached ------------------------------------


def test_without_a_cache_nothing_of_one_is_served(path: Path, access: str) -> None:
    with mmapstore.open(path, cache_dir=None) as t:
        layout = t.layout
    # a cache that looks right and is wrong: it knows of the first message alone
    first = Extents(Column(layout.messages.starts[:1]), Column(layout.messages.ends[:1]))
    wrong = Layout(
        layout.file_len,
        layout.stamp,
        layout.line_count,
        first,
        layout.compactions,
        layout.reviews,
        layout.checkpoints,
        layout.dialect,
        layout.open_boundary,
        layout.last,
    )
    for place in (place_of(path), Path(cachedir.beside(str(path)))):
        cache.write(str(place), str(path), wrong, None, asked=False, claimed=True, on_trust=False)
    with mmapstore.open(path, access=access) as t:
        assert (t.cache, t.message_count) == ("hit", 1)
    for _ in range(2):
        with mmapstore.open(path, access=access, cache_dir=None) as t:
            assert t.cache == "off"
            check(t, DATA)
            assert not t.refresh()
            check(t, DATA)
