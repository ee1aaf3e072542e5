"""When a layout comes out of a cache and when it goes into one, and that neither ever hurts."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import CacheDir, Refresh, Stamp, Transcript, cache, cachedir, loader, stamp
from mmapstore.fileio import open_regular
from mmapstore.provenance import note_append
from mmapstore.stamp import is_racy
from tests.agreement import check_singles, check_window, native_oracle
from tests.strategies import HEADER, C, M, R, transcripts, whole_lines

Write = Callable[..., Path]

NATIVE = HEADER + M("a") + C("c") + M("b", role="tool") + R("b", "s1", "active")
CLAUDE = (
    b'{"parentUuid":null,"type":"user","message":{"role":"user","content":"x"},'
    b'"uuid":"u1","sessionId":"s"}\n'
)
GENERIC = b'{"a":1}\n'
#: where it lies decides whose it is
CLAIMED_TWICE = (
    b'{"parentUuid":"x","type":"session","schema":2,"sessionId":"s","message":{"role":"user"}}\n'
)


def settle(path: Path) -> None:
    """Wait until the file system's clock can tell the next change of a file from the last."""
    descriptor = open_regular(str(path))
    while is_racy(descriptor.stamp(), str(path.parent), remote=False):
        pass


@pytest.fixture
def settled(write: Write) -> Callable[..., Path]:
    """Return a function that writes a file, the last change of which is some time ago."""

    def write_settled(data: bytes, name: str = "t.jsonl") -> Path:
        path = write(data, name)
        settle(path)
        return path

    return write_settled


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory, which is not there yet."""
    directory = tmp_path / "user" / "caches"
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(directory))
    return directory


def place_of(path: Path, directory: Path) -> Path:
    return Path(cachedir.within(str(directory), str(path)))


def header_at(place: Path) -> cache.Header:
    header = cache.read_header(str(place))
    assert header is not None
    return header


def check(t: Transcript, data: bytes) -> None:
    """Compare every answer with the naive reading of these bytes."""
    oracle = native_oracle(data)
    assert t.message_count == oracle.total
    check_window(t.window(limit=None), oracle, 0, oracle.total)
    check_singles(t, oracle)
    assert (t.layout.line_count, t.layout.file_len) == (len(oracle.lines), oracle.file_len)
    assert t.torn_tail == oracle.torn_tail


def files_under(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


class Progress:
    """Notes how far each part of a scan went."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))


# -- what became of the cache ------------------------------------------------------------


def test_first_there_is_none_then_it_is_used(settled: Write, caches: Path, access: str) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path, access=access) as t:
        assert t.cache == "miss"
        check(t, NATIVE)
    with mmapstore.open(path, access=access) as t:
        assert t.cache == "hit"
        check(t, NATIVE)
    assert list(caches.iterdir()) == [place_of(path, caches)]


