"""The list of sessions: what is on disk is listed, once read, and never more than both ends."""

from __future__ import annotations

import datetime
import errno
import gzip
import json
import os
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import cache, cachedir, catalogue, fileio, loader, places, sessions
from mmapstore.fileio import Descriptor
from mmapstore.glance import END_NBYTES, TITLE_LENGTH, spelled_time
from tests.agreement import native_oracle
from tests.oracle import BOM, at_path, decoded
from tests.strategies import C, M, R, transcripts
from tests.test_real_transcripts import FOLDER, TOLD, every_row

HEADER = b'{"type":"session","schema":2,"sessionId":"s1","createdAt":"2026-01-02T03:04:05Z"}\n'
BUDGET_NBYTES = 128 << 10


def line(record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def claude(number: int, text: str = "x", role: str = "user", **more: Any) -> bytes:
    record = {
        "parentUuid": None,
        "isSidechain": False,
        "sessionId": "c1",
        "type": role,
        "message": {"role": role, "content": text},
        "uuid": f"u{number}",
        "timestamp": f"2026-02-03T04:05:{number % 60:02}Z",
    }
    return line(record | more)


@pytest.fixture(autouse=True)
def cache_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> Path:
    """Give a test a cache directory and a home of its own."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for place in places.PLACES:
        if place.variable:
            monkeypatch.delenv(place.variable, raising=False)
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(home / "cache"))
    return home / "cache"


@pytest.fixture
def settled(monkeypatch: Any) -> None:
    """Make every file one whose last change was long ago."""
    monkeypatch.setattr(sessions, "is_racy", lambda *_, **__: False)
    monkeypatch.setattr(loader, "is_racy", lambda *_, **__: False)


class Reads:
    """Bytes that were read of each file, and how often one was opened."""

    def __init__(self) -> None:
        self.nbytes: dict[str, int] = {}
        self.opened: list[str] = []

    def clear(self) -> None:
        self.nbytes.clear()
        self.opened.clear()


@pytest.fixture
def reads(monkeypatch: Any) -> Reads:
    found = Reads()
    pread, open_regular = os.pread, fileio.open_regular

    def counted(fd: int, nbytes: int, offset: int) -> bytes:
        data = pread(fd, nbytes, offset)
        path = os.readlink(f"/proc/self/fd/{fd}")
        found.nbytes[path] = found.nbytes.get(path, 0) + len(data)
        return data

    def noted(path: str) -> Descriptor:
        found.opened.append(path)
        return open_regular(path)

    monkeypatch.setattr(os, "pread", counted)
    monkeypatch.setattr(sessions, "open_regular", noted)
    return found


def listed(*paths: Any) -> list[sessions.Session]:
    return sessions.listing([str(path) for path in paths]).sessions


def one(path: Any) -> sessions.Session:
    (session,) = listed(path)
    return session


def names(found: list[sessions.Session]) -> set[str]:
    return {os.path.basename(session.path) for session in found}


def tree(folder: Path) -> dict[str, Any]:
    """Return everything that can be told of a folder without opening a file for writing."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() else None
        found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, data)
    return found


# -- counts -------------------------------------------------------------------------------


@given(data=transcripts(max_lines=30))
def test_messages_are_counted_as_the_oracle_counts_them(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "host.lock").touch()
        folder = Path(directory, "sessions")
        folder.mkdir()
        (folder / "t.jsonl").write_bytes(data)
        found = listed(directory)
    pieces = data.removeprefix(BOM).split(b"\n")
    if any(piece.strip(b" \t\r") for piece in pieces) and not any(
        piece.lstrip(b" \t\r").startswith(b"{") for piece in pieces
    ):
        assert found == []
        return
    (session,) = found
    assert session.dialect == "native"
    assert session.message_count == native_oracle(data).total
    assert session.nbytes == len(data)


def test_what_is_no_message_is_not_counted(write: Callable[..., Path]) -> None:
    data = HEADER + M("a") + C("c") + R("a", "s", "x") + b"\n" + b"{broken\n" + M("b") + M("torn")
    assert one(write(data[:-1])).message_count == 2


@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_a_count_is_exact_or_unknown(write: Callable[..., Path], surplus: int) -> None:
    lines = HEADER + M("a") * 50
    data = lines + M("z", "x" * (2 * END_NBYTES + surplus - len(lines) - len(M("z", ""))))
    assert len(data) == 2 * END_NBYTES + surplus
    assert one(write(data)).message_count == (51 if surplus <= 0 else None)


def test_an_empty_file_is_shown(write: Callable[..., Path]) -> None:
    session = one(write(b""))
    assert session[3:] == ("generic", None, 0, None, None)


def large(head: bytes, tail: bytes, nbytes: int = 1 << 20) -> bytes:
    return head + line({"type": "other", "pad": "x" * nbytes}) + tail


