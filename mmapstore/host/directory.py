"""The sessions of a data directory: what lies there, what is open, and what the index says.

The directory is the truth. A session is listed because its file is there, and its index
rows are believed only for the file whose stamp they carry; every other is read again.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import fileio
from ..errors import InvalidSessionIdError, MmapStoreError, SessionNotFoundError
from .branches import Branches
from .catalog import Catalog, MessageRow, RevisionRow, SessionRow, text
from .journal import CACHE_SUFFIX, Journal
from .linefile import LineFile
from .records import check_session_id, instant, now
from .revisions import Revisions

if TYPE_CHECKING:
    from collections.abc import Iterator

#: sessions that are kept open; each costs two descriptors and its layout
OPEN_COUNT = 8

_SUFFIX = ".jsonl"
_REVISIONS_SUFFIX = ".revisions.jsonl"


class Session(NamedTuple):
    """A session of a host.

    Attributes
    ----------
    id : str
        Its id, and the name of its file.
    title : str or None
        As its header says.
    created_at, updated_at : str
        RFC 3339.
    """

    id: str
    title: str | None
    created_at: str
    updated_at: str


class Opened:
    """A session that is open.

    Attributes
    ----------
    journal : Journal
        Its transcript.
    branches : Branches
        Its archive.
    row : SessionRow or None
        What the index says of it, or is to say, if it says it of the file as it is.
    """

    def __init__(self, file: LineFile, archive: LineFile, session_id: str) -> None:
        self.journal = Journal(file, session_id)
        self.branches = Branches(self.journal, Revisions(archive))
        self.row: SessionRow | None = None
        #: whether the index does not have the row yet, and from which position on it lacks rows
        self.is_unwritten = False
        self.unwritten_from: int | None = None

    @property
    def revisions(self) -> Revisions:
        """The file of its archive."""
        return self.branches.revisions


class Directory:
    """The sessions of a data directory.

    Parameters
    ----------
    path : str
        Of the directory that the transcripts lie in.
    catalog : Catalog
        Their index.
    """

    def __init__(self, path: str, catalog: Catalog) -> None:
        self.path = path
        self.catalog = catalog
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._line_files: dict[str, LineFile] = {}

    def close(self) -> None:
        """Write what the index lacks, and let go of every file."""
        self.flush()
        for opened in self._opened.values():
            opened.journal.close()
        self._opened.clear()

    # -- files ------------------------------------------------------------------------

    def transcript_path(self, session_id: str) -> str:
        """Return where a session's transcript lies."""
        return os.path.join(self.path, check_session_id(session_id) + _SUFFIX)

    def revisions_path(self, session_id: str) -> str:
        """Return where a session's archive lies."""
        return os.path.join(self.path, check_session_id(session_id) + _REVISIONS_SUFFIX)

    def _files(self) -> dict[str, os.stat_result]:
        """Return the sessions that lie here."""
        found = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                name = entry.name.removesuffix(_SUFFIX)
                if name == entry.name:
                    continue
                with contextlib.suppress(InvalidSessionIdError, OSError):
                    check_session_id(name)
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode):
                        found[name] = status
        return found

    def sweep(self) -> None:
        """Remove what a host that died was still writing; nobody else writes here."""
        with os.scandir(self.path) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if name.endswith(fileio.TEMPORARY_SUFFIX) and _SUFFIX + "." in name:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.path, name))

    def remove(self, session_id: str) -> bool:
        """Remove every file of a session, the transcript first; False if there is none."""
        transcript = self.transcript_path(session_id)
        self.forget(session_id)
        for path in (transcript, self.revisions_path(session_id)):
            self._line_files.pop(path, None)
        found = fileio.remove(transcript)
        rest = [self.revisions_path(session_id), transcript + CACHE_SUFFIX]
        with os.scandir(self.path) as entries:
            rest += [
                entry.path
                for entry in entries
                if entry.name.startswith((f"{session_id}{_SUFFIX}.", f"{session_id}.revisions."))
                and entry.name.endswith(fileio.TEMPORARY_SUFFIX)
            ]
        for path in rest:
            found |= fileio.remove(path)
        fileio.sync_directory(self.path)
        return found

    # -- what is open -----------------------------------------------------------------

    def open(self, session_id: str) -> Opened:
        """Return a session, open, that serves its file as it is.

        Raises
        ------
        InvalidSessionIdError
            No file is touched.
        SessionNotFoundError
            There is no such session.
        """
        path = self.transcript_path(session_id)
        opened = self._opened.get(session_id)
        if opened is None:
            # what is known of a file and the disk outlives its being closed
            archive = self.revisions_path(session_id)
            opened = Opened(self._file(path), self._file(archive), session_id)
            self._opened[session_id] = opened
            while len(self._opened) > OPEN_COUNT:
                _, oldest = self._opened.popitem(last=False)
                self._write(oldest)
                oldest.journal.close()
            return opened
        self._opened.move_to_end(session_id)
        try:
            opened.journal.refresh()
        except (SessionNotFoundError, MmapStoreError):
            self.forget(session_id)
            raise
        return opened

    def _file(self, path: str) -> LineFile:
        return self._line_files.setdefault(path, LineFile(path))

    def forget(self, session_id: str) -> None:
        """Let go of a session."""
        opened = self._opened.pop(session_id, None)
        if opened is not None:
            self._write(opened)
            opened.journal.close()

    # -- the index --------------------------------------------------------------------

    def listed(self) -> list[Session]:
        """Return the sessions that lie here, by id; their rows are repaired on the way."""
        self.flush()
        rows = self.catalog.sessions()
        found = []
        for session_id, status in sorted(self._files().items()):
            row = rows.pop(session_id, None)
            if row is None or row.stamp != _stamp_text(status):
                row = self._row_of(session_id, status)
            if row is not None:
                found.append(_session(row))
        for gone in rows:
            self.catalog.remove(gone)
        return found

    def _row_of(self, session_id: str, status: os.stat_result) -> SessionRow | None:
        known = self._opened.get(session_id)
        try:
            opened = self.open(session_id)
            row = self.indexed(opened)
        except SessionNotFoundError:
            return None
        except (MmapStoreError, OSError):
            # it is here, whatever it is: to leave it out would hide it
            changed = _time(status.st_mtime_ns)
            row = SessionRow(session_id, None, changed, changed, 0, _stamp_text(status))
            self.catalog.put(row, start=0)
            return row
        if known is None:
            self.forget(session_id)
        return row

    def indexed(self, opened: Opened) -> SessionRow:
        """Return a session's row for its file as it is, reading the file where there is none."""
        journal = opened.journal
        if opened.row is not None and opened.row.stamp == _stamp_of(journal):
            return opened.row
        row = self.catalog.session(journal.session_id)
        if row is None or row.stamp != _stamp_of(journal):
            return self._reindexed(opened)
        opened.row = row
        return row

    def turn(self, opened: Opened, turn_id: str) -> list[int]:
        """Return the positions at which the messages of a turn may be."""
        self.indexed(opened)
        self._write(opened)
        positions = None
        if opened.row is not None:
            positions = self.catalog.turn(opened.journal.session_id, turn_id)
        return list(range(opened.journal.message_count)) if positions is None else positions

    def verified(self, opened: Opened) -> SessionRow:
        """Return a session's row, its message rows held against the layout the first time."""
        row = self.indexed(opened)
        journal = opened.journal
        if journal.verified:
            return row
        count = journal.message_count
        last = None if not count else (journal.stored(count - 1) or {}).get("id")
        if row.message_count != count or self.catalog.tally(journal.session_id) != (
            count,
            text(last),
        ):
            row = self._reindexed(opened)
        journal.verified = True
        return row

    def _reindexed(self, opened: Opened) -> SessionRow:
        journal = opened.journal
        rows = list(message_rows(journal, 0))
        header = journal.header() or {}
        changed = _time(journal.stamp.mtime_ns)
        created = header.get("createdAt")
        if instant(created) is None:
            created = rows[0].created_at if rows and instant(rows[0].created_at) else changed
        row = SessionRow(
            journal.session_id,
            text(header.get("title")),
            str(created),
            _newest(rows) or changed,
            journal.message_count,
            _stamp_of(journal),
        )
        opened.row = row if self.catalog.put(row, rows, start=0) else None
        opened.is_unwritten, opened.unwritten_from = False, None
        self.put_revisions(opened)
        return row

    def note(self, opened: Opened, *, appended_from: int | None = None) -> None:
        """Remember for the index that a session has changed now, and where it has new messages.

        It is written when somebody asks the index, or lets go of the session: a durable
        append waits for the transcript and not for what is derived from it.
        """
        known = opened.row
        if known is None:
            return
        journal = opened.journal
        opened.row = known._replace(
            updated_at=now(), message_count=journal.message_count, stamp=_stamp_of(journal)
        )
        opened.is_unwritten = True
        if appended_from is not None and opened.unwritten_from is None:
            opened.unwritten_from = appended_from

    def put(self, opened: Opened, *, start: int | None = None, only: int | None = None) -> None:
        """Say in the index what a rewrite has made of a session.

        Parameters
        ----------
        opened : Opened
            The session.
        start : int, optional
            Messages from this position on are other ones.
        only : int, optional
            The message at this position is another one.

        Notes
        -----
        Where that fails the rows keep the stamp of a file that is no more, and are made anew
        when they are asked for.
        """
        self.note(opened, appended_from=start)
        if start is not None and opened.unwritten_from is not None:
            opened.unwritten_from = min(opened.unwritten_from, start)
        self._write(opened, only)

    def flush(self) -> None:
        """Write what the index lacks of the sessions that are open."""
        for opened in self._opened.values():
            self._write(opened)

    def _write(self, opened: Opened, only: int | None = None) -> None:
        row, start = opened.row, opened.unwritten_from
        if row is None or not opened.is_unwritten:
            return
        opened.is_unwritten, opened.unwritten_from = False, None
        journal = opened.journal
        try:
            rows = [] if only is None else [message_row(only, journal.stored(only))]
            if start is not None:
                rows += message_rows(journal, start)
            is_written = self.catalog.put(row, rows, start=start)
        except (OSError, MmapStoreError):
            is_written = False
        if not is_written:
            opened.row = None

    def put_revisions(self, opened: Opened) -> None:
        """Say in the index what branches a session has."""
        with contextlib.suppress(OSError, MmapStoreError):
            branches = opened.branches.all()
            self.catalog.put_revisions(
                opened.journal.session_id,
                [
                    RevisionRow(
                        str(text(branch.root_user_id)),
                        branch.index,
                        branch.is_active,
                        branch.message_count,
                        str(text(branch.created_at)),
                    )
                    for branch in branches
                ],
            )

    def session(self, opened: Opened) -> Session:
        """Return what is shown of a session."""
        return _session(self.indexed(opened))

    def reindex(self) -> None:
        """Make the index anew from the files."""
        self.catalog.recreate()
        for opened in self._opened.values():
            opened.row = None
            opened.is_unwritten, opened.unwritten_from = False, None
            opened.journal.verified = False
        self.listed()


