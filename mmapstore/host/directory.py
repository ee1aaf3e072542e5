"""The files of a data directory, and those of its sessions that are open.

The directory is the truth: a session is listed because its file is there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING

from .. import fileio
from ..errors import InvalidSessionIdError, MmapStoreError, SessionNotFoundError
from .index import is_of, shown
from .journal import CACHE_SUFFIX
from .linefile import LineFile
from .records import check_session_id
from .session import Opened, Session

if TYPE_CHECKING:
    from .catalog import SessionRow
    from .index import Index

#: sessions that are kept open; each costs a few descriptors and its layout
OPEN_COUNT = 8

_SUFFIX = ".jsonl"
_REVISIONS_SUFFIX = ".revisions.jsonl"


class Directory:
    """The sessions of a data directory.

    Parameters
    ----------
    path : str
        Of the directory that the transcripts lie in.
    index : Index
        Is told of sessions that are let go of.
    """

    def __init__(self, path: str, index: Index) -> None:
        self.path = path
        self._index = index
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._line_files: dict[str, LineFile] = {}

    def close(self) -> None:
        """Write what the index lacks, and let go of every file."""
        with contextlib.ExitStack() as stack:
            while self._opened:
                _, opened = self._opened.popitem()
                stack.callback(opened.close)
                stack.callback(self._index.write, opened)

    # -- files ------------------------------------------------------------------------

    def transcript_path(self, session_id: str) -> str:
        """Return where a session's transcript lies."""
        return os.path.join(self.path, check_session_id(session_id) + _SUFFIX)

    def revisions_path(self, session_id: str) -> str:
        """Return where a session's archive lies."""
        return os.path.join(self.path, check_session_id(session_id) + _REVISIONS_SUFFIX)

    def _files(self) -> tuple[dict[str, os.stat_result], dict[str, os.stat_result]]:
        """Return the transcripts and the archives that lie here, by session."""
        transcripts: dict[str, os.stat_result] = {}
        archives: dict[str, os.stat_result] = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                for suffix, found in ((_REVISIONS_SUFFIX, archives), (_SUFFIX, transcripts)):
                    name = entry.name.removesuffix(suffix)
                    if name == entry.name:
                        continue
                    with contextlib.suppress(InvalidSessionIdError, OSError):
                        check_session_id(name)
                        status = entry.stat()
                        if stat.S_ISREG(status.st_mode):
                            found[name] = status
                    break
        return transcripts, archives

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

    def ready(self, session_id: str) -> Opened | None:
        """Return a session that nothing has to be looked up of before it is appended to.

        Its file may have been changed by another program since; whoever writes finds out.
        """
        opened = self._opened.get(session_id) if isinstance(session_id, str) else None
        if opened is None or opened.row is None or opened.journal.tip is None:
            return None
        self._opened.move_to_end(session_id)
        return opened

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
                self._index.write(oldest)
                oldest.close()
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
            self._index.write(opened)
            opened.close()

    def flush(self) -> None:
        """Write what the index lacks of the sessions that are open."""
        for opened in self._opened.values():
            self._index.write(opened)

    # -- all of them ------------------------------------------------------------------

    def listed(self) -> list[Session]:
        """Return the sessions that lie here, by id; their rows are repaired on the way."""
        self.flush()
        rows = self._index.rows()
        transcripts, archives = self._files()
        found = []
        for session_id, status in sorted(transcripts.items()):
            row = rows.pop(session_id, None)
            if row is None or not is_of(row, status):
                row = self._row_of(session_id, status)
            if row is not None:
                found.append(shown(row))
        for gone in rows:
            self._index.remove(gone)
        for session_id in self._index.lagging_archives(archives):
            if session_id in transcripts:
                self._tell_of_archive(session_id)
        return found

    def _tell_of_archive(self, session_id: str) -> None:
        known = self._opened.get(session_id)
        with contextlib.suppress(Exception):  # as for the rows of its messages
            self._index.put_revisions(self.open(session_id))
            if known is None:
                self.forget(session_id)

    def _row_of(self, session_id: str, status: os.stat_result) -> SessionRow | None:
        known = self._opened.get(session_id)
        try:
            row = self._index.row(self.open(session_id))
        except SessionNotFoundError:
            return None
        except Exception:  # noqa: BLE001  # whatever one file makes of it costs no other session
            # it is here, whatever it is: to leave it out would hide it
            return self._index.put_unreadable(session_id, status)
        if known is None:
            self.forget(session_id)
        return row

    def reindex(self) -> None:
        """Have the index made anew from the files."""
        self._index.recreate()
        for opened in self._opened.values():
            opened.forget_row()
            opened.journal.verified, opened.journal.tip = False, None
        self.listed()
