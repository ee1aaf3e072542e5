"""What the index says of sessions, and what it has yet to be told.

The index is derived: a row is believed only for the file whose stamp it carries, and
every other is made anew from the file. A change is remembered when it is made and
written when somebody asks the index or lets go of the session, so a durable append
waits for the transcript and not for what is derived from it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from ..errors import MmapStoreError
from .catalog import Catalog, MessageRow, RevisionRow, SessionRow, string, text
from .records import instant, rfc3339
from .session import Opened, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..stamp import Stamp
    from .journal import Journal


class Index:
    """The index of a data directory.

    Parameters
    ----------
    path : str
        Where it is kept; made if it is not there, and anew if it is of no use.
    """

    def __init__(self, path: str) -> None:
        self.catalog = Catalog(path)

    def close(self) -> None:
        """Let go of it."""
        self.catalog.close()

    # -- asking -----------------------------------------------------------------------

    def row(self, opened: Opened) -> SessionRow:
        """Return a session's row for its file as it is, reading the file where there is none."""
        journal = opened.journal
        row = _current(opened)
        if row is None:
            row = self.catalog.session(journal.session_id)
            if row is None or row.stamp != _stamp_text(journal.stamp):
                return self._made_anew(opened)
            opened.forget_row()
            opened.row = row
        return row

    def session(self, opened: Opened) -> Session:
        """Return what is shown of a session."""
        return shown(self.row(opened))

    def turn(self, opened: Opened, turn_id: str) -> list[int]:
        """Return the positions at which the messages of a turn may be."""
        self.row(opened)
        self.write(opened)
        positions = None
        if opened.row is not None:
            positions = self.catalog.turn(opened.journal.session_id, turn_id)
        return list(range(opened.journal.message_count)) if positions is None else positions

    def verify(self, opened: Opened) -> None:
        """Hold a session's rows against its layout, once; make them anew where they differ."""
        row = self.row(opened)
        journal = opened.journal
        if journal.verified:
            return
        count = journal.message_count
        last = None if not count else (journal.stored(count - 1) or {}).get("id")
        if row.message_count != count or self.catalog.tally(journal.session_id) != (
            count,
            text(last),
        ):
            self._made_anew(opened)
        journal.verified = True

    def _made_anew(self, opened: Opened) -> SessionRow:
        journal = opened.journal
        rows = list(_message_rows(journal, 0))
        header = journal.header() or {}
        changed = rfc3339(journal.stamp.mtime_ns)
        created = header.get("createdAt")
        if instant(created) is None:
            created = rows[0].created_at if rows and instant(rows[0].created_at) else changed
        row = SessionRow(
            journal.session_id,
            text(header.get("title")),
            str(created),
            _newest(rows) or changed,
            journal.message_count,
            _stamp_text(journal.stamp),
        )
        opened.forget_row()
        if self.catalog.put(row, rows, start=0):
            opened.row = row
        self.put_revisions(opened)
        return row

    # -- telling ----------------------------------------------------------------------

    def note(self, opened: Opened) -> None:
        """Remember that a session has changed now.

        Notes
        -----
        Costs nothing that can fail: what is noted is written later.
        """
        if opened.row is None:
            return
        # in this order: one without the other is a row that nobody believes
        opened.changed_in = opened.journal.rewrites
        opened.changed_ns = time.time_ns()

    def put(self, opened: Opened, *, start: int | None = None, only: int | None = None) -> None:
        """Say what a rewrite has made of a session.

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
        self.note(opened)
        self.write(opened, start=start, only=only)

    def write(self, opened: Opened, *, start: int | None = None, only: int | None = None) -> None:
        """Write what the index has yet to be told of a session."""
        known, journal = opened.row, opened.journal
        if known is None or opened.changed_ns is None:
            return
        try:
            row = _current(opened)
            # those that the index does not know are behind those that it counts
            first = known.message_count if start is None else min(start, known.message_count)
            rows = [] if only is None else [_message_row(only, journal.stored(only))]
            rows += _message_rows(journal, first)
            is_written = row is not None and self.catalog.put(row, rows, start=first)
        except (OSError, MmapStoreError):
            is_written = False
        opened.forget_row()
        if is_written:
            opened.row = row

    def put_revisions(self, opened: Opened) -> None:
        """Say what branches a session has."""
        with contextlib.suppress(OSError, MmapStoreError):
            branches = opened.branches.all()
            stamp = opened.revisions.stamp
            self.catalog.put_revisions(
                opened.journal.session_id,
                _stamp_text(stamp) if stamp else "",
                [
                    RevisionRow(
                        text(branch.root_user_id) or "",
                        branch.index,
                        branch.is_active,
                        branch.message_count,
                        text(branch.created_at) or "",
                    )
                    for branch in branches
                ],
            )

    # -- files ------------------------------------------------------------------------

    def rows(self) -> dict[str, SessionRow]:
        """Return all rows by session; whether a file is still theirs is not looked at."""
        return self.catalog.sessions()

    def lagging_archives(self, archives: dict[str, os.stat_result]) -> list[str]:
        """Return the sessions of whose archives, as they are, the index does not tell."""
        told = self.catalog.archives()
        there = {session_id: _status_text(status) for session_id, status in archives.items()}
        return [
            session_id
            for session_id in {**told, **there}
            if told.get(session_id, "") != there.get(session_id, "")
        ]

    def put_unreadable(self, session_id: str, status: os.stat_result) -> SessionRow:
        """Say that there is a session which cannot be read just now."""
        changed = rfc3339(status.st_mtime_ns)
        # of no state of the file: it is tried again whenever somebody asks
        row = SessionRow(session_id, None, changed, changed, 0, "")
        self.catalog.put(row, start=0)
        return row

    def remove(self, session_id: str) -> None:
        """Forget a session that is no more."""
        self.catalog.remove(session_id)

    def recreate(self) -> None:
        """Forget everything."""
        self.catalog.recreate()


def shown(row: SessionRow) -> Session:
    """Return what a row shows of a session."""
    return Session(row.id, string(row.title), row.created_at, row.updated_at)


def is_of(row: SessionRow, status: os.stat_result) -> bool:
    """Whether a row was made of the file in the state that the system tells."""
    return row.stamp == _status_text(status)


def _current(opened: Opened) -> SessionRow | None:
    """Return the row for the file as it is, with what it has yet to be told; None if unknown."""
    row, journal = opened.row, opened.journal
    if row is None:
        return None
    stamp = _stamp_text(journal.stamp)
    if opened.changed_ns is None:
        return row if row.stamp == stamp else None
    if opened.changed_in != journal.rewrites:
        return None  # another program has changed it since
    return row._replace(
        updated_at=rfc3339(opened.changed_ns), message_count=journal.message_count, stamp=stamp
    )


def _message_row(position: int, record: dict[str, Any] | None) -> MessageRow:
    """Return the row of a message line; of a damaged one it says nothing."""
    of = record or {}
    return MessageRow(
        position,
        text(of.get("id")),
        text(of.get("turnId")),
        text(of.get("role")),
        text(of.get("createdAt")),
    )


def _message_rows(journal: Journal, start: int) -> Iterator[MessageRow]:
    for position in range(start, journal.message_count):
        yield _message_row(position, journal.stored(position))


def _newest(rows: list[MessageRow]) -> str | None:
    times = [
        (at, str(row.created_at)) for row in rows if (at := instant(row.created_at)) is not None
    ]
    # compared as they are: in UTC an instant may lie beyond the years that there are
    return max(times, key=lambda pair: pair[0])[1] if times else None


def _status_text(status: os.stat_result) -> str:
    fields = (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
    return ":".join(map(str, fields))


def _stamp_text(stamp: Stamp) -> str:
    return ":".join(map(str, stamp[:5]))