@pytest.mark.usefixtures("settled")
def test_a_layout_cache_that_appears_later_tells_the_count(
    write: Callable[..., Path], reads: Reads
) -> None:
    path = write(large(HEADER + M("a", "first"), M("b") * 3))
    assert one(path).message_count is None
    mmapstore.open(path).close()
    reads.clear()
    assert one(path).message_count == 4
    assert str(path) not in reads.nbytes
    shutil.rmtree(cachedir.user_directory())
    assert one(path).message_count is None


@pytest.mark.usefixtures("settled")
def test_a_count_that_was_known_is_remembered(write: Callable[..., Path], reads: Reads) -> None:
    path = write(large(HEADER, M("b") * 3))
    mmapstore.open(path).close()
    assert one(path).message_count == 3
    cachedir.clear(cachedir.user_directory())
    reads.clear()
    assert one(path).message_count == 3
    assert reads.opened == []


@pytest.mark.usefixtures("settled")
def test_a_layout_cache_of_an_older_state_tells_nothing_and_is_looked_at_once(
    write: Callable[..., Path], monkeypatch: Any
) -> None:
    path = write(large(HEADER, M("b") * 3))
    mmapstore.open(path).close()
    with path.open("ab") as file:
        file.write(M("c"))
    looked_at: list[str] = []
    read_header = cache.read_header

    def noted(place: str) -> cache.Header | None:
        looked_at.append(place)
        return read_header(place)

    monkeypatch.setattr(cache, "read_header", noted)
    assert [one(path).message_count for _ in range(3)] == [None] * 3
    assert looked_at == [cachedir.within(cachedir.user_directory(), str(path))]
    mmapstore.open(path).close()
    assert [one(path).message_count for _ in range(3)] == [4] * 3
    assert len(looked_at) == 2


@pytest.mark.usefixtures("settled")
def test_a_layout_cache_in_a_dialect_that_was_asked_for_tells_nothing(
    write: Callable[..., Path],
) -> None:
    path = write(large(HEADER, M("b") * 3))
    mmapstore.open(path, dialect="generic").close()
    assert one(path).message_count is None


@pytest.mark.usefixtures("settled")
def test_a_cache_beside_a_session_counts_only_for_a_native_one(tmp_path: Path) -> None:
    native, foreign = tmp_path / "native.jsonl", tmp_path / "foreign.jsonl"
    native.write_bytes(large(HEADER, M("b") * 3))
    foreign.write_bytes(large(claude(0), claude(1) * 3))
    for path in (native, foreign):
        mmapstore.open(path, cache_dir=tmp_path).close()
        os.rename(cachedir.within(str(tmp_path), str(path)), cachedir.beside(str(path)))
    counts = {session.path: session.message_count for session in listed(tmp_path)}
    assert counts == {str(native): 3, str(foreign): None}
    assert one(native).message_count == 3


# -- what is read -------------------------------------------------------------------------


@every_row
@pytest.mark.usefixtures("settled")
def test_real_transcripts(row: dict[str, Any], reads: Reads) -> None:
    path = FOLDER / row["file"]
    session = one(path)
    with mmapstore.open(path, cache_dir=None) as t:
        assert session.dialect == t.dialect.name
        if row["file"] not in TOLD:
            assert session.dialect == row["dialect"]
        known = t.message_count if int(row["nbytes"]) <= BUDGET_NBYTES else None
        assert session.message_count == known
    assert session.nbytes == int(row["nbytes"])
    if session.title is not None:
        assert session.title == " ".join(session.title.split())
        assert 0 < len(session.title) <= TITLE_LENGTH
    reads.clear()
    shutil.rmtree(cachedir.user_directory())
    assert one(path) == session
    assert 0 < reads.nbytes[str(path.resolve())] <= BUDGET_NBYTES
    reads.clear()
    assert one(path) == session
    assert (reads.opened, reads.nbytes) == ([], {})


@pytest.mark.usefixtures("settled")
def test_listing_large_sessions_reads_their_ends_and_holds_no_more(
    tmp_path: Path, reads: Reads
) -> None:
    for number in range(50):
        with (tmp_path / f"{number}.jsonl").open("wb") as file:
            file.write(claude(number, f"session {number}"))
            # a hole: what lies between the ends takes no room on the disk
            file.seek((400 if number == 49 else 10) << 20)
            file.write(b"\n" + claude(number, role="assistant"))
    tracemalloc.start()
    try:
        found = listed(tmp_path)
        _, peak_nbytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {session.title for session in found} == {f"session {n}" for n in range(50)}
    assert all(session.message_count is None for session in found)
    assert max(reads.nbytes.values()) <= BUDGET_NBYTES
    assert peak_nbytes < 4 << 20
    reads.clear()
    assert listed(tmp_path) == found
    assert (reads.opened, reads.nbytes) == ([], {})


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", ["append", "rewrite", "replace", "touch"])
def test_a_session_that_changed_is_read_again_and_no_other(
    tmp_path: Path, reads: Reads, change: str
) -> None:
    path, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_bytes(HEADER + M("a", "one"))
    other.write_bytes(HEADER + M("a", "other"))
    listed(tmp_path)
    status = path.stat()
    if change == "append":
        with path.open("ab") as file:
            file.write(M("b"))
    elif change == "replace":
        (tmp_path / "new").write_bytes(HEADER + M("a", "two"))
        (tmp_path / "new").rename(path)
    else:
        if change == "rewrite":
            path.write_bytes(HEADER + M("a", "two"))
        # the times are set back, but for that of the inode
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    reads.clear()
    found = {session.path: session for session in listed(tmp_path)}
    assert reads.opened == [str(path)]
    assert found[str(path)].title == ("two" if change in ("rewrite", "replace") else "one")
    assert found[str(path)].message_count == (2 if change == "append" else 1)
    assert found[str(other)].title == "other"


