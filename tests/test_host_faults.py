"""Every call to the system failing in every way, under every operation: before or after, never between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import WriteFailedError, fileio
from mmapstore.host.linefile import LineFile
from mmapstore.stamp import Stamp
from tests.host_support import (
    Died,
    abandon,
    compaction,
    failing,
    ids,
    message,
    revisions_file,
    root_meta,
    shown,
    states,
    tool,
    transcript,
    user,
)

Operation = Callable[[mmapstore.Host, str], Any]


def made(directory: Path) -> tuple[mmapstore.Host, str]:
    """Return a host with a session that every operation has something to do in."""
    host = mmapstore.Host(directory)
    session = host.create_session(title="T").id
    host.append_messages(session, [user("u1"), message("a1"), tool("x1", "s1")], turn_id="t1")
    host.truncate_from(session, "u1")
    meta = root_meta("u1", 2, 2)
    host.append_messages(session, [user("u2", meta=meta), message("a2"), tool("x2", "s2")])
    host.set_review_state(session, "x2", "s2", "rolledBack")
    return host, session


OPERATIONS: dict[str, Operation] = {
    "append": lambda host, s: host.append_messages(
        s, [message("n1"), message("n2", text="é" * 99)]
    ),
    "compact": lambda host, s: host.append_compaction(s, compaction("c1", "a2")),
    "review": lambda host, s: host.set_review_state(s, "x2", "s2", "active"),
    "update": lambda host, s: host.update_message(s, message("a2", text="changed")),
    "replace": lambda host, s: host.replace_messages(s, [tool("x2", "s2"), message("new")]),
    "truncate": lambda host, s: host.truncate_from(s, "u2"),
    "save": lambda host, s: host.save_revision(s, "u1", [message("r1")]),
    "save active": lambda host, s: host.save_active_revision(s),
    "activate": lambda host, s: host.activate_revision(s, "u1", 1),
    "delete revision": lambda host, s: host.delete_revision(s, "u1", 1),
    "create": lambda host, s: host.create_session(title="other"),
    "fork": lambda host, s: host.fork_session(s, "a2", title="other"),
    "delete": lambda host, s: host.delete_session(s),
}


def state(host: mmapstore.Host, session: str) -> Any:
    """Return all that a caller can see of a session, ids of new ones left out."""
    others = sorted((s.title or "") for s in host.list_sessions() if s.id != session)
    try:
        window = host.get_session(session, limit=None)
    except mmapstore.SessionNotFoundError:
        return others
    messages = [{**m, "meta": None} for m in shown(host, session)]
    return messages, [c["id"] for c in window.compactions], others


def archived(host: mmapstore.Host, session: str) -> set[int]:
    try:
        return {revision.index for revision in host.list_revisions(session, "u1")}
    except mmapstore.MmapStoreError:
        return set()


def is_after(now: Any, before: Any, after: Any, operation: str) -> bool:
    assert now in (before, after) or operation == "append", operation
    if operation == "append" and now not in (before, after):
        # of lines that go out in one write the first may be whole
        assert now[0][: len(before[0])] == before[0]
        assert now[0] == after[0][: len(now[0])]
    return bool(now == after)


@pytest.mark.parametrize("mode", ["error", "short", "late", "die", "die after", "die short"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_call_that_fails_leaves_what_was_or_what_was_asked_for(
    operation: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = OPERATIONS[operation]
    host, session = made(tmp_path / "whole")
    before = state(host, session)
    with failing(monkeypatch, -1, mode) as calls:
        run(host, session)
    count = len(calls)
    after = state(host, session)
    after_archive = archived(host, session)
    host.close()
    assert 0 < count < 30
    for at in range(count):
        host, session = made(tmp_path / f"{at}")
        archive = archived(host, session)
        with failing(monkeypatch, at, mode) as calls:
            try:
                run(host, session)
                failed = False
            except (WriteFailedError, Died):
                failed = True
        # what could not be tidied up is no failure of the operation
        assert failed or calls[at] == "unlink"
        if mode.startswith("die"):
            abandon(host)
            host = mmapstore.Host(tmp_path / f"{at}")
        now = state(host, session)
        done = is_after(now, before, after, operation)
        assert done or failed
        assert not (archive - archived(host, session)) or operation in ("delete revision", "delete")
        # asked again, it is done
        if operation == "delete" and done:
            assert not list((tmp_path / f"{at}" / "sessions").glob(f"{session}.jsonl"))
        elif operation not in ("create", "fork", "truncate", "delete revision") or not done:
            run(host, session)
            again = state(host, session)
            assert again == after or (operation in ("create", "fork") and done)
            assert archived(host, session) == after_archive or operation == "save"
        assert not list((tmp_path / f"{at}").rglob("*.tmp")) or not mode.startswith("die")
        host.close()


def test_a_sync_that_failed_is_never_asked_again_on_what_it_failed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A11.4, fsyncgate: the file is copied into a new one; the old inode is not synced again."""
    host, session = made(tmp_path)
    path = transcript(host, session)
    synced: list[int] = []
    real = fileio.sync_data

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        if len(synced) == 1:
            raise OSError(5, "injected")
        real(fd)

    monkeypatch.setattr(fileio, "sync_data", sync)
    old = path.stat().st_ino
    with pytest.raises(WriteFailedError):
        host.append_message(session, message("n1"))
    content = path.read_bytes()
    # the line can be read, and it is not known to be on the disk: it is not acknowledged
    assert host.append_message(session, message("n1")) == 3
    assert synced.count(old) == 1
    assert path.stat().st_ino != old
    assert path.read_bytes() == content
    host.close()


