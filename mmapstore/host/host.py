"""The host: the one writer of a data directory.

Every operation reads, decides and writes under one lock, on the file as it is: no
snapshot of a caller is ever written back. The file is written first, and durably; the
index follows. What was refused has changed nothing, and what has failed was not
acknowledged. Decision records: 0060; 0127; append-only review state.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .. import fileio
from ..errors import InvalidRecordError, SessionNotFoundError, WriteFailedError
from .activation import activated
from .appends import Appends
from .edits import Edits
from .forks import forked, new_id
from .linefile import LineFile
from .records import check_text, header_line, instant, now
from .rewrite import Put, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..window import Window
    from .revisions import Revision
    from .session import Opened, Session


class Host(Appends, Edits):
    """The owner of a data directory; a context manager.

    Parameters
    ----------
    data_dir : path-like
        Made if it is not there.

    Raises
    ------
    LockedError
        Another host owns it, in this process or in another; its owner is named.

    Notes
    -----
    Any thread may call any method.
    """

    # -- sessions ---------------------------------------------------------------------

    def create_session(self, title: str | None = None) -> Session:
        """Make a session.

        Raises
        ------
        InvalidRecordError
            The title is no string.
        WriteFailedError
            There is no new session.
        """
        session_id = new_id()
        header = header_line(
            session_id,
            now(),
            _title(title),
        )
        with self._lock:
            return self._made(session_id, iter([header]))

    def _made(self, session_id: str, parts: Iterator[bytes]) -> Session:
        directory = self._here()
        path = directory.transcript_path(session_id)
        try:
            LineFile(path).create(parts)
        except BaseException:
            # it was not acknowledged: as far as can be done it is not there
            with contextlib.suppress(OSError):
                fileio.remove(path)
            raise
        opened = directory.open(session_id)
        self._index.row(opened)
        self._index.put(opened)
        return self._index.session(opened)

    def list_sessions(self) -> list[Session]:
        """Return the sessions that lie in the directory, newest change first."""
        with self._lock:
            found = self._here().listed()
        return sorted(found, key=_updated, reverse=True)

    def session(self, session_id: str) -> Session:
        """Return what is shown of one session; see :meth:`get_session` for its messages.

        Raises
        ------
        SessionNotFoundError
            There is none.

        Notes
        -----
        Looks at no other session.
        """
        with self._reading(session_id) as opened:
            return self._index.session(opened)

    def delete_session(self, session_id: str) -> None:
        """Remove a session: transcript, archive, cache, temporary files and index rows.

        Raises
        ------
        SessionNotFoundError
            There is none.
        WriteFailedError
            Something may be left; ask again.
        """
        with self._lock:
            directory = self._here()
            path = directory.transcript_path(session_id)
            try:
                found = directory.remove(session_id)
            except OSError as error:
                failed = WriteFailedError(f"removal failed: {error.strerror}", path=path)
                failed.errno = error.errno
                raise failed from error
            self._index.remove(session_id)
            if self._active == session_id:
                self._active = None
            if not found:
                raise SessionNotFoundError(f"no session {session_id!r}", path=path)

    def get_session(
        self,
        session_id: str,
        limit: int | None = 100,
        before: int | None = None,
        after: int | None = None,
        around: str | None = None,
    ) -> Window:
        """Return a window of a session's file as it is; see :meth:`mmapstore.Transcript.window`."""
        with self._reading(session_id) as opened:
            return opened.journal.transcript.window(
                limit=limit, before=before, after=after, around=around
            )

    def reindex(self) -> None:
        """Make the index anew from the files."""
        with self._lock:
            self._here().reindex()

    # -- forks and navigation ---------------------------------------------------------

    @property
    def active_session(self) -> str | None:
        """The id of the session that was navigated to last, or None."""
        return self._active

    def navigate(self, session_id: str | None) -> int:
        """Make a session the active one; return a token that is current until the next call."""
        with self._lock:
            if session_id is None:
                self._here()
            else:
                self._here().open(session_id)
            self._active = session_id
            self._navigations += 1
            return self._navigations

    def fork_session(
        self,
        session_id: str,
        through: str | None = None,
        intent: int | None = None,
        title: str | None = None,
    ) -> Session:
        """Make a session of the beginning of another, up to and with a message.

        The child is there once this returns, whatever has been navigated to since; it
        becomes the active session only if `intent` is still the current token.

        Parameters
        ----------
        session_id : str
            The parent; it is not changed.
        through : str, optional
            Id of the last message that comes along; without it, all do.
        intent : int, optional
            What :meth:`navigate` returned when the fork was asked for.
        title : str, optional
            The child's; without it, the parent's.
        """
        _title(title)
        with self._reading(session_id) as opened:
            journal = opened.journal
            position = None
            if through is not None:
                journal.require(check_text("message id", through))
                position = journal.positions(through)[0]
            child = new_id()
            session = self._made(child, forked(journal, position, child, title))
            if intent is not None and intent == self._navigations:
                self._active = child
            return session

    # -- branches ---------------------------------------------------------------------

    def save_revision(
        self,
        session_id: str,
        root_id: str,
        messages: list[dict[str, Any]],
        make_active: bool = False,
    ) -> Revision:
        """Archive a branch of a root, and stamp the root.

        With `make_active` the caller says that these messages are what the transcript shows:
        from then on the transcript's own end is what the branch holds.

        Raises
        ------
        MessageNotFoundError
            The session has no such root.
        InvalidRecordError
            The format does not allow a message; nothing was written.
        """
        check_text("root id", root_id)
        with self._writing(session_id) as opened:
            branches = opened.branches
            family, index = branches.save(root_id, messages, make_active=make_active)
            root = branches.root(family)
            if root is not None:
                active = index if make_active else root.active
                self._stamp(opened, branches.stamp(root, index=index, active=active))
            self._index.put_revisions(opened)
            return branches.revision(family, index)

    def save_active_revision(self, session_id: str) -> Revision | None:
        """Archive the branch that the transcript ends in; None if its roots have no family.

        Reads, archives and stamps in this one call. The branch is referred to and not
        copied; the stamp rewrites one line, and none if it is there.
        """
        with self._writing(session_id) as opened:
            branches = opened.branches
            saved = branches.save_active()
            if saved is None:
                return None
            root, index = saved
            self._stamp(opened, branches.stamp(root, index=index, active=index))
            self._index.put_revisions(opened)
            return branches.revision(root.family, index)

    def _stamp(self, opened: Opened, order: list[Put | int] | None) -> None:
        for item in order or ():
            if isinstance(item, Put) and item.position is not None:
                self._exchange(opened, item.position, item.line)

    def list_revisions(self, session_id: str, root_id: str) -> list[Revision]:
        """Return the archived branches of a root, by index."""
        check_text("root id", root_id)
        with self._reading(session_id) as opened:
            return opened.branches.listed(root_id)

    def activate_revision(self, session_id: str, root_id: str, index: int) -> Window:
        """Show an archived branch: what stood before the root, the root, and the branch.

        The branch that is shown now is stored first.

        Raises
        ------
        MmapStoreError
            There is no such revision; nothing was changed.
        """
        check_text("root id", root_id)
        with self._writing(session_id) as opened:
            order = activated(opened.branches, root_id, index)
            if order is not None:
                self._rewrite(opened, plan(opened.journal, order), 0)
                self._index.put_revisions(opened)
            return opened.journal.transcript.window(limit=None)

    def delete_revision(self, session_id: str, root_id: str, index: int) -> None:
        """Remove an archived branch; the others keep their numbers.

        Raises
        ------
        ConflictError
            It is the active one.
        MmapStoreError
            There is no such revision.
        """
        check_text("root id", root_id)
        with self._writing(session_id) as opened:
            opened.branches.delete(root_id, index)
            self._index.put_revisions(opened)


def _updated(session: Session) -> tuple[float, str]:
    at = instant(session.updated_at)
    return (at.timestamp() if at else 0.0, session.id)


def _title(title: object) -> str | None:
    if title is not None and not isinstance(title, str):
        message = f"a title is a string, not {type(title).__name__}"
        raise InvalidRecordError(message)
    return title
