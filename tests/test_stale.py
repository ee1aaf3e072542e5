"""Every way that a layout can go stale, with a cache and without: never an answer of the past."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import Refresh, Transcript, cachedir, fileio, stamp
from mmapstore.fileio import open_regular
from mmapstore.stamp import is_racy
from tests.agreement import check_singles, check_window, native_oracle
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]


def settle(path: Path) -> None:
    """Wait until the file system's clock can tell the next change of a file from the last."""
    descriptor = open_regular(str(path))
    while is_racy(descriptor.stamp(), str(path.parent), remote=False):
        pass


def check(t: Transcript, data: bytes) -> None:
    """Compare every answer with the naive reading of these bytes."""
    oracle = native_oracle(data)
    assert t.message_count == oracle.total
    check_window(t.window(limit=None), oracle, 0, oracle.total)
    check_singles(t, oracle)
    assert (t.layout.line_count, t.layout.file_len) == (len(oracle.lines), oracle.file_len)
    assert t.torn_tail == oracle.torn_tail
    known = {line.record.get("id") for line in oracle.messages if line.record}
    assert all(t.position(gone) is None for gone in set("abcdz") - known)


#: enough between the front and the end that the bytes in front of the end say nothing of it
FILL = b"".join(M(f"f{index}", "x" * 400) for index in range(12))
DATA = HEADER + M("a", "one") + C("c1") + M("b", "two", role="tool") + R("b", "s1", "x") + FILL


OTHER_ID = DATA.replace(b'"id":"a"', b'"id":"d"')
OTHER_KIND = DATA.replace(b'"compaction"', b'"comPaction"').replace(
    b'"type":"message","id":"b"', b'"type":"massage","id":"b"'
)
OTHER_PLACES = (
    HEADER + M("a", "one!") + C("c1") + M("b", "tw", role="tool") + R("b", "s1", "x") + FILL
)
OTHER_LINES = DATA.replace(M("a", "one"), M("a", "") + b"{}\n")
SAME_SIZE = {
    "id": OTHER_ID,
    "kind": OTHER_KIND,
    "places": OTHER_PLACES,
    "lines": OTHER_LINES,
    "nothing": HEADER + b"{" + b" " * (len(DATA) - len(HEADER) - 3) + b"}\n",
}