def test_what_was_found_is_synced_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that a host wrote before it died may not be on the disk: the same id asks for it."""
    host, session = made(tmp_path)
    with failing(monkeypatch, 0, "die", only="sync_data"), pytest.raises(Died):
        host.append_message(session, message("n1"))
    abandon(host)
    host = mmapstore.Host(tmp_path)
    size = transcript(host, session).stat().st_size
    with failing(monkeypatch, 0, "error", only="sync_data"), pytest.raises(WriteFailedError):
        host.append_message(session, message("n1"))
    with failing(monkeypatch, -1, "error", only="sync_data") as calls:
        assert host.append_message(session, message("n1")) == 3
    assert calls == ["sync_data"]
    assert transcript(host, session).stat().st_size == size
    host.close()


@pytest.mark.parametrize("closed", [False, True])
def test_what_another_program_wrote_is_synced_before_it_is_acknowledged(
    closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the session had been settled, and let go of, before."""
    host, session = made(tmp_path)
    host.append_message(session, message("n0"))
    if closed:
        host._directory.forget(session)
    with transcript(host, session).open("ab") as file:
        file.write(orjson.dumps({"type": "message", **message("n1")}) + b"\n")
    with failing(monkeypatch, -1, "error") as calls:
        assert host.append_message(session, message("n1")) == 4
    assert "sync_data" in calls
    assert "append" not in calls
    with failing(monkeypatch, -1, "error") as calls:
        host._directory.forget(session)
        assert host.append_message(session, message("n1")) == 4
    assert calls == []
    host.close()


def test_what_was_found_in_the_archive_is_synced_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, session = made(tmp_path)
    with failing(monkeypatch, 0, "die", only="sync_data"), pytest.raises(Died):
        host.save_active_revision(session)
    abandon(host)
    host = mmapstore.Host(tmp_path)
    archive = revisions_file(host, session)
    synced: list[int] = []
    real = fileio.sync_data
    monkeypatch.setattr(
        fileio, "sync_data", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd))
    )
    size = archive.stat().st_size
    assert host.save_active_revision(session) is not None
    assert archive.stat().st_size == size
    assert archive.stat().st_ino in synced
    host.close()


