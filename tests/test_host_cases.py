"""Public reports of what went wrong with such stores, as far as writing goes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import InvalidSessionIdError, LockedError
from mmapstore.host.index import Index
from mmapstore.host.session import Opened
from tests.host_support import (
    compaction,
    failing,
    ids,
    lines,
    message,
    shown,
    tool,
    transcript,
    user,
)
from tests.strategies import C, M, R

HEADER = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-01T00:00:00Z"}\n'


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "data" / "sessions").mkdir(parents=True)
    return tmp_path / "data"


def put(data_dir: Path, data: bytes, name: str = "s") -> Path:
    path = data_dir / "sessions" / f"{name}.jsonl"
    path.write_bytes(data)
    return path


@pytest.fixture
def host(tmp_path: Path) -> Iterator[mmapstore.Host]:
    with mmapstore.Host(tmp_path / "data") as made:
        yield made


# -- A1, A2, A3: tails and damage -------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 20, 30, 60, -2, -1])
@pytest.mark.parametrize("reopen", [False, True])
def test_an_append_behind_a_fragment_stands_on_its_own_line(
    data_dir: Path, k: int, reopen: bool
) -> None:
    """A1.2, A1.4: the fragment is sealed; whole JSON becomes a message, separated."""
    torn = M("c", "é行😀").removesuffix(b"\n")
    torn = torn if k == -1 else torn[:k]
    path = put(data_dir, HEADER + M("a") + M("b") + torn)
    expected = ["a", "b", *(["c"] if k == -1 else []), "d", "e"]
    host = mmapstore.Host(data_dir)
    host.append_message("s", message("d"))
    if reopen:
        host.close()
        host = mmapstore.Host(data_dir)
    host.append_message("s", message("e"))
    assert ids(host, "s") == expected
    data = path.read_bytes()
    assert data.startswith(HEADER + M("a") + M("b") + torn + b"\n")
    assert host.get_session("s", limit=None).total in (len(expected), len(expected) + 1)
    host.close()


@pytest.mark.parametrize("how", ["append", "review", "compaction"])
def test_a_fragment_that_reads_as_a_message_has_a_position_of_its_own(
    data_dir: Path, how: str
) -> None:
    """A1.2: what is sealed behind a crash moves what is appended, and the index knows of both."""
    fragment = M("torn")[:50]
    whole = orjson.dumps({"type": "message", **tool("a", "s1")}) + b"\n"
    put(data_dir, HEADER + whole + fragment)
    with mmapstore.Host(data_dir) as host:
        if how == "append":
            assert host.append_messages("s", [message("c", turnId="t")]) == [2]
        elif how == "review":
            assert host.set_review_state("s", "a", "s1", "rolledBack")
        else:
            host.append_compaction("s", compaction("k", "a"))
        count = 3 if how == "append" else 2
        assert host.append_message("s", message("d"), turn_id="t") == count
        assert [m["id"] for m in host.turn_messages("s", "t")][-1] == "d"
        window = host.get_session("s")
        assert (window.total, [d.position for d in window.damaged]) == (count + 1, [1])
    with mmapstore.Host(data_dir) as host:
        assert len(host.turn_messages("s", "t")) == count - 1


def test_a_fragment_is_the_message_that_is_asked_for_again(data_dir: Path) -> None:
    """A1.4: whole but for its newline, then retried: it is there once."""
    line = orjson.dumps({"type": "message", **message("c")})
    path = put(data_dir, HEADER + M("a") + line)
    with mmapstore.Host(data_dir) as host:
        assert host.append_message("s", message("c")) == 1
        assert path.read_bytes() == HEADER + M("a") + line + b"\n"
        with pytest.raises(mmapstore.ConflictError):
            host.append_message("s", message("c", text="other"))


def test_a_message_whose_line_was_torn_is_written_again(data_dir: Path) -> None:
    line = orjson.dumps({"type": "message", **message("c")})
    put(data_dir, HEADER + M("a") + line[:60] + b"\n" + M("b"))
    with mmapstore.Host(data_dir) as host:
        assert host.append_message("s", message("c")) == 3
        assert ids(host, "s") == ["a", "b", "c"]
        assert len(host.get_session("s").damaged) == 1


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_an_append_behind_characters_that_are_cut(data_dir: Path, phase: int) -> None:
    """A1.5: a tear, and a page boundary, inside of a character."""
    line = M("a", "行" * 3000)
    put(data_dir, HEADER + line + M("b", "x" * phase + "行" * 1500)[: -5 - phase])
    with mmapstore.Host(data_dir) as host:
        host.append_message("s", message("d"))
        assert ids(host, "s") == ["a", "d"]


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("count", [1, 511, 4096])
def test_an_append_behind_a_run_of_nuls(data_dir: Path, count: int, end: bytes) -> None:
    """A2.1, A2.3"""
    hole = M("z", "y" * 3000)
    hole = hole[:512] + b"\0" * 512 + hole[1024:]
    path = put(data_dir, HEADER + M("a") + hole + b"\0" * count + end)
    with mmapstore.Host(data_dir) as host:
        host.append_message("s", message("d"))
        assert ids(host, "s") == ["a", "d"]
        host.update_message("s", message("d", text="new"))
        assert hole + b"\0" * count + b"\n" in path.read_bytes()


@pytest.mark.parametrize("name", ["index.sqlite", "sessions/s.jsonl.layout"])
@pytest.mark.parametrize("how", ["zeros", "junk", "gone", "cut"])
def test_what_is_derived_is_made_again(data_dir: Path, name: str, how: str) -> None:
    """A2.2, A12.5"""
    put(data_dir, HEADER.replace(b"}", b',"title":"T"}') + M("a"))
    with mmapstore.Host(data_dir) as host:
        host.append_messages("s", [tool("x", "s1")], turn_id="t")
        host.set_review_state("s", "x", "s1", "rolledBack")
    path = data_dir / name
    for suffix in ("-wal", "-shm"):
        (data_dir / f"{name}{suffix}").unlink(missing_ok=True)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(
            {"zeros": b"\0" * len(data), "junk": b"junk" * 999, "cut": data[: len(data) // 2]}[how]
        )
    with mmapstore.Host(data_dir) as host:
        (found,) = host.list_sessions()
        assert (found.id, found.title) == ("s", "T")
        assert ids(host, "s") == ["a", "x"]
        assert [m["id"] for m in host.turn_messages("s", "t")] == ["x"]
        assert host.append_message("s", message("b")) == 2
        if name == "index.sqlite":
            (found,) = mmapstore.Host.list_sessions(host)
            assert host.active_session is None


def test_a_rebuilt_index_takes_the_newest_time_of_the_messages(data_dir: Path) -> None:
    put(data_dir, HEADER + M("a"))
    with mmapstore.Host(data_dir) as host:
        host.append_message("s", message("b", createdAt="2026-03-01T00:00:00+02:00"))
        host.append_message("s", message("c", createdAt="2026-02-28T23:00:00Z"))
        host.reindex()
        assert host.list_sessions()[0].updated_at == "2026-02-28T23:00:00Z"


def test_damage_in_the_middle_is_copied_through(data_dir: Path) -> None:
    """A3.1, A3.5, A3.6, A3.8, A7.2, A8.2: every rewrite keeps what it does not understand."""
    odd = (
        b"garbage\n"
        b"[1,2]\n"
        b'"text"\n'
        b"\n  \n\t\r\n"
        b'{"type":"sleep","id":"z","n":123456789012345678901,"e":1e400}\r\n'
        b'{"type":"message","id":"torn","role":\n'
        b"\xff\xfe\n"
    )
    exact = (
        b'{"type":"message","id":"n","role":"user","blocks":[1e400,NaN,123456789012345678901,'
        b'"\\ud83d"], "z" : 1.0,"createdAt":"x"}\r\n'
    )
    path = put(data_dir, HEADER + M("a") + odd + exact + M("b") + odd + M("c"))
    with mmapstore.Host(data_dir) as host:
        host.append_message("s", tool("x", "s1"))
        host.set_review_state("s", "x", "s1", "rolledBack")
        host.truncate_from("s", "c")
        assert path.read_bytes() == HEADER + M("a") + odd + exact + M("b") + odd
        host.update_message("s", {**shown(host, "s")[0], "edited": True})
        assert path.read_bytes().endswith(b"}\n" + odd + exact + M("b") + odd)
        head = path.read_bytes()[: -len(odd + exact + M("b") + odd)]
        # only the one field of a line changes, whatever stands in the others
        found = shown(host, "s")[1]
        host.update_message("s", {**found, "z": 2})
        assert (
            path.read_bytes()
            == head
            + odd
            + exact.replace(b" : 1.0", b":2").replace(b', "z"', b',"z"').replace(b"\r\n", b"\n")
            + M("b")
            + odd
        )
        child = host.fork_session("s", "b")
        copied = transcript(host, child.id).read_bytes()
        assert copied.count(odd) == 1
        assert b"[1e400,NaN,123456789012345678901," in copied
        assert [d.reason is not None for d in host.get_session(child.id, None).damaged]
        host.replace_messages("s", shown(host, "s")[1:])
        # behind the surviving line that they followed
        assert path.read_bytes().startswith(HEADER + odd + exact[:40])
        assert path.read_bytes().count(odd) == 2


def test_a_bad_first_line_stays_as_it_is(data_dir: Path) -> None:
    """A3.2"""
    bad = b'{"type":"session","schema":2,"sessi\n'
    path = put(data_dir, bad + M("a"))
    with mmapstore.Host(data_dir) as host:
        assert ids(host, "s") == ["a"]
        assert [s.id for s in host.list_sessions()] == ["s"]
    assert path.read_bytes() == bad + M("a")
    with mmapstore.Host(data_dir) as host:
        host.append_message("s", message("b"))
    assert path.read_bytes().startswith(bad + M("a"))


@pytest.mark.parametrize("data", [b"plain log\n" * 99, b"\x7fELF" + bytes(99)])
def test_what_is_no_transcript_is_left_alone(data_dir: Path, data: bytes) -> None:
    """A3.3: it is listed, because it is there, and refused."""
    path = put(data_dir, data)
    (data_dir / "sessions" / "dir.jsonl").mkdir()
    os.mkfifo(data_dir / "sessions" / "fifo.jsonl")
    with mmapstore.Host(data_dir) as host:
        assert [s.id for s in host.list_sessions()] == ["s"]
        for name in ("s", "dir", "fifo"):
            with pytest.raises(mmapstore.NotATranscriptError):
                host.append_message(name, message("a"))
    assert path.read_bytes() == data


def test_a_transcript_that_is_taken_away(host: mmapstore.Host) -> None:
    """A3.4: never a success with lost records."""
    session = host.create_session().id
    host.append_message(session, message("a"))
    transcript(host, session).unlink()
    for call in (
        lambda: host.append_message(session, message("b")),
        lambda: host.get_session(session),
        lambda: host.update_message(session, message("a", text="x")),
    ):
        with pytest.raises(mmapstore.SessionNotFoundError):
            call()
    assert host.list_sessions() == []
    assert not transcript(host, session).exists()


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n\t\n", b"   ", C("c"), R("a", "s", "active")])
def test_files_without_a_message(data_dir: Path, data: bytes) -> None:
    """A3.7: listed, open, and an append works; a header comes first where nothing stands."""
    path = put(data_dir, data)
    with mmapstore.Host(data_dir) as host:
        assert [s.id for s in host.list_sessions()] == ["s"]
        assert len(host.get_session("s")) == 0
        assert host.append_message("s", message("a")) == 0
        assert ids(host, "s") == ["a"]
        assert host.append_message("s", message("b")) == 1
    assert path.read_bytes().startswith(data)
    if not data.strip():
        assert [line["type"] for line in lines_of(path)] == ["session", "message", "message"]


def lines_of(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]


# -- A5: writers and locks --------------------------------------------------------------


def test_threads_that_append_together(host: mmapstore.Host) -> None:
    """A5.1"""
    session = host.create_session().id

    def work(mark: str) -> None:
        for number in range(6):
            host.append_message(session, message(f"{mark}{number}", text=mark * 50_000))

    threads = [threading.Thread(target=work, args=(mark,)) for mark in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = shown(host, session)
    assert len(found) == 36
    assert all(set(m["blocks"][0]["text"]) == {m["id"][0]} for m in found)


def test_a_second_host_is_refused_at_once_and_told_by_whom(tmp_path: Path) -> None:
    """A5.2"""
    code = "import sys, mmapstore; mmapstore.Host(sys.argv[1])"
    with mmapstore.Host(tmp_path):
        with pytest.raises(LockedError, match=f"process {os.getpid()} on") as info:
            mmapstore.Host(tmp_path)
        assert isinstance(info.value, BlockingIOError)
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert f"process {os.getpid()} on" in done.stderr
        # closing the file elsewhere in the process does not free it
        with open(tmp_path / "host.lock", "rb"):
            pass
        with pytest.raises(LockedError):
            mmapstore.Host(tmp_path)
    mmapstore.Host(tmp_path).close()


def test_the_lock_of_a_dead_process_and_what_the_file_says(tmp_path: Path) -> None:
    """A5.4, A5.5, A5.6: the kernel decides, and no pid."""
    code = "import sys, time, mmapstore; h = mmapstore.Host(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    (tmp_path / "host.lock").write_text("process 999999999 on nowhere")
    with pytest.raises(LockedError, match="999999999"):
        mmapstore.Host(tmp_path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.communicate()
    (tmp_path / "host.lock").write_text(f"process {os.getpid()}")
    mmapstore.Host(tmp_path).close()


def test_a_forked_child_holds_no_lock(tmp_path: Path) -> None:
    host = mmapstore.Host(tmp_path)
    said, ready = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover - another process
        os.close(go)
        try:
            host.list_sessions()
        except ValueError:
            os.write(ready, b"x")
            os.read(wait, 1)
            os._exit(7)
        os._exit(1)
    assert os.read(said, 1) == b"x"
    host.close()
    mmapstore.Host(tmp_path).close()
    for fd in (said, ready, wait, go):
        os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_temporaries_of_a_dead_host_are_swept(data_dir: Path) -> None:
    """A5.3, A11.6"""
    put(data_dir, HEADER)
    left = data_dir / "sessions" / "s.jsonl.99-0.tmp"
    left.write_bytes(M("x"))
    (data_dir / "sessions" / "s.revisions.jsonl.99-1.tmp").write_bytes(b"")
    (data_dir / "sessions" / "mine.tmp").write_bytes(b"")
    with mmapstore.Host(data_dir) as host:
        assert [s.id for s in host.list_sessions()] == ["s"]
    assert sorted(p.name for p in (data_dir / "sessions").glob("*.tmp")) == ["mine.tmp"]


def test_the_index_is_busy_elsewhere(host: mmapstore.Host) -> None:
    """A5.7: the transcript is written all the same, and the index catches up."""
    session = host.create_session().id
    other = sqlite3.connect(Path(host.data_dir) / "index.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    host.append_messages(session, [message("a")], turn_id="t")
    host.append_messages(session, [message("b")], turn_id="t")
    assert ids(host, session) == ["a", "b"]
    assert [s.id for s in host.list_sessions()] == [session]
    assert [m["id"] for m in host.turn_messages(session, "t")] == ["a", "b"]
    other.execute("ROLLBACK")
    assert [m["id"] for m in host.turn_messages(session, "t")] == ["a", "b"]
    host.append_messages(session, [message("c")], turn_id="t")
    # a durable append does not wait for the index: who asks it does
    host.list_sessions()
    rows = other.execute("SELECT id, turn_id FROM messages ORDER BY seq").fetchall()
    assert rows == [("a", "t"), ("b", "t"), ("c", "t")]
    other.close()


# -- A6: ids, cuts, forks ---------------------------------------------------------------


def test_messages_without_an_id_are_not_written_to(data_dir: Path) -> None:
    """A6.2"""
    line = b'{"type":"message","role":"user","blocks":[],"createdAt":"2026-01-01T00:00:00Z"}\n'
    path = put(data_dir, HEADER + line * 10)
    with mmapstore.Host(data_dir) as host:
        window = host.get_session("s")
        assert len(window.messages) == 10
        address = window.message_ids[3]
        for call in (
            lambda: host.truncate_from("s", address),
            lambda: host.set_review_state("s", address, "s1", "x"),
            lambda: host.fork_session("s", address),
        ):
            with pytest.raises(mmapstore.MessageNotFoundError):
                call()
        with pytest.raises(mmapstore.InvalidRecordError):
            host.append_message("s", message(address))
        assert path.read_bytes() == HEADER + line * 10
        assert len(host.get_session(host.fork_session("s").id)) == 10
        assert host.truncate_from("s", before=4).kept == 4


def test_a_cut_at_the_beginning_and_after_a_restart(data_dir: Path) -> None:
    """A6.3, A6.4, A6.6, A6.8"""
    put(data_dir, HEADER + M("a") + M("b"))
    with mmapstore.Host(data_dir) as host:
        assert host.truncate_from("s", "b").kept == 1
        assert ids(host, "s") == ["a"]
        assert host.truncate_from("s", before=0).kept == 0
        assert ids(host, "s") == []
    with mmapstore.Host(data_dir) as host:
        assert ids(host, "s") == []
        assert host.append_message("s", message("c")) == 0


def test_a_cut_counts_messages_and_nothing_else(data_dir: Path) -> None:
    """A6.7"""
    put(data_dir, HEADER + M("a") + C("c") + b"\n" + R("x", "s", "y") + M("b") + M("c"))
    with mmapstore.Host(data_dir) as host:
        window = host.get_session("s", limit=1, before=2)
        cut = host.truncate_from("s", before=window.start)
        assert (cut.kept, cut.discarded) == (1, 2)
        assert ids(host, "s") == ["a"]


def test_a_repeated_id_is_cut_at_its_first_line(data_dir: Path) -> None:
    put(data_dir, HEADER + M("a") + M("b") + M("c") + M("b", "later"))
    with mmapstore.Host(data_dir) as host:
        assert host.truncate_from("s", "b").kept == 1
        assert ids(host, "s") == ["a"]


def test_a_fork_changes_nothing_of_its_parent(host: mmapstore.Host) -> None:
    """A6.1, A6.9: usable from the first message on; the lineage is told."""
    session = host.create_session(title="P").id
    host.append_messages(
        session,
        [
            user("u1"),
            tool("x1", "s1", meta={"parentToolCallId": "call-x1", "keep": "u1"}),
            message("a1", text="u1"),
        ],
    )
    host.append_compaction(
        session,
        compaction("c1", "x1", firstKeptMessageId="u1", retainedTail=[{"id": "u1", "text": "u1"}]),
    )
    before = transcript(host, session).read_bytes()
    first = host.fork_session(session, "u1")
    assert len(host.get_session(first.id)) == 1
    assert list(host.get_session(first.id).compactions) == []
    child = host.fork_session(session, "a1", title="C")
    assert child.title == "C"
    header = lines(transcript(host, child.id))[0]
    assert header["forkedFrom"] == {"sessionId": session, "throughMessageId": "a1"}
    u1, x1, a1 = shown(host, child.id)
    call = x1["blocks"][0]["callId"]
    assert call != "call-x1"
    assert x1["meta"] == {"parentToolCallId": call, "keep": "u1"}
    assert a1["blocks"][0]["text"] == "u1"  # text that looks like an id
    (checkpoint,) = host.get_session(child.id).compactions
    assert checkpoint["throughMessageId"] == x1["id"]
    assert checkpoint["firstKeptMessageId"] == u1["id"]
    assert checkpoint["retainedTail"] == [{"id": u1["id"], "text": "u1"}]
    host.append_message(child.id, message("new"))
    host.append_message(first.id, message("new"))
    assert transcript(host, session).read_bytes() == before
    assert host.fork_session(child.id).title == "C"


def test_checkpoints_that_say_nothing_drop_nothing(data_dir: Path) -> None:
    """A6.10"""
    empty = b'{"type":"compaction","id":"c","summary":"","throughMessageId":"a"}\n'
    path = put(data_dir, HEADER + M("a") + empty * 2 + M("b") + empty[:20])
    with mmapstore.Host(data_dir) as host:
        host.append_message("s", message("d"))
        assert ids(host, "s") == ["a", "b", "d"]
        assert path.read_bytes().startswith(HEADER + M("a") + empty * 2 + M("b") + empty[:20])


# -- A7, A8: text and numbers -----------------------------------------------------------


def test_lone_surrogates_are_written_as_escapes(host: mmapstore.Host) -> None:
    """A7.6, A7.1: and are read back as they were given; U+2028 and its like split nothing."""
    session = host.create_session(title="T\ud83d").id
    text = "\ud83d a\u2028b\u2029c\x85d\x0be\x0cf\0 \udc00\ud83d"
    host.append_message(session, message("m\ud83d", text=text), turn_id="\udc00")
    assert b"\\ud83d" in transcript(host, session).read_bytes()
    assert transcript(host, session).read_bytes().count(b"\n") == 2
    assert shown(host, session)[0]["blocks"][0]["text"] == text
    assert host.append_message(session, message("m\ud83d", text=text)) == 0
    assert len(host.turn_messages(session, "\udc00")) == 1
    assert host.list_sessions()[0].id == session
    with mmapstore.open(transcript(host, session)) as t:
        assert t.message("m\ud83d")["turnId"] == "\udc00"
    host.reindex()
    assert len(host.turn_messages(session, "\udc00")) == 1


# -- A11: errors and atomic rewrites ----------------------------------------------------


def test_a_failure_is_told_and_the_next_append_holds_all(
    host: mmapstore.Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A11.1, A11.2"""
    session = host.create_session().id
    host.append_message(session, message("a"))
    for mode in ("error", "short", "late"):
        with (
            failing(monkeypatch, 0, mode),
            pytest.raises(mmapstore.WriteFailedError),
        ):
            host.append_message(session, message("b"))
    host.append_message(session, message("b"))
    assert ids(host, session) == ["a", "b"]
    before = transcript(host, session).read_bytes()
    with failing(monkeypatch, 0, "short"), pytest.raises(mmapstore.WriteFailedError) as info:
        host.update_message(session, message("a", text="new"))
    assert info.value.errno == 5
    assert transcript(host, session).read_bytes() == before
    assert not list(Path(host.data_dir).rglob("*.tmp"))