def overwrite(path: Path, data: bytes) -> None:
    """Write in place, as an editor that keeps the inode does."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


# -- the ways ----------------------------------------------------------------------------


def same_size_and_mtime_restored(path: Path, data: bytes) -> bytes:
    new = OTHER_ID if data == DATA else DATA
    before = path.stat()
    overwrite(path, new)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return new


def other_kinds_and_mtime_restored(path: Path, data: bytes) -> bytes:
    before = path.stat()
    overwrite(path, OTHER_KIND)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return OTHER_KIND


def other_size_and_mtime_restored(path: Path, data: bytes) -> bytes:
    before = path.stat()
    overwrite(path, data + M("new"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return data + M("new")


def inode_handed_out_again(path: Path, data: bytes) -> bytes:
    path.unlink()
    path.write_bytes(OTHER_ID)
    return OTHER_ID


def inode_handed_out_again_larger(path: Path, data: bytes) -> bytes:
    path.unlink()
    path.write_bytes(OTHER_ID + M("new"))
    return OTHER_ID + M("new")


def inode_handed_out_again_smaller(path: Path, data: bytes) -> bytes:
    path.unlink()
    path.write_bytes(HEADER + M("d"))
    return HEADER + M("d")


def deleted_and_made_empty(path: Path, data: bytes) -> bytes:
    path.unlink()
    path.touch()
    return b""


def renamed_over_at_once_with_the_same_length(path: Path, data: bytes) -> bytes:
    new = path.with_name("new")
    new.write_bytes(OTHER_PLACES)
    shutil.copystat(path, new)
    new.replace(path)
    return OTHER_PLACES


def edit_followed_by_append(path: Path, data: bytes) -> bytes:
    overwrite(path, OTHER_ID)
    with path.open("ab") as file:
        file.write(M("new"))
    return OTHER_ID + M("new")


def edit_of_kinds_and_append_in_one(path: Path, data: bytes) -> bytes:
    overwrite(path, OTHER_KIND + M("new") * 60)
    return OTHER_KIND + M("new") * 60


def append_followed_by_edit(path: Path, data: bytes) -> bytes:
    with path.open("ab") as file:
        file.write(M("new"))
    with path.open("r+b") as file:
        file.write(OTHER_ID)
    return OTHER_ID + M("new")


def restored_from_a_backup(path: Path, data: bytes) -> bytes:
    backup = path.with_name("backup")
    backup.write_bytes(OTHER_PLACES)
    os.utime(backup, (1_000_000_000, 1_000_000_000))
    path.unlink()
    shutil.copy2(backup, path)
    return OTHER_PLACES


def restored_in_place_with_an_older_mtime(path: Path, data: bytes) -> bytes:
    overwrite(path, OTHER_LINES)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return OTHER_LINES


def moved_back_from_a_backup(path: Path, data: bytes) -> bytes:
    backup = path.with_name("backup")
    backup.write_bytes(OTHER_ID)
    os.utime(backup, (5, 5))
    backup.replace(path)
    return OTHER_ID


def dated_before_the_epoch(path: Path, data: bytes) -> bytes:
    overwrite(path, OTHER_KIND)
    os.utime(path, ns=(-(10**18), -(10**18) + 1))
    return OTHER_KIND


def dated_in_the_future(path: Path, data: bytes) -> bytes:
    overwrite(path, OTHER_ID)
    os.utime(path, (2**33, 2**33))
    return OTHER_ID


def shrunk_in_place(path: Path, data: bytes) -> bytes:
    os.truncate(path, len(HEADER + M("a", "one")))
    return HEADER + M("a", "one")


def shrunk_and_grown_to_the_same_size(path: Path, data: bytes) -> bytes:
    os.truncate(path, 0)
    path.write_bytes(OTHER_PLACES)
    return OTHER_PLACES


def copied_away_and_truncated(path: Path, data: bytes) -> bytes:
    shutil.copy2(path, path.with_name("t.jsonl.1"))
    os.truncate(path, 0)
    with path.open("ab") as file:
        file.write(HEADER + M("d"))
    return HEADER + M("d")


def other_lines_of_the_same_size(path: Path, data: bytes) -> bytes:
    overwrite(path, OTHER_LINES)
    return OTHER_LINES


def no_lines_of_the_same_size(path: Path, data: bytes) -> bytes:
    overwrite(path, SAME_SIZE["nothing"])
    return SAME_SIZE["nothing"]


def a_torn_tail_completed_otherwise(path: Path, data: bytes) -> bytes:
    overwrite(path, data[:-30])
    with path.open("ab") as file:
        file.write(b'"}]}\n' + M("d"))
    return data[:-30] + b'"}]}\n' + M("d")


WAYS = [
    same_size_and_mtime_restored,
    other_kinds_and_mtime_restored,
    other_size_and_mtime_restored,
    inode_handed_out_again,
    inode_handed_out_again_larger,
    inode_handed_out_again_smaller,
    deleted_and_made_empty,
    renamed_over_at_once_with_the_same_length,
    edit_followed_by_append,
    edit_of_kinds_and_append_in_one,
    append_followed_by_edit,
    restored_from_a_backup,
    restored_in_place_with_an_older_mtime,
    moved_back_from_a_backup,
    dated_before_the_epoch,
    dated_in_the_future,
    shrunk_in_place,
    shrunk_and_grown_to_the_same_size,
    copied_away_and_truncated,
    other_lines_of_the_same_size,
    no_lines_of_the_same_size,
    a_torn_tail_completed_otherwise,
]
way_names = [way.__name__ for way in WAYS]


def test_the_edits_keep_the_size_and_mean_something_else() -> None:
    def meaning(data: bytes) -> tuple[object, ...]:
        oracle = native_oracle(data)
        return [line.raw for line in oracle.messages], oracle.chain

    assert {len(data) for data in SAME_SIZE.values()} == {len(DATA)}
    assert all(meaning(data) != meaning(DATA) for data in SAME_SIZE.values())


@pytest.mark.parametrize("way", WAYS, ids=way_names)
def test_an_open_with_a_cache_sees_the_file_as_it_is(
    write: Write, tmp_path: Path, access: str, way: Callable[[Path, bytes], bytes]
) -> None:
    path = write(DATA)
    settle(path)
    caches = tmp_path / "caches"
    with mmapstore.open(path, cache_dir=caches, access=access) as t:
        check(t, DATA)
    with mmapstore.open(path, cache_dir=caches, access=access) as t:
        assert t.cache == "hit"
        check(t, DATA)
    del t
    now = way(path, DATA)
    for _ in range(2):
        with mmapstore.open(path, cache_dir=caches, access=access, dialect="native") as t:
            check(t, now)
    assert path.read_bytes() == now


@pytest.mark.parametrize("cached", [False, True], ids=["scanned", "cached"])
@pytest.mark.parametrize("way", WAYS, ids=way_names)
def test_a_refresh_sees_the_file_as_it_is(
    write: Write, tmp_path: Path, way: Callable[[Path, bytes], bytes], cached: bool
) -> None:
    path = write(DATA)
    settle(path)
    caches = tmp_path / "caches"
    if cached:
        with mmapstore.open(path, cache_dir=caches, dialect="native") as t:
            check(t, DATA)
    with mmapstore.open(
        path,
        cache_dir=caches if cached else None,
        # a mapping must not be touched behind a truncation
        access="pread",
        dialect="native",
    ) as t:
        assert t.cache == ("hit" if cached else "off")
        check(t, DATA)
        now = way(path, DATA)
        assert t.refresh() is Refresh.REBUILT
        check(t, now)
        settle(path)
        t.refresh()
        assert t.refresh() is Refresh.SAME
        check(t, now)
    with mmapstore.open(path, cache_dir=caches, dialect="native") as t:
        check(t, now)


@pytest.mark.parametrize("way", WAYS, ids=way_names)
def test_the_cache_of_a_reader_that_did_not_look_again_is_no_ones_truth(
    write: Write, tmp_path: Path, way: Callable[[Path, bytes], bytes]
) -> None:
    path = write(DATA)
    settle(path)
    caches = tmp_path / "caches"
    t = mmapstore.open(path, cache_dir=caches, access="pread", dialect="native")
    now = way(path, DATA)
    # ids that are read only now are those of other bytes
    try:
        t.position("a")
    except mmapstore.TranscriptChangedError:
        assert t.refresh() is Refresh.REBUILT
    t.close()
    for _ in range(2):
        with mmapstore.open(path, cache_dir=caches, dialect="native") as t:
            check(t, now)


@given(st.lists(st.sampled_from(WAYS), min_size=1, max_size=4), st.data())
def test_one_way_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    ways: list[Callable[[Path, bytes], bytes]],
    choice: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("ways") / "t.jsonl"
    caches = path.parent / "caches"
    path.write_bytes(DATA)
    settle(path)
    held = mmapstore.open(path, cache_dir=caches, access="pread", dialect="native")
    for way in ways:
        if path.read_bytes() != DATA:
            overwrite(path, DATA)
        if choice.draw(st.booleans()):
            held.refresh()
            check(held, DATA)
        now = way(path, DATA)
        if choice.draw(st.booleans()):
            with mmapstore.open(path, cache_dir=caches, dialect="native") as t:
                check(t, now)
        held.refresh()
        check(held, now)
    held.close()
    with mmapstore.open(path, cache_dir=caches, dialect="native") as t:
        check(t, now)


# -- inodes ------------------------------------------------------------------------------


def test_an_inode_that_is_handed_out_again_at_once_is_another_file(
    write: Write, tmp_path: Path
) -> None:
    path = write(DATA)
    caches = tmp_path / "caches"
    handed_out_again = 0
    data = DATA
    for number in range(40):
        settle(path)
        with mmapstore.open(path, cache_dir=caches, access="pread") as t:
            check_first(t, data)
        del t
        inode = path.stat().st_ino
        data = DATA.replace(b'"id":"a"', b'"id":"%d"' % (number % 10))
        path.unlink()
        path.write_bytes(data)
        handed_out_again += path.stat().st_ino == inode
        with mmapstore.open(path, cache_dir=caches, access="pread") as t:
            check_first(t, data)
    if not handed_out_again:
        pytest.skip("this file system does not hand out an inode number again at once")


def check_first(t: Transcript, data: bytes) -> None:
    first = native_oracle(data).messages[0]
    assert bytes(t.line(0)) == first.raw
    assert first.record is not None
    assert t.position(first.record["id"]) == 0
    assert t.window(limit=1, after=0).messages == [first.record]


def test_another_generation_of_an_inode_is_another_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(DATA)
    caches = tmp_path / "caches"
    real = fileio.stamp_of_open
    number = 1

    def frozen(fd: int) -> stamp.Stamp:
        # everything else is equal, as a clock that was set back can make it
        return real(fd)._replace(mtime_ns=1, ctime_ns=1, inode=7, inode_generation=number)

    monkeypatch.setattr(fileio, "stamp_of_open", frozen)
    with mmapstore.open(path, cache_dir=caches, access="pread") as t:
        check(t, DATA)
    number = 2
    path.write_bytes(OTHER_KIND)
    with mmapstore.open(path, cache_dir=caches, access="pread") as t:
        assert t.cache == "stale"
        check(t, OTHER_KIND)
    # nor does a word for the writer make it the same
    path.write_bytes(OTHER_ID + M("new"))
    number = 3
    with mmapstore.open(path, cache_dir=caches, access="pread", trust="append-only") as t:
        assert t.cache == "stale"
        check(t, OTHER_ID + M("new"))


@pytest.mark.parametrize("field", stamp.Stamp._fields)
def test_every_part_of_a_stamp_counts(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    path = write(DATA)
    caches = tmp_path / "caches"
    real = fileio.stamp_of_open
    changed: dict[str, int] = {}
    inode = path.stat().st_ino

    def frozen(fd: int) -> stamp.Stamp:
        found = real(fd)
        if found.inode != inode:
            return found
        return found._replace(mtime_ns=1, ctime_ns=1)._replace(**changed)

    monkeypatch.setattr(fileio, "stamp_of_open", frozen)
    with mmapstore.open(path, cache_dir=caches, access="pread") as t:
        check(t, DATA)
    with mmapstore.open(path, cache_dir=caches, access="pread") as t:
        assert t.cache == "hit"
    overwrite(path, OTHER_KIND)
    changed[field] = {"nbytes": len(DATA) - 1}.get(field, 99)
    with mmapstore.open(path, cache_dir=caches, access="pread", dialect="native") as t:
        assert t.cache == "stale"
        check(t, OTHER_KIND[: len(DATA) - (field == "nbytes")])


# -- clocks ------------------------------------------------------------------------------


def test_a_file_of_the_future_is_read_like_any_other(write: Write, tmp_path: Path) -> None:
    path = write(DATA)
    os.utime(path, (2**33, 2**33))
    settle(path)
    for state in ("miss", "hit"):
        with mmapstore.open(path, cache_dir=tmp_path / "caches") as t:
            assert t.cache == state
            check(t, DATA)
    overwrite(path, OTHER_ID)
    os.utime(path, (2**33, 2**33))
    with mmapstore.open(path, cache_dir=tmp_path / "caches") as t:
        check(t, OTHER_ID)


@pytest.mark.parametrize("granule_ns", [stamp.TICK_NS, stamp.COARSE_NS])
def test_a_clock_that_was_set_back_makes_every_stamp_doubtful(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granule_ns: int
) -> None:
    path = write(DATA)
    caches = tmp_path / "caches"
    monkeypatch.setattr(stamp, "_granule_ns", lambda *args: granule_ns)
    changed_ns = path.stat().st_ctime_ns
    monkeypatch.setattr(stamp, "_now_ns", lambda: changed_ns - 3600 * 10**9)
    with mmapstore.open(path, cache_dir=caches, access="pread") as t:
        check(t, DATA)
        # the next change may get the stamp that the file has now
        escape(monkeypatch, path)
        overwrite(path, OTHER_KIND)
        assert t.refresh() is Refresh.REBUILT
        check(t, OTHER_KIND)
    assert not caches.exists()


def escape(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let every later change of a file leave its times as they are now."""
    frozen = path.stat()
    really, stat = fileio.stamp_of_open, os.stat

    def stamp_of_open(fd: int) -> stamp.Stamp:
        found = really(fd)
        if found.inode != frozen.st_ino:
            return found
        return found._replace(mtime_ns=frozen.st_mtime_ns, ctime_ns=frozen.st_ctime_ns)

    def stat_of_path(name: str, *args: object, **fields: object) -> os.stat_result:
        found = stat(name, *args, **fields)  # type: ignore[arg-type]
        if found.st_ino != frozen.st_ino or found.st_size != frozen.st_size:
            return found
        return frozen

    monkeypatch.setattr(fileio, "stamp_of_open", stamp_of_open)
    monkeypatch.setattr(os, "stat", stat_of_path)


