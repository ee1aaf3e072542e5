"""The index: what the sessions are, and which turn a message belongs to; derived, always.

Everything in here can be told from the transcripts, so nothing is ever lost with it: a
database that is gone, damaged or of another schema is made anew, and one that cannot be
written to just now lags behind. Each session's rows name the stamp of the file that they
describe: they are believed for that file alone. The file is written first.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref
from typing import TYPE_CHECKING, NamedTuple

from .. import fileio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SCHEMA = 2
#: how long an append may wait for another program that reads the index, seconds
_PATIENCE_S = 0.05

_TABLES = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, title TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    message_count INTEGER NOT NULL, stamp TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE archives (session_id TEXT PRIMARY KEY, stamp TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE messages (
    session_id TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT, turn_id TEXT, role TEXT,
    created_at TEXT, PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;
CREATE INDEX messages_of_turn ON messages (session_id, turn_id) WHERE turn_id IS NOT NULL;
CREATE TABLE revisions (
    session_id TEXT NOT NULL, root_user_id TEXT NOT NULL, revision_index INTEGER NOT NULL,
    is_active INTEGER NOT NULL, message_count INTEGER NOT NULL, created_at TEXT NOT NULL,
    PRIMARY KEY (session_id, root_user_id, revision_index)
) WITHOUT ROWID;
"""


Text = str | bytes


class SessionRow(NamedTuple):
    """What the index says of a session.

    Attributes
    ----------
    id, title, created_at, updated_at : str
        As the library shows them.
    message_count : int
        Message lines of the file.
    stamp : str
        Of the file that the rows describe.
    """

    id: str
    title: Text | None
    created_at: str
    updated_at: str
    message_count: int
    stamp: str


class MessageRow(NamedTuple):
    """What the index says of a message line; `seq` is its position."""

    seq: int
    id: Text | None
    turn_id: Text | None
    role: Text | None
    created_at: Text | None


class RevisionRow(NamedTuple):
    """What the index says of an archived branch."""

    root_user_id: Text
    revision_index: int
    is_active: bool
    message_count: int
    created_at: Text