def message_row(position: int, record: dict[str, Any] | None) -> MessageRow:
    """Return the row of a message line; of a damaged one it says nothing."""
    of = record or {}
    return MessageRow(
        position,
        text(of.get("id")),
        text(of.get("turnId")),
        text(of.get("role")),
        text(of.get("createdAt")),
    )


def message_rows(journal: Journal, start: int) -> Iterator[MessageRow]:
    """Yield the rows of the message lines from a position on."""
    for position in range(start, journal.message_count):
        yield message_row(position, journal.stored(position))


def _newest(rows: list[MessageRow]) -> str | None:
    utc = datetime.UTC
    times = [(at, row.created_at) for row in rows if (at := instant(row.created_at)) is not None]
    return max(times, key=lambda pair: pair[0].astimezone(utc))[1] if times else None


def _session(row: SessionRow) -> Session:
    return Session(row.id, row.title, row.created_at, row.updated_at)


def _time(ns: int) -> str:
    at = datetime.datetime.fromtimestamp(ns // 10**9, tz=datetime.UTC)
    at = at.replace(microsecond=ns % 10**9 // 1000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _stamp_text(status: os.stat_result) -> str:
    parts = (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    return ":".join(map(str, parts))


def _stamp_of(journal: Journal) -> str:
    return ":".join(map(str, journal.stamp[:5]))