def test_two_edits_within_a_tick_are_told_apart_by_looking_again(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str
) -> None:
    path = write(DATA)
    caches = tmp_path / "caches"
    escape(monkeypatch, path)
    changed_ns = path.stat().st_ctime_ns
    monkeypatch.setattr(stamp, "_granule_ns", lambda *args: stamp.TICK_NS)
    monkeypatch.setattr(stamp, "_now_ns", lambda: changed_ns + stamp.TICK_NS)
    held = mmapstore.open(path, cache_dir=caches, access=access)
    for data in [DATA, *SAME_SIZE.values(), DATA]:
        overwrite(path, data)
        held.refresh()
        check(held, data)
        with mmapstore.open(path, cache_dir=caches, access=access, dialect="native") as t:
            check(t, data)
    held.close()
    assert not caches.exists()


# -- caches of others --------------------------------------------------------------------


def test_the_cache_of_another_file_copied_into_place(write: Write, tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    one, other = write(DATA), write(OTHER_KIND, "u.jsonl")
    for path in (one, other):
        settle(path)
        with mmapstore.open(path, cache_dir=caches) as t:
            t.position("a")
    ours = Path(cachedir.within(str(caches), str(one)))
    theirs = Path(cachedir.within(str(caches), str(other)))
    kept = ours.read_bytes()
    shutil.copy2(theirs, ours)
    for state in ("stale", "hit"):
        with mmapstore.open(one, cache_dir=caches) as t:
            assert t.cache == state
            check(t, DATA)
    theirs.write_bytes(kept)
    with mmapstore.open(other, cache_dir=caches) as t:
        assert t.cache == "stale"
        check(t, OTHER_KIND)


@pytest.mark.parametrize("trust", ["none", "append-only"])
@pytest.mark.parametrize(
    "what", ["format 1", "format 2", "format 4", "big-endian", "zeros", "text"]
)
def test_a_cache_of_another_make(
    write: Write, tmp_path: Path, what: str, trust: mmapstore.loader.Trust, access: str
) -> None:
    caches = tmp_path / "caches"
    path = write(DATA)
    settle(path)
    with mmapstore.open(path, cache_dir=caches) as t:
        t.position("a")
    place = Path(cachedir.within(str(caches), str(path)))
    good = place.read_bytes()
    made = {
        "format 1": good[:8] + struct.pack("<I", 1) + good[12:],
        "format 2": good[:8] + struct.pack("<I", 2) + good[12:],
        "format 4": good[:8] + struct.pack("<I", 4) + good[12:],
        "big-endian": good[:8] + bytes(good[at ^ 7] for at in range(8, len(good) & ~7)),
        "zeros": bytes(len(good)),
        "text": b'{"version":2,"messageOffsets":[0]}\n',
    }
    place.write_bytes(made[what])
    with mmapstore.open(path, cache_dir=caches, trust=trust, access=access) as t:
        assert t.cache != "hit"
        check(t, DATA)
    with mmapstore.open(path, cache_dir=caches, trust=trust, access=access) as t:
        assert t.cache == "hit"
        check(t, DATA)


# -- a scan during which the file changed ------------------------------------------------


def test_what_came_during_the_scan_is_found_by_the_next_look(
    write: Write, tmp_path: Path, access: str
) -> None:
    path = write(DATA)
    settle(path)
    caches = tmp_path / "caches"
    late = [M("d"), M("e")]

    def grow(done: int, total: int) -> None:
        if late:
            with path.open("ab") as file:
                file.write(late.pop(0))

    with mmapstore.open(path, cache_dir=caches, access=access, progress=grow) as t:
        check(t, DATA)
        assert t.refresh() is Refresh.REBUILT
        check(t, DATA + M("d"))
        assert t.refresh() is Refresh.REBUILT
        check(t, DATA + M("d") + M("e"))
    for _ in range(2):
        with mmapstore.open(path, cache_dir=caches, access=access) as t:
            check(t, DATA + M("d") + M("e"))


def test_what_was_edited_during_the_scan_is_found_by_the_next_look(
    write: Write, tmp_path: Path, access: str
) -> None:
    path = write(DATA)
    settle(path)
    caches = tmp_path / "caches"
    edits = [OTHER_KIND, OTHER_ID]

    def edit(done: int, total: int) -> None:
        if edits:
            overwrite(path, edits.pop(0))

    with mmapstore.open(path, cache_dir=caches, access=access, progress=edit) as t:
        assert t.refresh() is Refresh.REBUILT
        assert t.refresh() is Refresh.REBUILT
        check(t, OTHER_ID)
    with mmapstore.open(path, cache_dir=caches, access=access) as t:
        check(t, OTHER_ID)


def test_growth_during_the_scan_of_growth_comes_once(write: Write, tmp_path: Path) -> None:
    path = write(DATA)
    settle(path)
    caches = tmp_path / "caches"
    mmapstore.open(path, cache_dir=caches).close()
    much = b"".join(M(f"g{index}", "y" * 400) for index in range(60))
    with path.open("ab") as file:
        file.write(much)
    late = [M("d"), M("e")]

    def grow(done: int, total: int) -> None:
        if late:
            with path.open("ab") as file:
                file.write(late.pop(0))

    with mmapstore.open(path, cache_dir=caches, trust="append-only", progress=grow) as t:
        assert t.cache == "hit"
        check(t, DATA + much)
        assert t.refresh() is Refresh.APPENDED
        grown = path.read_bytes()
        t.refresh()
        check(t, grown)
    with mmapstore.open(path, cache_dir=caches, trust="append-only") as t:
        check(t, path.read_bytes())


# -- many edits --------------------------------------------------------------------------

EDITS = 2000


def test_thousands_of_edits_of_the_same_size(write: Write, tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    tail = M("b", "x" * 4500)
    path = write(HEADER + M("000000") + tail)
    fd = os.open(path, os.O_WRONLY)
    held = mmapstore.open(path, cache_dir=None, access="pread")
    stale = 0
    rng = random.Random(5)
    for number in range(EDITS):
        message_id = f"{number:06}"
        before = os.fstat(fd)
        os.pwrite(fd, M(message_id), len(HEADER))
        if rng.random() < 0.5:
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))
        if number % 2:
            with mmapstore.open(path, cache_dir=caches, access="pread") as t:
                found = t.position(message_id) == 0 and t.message_id(0) == message_id
        else:
            held.refresh()
            found = held.position(message_id) == 0 and held.message_id(0) == message_id
        stale += not found
    os.close(fd)
    held.close()
    assert stale == 0