@pytest.mark.parametrize("again", [False, True], ids=["once", "again and again"])
@pytest.mark.parametrize("fresh", [False, True], ids=["held open", "opened anew"])
@pytest.mark.parametrize("how", ["replaced", "grown", "same size"])
def test_an_append_goes_to_the_file_that_was_decided_on(
    how: str, fresh: bool, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is looked at just before the write; a file that has changed is decided on anew."""
    host, session = made(tmp_path)
    if fresh:
        host.close()
        host = mmapstore.Host(tmp_path)
    else:
        host.append_message(session, message("n0"))
    path = transcript(host, session)
    real = LineFile._is
    changes = iter(range(100 if again else 1))

    def looked(file: LineFile, known: Stamp) -> bool:
        number = next(changes, None)
        if number is not None and file.path == str(path):
            data = path.read_bytes()
            if how == "replaced":
                path.with_suffix(".other").write_bytes(data)
                os.replace(path.with_suffix(".other"), path)
            elif how == "grown":
                path.write_bytes(data + b"{}\n")
            else:
                path.write_bytes(data.replace(b"says a", b"says A", 1 + number % 2).swapcase())
                path.write_bytes(data)
        return real(file, known)

    before = path.read_bytes()
    monkeypatch.setattr(LineFile, "_is", looked)
    if again or fresh:
        with pytest.raises(mmapstore.TranscriptChangedError):
            host.append_message(session, message("n1"))
        assert b'"n1"' not in path.read_bytes()
        monkeypatch.undo()
    position = host.append_message(session, message("n1"))
    monkeypatch.undo()
    assert position == (3 if fresh else 4)
    with mmapstore.open(path) as t:
        assert t.position("n1") == position
    assert path.read_bytes().startswith(before)
    host.close()


def test_an_append_beside_another_writer_says_where_its_lines_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, session = made(tmp_path)
    host.append_message(session, message("n0"))
    real = fileio.append

    def both(fd: int, data: bytes) -> None:
        os.write(
            fd, orjson.dumps(message("foreign")).replace(b"{", b'{"type":"message",', 1) + b"\n"
        )
        real(fd, data)

    monkeypatch.setattr(fileio, "append", both)
    assert host.append_messages(session, [message("n1"), message("n2")]) == [5, 6]
    monkeypatch.undo()
    assert ids(host, session)[3:] == ["n0", "foreign", "n1", "n2"]
    assert host.append_message(session, message("n3")) == 7
    host.close()


def test_one_write_and_one_sync_for_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, session = made(tmp_path)
    with failing(monkeypatch, -1, "error") as calls:
        host.append_messages(session, [message(f"n{i}") for i in range(50)])
    assert calls == ["append", "sync_data"]
    with failing(monkeypatch, -1, "error") as calls:
        host.set_review_state(session, "x2", "s2", "active")
    assert calls == ["append", "sync_data"]
    host.close()


def test_a_line_and_its_newline_go_out_in_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5.1: behind a fragment too."""
    host, session = made(tmp_path)
    path = transcript(host, session)
    with path.open("ab") as file:
        file.write(b'{"type":"mess')
    size = path.stat().st_size
    written: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_ino == path.stat().st_ino:
            written.append(bytes(data))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    host.append_messages(session, [message("n1"), message("n2")])
    host.set_review_state(session, "x2", "s2", "active")
    monkeypatch.undo()
    assert len(written) == 2
    assert written[0][:1] == b"\n"
    assert written[0].count(b"\n") == 3
    assert b"".join(written) == path.read_bytes()[size:]
    host.close()


def test_the_order_of_a_rewrite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A11.5: data on the disk, then the name, then the directory."""
    host, session = made(tmp_path)
    with failing(monkeypatch, -1, "error") as calls:
        host.update_message(session, message("a2", text="changed"))
    assert [call for call in calls if call not in ("append", "unlink")] == [
        "sync_data",
        "replace",
        "sync_directory",
    ]
    with failing(monkeypatch, -1, "error") as calls:
        host.create_session()
    assert calls == ["append", "sync_data", "replace", "sync_directory"]
    with failing(monkeypatch, -1, "error") as calls:
        host.save_revision(session, "u1", [message("r")])
    # the archive first
    assert calls[:2] == ["append", "sync_data"]
    host.close()


def test_a_short_count_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, session = made(tmp_path)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    host.append_message(session, message("n1", text="行" * 40))
    monkeypatch.undo()
    assert shown(host, session)[-1]["blocks"][0]["text"] == "行" * 40
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(WriteFailedError):
        host.append_message(session, message("n2"))
    monkeypatch.undo()
    host.append_message(session, message("n2"))
    assert ids(host, session)[-2:] == ["n1", "n2"]
    host.close()


def test_a_full_disk_in_the_middle_of_a_line(tmp_path: Path) -> None:
    """A11.1: the caller is told, and what is appended next stands on its own line."""
    resource = pytest.importorskip("resource")
    host, session = made(tmp_path)
    size = transcript(host, session).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for part in (1, 10, 100):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + part, hard))
        try:
            with pytest.raises(WriteFailedError) as info:
                host.append_message(session, message("n1", text="x" * 300))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert info.value.errno is not None
        assert "n1" not in ids(host, session)
    host.append_message(session, message("n1", text="x" * 300))
    assert ids(host, session) == ["u2", "a2", "x2", "n1"]
    host.close()


CHILD = """
import sys, mmapstore
host = mmapstore.Host(sys.argv[1])
session = sys.argv[2]
blocks = [{"type": "text", "text": "x" * 60000}]
for number in range(10**6):
    message = {"id": f"{sys.argv[3]}-{number}", "role": "user", "blocks": blocks}
    position = host.append_message(session, message)
    print(position, message["id"], flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_was_told(tmp_path: Path) -> None:
    host = mmapstore.Host(tmp_path)
    session = host.create_session().id
    host.close()
    acknowledged: list[str] = []
    for round_ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), session, str(round_)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for _ in range(3 + round_):
            _, name = child.stdout.readline().split()
            acknowledged.append(name)
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
        acknowledged += [line.split()[1] for line in rest if len(line.split()) == 2]
        child.wait()
        child.stdout.close()
        # the kernel has freed the lock
        with mmapstore.Host(tmp_path) as host:
            found = ids(host, session)
            assert set(acknowledged) <= set(found)
            assert len(found) == len(set(found))
            window = host.get_session(session)
            assert len(window.damaged) <= round_ + 1


def test_an_interrupt_while_a_line_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, session = made(tmp_path)

    def interrupted(fd: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fileio, "sync_data", interrupted)
        with pytest.raises(KeyboardInterrupt):
            host.append_message(session, message("n1"))
    with failing(monkeypatch, -1, "error") as calls:
        assert host.append_message(session, message("n1")) == 3
    assert "sync_data" in calls
    assert states(shown(host, session)[2]) == ["rolledBack"]
    assert revisions_file(host, session).exists()
    host.close()