def test_a_session_that_may_change_unseen_is_not_remembered(
    write: Callable[..., Path], reads: Reads, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sessions, "is_racy", lambda *_, **__: True)
    path = write(HEADER)
    assert [one(path).message_count, one(path).message_count] == [0, 0]
    assert reads.opened == [str(path)] * 2


def look_then(monkeypatch: Any, change: Callable[[], object]) -> None:
    """Have something happen to a file after its first read."""
    read, happened = Descriptor.read, list[object]()

    def reading(self: Descriptor, start: int, stop: int) -> bytes:
        data = read(self, start, stop)
        if not happened:
            happened.append(change())
        return data

    monkeypatch.setattr(Descriptor, "read", reading)


@pytest.mark.usefixtures("settled")
def test_a_session_that_grows_while_it_is_looked_at_is_not_remembered(
    write: Callable[..., Path], reads: Reads, monkeypatch: Any
) -> None:
    path = write(HEADER + M("a"))

    def grow() -> None:
        with path.open("ab") as file:
            file.write(M("b"))

    look_then(monkeypatch, grow)
    assert one(path).message_count == 1
    assert one(path).message_count == 2
    assert reads.opened == [str(path)] * 2


@pytest.mark.usefixtures("settled")
def test_a_session_that_shrinks_while_it_is_looked_at_is_not_guessed_at(
    write: Callable[..., Path], monkeypatch: Any
) -> None:
    path = write(HEADER + M("a") * 1900)
    assert END_NBYTES < path.stat().st_size < 2 * END_NBYTES
    look_then(monkeypatch, lambda: os.truncate(path, len(HEADER)))
    session = one(path)
    assert (session.message_count, session.last_activity) == (None, None)
    assert one(path).message_count == 0


# -- the catalogue ------------------------------------------------------------------------


SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "zeros of the same size": lambda data: bytes(len(data)),
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte long": lambda data: data + b" ",
    "garbage": lambda data: b"garbage " * 99,
    "moved": lambda data: b"\n" + data,
    "of another version": lambda data: data.replace(b"sessions 1", b"sessions 2"),
    "edited": lambda data: data.replace(b'"first"', b'"other"'),
    "the first line alone": lambda data: data.partition(b"\n")[0] + b"\n",
    "another body": lambda data: data.partition(b"\n")[0] + b"\n{}",
}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("how", SPOILED)
def test_a_catalogue_that_is_not_as_it_was_written_is_made_anew(
    tmp_path: Path, reads: Reads, cache_home: Path, how: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(HEADER + M("a", "first"))
    (tmp_path / "b.jsonl").write_bytes(claude(0, "second"))
    found = listed(tmp_path)
    file = cache_home / catalogue.NAME
    good = file.read_bytes()
    file.write_bytes(SPOILED[how](good))
    assert file.read_bytes() != good
    reads.clear()
    assert listed(tmp_path) == found
    assert len(reads.opened) == 2
    assert file.read_bytes() == good
    reads.clear()
    assert listed(tmp_path) == found
    assert reads.opened == []


@pytest.mark.usefixtures("settled")
def test_every_flipped_bit_of_a_catalogue_is_noticed(tmp_path: Path, cache_home: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(HEADER + M("a", "first"))
    found = listed(tmp_path)
    file = cache_home / catalogue.NAME
    good = file.read_bytes()
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        assert catalogue.load() == {}, at
    assert listed(tmp_path) == found


@pytest.mark.parametrize("obstacle", ["a file for the folder", "a folder for the file", "full"])
def test_a_catalogue_that_cannot_be_written_is_no_error(
    tmp_path: Path, cache_home: Path, monkeypatch: Any, obstacle: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(HEADER + M("a", "first"))
    if obstacle == "a file for the folder":
        cache_home.write_bytes(b"")
    elif obstacle == "a folder for the file":
        (cache_home / catalogue.NAME).mkdir(parents=True)
    else:

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
    assert [session.title for session in listed(tmp_path)] == ["first"]
    assert [session.title for session in listed(tmp_path)] == ["first"]
    if cache_home.is_dir():
        assert {path.name for path in cache_home.iterdir()} <= {catalogue.NAME}


@pytest.mark.usefixtures("settled")
def test_sessions_that_vanished_leave_the_catalogue_and_others_stay(
    tmp_path: Path, reads: Reads
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        for name in "ab":
            (folder / f"{name}.jsonl").write_bytes(HEADER)
    listed(tmp_path)
    (here / "a.jsonl").unlink()
    (there / "a.jsonl").unlink()
    listed(here)
    assert set(catalogue.load()) == {
        str(here / "b.jsonl"),
        str(there / "a.jsonl"),
        str(there / "b.jsonl"),
    }
    reads.clear()
    assert len(listed(tmp_path)) == 2
    assert reads.opened == []
    assert len(catalogue.load()) == 2


@pytest.mark.usefixtures("settled")
def test_the_catalogue_is_bounded_and_what_was_seen_last_stays(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(catalogue, "LIMIT_COUNT", 3)
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        for name in "ab":
            (tmp_path / folder / f"{name}.jsonl").write_bytes(HEADER)
        assert len(listed(tmp_path / folder)) == 2
    kept = list(catalogue.load())
    assert {os.path.dirname(path) for path in kept[:2]} == {str(tmp_path / "new")}
    assert len(kept) == 3
    assert len(listed(tmp_path)) == 4


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("name", [b"\xff\xfe.jsonl", "café.jsonl".encode(), b"a\nb.jsonl"])
def test_a_path_is_any_bytes(tmp_path: Path, reads: Reads, name: bytes) -> None:
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as file:
        file.write(HEADER + M("a", "first"))
    # one that Latin-1 would spell as the other's bytes
    (tmp_path / "cafÃ©.jsonl").write_bytes(HEADER + M("a", "another"))
    found = listed(tmp_path)
    assert {os.fsencode(session.path): session.title for session in found} == {
        path: "first",
        os.fsencode(tmp_path / "cafÃ©.jsonl"): "another",
    }
    reads.clear()
    assert listed(tmp_path) == found
    assert reads.opened == []


@pytest.mark.usefixtures("settled")
def test_the_catalogue_is_the_users_alone(tmp_path: Path, cache_home: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(HEADER)
    listed(tmp_path)
    assert (cache_home / catalogue.NAME).stat().st_mode & 0o777 == 0o600
    assert cache_home.stat().st_mode & 0o777 == 0o700


# -- the list is what is on disk ----------------------------------------------------------

actions = st.lists(
    st.tuples(
        st.sampled_from(["write", "append", "delete", "rename", "folder gone", "catalogue gone"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=8,
)


@given(steps=actions)
def test_whatever_happens_on_disk_the_list_follows(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)

        def path_of(number: int) -> Path:
            return root / f"folder{number % 2}" / f"{number}.jsonl"

        for action, number, other in steps:
            path = path_of(number)
            path.parent.mkdir(exist_ok=True)
            path_of(other).parent.mkdir(exist_ok=True)
            match action:
                case "write":
                    path.write_bytes(HEADER + M("a", f"title {other}") * (1 + other))
                case "append":
                    with path.open("ab") as file:
                        file.write(HEADER + M("b"))
                case "delete":
                    path.unlink(missing_ok=True)
                case "rename" if path.exists():
                    path.rename(path_of(other))
                case "folder gone":
                    shutil.rmtree(path.parent)
                case _:
                    Path(catalogue.place()).unlink(missing_ok=True)
            on_disk = {
                str(path): (path.stat().st_size, native_oracle(path.read_bytes()).total)
                for path in root.rglob("*.jsonl")
            }
            assert {
                session.path: (session.nbytes, session.message_count) for session in listed(root)
            } == on_disk


def test_a_session_that_vanishes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: Any) -> None:
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_bytes(HEADER)
    open_regular = fileio.open_regular

    def vanishing(path: str) -> Descriptor:
        if path.endswith("b.jsonl"):
            os.unlink(path)
        return open_regular(path)

    monkeypatch.setattr(sessions, "open_regular", vanishing)
    found = sessions.listing([str(tmp_path)])
    assert names(found.sessions) == {"a.jsonl", "c.jsonl"}
    assert found.troubles == []


def test_a_session_that_cannot_be_read_is_shown_and_mentioned(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(HEADER)

    def refused(path: str) -> Descriptor:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(sessions, "open_regular", refused)
    found = sessions.listing([str(tmp_path)])
    (session,) = found.sessions
    assert session[3:] == (None,) * 5
    assert (session.path, session.nbytes) == (str(path), len(HEADER))
    assert found.troubles == [(str(path), "Permission denied")]
    assert catalogue.load() == {}


def test_listing_writes_nothing_but_the_catalogue(tmp_path: Path, cache_home: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (tmp_path / "host.lock").touch()
    for name, data in {
        "good.jsonl": HEADER + M("a"),
        "empty.jsonl": b"",
        "torn.jsonl": HEADER + b'{"type":"mess',
        "nul.jsonl": HEADER + bytes(512),
        "bad.jsonl": b"{broken\n",
        "text.jsonl": b"words\n",
        "large.jsonl": large(HEADER, M("b")),
        "good.jsonl.layout": b"no cache",
        "good.revisions.jsonl": b"{}\n",
        "left.jsonl.1-1.tmp": b"x",
    }.items():
        (folder / name).write_bytes(data)
    before = tree(tmp_path)
    times = {path: path.stat().st_ctime_ns for path in tmp_path.rglob("*")}
    for _ in range(2):
        assert len(listed(tmp_path)) == 6
        assert tree(tmp_path) == before
        assert {path: path.stat().st_ctime_ns for path in tmp_path.rglob("*")} == times
    assert {path.name for path in cache_home.iterdir()} <= {catalogue.NAME}


# -- where sessions lie -------------------------------------------------------------------


@pytest.mark.usefixtures("settled")
def test_what_is_no_transcript_is_left_out_and_not_read_again(tmp_path: Path, reads: Reads) -> None:
    (tmp_path / "words.jsonl").write_bytes(b"words\n")
    (tmp_path / "list.jsonl").write_bytes(b"[1]\n")
    (tmp_path / "s.jsonl").write_bytes(HEADER)
    (tmp_path / "s.revisions.jsonl").write_bytes(b'{"type":"revision"}\n')
    (tmp_path / "s.json").write_bytes(b"{}\n")
    (tmp_path / "old.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "folder.jsonl" / "deep.jsonl").write_bytes(HEADER)
    os.mkfifo(tmp_path / "fifo.jsonl")
    found = sessions.listing([str(tmp_path)])
    assert names(found.sessions) == {"s.jsonl", "deep.jsonl"}
    assert (found.troubles, found.compressed_count) == ([], 1)
    reads.clear()
    assert names(listed(tmp_path)) == {"s.jsonl", "deep.jsonl"}
    assert reads.opened == []


def test_a_file_that_is_named_needs_no_suffix(write: Callable[..., Path]) -> None:
    assert one(write(HEADER + M("a", "first"), "session.log")).title == "first"


def test_a_file_that_is_named_and_no_transcript_is_refused_as_opening_it_is(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    good = write(HEADER, "good.jsonl")
    for path, told in [
        (write(b"words\n", "w"), "no line in the first 6 bytes begins with a JSON object"),
        (write(gzip.compress(HEADER), "g.jsonl"), "zcat"),
        (tmp_path / "fifo", "FIFO"),
    ]:
        for _ in range(2):  # as the catalogue knows it, too
            found = sessions.listing([str(path), str(good)])
            assert [session.path for session in found.sessions] == [str(good)]
            assert found.troubles == []
            ((where, reason),) = found.refused
            assert (where, told in reason) == (str(path), True)
        with pytest.raises(mmapstore.NotATranscriptError) as caught:
            mmapstore.open(path)
        assert reason in str(caught.value)
    # what is only come across is passed over
    found = sessions.listing([str(tmp_path)])
    assert (found.troubles, found.refused) == ([], [])


def test_a_path_that_is_refused_is_told_as_it_was_given(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(b"words\n", "w")
    monkeypatch.chdir(path.parent)
    assert [trouble.path for trouble in sessions.listing(["./w"]).refused] == ["./w"]


@pytest.mark.parametrize(
    ("mtime_ns", "told"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_767_323_045_678_999_999, "2026-01-02T03:04:05.678Z"),
        (-1_000_000, "1969-12-31T23:59:59.999Z"),
        (10**30, None),
    ],
)
def test_the_files_own_time_is_told_as_a_lines_is(mtime_ns: int, told: str | None) -> None:
    session = sessions.Session("p", 0, mtime_ns, "native", None, None, None, None)
    assert session.modified == told


@given(st.integers(-(10**18), 10**19))
def test_and_in_the_same_spelling(mtime_ns: int) -> None:
    session = sessions.Session("p", 0, mtime_ns, "native", None, None, None, None)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    moment = epoch + datetime.timedelta(microseconds=mtime_ns // 1000)
    assert session.modified == spelled_time(moment)


def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sessions.listing([str(tmp_path / "absent")])


def test_a_file_is_listed_once_however_it_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "s.jsonl").write_bytes(HEADER)
    found = sessions.listing([str(tmp_path), str(folder), str(folder / "s.jsonl"), str(tmp_path)])
    assert len(found.sessions) == 1
    assert found.troubles == []


def test_links_are_followed_and_loops_mentioned(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "a" / "b", tmp_path / "elsewhere"
    folder.mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "s.jsonl").write_bytes(HEADER)
    (elsewhere / "t.jsonl").write_bytes(HEADER)
    (folder / "up").symlink_to(tmp_path / "a")
    (folder / "away").symlink_to(elsewhere)
    (folder / "nowhere").symlink_to(tmp_path / "absent")
    (folder / "nowhere.jsonl").symlink_to(tmp_path / "absent")
    (folder / "self").symlink_to(folder / "self")
    (folder / "l.jsonl").symlink_to(elsewhere / "t.jsonl")
    found = sessions.listing([str(tmp_path / "a")])
    assert {session.path for session in found.sessions} == {
        str(folder / "s.jsonl"),
        str(folder / "away" / "t.jsonl"),
        str(folder / "l.jsonl"),
    }
    mentioned = {trouble.path: trouble.reason for trouble in found.troubles}
    assert set(mentioned) == {str(folder / "up"), str(folder / "self")}
    assert "already" in mentioned[str(folder / "up")]


def test_a_folder_that_cannot_be_looked_into_is_mentioned(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("open", "closed", "gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.jsonl").write_bytes(HEADER)
    scandir = os.scandir

    def refusing(path: str) -> Any:
        for name, number in (("closed", errno.EACCES), ("gone", errno.ENOENT)):
            if os.fspath(path).endswith(name):
                raise OSError(number, os.strerror(number), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = sessions.listing([str(tmp_path)])
    assert [session.path for session in found.sessions] == [str(tmp_path / "open" / "s.jsonl")]
    assert found.troubles == [(str(tmp_path / "closed"), os.strerror(errno.EACCES))]


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "s.jsonl").write_bytes(HEADER)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path / "a")
    for path in ("..", "../s.jsonl", "../link/.."):
        assert [session.path for session in listed(path)] == [str(tmp_path / "s.jsonl")]
    monkeypatch.chdir(tmp_path)
    for path in (".", "./", "s.jsonl", "./s.jsonl"):
        assert [session.path for session in listed(path)] == [str(tmp_path / "s.jsonl")]


WHERE = [
    ("claude", "projects/-p/s.jsonl", "projects/-p/s/subagents/workflows/w/journal.jsonl"),
    ("codex", "sessions/2026/01/02/rollout-x.jsonl", "history.jsonl"),
    ("codex", "archived_sessions/rollout-y.jsonl", "session_index.jsonl"),
    ("pi", "sessions/--p--/s.jsonl", "other/s.jsonl"),
    ("pi", "sessions/--p--/s.jsonl", "other/s.jsonl"),
    ("pi", "agents/main/sessions/s.jsonl", "agents/main/agent/x.jsonl"),
    ("pi", "agents/main/sessions/s.jsonl", "agents/main/agent/x.jsonl"),
    ("copilot", "session-state/u/events.jsonl", "logs/x.jsonl"),
    ("gemini", "tmp/p/chats/session-x.jsonl", "tmp/p/logs.jsonl"),
    ("antigravity", "antigravity-cli/x/s.jsonl", "other/s.jsonl"),
    ("kimi", "sessions/wd_x/s/agents/a/wire.jsonl", "sessions/wd_x/s/other.jsonl"),
    ("droid", "sessions/-p/s.jsonl", "logs/s.jsonl"),
    ("qwen", "projects/p/chats/s.jsonl", "projects/p/x.jsonl"),
    ("cursor", "projects/p/agent-transcripts/i/i.jsonl", "projects/p/x.jsonl"),
    ("grok", "x/y/chat_history.jsonl", "x/y/events.jsonl"),
]


def test_the_table_of_places_is_tested_whole() -> None:
    assert [dialect for dialect, *_ in WHERE] == [place.dialect for place in places.PLACES]


MOVABLE = [number for number, place in enumerate(places.PLACES) if place.variable]


@pytest.mark.parametrize(
    ("number", "moved"),
    [*((number, False) for number in range(len(WHERE))), *((number, True) for number in MOVABLE)],
)
def test_the_sessions_of_an_agent_are_found(
    tmp_path: Path, monkeypatch: Any, number: int, moved: bool
) -> None:
    place, (_, held, not_held) = places.PLACES[number], WHERE[number]
    base = Path(os.environ["HOME"], place.base)
    if moved:
        base = tmp_path / "mo[v]ed"
        monkeypatch.setenv(place.variable, str(base))
    for name in (held, not_held):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(HEADER)
    found = sessions.listing()
    assert [session.path for session in found.sessions] == [str(base / held)]
    assert found.troubles == []


def test_where_no_agent_is_installed_nothing_is_found() -> None:
    assert sessions.listing() == ([], [], [], 0)


# -- order --------------------------------------------------------------------------------


def test_sessions_are_listed_newest_first(tmp_path: Path) -> None:
    for number, time in enumerate(
        ["2026-01-01T00:00:00Z", "2026-01-03T00:00:00+02:00", "2026-01-02T21:59:59.999Z"]
    ):
        (tmp_path / f"{number}.jsonl").write_bytes(HEADER + M("a", createdAt=time))
    # no time inside: the file's own counts
    path = tmp_path / "x.jsonl"
    path.write_bytes(line({"role": "user", "message": {"content": "hello"}}))
    noon_s = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC).timestamp()
    os.utime(path, (noon_s, noon_s))
    found = listed(tmp_path)
    assert [os.path.basename(session.path)[0] for session in found] == ["1", "2", "x", "0"]
    assert [session.last_activity for session in found] == [
        "2026-01-02T22:00:00.000Z",
        "2026-01-02T21:59:59.999Z",
        None,
        "2026-01-01T00:00:00.000Z",
    ]


# -- last activity ------------------------------------------------------------------------

times = st.one_of(
    st.datetimes(
        min_value=datetime.datetime(1971, 1, 1),
        max_value=datetime.datetime(2100, 1, 1),
        timezones=st.sampled_from(
            [datetime.UTC, datetime.timezone(datetime.timedelta(hours=5, minutes=30))]
        ),
    ).map(datetime.datetime.isoformat),
    st.integers(0, 4_000_000_000_000),
    st.sampled_from([None, "", "yesterday", "2026-01-02", "2026-01-02T03:04:05", True, [], 1e30]),
)


def naive_time(value: Any) -> str | None:
    if type(value) in (int, float):
        if value > 4e12:
            return None
        moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        moment += datetime.timedelta(milliseconds=value)
    else:
        try:
            moment = datetime.datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return None
        if moment.tzinfo is None:
            return None
    text = moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text[:-3] + "Z"


@given(
    values=st.lists(times, max_size=6),
    torn=st.booleans(),
    padded=st.booleans(),
    damaged=st.booleans(),
)
def test_the_last_activity_is_the_time_of_the_last_line_that_has_one(
    values: list[Any], torn: bool, padded: bool, damaged: bool
) -> None:
    """Looked for in whole lines of the last 64 KiB, and nowhere before them."""
    lines = [line({"type": "message", "id": "a", "createdAt": value}) for value in values]
    data = HEADER.replace(b"createdAt", b"created")
    data += line({"pad": "x" * 200_000}) if padded else b""
    data += b"".join(lines) + (b"{damaged\n" if damaged else b"")
    data += b'{"type":"message","id":"t","createdAt":"2099-01-01T00:00:00Z"}' if torn else b""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "t.jsonl").write_bytes(data)
        session = one(directory)
    found = [time for time in map(naive_time, values) if time is not None]
    assert session.last_activity == (found[-1] if found else None)


def test_a_last_line_longer_than_what_is_read_leaves_the_time_unknown(
    write: Callable[..., Path],
) -> None:
    data = HEADER + M("a", createdAt="2026-01-02T03:04:05Z") * 2000
    assert one(write(data)).last_activity is not None
    data += M("b", "x" * 70_000, createdAt="2026-01-02T03:04:05Z")
    assert one(write(data)).last_activity is None


# -- titles and ids -----------------------------------------------------------------------

CODEX = line({"timestamp": "t", "type": "session_meta", "payload": {"id": "x1"}})


def codex(text: str, role: str = "user") -> bytes:
    content = [{"type": "input_text", "text": text}]
    payload = {"type": "message", "role": role, "content": content}
    return line({"timestamp": "t", "type": "response_item", "payload": payload})


PI = line({"type": "session", "id": "p1", "cwd": "/"})
QWEN = {"uuid": "u", "sessionId": "q1", "type": "user", "version": "1"}
TITLED = [
    ("the header's", HEADER.replace(b'"schema"', b'"title":"the header\'s","schema"') + M("a")),
    ("what was asked", HEADER + M("a", "no", role="assistant") + M("b", "what was asked") + M("c")),
    ("named", claude(0, "asked") + line({"type": "custom-title", "customTitle": "named"})),
    (
        "named again",
        line({"type": "custom-title", "customTitle": "named"})
        + claude(0, "asked")
        + line({"type": "custom-title", "customTitle": "named again"})
        + line({"type": "ai-title", "aiTitle": "told"}),
    ),
    ("told", line({"type": "ai-title", "aiTitle": "told"}) + claude(0, "asked")),
    (
        "of this one",
        line({"type": "summary", "summary": "of this one", "leafUuid": "u0"})
        + line({"type": "summary", "summary": "another's", "leafUuid": "v0"})
        + claude(0, "asked"),
    ),
    ("asked", line({"type": "summary", "summary": "x", "leafUuid": "v"}) + claude(0, "asked")),
    (
        "asked",
        claude(9, "Caveat: told by the agent", isMeta=True)
        + claude(0, "<command-name>/x</command-name>\n<command-args>y</command-args>")
        + claude(1, "<system-reminder>z</system-reminder>\n asked")
        + claude(2, "more"),
    ),
    ("<a>only this</a>", claude(0, "<a>only this</a>")),
    ("asked", claude(0, '{"customTitle":"no"}', "assistant") + claude(1, "asked")),
    (
        "asked",
        CODEX
        + codex("be good", "developer")
        + codex("<environment_context>\n<cwd>/</cwd>\n</environment_context>")
        + codex("asked"),
    ),
    ("named", PI + line({"type": "session_info", "id": "i", "name": "named"})),
    ("asked", PI + line({"type": "message", "message": {"role": "user", "content": "asked"}})),
    ("stored", line({"type": "session_start", "id": "d1", "title": "stored"})),
    (
        "named",
        line(QWEN) + line(QWEN | {"type": "system", "systemPayload": {"customTitle": "named"}}),
    ),
    ("two lines, three words", HEADER + M("a", " two\r\nlines,\t three   words\n")),
    ("half ?", HEADER + b'{"type":"message","role":"user","blocks":[{"text":"half \\ud83d"}]}\n'),
    (None, HEADER + M("a", role="assistant")),
    (None, HEADER + b'{"type":"message","role":"user","blocks":[{"text":"damaged\n'),
    (None, HEADER + M("a", "torn")[:-1]),
    ("marked", BOM + M("a", "marked")),
    (None, line({"any": "object", "title": "x"})),
]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize(("title", "data"), TITLED, ids=range(len(TITLED)))
def test_the_title_of_a_session(write: Callable[..., Path], title: str | None, data: bytes) -> None:
    path = write(data)
    assert [one(path).title, one(path).title] == [title, title]


def test_a_title_that_stands_late_is_found_in_a_long_session(write: Callable[..., Path]) -> None:
    named = line({"type": "custom-title", "customTitle": "named"})
    assert one(write(large(claude(0, "asked"), named + claude(1)))).title == "named"
    assert one(write(large(claude(0, "asked") + named, claude(1)))).title == "named"
    # between the ends nobody looks
    hidden = large(large(claude(0, "asked"), named), claude(1))
    assert one(write(hidden)).title == "asked"


@given(text=st.text(min_size=1, max_size=300))
def test_a_title_is_the_beginning_of_what_was_asked(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        data = HEADER + line({"type": "message", "role": "user", "blocks": [{"text": text}]})
        Path(directory, "t.jsonl").write_bytes(data)
        title = one(directory).title
    words = " ".join(text.split()) or None
    if words is None or len(words) <= TITLE_LENGTH:
        assert title == words
    else:
        assert title is not None
        assert len(title) <= TITLE_LENGTH
        assert title.endswith("...")
        assert words.startswith(title[:-3])


@pytest.mark.parametrize(
    ("session_id", "data"),
    [
        ("s1", HEADER),
        ("c1", line({"type": "summary", "summary": "x", "leafUuid": "v"}) + claude(0)),
        ("x1", CODEX + CODEX.replace(b"x1", b"x0")),
        ("p1", PI),
        ("d1", line({"type": "session_start", "id": "d1", "title": "t"})),
        ("q1", line(QWEN)),
        (None, HEADER.replace(b'"s1"', b'"%s"' % (b"x" * 201))),
        (None, line({"role": "user", "message": {"content": "hello"}})),
        (None, line({"any": "object", "sessionId": "x"})),
    ],
    ids=range(9),
)
def test_the_id_of_a_session(
    write: Callable[..., Path], session_id: str | None, data: bytes
) -> None:
    assert one(write(data)).session_id == session_id


@every_row
def test_the_id_of_a_real_session_is_one_of_its_lines(row: dict[str, Any]) -> None:
    session = one(FOLDER / row["file"])
    paths = "sessionId|payload.id|data.sessionId|id|session_id"
    records = filter(None, map(decoded, (FOLDER / row["file"]).read_bytes().split(b"\n")))
    told = {
        value
        for record in records
        for path in paths.split("|")
        if isinstance(value := at_path(record, path), str)
    }
    assert session.session_id is None or session.session_id in told


# -- progress -----------------------------------------------------------------------------


@pytest.mark.usefixtures("settled")
def test_progress_is_told_of_files_that_are_looked_at_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(HEADER)
    (tmp_path / "b.jsonl").write_bytes(large(HEADER, b""))
    told: list[tuple[int, int]] = []
    sessions.listing([str(tmp_path)], progress=lambda *figures: told.append(figures))
    total = len(HEADER) + BUDGET_NBYTES
    assert [figures[1] for figures in told] == [total] * 2
    assert [figures[0] for figures in told] == sorted(figures[0] for figures in told)
    assert told[-1] == (total, total)
    told.clear()
    sessions.listing([str(tmp_path)], progress=lambda *figures: told.append(figures))
    assert told == []
