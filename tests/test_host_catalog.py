"""The index is derived: no error of it is anybody's but its own."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

import mmapstore
from mmapstore.host.catalog import SCHEMA, Catalog, MessageRow, SessionRow, string, text
from tests.host_support import (
    Died,
    abandon,
    failing,
    ids,
    message,
    revisions_file,
    root_meta,
    transcript,
    user,
)

ROW = SessionRow("s", "T", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", 2, "1:2:3:4:5")
MESSAGES = [
    MessageRow(0, "a", "t1", "user", "x"),
    MessageRow(1, "b", None, None, None),
    MessageRow(2, "c", "t1", "tool", "y"),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "index.sqlite")


def test_rows_are_there_after_a_restart(path: str) -> None:
    catalog = Catalog(path)
    assert catalog.put(ROW, MESSAGES, start=0)
    catalog.close()
    catalog = Catalog(path)
    assert catalog.session("s") == ROW
    assert catalog.sessions() == {"s": ROW}
    assert catalog.session("other") is None
    assert catalog.turn("s", "t1") == [0, 2]
    assert catalog.tally("s") == (3, "c")
    assert catalog.put(ROW, MESSAGES[:1], start=0)
    assert catalog.tally("s") == (1, "a")
    assert catalog.remove("s")
    assert catalog.tally("s") == (0, None)
    catalog.close()


def test_how_it_is_set_up(path: str) -> None:
    catalog = Catalog(path)
    assert catalog._db is not None
    pragmas = ("journal_mode", "synchronous", "mmap_size", "user_version")
    found = [catalog._db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
    assert found == ["wal", 1, 0, SCHEMA]
    assert os.stat(path).st_mode & 0o777 == 0o600
    catalog.close()


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 99",
        "DROP TABLE messages",
        "DROP TABLE sessions",
        "ALTER TABLE sessions DROP COLUMN title",
    ],
)
def test_another_schema_is_made_anew(path: str, statement: str) -> None:
    catalog = Catalog(path)
    catalog.put(ROW, MESSAGES, start=0)
    catalog.close()
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()
    catalog = Catalog(path)
    catalog.put(ROW, MESSAGES, start=0)
    assert catalog.put(ROW, MESSAGES, start=0)
    assert catalog.turn("s", "t1") == [0, 2]
    catalog.close()


def test_a_database_that_breaks_while_it_is_open(path: str) -> None:
    catalog = Catalog(path)
    assert catalog._db is not None
    catalog._db.execute("DROP TABLE messages")
    assert catalog.turn("s", "t") is None
    assert catalog.put(ROW, MESSAGES, start=0)
    assert catalog.turn("s", "t1") == [0, 2]
    catalog.close()


def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").mkdir()
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session(title="T").id
        host.append_messages(session, [message("a"), message("b")], turn_id="t")
        assert [m["id"] for m in host.turn_messages(session, "t")] == ["a", "b"]
        assert host.list_sessions()[0].title == "T"
        host.reindex()
        assert ids(host, session) == ["a", "b"]


def test_text_that_the_database_cannot_hold() -> None:
    assert text("a") == "a"
    assert text("a\ud83d") == b"a\xed\xa0\xbd"
    assert text(5) is None
    assert text(None) is None
    for value in ("", "a", "a\ud83d", "\\ud83d", "é行😀", None):
        assert string(text(value)) == value


def test_the_first_mutation_holds_the_rows_against_the_layout(tmp_path: Path) -> None:
    """Rows that say the right stamp and the wrong thing."""
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [message("a"), message("b")], turn_id="t")
    db = sqlite3.connect(tmp_path / "index.sqlite")
    db.execute("DELETE FROM messages WHERE seq = 1")
    db.commit()
    with mmapstore.Host(tmp_path) as host:
        host.append_messages(session, [message("c")], turn_id="t")
        assert [m["id"] for m in host.turn_messages(session, "t")] == ["a", "b", "c"]
    rows = db.execute("SELECT seq, id, turn_id, role FROM messages ORDER BY seq").fetchall()
    assert rows == [(i, name, "t", "assistant") for i, name in enumerate("abc")]
    db.close()


def test_what_the_index_says_after_each_operation(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session(title="T").id
        host.append_messages(
            session, [user("u1", meta=root_meta("u1", 1, 1)), message("a1"), message("a2")]
        )
        host.save_active_revision(session)
        host.update_message(session, message("a1", turnId="t"))
        host.truncate_from(session, "a2")
        db = sqlite3.connect(tmp_path / "index.sqlite")
        rows = db.execute("SELECT seq, id, turn_id FROM messages ORDER BY seq").fetchall()
        assert rows == [(0, "u1", None), (1, "a1", "t")]
        rows = db.execute(
            "SELECT root_user_id, revision_index, is_active FROM revisions"
        ).fetchall()
        assert rows == [("u1", 1, 1)]
        (count,) = db.execute("SELECT message_count FROM sessions").fetchone()
        assert count == 2
        db.close()


def branch_rows(directory: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(directory / "index.sqlite") as db:
        found = db.execute("SELECT root_user_id, revision_index FROM revisions ORDER BY 1, 2")
        rows = found.fetchall()
    db.close()
    return rows


def test_branches_that_the_index_was_not_told_of_are_told_at_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that dies between the archive and the transcript leaves the one without the other."""
    host = mmapstore.Host(tmp_path)
    session = host.create_session().id
    host.append_messages(session, [user("u1"), message("a1")])
    with failing(monkeypatch, 0, "die", only="replace"), pytest.raises(Died):
        host.truncate_from(session, "a1")
    with failing(monkeypatch, 1, "die", only="replace"), pytest.raises(Died):
        host.truncate_from(session, "u1")
    abandon(host)
    assert branch_rows(tmp_path) == []
    mmapstore.Host(tmp_path).close()
    assert branch_rows(tmp_path) == [("u1", 1)]
    revisions_file(host, session).unlink()
    mmapstore.Host(tmp_path).close()
    assert branch_rows(tmp_path) == []


def test_an_archive_without_its_transcript_is_of_no_session(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("u1"), message("a1")])
        host.truncate_from(session, "u1")
        transcript(host, session).unlink()
        assert host.list_sessions() == []
        assert revisions_file(host, session).exists()
    assert branch_rows(tmp_path) == []