class Catalog:
    """The index of one data directory; used under the host's state lock.

    Parameters
    ----------
    path : str
        Of the database.

    Notes
    -----
    No method raises for the index's sake: reading gives None, and writing False, where it
    cannot be done.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._open()

    def _open(self) -> None:
        for _ in range(2):
            try:
                self._connect()
            except OSError:
                return
            except sqlite3.Error as error:
                if not _is_damage(error):
                    self.close()
                    return
                self._discard()
            else:
                return

    def _connect(self) -> None:
        fileio.make_private_file(self._path)
        db = sqlite3.connect(
            self._path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
        )
        self._db = db
        # a host that nobody closes must not leave it to the interpreter's end, which complains
        weakref.finalize(self, _close, db, os.getpid())
        db.execute("PRAGMA mmap_size = 0")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA:
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables != (0,):
                raise sqlite3.DatabaseError("another schema")
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {SCHEMA};COMMIT")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")

    def _discard(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(self._path + suffix)

    def close(self) -> None:
        """Let go of the database."""
        db, self._db = self._db, None
        if db is not None:
            with contextlib.suppress(sqlite3.Error):
                db.close()

    def recreate(self) -> None:
        """Begin with an empty index."""
        self._discard()
        self._open()

    # -- reading ----------------------------------------------------------------------

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]] | None:
        if self._db is None:
            return None
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            if _is_damage(error):
                self.recreate()
            return None

    def sessions(self) -> dict[str, SessionRow]:
        """Return what is known of the sessions."""
        rows = self._rows(f"SELECT {', '.join(SessionRow._fields)} FROM sessions")
        found = (SessionRow(*row) for row in rows or ())  # type: ignore[arg-type]
        return {row.id: row for row in found}

    def session(self, session_id: str) -> SessionRow | None:
        """Return what is known of one session."""
        rows = self._rows(
            f"SELECT {', '.join(SessionRow._fields)} FROM sessions WHERE id = ?", session_id
        )
        return SessionRow(*rows[0]) if rows else None  # type: ignore[arg-type]

    def turn(self, session_id: str, turn_id: str) -> list[int] | None:
        """Return the positions of a turn's messages."""
        rows = self._rows(
            "SELECT seq FROM messages WHERE session_id = ? AND turn_id = ? ORDER BY seq",
            session_id,
            text(turn_id),
        )
        return None if rows is None else [int(str(row[0])) for row in rows]

    def tally(self, session_id: str) -> tuple[int, Text | None] | None:
        """Return how many message rows a session has, and the id in the last of them."""
        rows = self._rows(
            "SELECT count(*), (SELECT id FROM messages WHERE session_id = ? ORDER BY seq DESC"
            " LIMIT 1) FROM messages WHERE session_id = ?",
            session_id,
            session_id,
        )
        if not rows:
            return None
        count, last = rows[0]
        return int(str(count)), last if isinstance(last, str | bytes) else None

    # -- writing ----------------------------------------------------------------------

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> bool:
        if self._db is None:
            self._open()
        db = self._db
        if db is None:
            return False
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except OverflowError:
            return False  # a number that the database cannot hold
        except sqlite3.Error as error:
            if _is_damage(error):
                self.recreate()
            return False
        return True

    def put(
        self, session: SessionRow, messages: Iterable[MessageRow] = (), *, start: int | None = None
    ) -> bool:
        """Write what a session is, and its message rows from position `start` on."""

        def work(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO sessions VALUES ({_marks(SessionRow)})", session)
            if start is not None:
                db.execute(
                    "DELETE FROM messages WHERE session_id = ? AND seq >= ?", (session.id, start)
                )
            db.executemany(
                f"INSERT OR REPLACE INTO messages VALUES (?, {_marks(MessageRow)})",
                ((session.id, *row) for row in messages),
            )

        return self._write(work)

    def archives(self) -> dict[str, str]:
        """Return the stamp of the archive that is described of each session which has one."""
        return dict(self._rows("SELECT session_id, stamp FROM archives") or ())  # type: ignore[arg-type]

    def put_revisions(self, session_id: str, stamp: str, rows: Iterable[RevisionRow]) -> bool:
        """Write what a session's archived branches are, and of which archive that is told."""

        def work(db: sqlite3.Connection) -> None:
            db.execute("INSERT OR REPLACE INTO archives VALUES (?, ?)", (session_id, stamp))
            db.execute("DELETE FROM revisions WHERE session_id = ?", (session_id,))
            db.executemany(
                f"INSERT INTO revisions VALUES (?, {_marks(RevisionRow)})",
                ((session_id, *row) for row in rows),
            )

        return self._write(work)

    def remove(self, session_id: str) -> bool:
        """Forget a session."""

        def work(db: sqlite3.Connection) -> None:
            for table, key in (
                ("sessions", "id"),
                ("messages", "session_id"),
                ("revisions", "session_id"),
                ("archives", "session_id"),
            ):
                db.execute(f"DELETE FROM {table} WHERE {key} = ?", (session_id,))

        return self._write(work)


def _close(db: sqlite3.Connection, owner: int) -> None:
    # a child of the process must not touch what its parent works with
    if os.getpid() == owner:
        with contextlib.suppress(sqlite3.Error):
            db.close()


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether an error is one that a new database does not have; a busy or a full one would."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF in (
        sqlite3.SQLITE_ERROR,  # no such table, no such column
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_FORMAT,
    )


def text(value: object) -> Text | None:
    """Return a string as the database can hold it; None for anything else.

    Lone surrogates, which JSON can have, make bytes of it; see :func:`string`.
    """
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def string(value: Text | None) -> str | None:
    """Return the string that :func:`text` was given."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def _marks(row: type[tuple[object, ...]]) -> str:
    return ", ".join("?" * len(row._fields))  # type: ignore[attr-defined]