def test_signals_lose_no_record(host: mmapstore.Host) -> None:
    """A11.3"""
    session = host.create_session().id
    seen = []
    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for number in range(150):
            host.append_message(session, message(f"m{number}", text="x" * 20_000))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert seen
    assert ids(host, session) == [f"m{number}" for number in range(150)]


def test_a_link_is_not_detached(data_dir: Path, tmp_path: Path) -> None:
    """A11.7: it is read, and not written to."""
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(HEADER + M("a"))
    (data_dir / "sessions" / "s.jsonl").symlink_to(elsewhere)
    with mmapstore.Host(data_dir) as host:
        assert ids(host, "s") == ["a"]
        for call in (
            lambda: host.append_message("s", message("b")),
            lambda: host.truncate_from("s", "a"),
        ):
            with pytest.raises(mmapstore.NotATranscriptError):
                call()
    assert elsewhere.read_bytes() == HEADER + M("a")
    assert (data_dir / "sessions" / "s.jsonl").is_symlink()


def test_another_program_writes_between_the_decision_and_the_rename(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(data_dir, HEADER + M("a") + M("b"))
    from mmapstore import fileio

    real = fileio.sync_data

    def sync(fd: int) -> None:
        real(fd)
        with path.open("ab") as file:
            file.write(M("late"))

    with mmapstore.Host(data_dir) as host:
        host.append_message("s", message("c"))
        monkeypatch.setattr(fileio, "sync_data", sync)
        with pytest.raises(mmapstore.TranscriptChangedError):
            host.truncate_from("s", "b")
        monkeypatch.undo()
        assert ids(host, "s") == ["a", "b", "c", "late"]
        assert not list(data_dir.rglob("*.tmp"))


@pytest.mark.parametrize("umask", [0, 0o077])
def test_modes(tmp_path: Path, umask: int) -> None:
    """A11.9, A12.4"""
    old = os.umask(umask)
    try:
        with mmapstore.Host(tmp_path / "a" / "b") as host:
            session = host.create_session().id
            host.append_messages(session, [user("u1"), message("a1")])
            host.save_revision(session, "u1", [message("r")])
            for path in [tmp_path / "a", *(tmp_path / "a").rglob("*")]:
                expected = 0o700 if path.is_dir() else 0o600
                assert path.stat().st_mode & 0o777 == expected, path
            transcript(host, session).chmod(0o640)
            host.update_message(session, message("a1", text="new"))
            host.truncate_from(session, "a1")
            assert transcript(host, session).stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(old)


# -- A12: names -------------------------------------------------------------------------

BAD_IDS = ["../x", "/abs", "a/b", "a\\b", "..", ".", "", "a\0b", "a.", "a ", "%2e", "é", "a" * 201]


@pytest.mark.parametrize("name", [*BAD_IDS, None, 7, b"s"])
def test_a_bad_session_id_is_refused_before_any_file(
    host: mmapstore.Host, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A12.1, A12.2"""
    calls = [
        lambda: host.get_session(name),
        lambda: host.append_message(name, message("a")),
        lambda: host.append_compaction(name, compaction("c", "a")),
        lambda: host.set_review_state(name, "a", "s", "x"),
        lambda: host.update_message(name, message("a")),
        lambda: host.replace_messages(name, []),
        lambda: host.truncate_from(name, "a"),
        lambda: host.fork_session(name),
        lambda: host.save_revision(name, "a", []),
        lambda: host.save_active_revision(name),
        lambda: host.list_revisions(name, "a"),
        lambda: host.activate_revision(name, "a", 1),
        lambda: host.delete_revision(name, "a", 1),
        lambda: host.turn_messages(name, "t"),
        lambda: host.delete_session(name),
        *([lambda: host.navigate(name)] if name is not None else []),
    ]

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a file was touched")

    for function in ("open", "stat", "lstat", "unlink", "scandir"):
        monkeypatch.setattr(os, function, touched)
    for call in calls:
        with pytest.raises(InvalidSessionIdError):
            call()
    monkeypatch.undo()


def test_the_longest_id_does_everything(data_dir: Path) -> None:
    """A12.2"""
    name = "x" * 200
    put(data_dir, HEADER + M("a"), name)
    with mmapstore.Host(data_dir) as host:
        host.append_messages(name, [user("u1"), message("a1")])
        host.save_revision(name, "u1", [message("r")])
        host.activate_revision(name, "u1", 1)
        host.truncate_from(name, "u1")
        host.fork_session(name)
        host.delete_session(name)
        assert not list((data_dir / "sessions").glob("xxx*"))


def test_the_list_is_the_disk(data_dir: Path) -> None:
    """A12.3, A12.5, A12.6: whatever was added and removed behind the host's back."""
    put(data_dir, HEADER + M("a"), "one")
    put(data_dir, HEADER + M("a"), "ONE")
    with mmapstore.Host(data_dir) as host:
        assert {s.id for s in host.list_sessions()} == {"one", "ONE"}
        host.append_message("one", message("b"))
        assert ids(host, "ONE") == ["a"]
        put(data_dir, HEADER.replace(b"}", b',"title":"late"}') + M("a"), "two")
        (data_dir / "sessions" / "ONE.jsonl").unlink()
        assert {(s.id, s.title) for s in host.list_sessions()} == {("one", None), ("two", "late")}
        with pytest.raises(mmapstore.SessionNotFoundError):
            host.get_session("ONE")


def test_deletion_removes_every_file_and_nobody_elses(host: mmapstore.Host) -> None:
    session = host.create_session().id
    host.append_messages(session, [user("u1"), message("a1")])
    host.save_revision(session, "u1", [message("r")])
    folder = transcript(host, session).parent
    (folder / f"{session}.jsonl.layout.1-1.tmp").write_bytes(b"")
    (folder / f"{session}x.jsonl").write_bytes(HEADER)
    host.list_sessions()
    host.delete_session(session)
    assert [p.name for p in folder.iterdir() if not p.name.endswith(".layout")] == [
        f"{session}x.jsonl"
    ]
    assert not (folder / f"{session}.jsonl.layout").exists()
    with pytest.raises(mmapstore.SessionNotFoundError):
        host.delete_session(session)
    db = sqlite3.connect(Path(host.data_dir) / "index.sqlite")
    for table in ("messages", "revisions"):
        assert db.execute(f"SELECT * FROM {table}").fetchall() == []
    db.close()


def test_a_stale_or_newer_header(data_dir: Path) -> None:
    path = put(data_dir, HEADER.replace(b'"schema":2', b'"schema":3') + M("a"))
    with mmapstore.Host(data_dir) as host:
        assert ids(host, "s") == ["a"]
        with pytest.raises(mmapstore.MmapStoreError, match="format 3"):
            host.append_message("s", message("b"))
        put(data_dir, HEADER.replace(b'"schema":2', b'"schema":1') + M("a"))
        host.append_message("s", message("b"))
    assert json.loads(path.read_bytes().split(b"\n")[0])["schema"] == 1


FEW = """
import gc, resource, sys
import mmapstore
from tests.host_support import states, tool

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with mmapstore.Host(sys.argv[1]) as host:
    names = [host.create_session().id for _ in range(40)]
    for name in names * 2:
        host.append_message(name, tool("x", "s1"))
        host.set_review_state(name, "x", "s1", "rolledBack")
        gc.collect()  # what a transcript out of a cache held goes with the collector alone
    windows = [host.get_session(name) for name in names[:10]]
    assert all(states(window.messages[0]) == ["rolledBack"] for window in windows)
"""


def test_many_sessions_with_few_descriptors(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FEW, str(tmp_path)], check=False)
    assert done.returncode == 0


# -- letting go ---------------------------------------------------------------------------


def vanish(path: Path) -> None:
    path.unlink()


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_nothing(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("change", [vanish, become_a_directory, become_a_fifo, become_nothing])
@pytest.mark.parametrize("how", ["close", "evict", "delete"])
def test_letting_go_of_what_has_changed_costs_nothing_else(
    data_dir: Path, change: Any, how: str
) -> None:
    host = mmapstore.Host(data_dir)
    session = host.create_session().id
    host.append_message(session, message("a"))
    host.append_message(session, message("b"))
    path = transcript(host, session)
    change(path)
    if how == "evict":
        others = [host.create_session().id for _ in range(12)]
        assert {each.id for each in host.list_sessions()} >= set(others)
    elif how == "delete" and not path.is_dir():
        with suppress(mmapstore.SessionNotFoundError):
            host.delete_session(session)
        assert not os.path.lexists(path)
    host.close()
    with mmapstore.Host(data_dir) as again:  # the lock is free
        again.create_session()


def test_what_cannot_be_written_to_the_index_costs_the_lock_nothing(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = mmapstore.Host(data_dir)
    host.append_message(host.create_session().id, message("a"))
    with monkeypatch.context() as patch:
        patch.setattr(Index, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            host.close()
    mmapstore.Host(data_dir).close()


@pytest.mark.parametrize("at", ["changed_in", "changed_ns"])
def test_an_interrupt_before_the_index_is_told_costs_it_no_message(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with mmapstore.Host(data_dir) as host:
        session = host.create_session().id
        host.append_message(session, message("a"), turn_id="t")
        real = Opened.__setattr__

        def interrupted(opened: Opened, name: str, value: Any) -> None:
            if name == at and value is not None:
                raise KeyboardInterrupt
            real(opened, name, value)

        with monkeypatch.context() as patch:
            patch.setattr(Opened, "__setattr__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                host.append_message(session, message("b"), turn_id="t")
        assert host.append_message(session, message("b"), turn_id="t") == 1
        assert [m["id"] for m in host.turn_messages(session, "t")] == ["a", "b"]
    with mmapstore.Host(data_dir) as host:
        assert [m["id"] for m in host.turn_messages(session, "t")] == ["a", "b"]