def test_a_cache_of_no_use_is_stale_and_replaced(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    settled(NATIVE + M("new"))
    with mmapstore.open(path) as t:
        assert t.cache == "stale"
        check(t, NATIVE + M("new"))
    with mmapstore.open(path) as t:
        assert t.cache == "hit"
        check(t, NATIVE + M("new"))
    assert len(list(caches.iterdir())) == 1


def test_what_became_of_it_stays_said_whatever_comes_later(settled: Write) -> None:
    path = settled(NATIVE)
    t = mmapstore.open(path)
    settled(NATIVE + M("new"))
    assert t.refresh() is Refresh.REBUILT
    assert t.cache == "miss"
    t.close()
    assert t.cache == "miss"


@pytest.mark.parametrize(
    "data", [b"", b"\n", b'{"type":"message","id":"torn', HEADER, M("a"), b"\xef\xbb\xbf" + M("a")]
)
def test_small_files_are_cached_like_large_ones(settled: Write, data: bytes, access: str) -> None:
    path = settled(data)
    for state in ("miss", "hit"):
        with mmapstore.open(path, access=access, dialect="native") as t:
            assert t.cache == state
            check(t, data)


@given(transcripts(), st.sampled_from(["mmap", "pread"]), st.booleans())
def test_any_transcript_reads_the_same_out_of_a_cache(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, access: str, look_up: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    # so that whatever is drawn is a transcript
    data = HEADER + data
    path.write_bytes(data)
    settle(path)
    with mmapstore.open(path, dialect="native", cache_dir=path.parent / "caches") as t:
        if look_up:
            t.position("a") if native_oracle(data).positions_of("a") else t.window(limit=1)
    with mmapstore.open(
        path, dialect="native", access=access, cache_dir=path.parent / "caches"
    ) as t:
        assert t.cache == "hit"
        check(t, data)


# -- when it is written ------------------------------------------------------------------


def test_it_is_written_at_the_end_of_a_build(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    t = mmapstore.open(path)
    assert header_at(place_of(path, caches)).stamp == t.layout.stamp
    settled(NATIVE + M("new"))
    t.refresh()
    assert header_at(place_of(path, caches)).stamp == t.layout.stamp
    assert header_at(place_of(path, caches)).message_count == 3
    t.close()


def test_identities_are_added_when_they_are_known(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path) as t:
        assert not header_at(place_of(path, caches)).identified
    assert not header_at(place_of(path, caches)).identified
    with mmapstore.open(path) as t:
        assert (t.cache, t.position("b")) == ("hit", 1)
        assert not header_at(place_of(path, caches)).identified
    assert header_at(place_of(path, caches)).identified
    with mmapstore.open(path) as t:
        assert (t.cache, t.position("b"), t.position("nobody")) == ("hit", 1, None)


def test_identities_out_of_a_cache_are_not_read_again(
    settled: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path) as t:
        t.position("a")

    def refused(*args: object) -> None:
        message = "the ids were read again"
        raise AssertionError(message)

    monkeypatch.setattr("mmapstore.identity.build", refused)
    with mmapstore.open(path) as t:
        assert (t.position("a"), t.position("b")) == (0, 1)


def test_closing_never_scans(settled: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Progress()
    t = mmapstore.open(settled(NATIVE), progress=done)
    del done.calls[:]
    monkeypatch.setattr("mmapstore.identity.build", lambda *args: pytest.fail("ids were read"))
    t.close()
    assert done.calls == []


def test_a_cache_that_is_good_is_not_written_again(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path) as t:
        t.position("a")
    inode = place_of(path, caches).stat().st_ino
    for _ in range(3):
        with mmapstore.open(path) as t:
            assert t.cache == "hit"
            check(t, NATIVE)
            t.refresh()
    assert place_of(path, caches).stat().st_ino == inode


def test_it_is_replaced_and_never_written_in_place(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    place = place_of(path, caches)
    with place.open("rb") as held:
        before = held.read()
        settled(NATIVE + M("new"))
        mmapstore.open(path).close()
        held.seek(0)
        assert held.read() == before
    assert place.read_bytes() != before


def test_a_reader_goes_on_with_the_cache_it_has(settled: Write, access: str) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    with mmapstore.open(path, access=access) as t:
        assert t.cache == "hit"
        w = t.window()
        rewritten = path.with_name("new")
        rewritten.write_bytes(HEADER + M("z"))
        rewritten.replace(path)
        mmapstore.open(path).close()
        assert [bytes(line) for line in w.lines] == [M("a"), M("b", role="tool")]
        assert t.refresh() is Refresh.REBUILT
        check(t, HEADER + M("z"))


def test_the_end_of_a_with_block_that_failed_keeps_it_too(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    with pytest.raises(ZeroDivisionError), mmapstore.open(path) as t:
        t.position("a")
        raise ZeroDivisionError
    assert header_at(place_of(path, caches)).identified


# -- racy stamps -------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the file system's granule, and the time since a change."""

    def set_clock(path: Path, granule_ns: int, age_ns: int) -> None:
        changed_ns = path.stat().st_ctime_ns
        monkeypatch.setattr(stamp, "_granule_ns", lambda *args: granule_ns)
        monkeypatch.setattr(stamp, "_now_ns", lambda: changed_ns + age_ns)

    return set_clock


TICK_NS = stamp.TICK_NS


@pytest.mark.parametrize("age_ns", [-(10**9), -1, 0, 1, TICK_NS])
def test_a_change_too_recent_to_be_told_from_the_next_is_not_cached(
    settled: Write, caches: Path, clock: Callable[..., None], age_ns: int
) -> None:
    path = settled(NATIVE)
    clock(path, TICK_NS, age_ns)
    with mmapstore.open(path) as t:
        check(t, NATIVE)
        # equality of stamps proves nothing: look again
        assert t.refresh() is Refresh.REBUILT
        check(t, NATIVE)
    assert not caches.exists()


@pytest.mark.parametrize(
    ("granule_ns", "age_ns"),
    [(TICK_NS, TICK_NS + 1), (0, 0), (0, 1), (stamp.COARSE_NS, stamp.COARSE_NS + 1), (0, -5)],
)
def test_a_change_that_the_next_is_told_from_is_cached(
    settled: Write, caches: Path, clock: Callable[..., None], granule_ns: int, age_ns: int
) -> None:
    path = settled(NATIVE)
    clock(path, granule_ns, age_ns)
    with mmapstore.open(path) as t:
        assert t.refresh() is Refresh.SAME
    assert header_at(place_of(path, caches)).message_count == 2


def test_a_file_that_was_racy_is_cached_by_the_refresh_that_finds_it_settled(
    settled: Write, caches: Path, clock: Callable[..., None]
) -> None:
    path = settled(NATIVE)
    clock(path, TICK_NS, 1)
    t = mmapstore.open(path)
    clock(path, TICK_NS, TICK_NS + 1)
    assert t.refresh() is Refresh.REBUILT
    assert t.refresh() is Refresh.SAME
    assert header_at(place_of(path, caches)).message_count == 2
    t.close()


def test_on_a_network_the_times_are_anothers(
    settled: Write, caches: Path, clock: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "on_remote_filesystem", lambda device: True)
    path = settled(NATIVE)
    clock(path, 0, stamp.COARSE_NS)
    mmapstore.open(path).close()
    assert not caches.exists()
    clock(path, 0, stamp.COARSE_NS + 1)
    mmapstore.open(path).close()
    assert header_at(place_of(path, caches)).message_count == 2


# -- a file that does not hold still -----------------------------------------------------


def test_a_file_that_grew_under_the_scan_is_not_cached(
    settled: Write, caches: Path, access: str
) -> None:
    path = settled(NATIVE)

    def append(done: int, total: int) -> None:
        with path.open("ab") as file:
            file.write(M("late"))

    with mmapstore.open(path, access=access, progress=append) as t:
        check(t, NATIVE)
    assert not caches.exists()


def test_a_file_that_was_edited_under_the_scan_is_not_cached(
    settled: Write, caches: Path, access: str
) -> None:
    path = settled(NATIVE)

    def edit(done: int, total: int) -> None:
        with path.open("r+b") as file:
            file.seek(len(HEADER))
            file.write(M("z"))

    mmapstore.open(path, access=access, progress=edit).close()
    assert not caches.exists()


def test_a_file_whose_times_alone_changed_under_the_scan_is_not_cached(
    settled: Write, caches: Path
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path, progress=lambda done, total: path.chmod(0o640)).close()
    assert not caches.exists()


def test_a_file_that_nobody_can_open_again_is_not_cached(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path) as t:
        place_of(path, caches).unlink()
        assert t.position("a") == 0
        path.unlink()
    assert list(caches.iterdir()) == []


def test_a_layout_that_is_doubted_is_not_kept(settled: Write, caches: Path) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path, access="pread") as t:
        place_of(path, caches).unlink()
        # there is something new to keep
        assert t.position("a") == 0
        with path.open("r+b") as file:
            file.seek(len(HEADER))
            file.write(b"\n")
        with pytest.raises(mmapstore.TranscriptChangedError):
            t.window().messages  # noqa: B018
    assert list(caches.iterdir()) == []


# -- where it is looked for --------------------------------------------------------------


def test_without_a_cache_nothing_is_read_and_nothing_written(
    settled: Write, caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    mmapstore.open(path, cache_dir=CacheDir.BESIDE).close()
    before = {name: (tmp_path / name).lstat() for name in files_under(tmp_path)}
    monkeypatch.setattr(cache, "read", lambda place: pytest.fail(f"{place} was read"))
    with mmapstore.open(path, cache_dir=None) as t:
        assert t.cache == "off"
        check(t, NATIVE)
        t.refresh()
    after = {name: (tmp_path / name).lstat() for name in files_under(tmp_path)}
    assert {name: (s.st_ino, s.st_ctime_ns) for name, s in after.items()} == {
        name: (s.st_ino, s.st_ctime_ns) for name, s in before.items()
    }


def test_without_a_cache_no_directory_is_made(settled: Write, tmp_path: Path) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path, cache_dir=None) as t:
        check(t, NATIVE)
    assert files_under(tmp_path) == {path.name}


def test_a_cache_in_a_given_directory_is_nobody_elses(
    settled: Write, caches: Path, tmp_path: Path
) -> None:
    path = settled(NATIVE)
    given_directory = tmp_path / "given"
    mmapstore.open(path, cache_dir=given_directory).close()
    assert not caches.exists()
    with mmapstore.open(path) as t:
        assert t.cache == "miss"
    mmapstore.open(path, cache_dir=CacheDir.BESIDE).close()
    other = tmp_path / "other"
    with mmapstore.open(path, cache_dir=other) as t:
        assert t.cache == "miss"


def test_a_host_keeps_it_beside_the_transcript(
    settled: Write, caches: Path, tmp_path: Path
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    # the user's own is not looked at
    with mmapstore.open(path, cache_dir=CacheDir.BESIDE) as t:
        assert t.cache == "miss"
        check(t, NATIVE)
    with mmapstore.open(path, cache_dir=CacheDir.BESIDE) as t:
        assert t.cache == "hit"
        check(t, NATIVE)
    assert (tmp_path / "t.jsonl.layout").is_file()


def test_a_cache_beside_a_native_file_is_read_by_everyone_and_not_written(
    settled: Write, caches: Path, tmp_path: Path
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path, cache_dir=CacheDir.BESIDE).close()
    beside = tmp_path / "t.jsonl.layout"
    before = beside.read_bytes()
    with mmapstore.open(path) as t:
        assert t.cache == "hit"
        check(t, NATIVE)
    # with the identities it goes where the user's caches are
    assert beside.read_bytes() == before
    assert header_at(place_of(path, caches)).identified
    settled(NATIVE + M("new"))
    with mmapstore.open(path) as t:
        assert t.cache == "stale"
        check(t, NATIVE + M("new"))
    assert beside.read_bytes() == before
    with mmapstore.open(path) as t:
        assert t.cache == "hit"


def test_beside_another_programs_file_none_is_read_and_none_written(
    settled: Write, caches: Path, tmp_path: Path
) -> None:
    path = settled(CLAUDE)
    mmapstore.open(path).close()
    place = place_of(path, caches)
    assert files_under(tmp_path) == {
        path.name,
        "user",
        "user/caches",
        f"user/caches/{place.name}",
    }
    # one that lies there is no business of ours
    beside = tmp_path / "t.jsonl.layout"
    place.rename(beside)
    before = beside.read_bytes()
    with mmapstore.open(path) as t:
        assert t.cache != "hit"
        assert t.window().message_ids == ["u1"]
    assert beside.read_bytes() == before


def test_not_even_a_host_writes_beside_another_programs_file(
    settled: Write, tmp_path: Path
) -> None:
    path = settled(CLAUDE)
    for _ in range(2):
        with mmapstore.open(path, cache_dir=CacheDir.BESIDE) as t:
            assert t.cache != "hit"
            assert t.window().message_ids == ["u1"]
    assert files_under(tmp_path) == {path.name}


# -- dialects ----------------------------------------------------------------------------


def shape(t: Transcript) -> tuple[Any, ...]:
    return t.dialect.name, [bytes(line) for line in t.window(limit=None).lines]


def test_a_dialect_that_was_asked_for_is_not_what_is_detected(settled: Write) -> None:
    path = settled(CLAUDE)
    with mmapstore.open(path, cache_dir=None) as t:
        detected = shape(t)
    with mmapstore.open(path, cache_dir=None, dialect="generic") as t:
        asked = shape(t)
    for _ in range(2):
        with mmapstore.open(path, dialect="generic") as t:
            assert shape(t) == asked
        with mmapstore.open(path, dialect="generic") as t:
            assert (t.cache, shape(t)) == ("hit", asked)
        with mmapstore.open(path) as t:
            assert (t.cache, shape(t)) == ("stale", detected)
        with mmapstore.open(path) as t:
            assert (t.cache, shape(t)) == ("hit", detected)


def test_asking_for_what_would_be_detected_makes_no_difference(settled: Write) -> None:
    path = settled(CLAUDE)
    mmapstore.open(path, dialect="claude").close()
    with mmapstore.open(path) as t:
        assert t.cache == "hit"
    settled(CLAUDE * 2)
    mmapstore.open(path).close()
    with mmapstore.open(path, dialect="claude") as t:
        assert t.cache == "hit"


def test_rules_that_have_changed_make_it_stale(
    settled: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    monkeypatch.setattr(loader, "_rules", lambda name: 1)
    with mmapstore.open(path) as t:
        assert t.cache == "stale"
        check(t, NATIVE)


@pytest.mark.parametrize("asked", ["generic", None])
def test_what_no_line_claims_is_judged_again_with_a_cache_too(
    settled: Write, asked: str | None
) -> None:
    path = settled(GENERIC)
    mmapstore.open(path, dialect=asked).close()
    with mmapstore.open(path, trust="append-only") as t:
        assert (t.cache, t.dialect.name) == ("hit", "generic")
        with path.open("ab") as file:
            file.write(CLAUDE)
        assert t.refresh() is Refresh.REBUILT
        assert shape(t) == ("claude", [CLAUDE])
    # and so by one that opens it only now
    settled(GENERIC, "u.jsonl")
    other = path.with_name("u.jsonl")
    mmapstore.open(other, dialect=asked).close()
    with other.open("ab") as file:
        file.write(CLAUDE)
    with mmapstore.open(other, trust="append-only") as t:
        assert shape(t) == ("claude", [CLAUDE])


def test_a_dialect_that_was_asked_for_holds_when_the_file_grows(settled: Write) -> None:
    path = settled(GENERIC)
    mmapstore.open(path).close()
    with mmapstore.open(path, trust="append-only", dialect="generic") as t:
        assert t.cache == "hit"
        with path.open("ab") as file:
            file.write(CLAUDE)
        assert t.refresh() is Refresh.APPENDED
        assert shape(t) == ("generic", [GENERIC, CLAUDE])


@pytest.mark.parametrize("data", [GENERIC, CLAUDE, NATIVE], ids=["generic", "claude", "native"])
def test_a_host_moving_in_or_out_is_noticed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "sessions" / "t.jsonl"
    path.parent.mkdir()
    path.write_bytes(data)
    settle(path)
    lock = tmp_path / "host.lock"
    for _ in range(2):
        for change in (lock.touch, lock.unlink):
            change()
            with mmapstore.open(path, cache_dir=None) as t:
                truth = shape(t)
            for _ in range(2):
                with mmapstore.open(path) as t:
                    assert shape(t) == truth


# -- one file, several paths -------------------------------------------------------------


def test_a_file_that_was_moved_is_read_right(settled: Write, tmp_path: Path) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    moved = path.rename(tmp_path / "moved.jsonl")
    for state in ("miss", "hit"):
        with mmapstore.open(moved) as t:
            assert t.cache == state
            check(t, NATIVE)


@pytest.mark.parametrize("cache_first", [False, True])
@pytest.mark.parametrize("copy", [shutil.copy, shutil.copy2])
def test_a_copy_with_its_cache_is_another_file(
    settled: Write, tmp_path: Path, copy: Callable[..., object], cache_first: bool
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path, cache_dir=CacheDir.BESIDE).close()
    target = tmp_path / "copy"
    target.mkdir()
    names = ["t.jsonl", "t.jsonl.layout"]
    for name in reversed(names) if cache_first else names:
        copy(tmp_path / name, target / name)
    settle(target / "t.jsonl")
    with mmapstore.open(target / "t.jsonl") as t:
        assert t.cache == "stale"
        check(t, NATIVE)


def test_a_hard_link_is_the_same_file_under_another_name(
    settled: Write, caches: Path, tmp_path: Path
) -> None:
    path = settled(NATIVE)
    link = tmp_path / "link.jsonl"
    link.hardlink_to(path)
    settle(path)
    for each in (path, link):
        for state in ("miss", "hit"):
            with mmapstore.open(each) as t:
                assert t.cache == state
                check(t, NATIVE)
    # the cache of one is good for the other
    shutil.copy(place_of(path, caches), place_of(link, caches))
    with mmapstore.open(link) as t:
        assert t.cache == "hit"
        check(t, NATIVE)


@pytest.mark.parametrize("data", [GENERIC, CLAIMED_TWICE + CLAUDE], ids=["none", "two"])
def test_the_dialect_of_a_cache_is_that_of_its_path(
    settled: Write, caches: Path, tmp_path: Path, data: bytes
) -> None:
    path = settled(data)
    link = tmp_path / ".claude" / "projects" / "p" / "t.jsonl"
    link.parent.mkdir(parents=True)
    link.hardlink_to(path)
    settle(path)
    with mmapstore.open(link, cache_dir=None) as t:
        truth = shape(t)
    with mmapstore.open(path) as t:
        assert shape(t) != truth
    shutil.copy(place_of(path, caches), place_of(link, caches))
    with mmapstore.open(link) as t:
        assert shape(t) == truth


def test_through_a_symbolic_link_the_file_it_leads_to_is_meant(
    settled: Write, tmp_path: Path
) -> None:
    one, other = settled(NATIVE), settled(HEADER + M("z"), "u.jsonl")
    link = tmp_path / "link.jsonl"
    for target, data in ((one, NATIVE), (other, HEADER + M("z"))):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        for _ in range(2):
            with mmapstore.open(link) as t:
                check(t, data)
        assert t.cache == "hit"


# -- places that cannot be used ----------------------------------------------------------


def test_directories_that_are_missing_are_made(settled: Write, tmp_path: Path) -> None:
    path = settled(NATIVE)
    mmapstore.open(path, cache_dir=tmp_path / "a" / "b" / "c").close()
    with mmapstore.open(path, cache_dir=tmp_path / "a" / "b" / "c") as t:
        assert t.cache == "hit"


def unusable_places() -> dict[str, Callable[[Path], Path]]:
    def a_file(root: Path) -> Path:
        (root / "file").write_bytes(b"theirs")
        return root / "file"

    def below_a_file(root: Path) -> Path:
        return a_file(root) / "caches"

    def dangling(root: Path) -> Path:
        (root / "dangling").symlink_to(root / "nowhere")
        return root / "dangling"

    def loop(root: Path) -> Path:
        (root / "loop").symlink_to(root / "loop")
        return root / "loop"

    def too_long(root: Path) -> Path:
        return root / ("x" * 300)

    def in_proc(root: Path) -> Path:
        return Path("/proc/self/caches")

    return {f.__name__: f for f in (a_file, below_a_file, dangling, loop, too_long, in_proc)}


@pytest.mark.parametrize("kind", unusable_places())
def test_a_directory_that_cannot_be_one_is_no_hindrance(
    settled: Write, tmp_path: Path, kind: str, access: str
) -> None:
    path = settled(NATIVE)
    directory = unusable_places()[kind](tmp_path)
    before = files_under(tmp_path)
    for _ in range(2):
        with mmapstore.open(path, cache_dir=directory, access=access) as t:
            assert t.cache == "miss"
            check(t, NATIVE)
            t.refresh()
    assert files_under(tmp_path) == before
    assert not (tmp_path / "file").exists() or (tmp_path / "file").read_bytes() == b"theirs"


FAULTS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EIO]


@pytest.mark.parametrize("step", ["write", "second write", "create", "rename", "mkdir"])
@pytest.mark.parametrize("number", FAULTS, ids=lambda number: errno.errorcode[number])
def test_a_place_that_refuses_is_no_hindrance(
    settled: Write, caches: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    path = settled(NATIVE)
    really = {"write": os.write, "open": os.open, "replace": os.replace, "mkdir": os.mkdir}
    refused: list[str] = []
    written = 0

    def refuse(what: str) -> None:
        refused.append(what)
        raise OSError(number, os.strerror(number))

    def write(fd: int, octets: bytes) -> int:
        nonlocal written
        written += 1
        if step == "write" or (step == "second write" and written % 2 == 0):
            refuse("write")
        return really["write"](fd, octets)  # type: ignore[no-any-return,operator]

    def opened(name: str, flags: int, *args: Any, **fields: Any) -> int:
        if step == "create" and flags & os.O_CREAT:
            refuse("open")
        return really["open"](name, flags, *args, **fields)  # type: ignore[no-any-return,operator]

    def replace(old: str, new: str) -> None:
        if step == "rename":
            refuse("replace")
        really["replace"](old, new)  # type: ignore[operator]

    def mkdir(*args: Any, **fields: Any) -> None:
        if step == "mkdir":
            refuse("mkdir")
        really["mkdir"](*args, **fields)  # type: ignore[operator]

    with monkeypatch.context() as patch:
        for name, function in (
            ("write", write),
            ("open", opened),
            ("replace", replace),
            ("mkdir", mkdir),
        ):
            patch.setattr(os, name, function)
        with mmapstore.open(path) as t:
            check(t, NATIVE)
        # at the end of the build, and again at the end with what was learnt since
        assert len(refused) == 2
    assert not caches.exists() or list(caches.iterdir()) == []
    with mmapstore.open(path) as t:
        assert t.cache == "miss"
    with mmapstore.open(path) as t:
        assert t.cache == "hit"


def test_a_refusal_leaves_the_cache_that_was_there(
    settled: Write, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    before = place_of(path, caches).read_bytes()
    settled(NATIVE + M("new"))

    def full(fd: int, octets: bytes) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with mmapstore.open(path) as t:
            check(t, NATIVE + M("new"))
    assert [entry.read_bytes() for entry in caches.iterdir()] == [before]


def test_an_interrupted_write_leaves_nothing(
    settled: Write, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)

    def interrupted(fd: int, octets: bytes) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mmapstore.open(path)
    assert list(caches.iterdir()) == []


def test_a_write_that_comes_short_is_continued(
    settled: Write, caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path, cache_dir=tmp_path / "whole").close()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, octets: write(fd, octets[:7]))
        mmapstore.open(path).close()
    assert place_of(path, caches).read_bytes() == place_of(path, tmp_path / "whole").read_bytes()


@pytest.fixture
def occupied(settled: Write, caches: Path) -> Iterator[tuple[Path, Path]]:
    """A transcript, and the place of its cache in a directory that is there."""
    path = settled(NATIVE)
    caches.mkdir(parents=True)
    yield path, place_of(path, caches)


def test_a_directory_in_the_place_of_a_cache_stays(occupied: tuple[Path, Path]) -> None:
    path, place = occupied
    place.mkdir()
    for _ in range(2):
        with mmapstore.open(path) as t:
            assert t.cache == "miss"
            check(t, NATIVE)
    assert list(place.parent.iterdir()) == [place]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("kind", ["fifo", "socket", "dangling", "to a file", "loop"])
def test_what_is_no_file_in_the_place_of_a_cache_makes_way(
    occupied: tuple[Path, Path], tmp_path: Path, kind: str
) -> None:
    path, place = occupied
    other = tmp_path / "other"
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "fifo":
            os.mkfifo(place)
        elif kind == "socket":
            # the name of a socket must be short
            here = os.open(place.parent, os.O_RDONLY)
            bound.bind(f"/proc/self/fd/{here}/{place.name}")
            os.close(here)
        elif kind == "loop":
            place.symlink_to(place)
        else:
            place.symlink_to(other)
        if kind == "to a file":
            other.write_bytes(b"theirs")
        with mmapstore.open(path) as t:
            assert t.cache == "miss"
            check(t, NATIVE)
    with mmapstore.open(path) as t:
        assert t.cache == "hit"
        check(t, NATIVE)
    assert place.is_file() and not place.is_symlink()
    assert not other.exists() or other.read_bytes() == b"theirs"


def test_a_cache_of_more_descriptors_than_there_are_is_no_error(
    settled: Write, caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    really = os.open

    def opened(name: str, flags: int, *args: Any, **fields: Any) -> int:
        if str(caches) in str(name):
            raise OSError(errno.EMFILE, "too many open files")
        return really(name, flags, *args, **fields)

    monkeypatch.setattr(os, "open", opened)
    with mmapstore.open(path) as t:
        assert t.cache == "miss"
        check(t, NATIVE)


def test_a_good_cache_holds_no_descriptor_and_closing_lets_go_of_it(
    settled: Write, open_fds: Callable[[], int], access: str
) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    before = open_fds()
    for _ in range(5):
        with mmapstore.open(path, access=access) as t:
            assert t.cache == "hit"
            t.window().messages  # noqa: B018
        del t
    assert open_fds() == before


# -- the word of a caller ----------------------------------------------------------------

#: more than is told line by line
MUCH = b"".join(M(f"n{index}", "x" * 500) for index in range(100))


@pytest.mark.parametrize("more", [M("n"), MUCH, M("n")[:-1], M("n") + b'{"torn'])
def test_growth_that_is_vouched_for_is_scanned_alone(
    settled: Write, access: str, more: bytes
) -> None:
    path = settled(NATIVE * 30)
    done = Progress()
    with mmapstore.open(path, access=access, trust="append-only", progress=done) as t:
        del done.calls[:]
        with path.open("ab") as file:
            file.write(more)
        assert t.refresh() is Refresh.APPENDED
        check(t, NATIVE * 30 + more)
    assert all(reached > len(NATIVE) * 30 for reached, _ in done.calls)
    assert bool(done.calls) or len(more) < len(MUCH)


@pytest.mark.parametrize("more", [M("n"), MUCH, M("n")[:-1], M("n") + b'{"torn'])
@pytest.mark.parametrize("torn", [b"", M("torn")[:-20]])
def test_a_cache_that_lags_behind_is_of_use_to_one_who_vouches(
    settled: Write, access: str, more: bytes, torn: bytes
) -> None:
    data = NATIVE * 30 + torn
    path = settled(data)
    with mmapstore.open(path) as t:
        t.position("a")
    with path.open("ab") as file:
        file.write(more)
    done = Progress()
    with mmapstore.open(path, access=access, trust="append-only", progress=done) as t:
        assert t.cache == "hit"
        check_count = native_oracle(data + more).total
        assert t.message_count == check_count
        assert all(reached > len(NATIVE) * 30 for reached, _ in done.calls)
        assert bool(done.calls) or len(more) < len(MUCH)
    with mmapstore.open(path, access=access, trust="append-only") as t:
        check(t, data + more)


def test_a_cache_that_lags_behind_is_of_no_use_without_a_word(settled: Write, access: str) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    with path.open("ab") as file:
        file.write(MUCH)
    done = Progress()
    with mmapstore.open(path, access=access, progress=done) as t:
        assert t.cache == "stale"
        check(t, NATIVE + MUCH)
    assert done.calls


def test_growth_in_steps_through_caches_alone(settled: Write, access: str) -> None:
    data = NATIVE
    path = settled(data)
    for number in range(12):
        with mmapstore.open(path, access=access, trust="append-only") as t:
            assert t.cache == ("miss" if number == 0 else "hit")
            check(t, data)
        more = (M(f"n{number}"), R("b", "s1", f"state {number}"), C("d"), MUCH)[number % 4]
        data += more
        with path.open("ab") as file:
            file.write(more)
        settle(path)


def test_what_one_vouched_for_is_not_for_those_who_do_not(
    settled: Write, caches: Path, access: str
) -> None:
    path = settled(HEADER + M("a") + M("b") + MUCH)
    edited = HEADER + M("z") + M("b").replace(b'"message"', b'"massage"') + MUCH + M("new")
    with mmapstore.open(path, access=access, trust="append-only") as t:
        assert t.position("a") == 0
        with path.open("r+b") as file:
            file.write(edited)
        settle(path)
        assert t.refresh() is Refresh.APPENDED
    with mmapstore.open(path, access=access) as t:
        check(t, edited)
    # the same through a cache that lags behind
    path.write_bytes(HEADER + M("a") + M("b") + MUCH)
    settle(path)
    with mmapstore.open(path) as t:
        assert t.position("a") == 0
    with path.open("r+b") as file:
        file.write(edited)
    settle(path)
    mmapstore.open(path, trust="append-only").close()
    with mmapstore.open(path, access=access) as t:
        check(t, edited)


def test_what_one_vouched_for_is_not_proven_by_an_append(settled: Write, access: str) -> None:
    path = settled(HEADER + M("a") + M("b") + MUCH)
    edited = HEADER + M("a") + M("b").replace(b'"message"', b'"massage"') + MUCH
    with mmapstore.open(path, access=access, trust="append-only") as t:
        with path.open("r+b") as file:
            file.write(edited + M("theirs"))
        settle(path)
        assert t.refresh() is Refresh.APPENDED
        before, after = append(path, M("ours"))
        settle(path)
        note_append(before, after)
        assert t.refresh() is Refresh.APPENDED
    with mmapstore.open(path, access=access) as t:
        check(t, edited + M("theirs") + M("ours"))


@pytest.mark.parametrize("more", [M("n"), MUCH], ids=["little", "much"])
@pytest.mark.parametrize("number", [0, 1, 7, 8])
def test_a_wrong_block_of_a_cache_that_lags_is_made_of_the_old_lines(
    settled: Write, caches: Path, access: str, more: bytes, number: int
) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path) as t:
        assert t.position("a") == 0
    place = place_of(path, caches)
    octets = bytearray(place.read_bytes())
    octets[header_at(place).offsets[number]] ^= 1
    place.write_bytes(octets)
    with path.open("ab") as file:
        file.write(more)
    with mmapstore.open(path, access=access, trust="append-only") as t:
        assert t.cache == "hit"
        check(t, NATIVE + more)
        # that was the layout of the cache and the growth, and nothing made anew
        assert t.generation == 1


@pytest.mark.parametrize("cached", [False, True], ids=["scanned", "cached"])
def test_a_longer_file_with_another_end_is_no_growth_to_a_reader(
    settled: Write, access: str, cached: bool
) -> None:
    path = settled(NATIVE + M("x"))
    if cached:
        mmapstore.open(path).close()
    with mmapstore.open(path, access=access, trust="append-only") as t:
        assert t.cache == ("hit" if cached else "miss")
        check(t, NATIVE + M("x"))
        other = NATIVE + M("y") + M("more")
        with path.open("r+b") as file:
            file.write(other)
        assert t.refresh() is Refresh.REBUILT
        check(t, other)


def test_a_word_goes_for_as_long_as_anything_rests_on_it(settled: Write) -> None:
    path = settled(NATIVE)
    mmapstore.open(path).close()
    for more in (M("n1"), M("n2")):
        with path.open("ab") as file:
            file.write(more)
        settle(path)
        mmapstore.open(path, trust="append-only").close()
    with mmapstore.open(path, trust="append-only") as t:
        assert t.cache == "hit"
        assert t.position("n1") == 2
    with mmapstore.open(path) as t:
        assert t.cache == "stale"
        check(t, NATIVE + M("n1") + M("n2"))
    with mmapstore.open(path) as t:
        assert t.cache == "hit"


@pytest.mark.parametrize("trust", ["none", "append-only"])
def test_a_shorter_file_or_another_end_is_no_growth(
    settled: Write, access: str, trust: mmapstore.loader.Trust
) -> None:
    path = settled(NATIVE + M("x"))
    mmapstore.open(path).close()
    other = NATIVE + M("y") + M("more")
    with path.open("r+b") as file:
        file.write(other)
    with mmapstore.open(path, access=access, trust=trust) as t:
        assert t.cache == "stale"
        check(t, other)
    with path.open("r+b") as file:
        file.truncate(len(NATIVE))
    settle(path)
    with mmapstore.open(path, access=access, trust=trust) as t:
        assert t.cache == "stale"
        check(t, NATIVE)


# -- a host's own append -----------------------------------------------------------------


def append(path: Path, data: bytes) -> tuple[Stamp, Stamp]:
    """Append as a host does; return the stamps around the write."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    before = stamp.stamp_of_open(fd)
    os.write(fd, data)
    after = stamp.stamp_of_open(fd)
    os.close(fd)
    return before, after


@pytest.mark.parametrize("more", [M("n"), C("d"), R("b", "s1", "x"), M("n") + C("d"), MUCH, b"\n"])
def test_an_append_of_our_own_is_taken_in_without_a_scan(
    settled: Write, access: str, more: bytes
) -> None:
    path = settled(NATIVE)
    done = Progress()
    with mmapstore.open(path, access=access, progress=done) as t:
        assert t.position("a") == 0
        check(t, NATIVE)
        number = t.generation
        del done.calls[:]
        before, after = append(path, more)
        note_append(before, after)
        assert t.refresh() is Refresh.APPENDED
        assert t.generation == number + 1
        assert t.layout.stamp == after
        check(t, NATIVE + more)
        assert t.refresh() is Refresh.SAME
    assert done.calls == []


@given(transcripts(max_lines=6), st.lists(st.lists(whole_lines, max_size=3), max_size=4), st.data())
def test_appends_make_what_a_scan_of_the_whole_makes(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    appends: list[list[bytes]],
    choice: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("appends") / "t.jsonl"
    path.write_bytes(HEADER + data)
    settle(path)
    data = HEADER + data
    access = choice.draw(st.sampled_from(["mmap", "pread"]))
    with mmapstore.open(path, access=access, dialect="native", cache_dir=None) as t:
        check(t, data)
        for lines in appends:
            # a torn tail is sealed first
            more = b"" if data.endswith(b"\n") else b"\n"
            more += b"".join(line + b"\n" for line in lines)
            before, after = append(path, more)
            note_append(before, after)
            assert t.refresh() is (Refresh.APPENDED if more else Refresh.SAME)
            data += more
            check(t, data)


def test_what_was_appended_is_kept_at_the_end(settled: Write, caches: Path, access: str) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path, access=access) as t:
        assert t.position("a") == 0
        before, after = append(path, M("n"))
        settle(path)
        note_append(before, after)
        assert t.refresh() is Refresh.APPENDED
        assert t.position("n") == 2
    assert header_at(place_of(path, caches)).stamp == after
    with mmapstore.open(path, access=access) as t:
        assert t.cache == "hit"
        check(t, NATIVE + M("n"))


def test_a_torn_tail_is_sealed_and_stays_one_line(settled: Write, access: str) -> None:
    torn = NATIVE + M("torn")[:-9]
    path = settled(torn)
    with mmapstore.open(path, access=access) as t:
        assert t.torn_nbytes == len(M("torn")) - 9
        before, after = append(path, b"\n" + M("n"))
        note_append(before, after)
        assert t.refresh() is Refresh.APPENDED
        check(t, torn + b"\n" + M("n"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda before, after: (before._replace(ctime_ns=before.ctime_ns + 1), after),
        lambda before, after: (before._replace(mtime_ns=before.mtime_ns - 1), after),
        lambda before, after: (before._replace(nbytes=before.nbytes + 1), after),
        lambda before, after: (
            before._replace(inode_generation=before.inode_generation ^ 1),
            after,
        ),
        lambda before, after: (before, after._replace(inode=after.inode + 1)),
        lambda before, after: (before, after._replace(device=after.device + 1)),
        lambda before, after: (before, after._replace(ctime_ns=after.ctime_ns - 1)),
        lambda before, after: (before, after._replace(nbytes=after.nbytes + 1)),
        lambda before, after: (after, after),
        lambda before, after: (after, before),
    ],
    ids=map(str, range(10)),
)
def test_an_append_that_is_not_proven_is_read_anew(
    settled: Write, access: str, wrong: Callable[[Stamp, Stamp], tuple[Stamp, Stamp]]
) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path, access=access) as t:
        note_append(*wrong(*append(path, M("n"))))
        check(t, NATIVE)
        assert t.refresh() is Refresh.REBUILT
        check(t, NATIVE + M("n"))


def test_an_append_behind_an_edit_in_place_that_the_last_lines_show_is_read_anew(
    settled: Write, access: str
) -> None:
    """Who notes an append vouches for it; what can be seen of the contrary is believed more."""
    path = settled(NATIVE)
    with mmapstore.open(path, access=access) as t:
        before, _ = append(path, b"")
        edited = NATIVE.replace(b"a", b"A", 1)
        with path.open("r+b") as file:
            file.write(edited)
        _, after = append(path, M("n"))
        note_append(before, after)
        assert t.refresh() is Refresh.REBUILT
        check(t, edited + M("n"))


def test_an_append_to_what_others_changed_is_not_taken_in(settled: Write, access: str) -> None:
    path = settled(NATIVE)
    with mmapstore.open(path, access=access) as t:
        append(path, M("theirs"))
        before, after = append(path, M("n"))
        note_append(before, after)
        assert t.refresh() is Refresh.REBUILT
        check(t, NATIVE + M("theirs") + M("n"))


def test_an_append_to_a_file_of_no_dialect_yet_is_not_taken_in(settled: Write, access: str) -> None:
    path = settled(GENERIC)
    with mmapstore.open(path, access=access) as t:
        before, after = append(path, CLAUDE)
        note_append(before, after)
        assert t.refresh() is Refresh.REBUILT
        assert shape(t) == ("claude", [CLAUDE])


def test_an_append_within_the_tick_is_not_cached(
    settled: Write, caches: Path, clock: Callable[..., None]
) -> None:
    path = settled(NATIVE)
    clock(path, TICK_NS, TICK_NS + 1)
    with mmapstore.open(path) as t:
        before, after = append(path, M("n"))
        clock(path, TICK_NS, 1)
        note_append(before, after)
        assert t.refresh() is Refresh.APPENDED
        # the change was our own
        assert t.refresh() is Refresh.SAME
        assert t.position("n") == 2
    assert header_at(place_of(path, caches)).stamp == before


def test_an_append_settles_nothing_about_what_was_there(
    settled: Write, caches: Path, clock: Callable[..., None]
) -> None:
    path = settled(NATIVE)
    clock(path, TICK_NS, 1)
    with mmapstore.open(path) as t:
        before, after = append(path, M("n"))
        clock(path, TICK_NS, TICK_NS + 1)
        note_append(before, after)
        # another's edit within the tick before it may have left the first stamp as it was
        assert t.refresh() is Refresh.REBUILT
        assert not caches.exists() or header_at(place_of(path, caches)).stamp == after