def test_thousands_of_replacements_by_rename(write: Write, tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    path = write(HEADER + M("000000"))
    held = mmapstore.open(path, cache_dir=None)
    stale = 0
    for number in range(EDITS // 4):
        message_id = f"{number:06}"
        new = path.with_name("new")
        new.write_bytes(HEADER + M(message_id))
        new.replace(path)
        if number % 2:
            with mmapstore.open(path, cache_dir=caches) as t:
                stale += t[0]["id"] != message_id
        else:
            held.refresh()
            stale += held[0]["id"] != message_id
    held.close()
    assert stale == 0


# -- what escapes the stamp --------------------------------------------------------------


@pytest.fixture
def hidden(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Transcript]:
    """Return a function that opens, out of a cache, a file whose edit its stamp does not show."""

    def open_hidden(
        data: bytes, now: bytes, access: str = "pread", *, edit_first: bool = True
    ) -> Transcript:
        path = write(data)
        settle(path)
        escape(monkeypatch, path)
        monkeypatch.setattr(stamp, "_granule_ns", lambda *args: 0)
        with mmapstore.open(path, cache_dir=tmp_path / "caches") as t:
            t.position("a")
        if edit_first:
            overwrite(path, now)
        t = mmapstore.open(path, cache_dir=tmp_path / "caches", access=access)
        assert t.cache == "hit"
        if not edit_first:
            overwrite(path, now)
        return t

    return open_hidden


@pytest.mark.parametrize("edit_first", [True, False], ids=["before", "after"])
def test_lines_in_other_places_are_found_when_they_are_touched(
    hidden: Callable[..., Transcript], access: str, edit_first: bool
) -> None:
    with hidden(DATA, OTHER_PLACES, access, edit_first=edit_first) as t:
        check(t, OTHER_PLACES)


def test_a_cache_that_was_found_out_is_replaced(
    hidden: Callable[..., Transcript], access: str, tmp_path: Path
) -> None:
    with hidden(DATA, OTHER_PLACES, access) as t:
        check(t, OTHER_PLACES)
    with mmapstore.open(t.path, cache_dir=tmp_path / "caches", access=access) as t:
        assert t.cache == "hit"
        check(t, OTHER_PLACES)


def test_other_last_bytes_are_found_at_once(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, access: str
) -> None:
    path = write(DATA)
    settle(path)
    escape(monkeypatch, path)
    mmapstore.open(path, cache_dir=tmp_path / "caches").close()
    now = DATA[:-20] + DATA[-20:].replace(b"x", b"y")
    assert now != DATA
    overwrite(path, now)
    with mmapstore.open(path, cache_dir=tmp_path / "caches", access=access) as t:
        assert t.cache == "stale"
        check(t, now)


@pytest.mark.parametrize(
    "touch",
    [
        lambda t: t.window(limit=None),
        lambda t: t.window(after=0, limit=2),
        lambda t: t[0],
        lambda t: t.line(1),
        lambda t: t.message_id(0),
        lambda t: t.position("a"),
        lambda t: t.message("b"),
    ],
    ids=["all", "page", "item", "line", "id", "position", "message"],
)
def test_more_or_fewer_lines_are_found_when_they_are_touched(
    hidden: Callable[..., Transcript], access: str, touch: Callable[[Transcript], object]
) -> None:
    # where the first line was there are two, or none
    for now in (
        DATA.replace(M("a", "one"), M("a", "")[:-2] + b"}\n\n\n\n"),
        DATA.replace(M("a", "one"), b" " * (len(M("a", "one")) - 1) + b"\n"),
        DATA.replace(
            M("b", "two", role="tool"),
            b'{"type":"message"}\n{"type":"message"}'.ljust(len(M("b", "two", role="tool")) - 1)
            + b"\n",
        ),
        # as many lines, one of them of another kind
        DATA.replace(M("a", "one"), M("a", "one!").replace(b'"message"', b'"massage"')).replace(
            M("b", "two", role="tool"), M("b", "tw", role="tool")
        ),
    ):
        assert len(now) == len(DATA)
        t = hidden(DATA, now, access)
        with contextlib.suppress(mmapstore.MessageNotFoundError):
            touch(t)
        # whatever the layout was worked out from by now, it is the file as it is
        for position in range(3):
            if position < t.message_count:
                t.line(position)
        t.window(limit=None)
        check(t, now)
        t.close()


@given(st.data())
def test_any_edit_of_places_that_escapes_is_answered_from_the_file(
    tmp_path_factory: pytest.TempPathFactory, choice: st.DataObject
) -> None:
    lengths = choice.draw(st.lists(st.integers(0, 40), min_size=2, max_size=8))
    lines = [M(f"m{i}", "x" * n, role="tool") for i, n in enumerate(lengths)]
    lines += [C("c"), R("m0", "s1", "active")]
    shuffled = choice.draw(st.permutations(lines))
    access = choice.draw(st.sampled_from(["mmap", "pread"]))

    data, now = (HEADER + b"".join(each) + FILL for each in (lines, shuffled))
    path = tmp_path_factory.mktemp("places") / "t.jsonl"
    caches = path.parent / "caches"
    path.write_bytes(data)
    settle(path)
    with pytest.MonkeyPatch.context() as patch:
        escape(patch, path)
        patch.setattr(stamp, "_granule_ns", lambda *args: 0)
        with mmapstore.open(path, cache_dir=caches) as t:
            t.position("m0")
        overwrite(path, now)
        with mmapstore.open(path, cache_dir=caches, access=access) as t:
            assert t.cache == "hit"
            start = choice.draw(st.integers(0, t.message_count))
            stop = choice.draw(st.integers(start, t.message_count))
            oracle = native_oracle(now)
            # a line that is still one where it was says nothing of the others: touch them all
            for position in range(t.message_count):
                t.line(position)
            if start < stop:
                w = t.window(after=start, limit=stop - start)
                check_window(w, oracle, start, stop)
            check_singles(t, oracle)


def test_what_was_worked_out_from_a_layout_goes_with_it(
    hidden: Callable[..., Transcript],
) -> None:
    review = json.dumps({"details": {"review": {"snapshotId": "s1", "state": "?"}}})
    tool = b'{"type":"message","id":"%s","role":"tool","blocks":[{"result":%s}]}\n'
    data = HEADER + tool % (b"aa", review.encode()) + R("aa", "s1", "one") + M("bbb") + FILL
    now = HEADER + M("bbb") + tool % (b"aa", review.encode()) + R("aa", "s1", "two") + FILL
    with hidden(data, now, edit_first=False) as t:
        t[0]
        oracle = native_oracle(now)
        # each is asked for once, and the first of them finds the layout out
        assert bytes(t.line(0)) == M("bbb")
        assert [t.position("bbb"), t.position("aa")] == [0, 1]
        assert t.message("aa") == oracle.effective(oracle.messages[1])
        check(t, now)


@pytest.mark.parametrize("wanted", ["aa", "bbb"])
def test_an_id_that_is_the_first_thing_asked_for_is_found(
    hidden: Callable[..., Transcript], access: str, wanted: str
) -> None:
    data = HEADER + M("aa") + M("bbb") + FILL
    now = HEADER + M("bbb") + M("aa") + FILL
    with hidden(data, now, access) as t:
        assert t.position(wanted) == native_oracle(now).positions_of(wanted)[-1]
        check(t, now)


def test_states_that_were_replayed_go_with_their_layout(
    hidden: Callable[..., Transcript], monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    review = json.dumps({"details": {"review": {"snapshotId": "s1", "state": "?"}}})
    tool = (
        b'{"type":"message","id":"aa","role":"tool","blocks":[{"result":%s}]}\n' % review.encode()
    )
    data = HEADER + tool + R("aa", "s1", "one") + M("bbb") + FILL
    now = HEADER + M("bbb") + tool + R("aa", "s1", "two") + FILL
    with hidden(data, data) as t:
        assert t.window(limit=None).messages[0]["blocks"][0]["result"]["details"]["review"] == {
            "snapshotId": "s1",
            "state": "one",
        }
        overwrite(Path(t.path), now)
        check(t, now)


def test_without_a_cache_an_edit_that_escapes_is_an_error_and_then_read_anew(
    write: Write, monkeypatch: pytest.MonkeyPatch, access: str
) -> None:
    path = write(DATA)
    settle(path)
    escape(monkeypatch, path)
    monkeypatch.setattr(stamp, "_granule_ns", lambda *args: 0)
    with mmapstore.open(path, cache_dir=None, access=access) as t:
        overwrite(path, OTHER_PLACES)
        with pytest.raises(mmapstore.TranscriptChangedError):
            t.window(limit=None).messages  # noqa: B018
        assert t.refresh() is Refresh.REBUILT
        check(t, OTHER_PLACES)


# -- the stamp itself --------------------------------------------------------------------


def test_a_granule_is_measured_once_for_a_file_system(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(DATA)
    known: dict[int, int] = {}
    monkeypatch.setattr(stamp, "_known_granules", known)
    device = path.stat().st_dev
    measured = stamp._granule_ns(device, str(path.parent))
    assert measured in (0, stamp.TICK_NS, stamp.COARSE_NS)
    known[device] = 7
    assert stamp._granule_ns(device, str(path.parent)) == 7
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_that_cannot_be_tried_out_is_taken_for_the_worst(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(DATA)
    device = path.stat().st_dev

    def refused(*args: object, **fields: object) -> int:
        raise OSError(errno.EROFS, "read-only")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        assert stamp._measured_granule_ns(device, str(path.parent)) == stamp.COARSE_NS
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refused)
        assert stamp._measured_granule_ns(device, str(path.parent)) == stamp.COARSE_NS
    # a layered file system keeps new files elsewhere
    assert stamp._measured_granule_ns(device + 1, str(path.parent)) == stamp.COARSE_NS


@pytest.mark.parametrize(
    ("step_ns", "granule_ns"),
    [(1, 0), (0, stamp.TICK_NS), (-1, stamp.COARSE_NS)],
    ids=["each change told", "by ticks", "by seconds"],
)
def test_the_granule_is_what_the_tries_show(
    write: Write, monkeypatch: pytest.MonkeyPatch, step_ns: int, granule_ns: int
) -> None:
    path = write(DATA)
    device = path.stat().st_dev
    fstat = os.fstat
    tries = 0

    class Status:
        st_dev = device
        st_ctime_ns = 0

    def status(fd: int) -> object:
        nonlocal tries
        fstat(fd)
        tries += 1
        found = Status()
        found.st_ctime_ns = 5 * 10**9 + (0 if step_ns < 0 else 3 + tries * step_ns)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", status)
        assert stamp._measured_granule_ns(device, str(path.parent)) == granule_ns
    assert tries > 10


def test_the_clock_is_the_one_that_files_are_stamped_with(write: Write) -> None:
    path = write(DATA)
    after_ns = path.stat().st_ctime_ns
    # a coarse clock may be behind by as much as it is coarse, and is never ahead of the real one
    assert after_ns - stamp.COARSE_NS < stamp._now_ns() <= time.time_ns()
