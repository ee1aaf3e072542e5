"""The host: the one writer of a data directory.

Every operation reads, decides and writes under one lock, on the file as it is: no
snapshot of a caller is ever written back. The file is written first, and durably; the
index follows. What was refused has changed nothing, and what has failed was not
acknowledged. Decision records: 0060; 0127; append-only review state.
"""

from __future__ import annotations

import contextlib
import operator
import os
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .. import fileio
from ..errors import (
    ConflictError,
    InvalidRecordError,
    LockedError,
    MmapStoreError,
    PositionError,
    SessionNotFoundError,
    WriteFailedError,
)
from ..review import reviews
from .branches import root_of
from .catalog import Catalog
from .directory import Directory, Session, message_row, message_rows
from .forks import forked, new_id
from .linefile import LineFile
from .records import (
    changed_line,
    check_message,
    check_text,
    compaction_line,
    header_line,
    message_line,
    now,
    review_line,
    same_message,
)
from .revisions import Revision
from .rewrite import Put, effective, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..window import Window
    from .directory import Opened
    from .journal import Journal, Piece

#: newest format of a transcript that is written to
_SCHEMA = 2


class Cut(NamedTuple):
    """What a cut has done.

    Attributes
    ----------
    kept, discarded : int
        Message lines.
    revision : Revision or None
        Where the discarded messages are archived.
    """

    kept: int
    discarded: int
    revision: Revision | None


class Host:
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

    def __init__(self, data_dir: str | os.PathLike[str]) -> None:
        self.data_dir = os.path.abspath(os.fsdecode(data_dir))
        self._lock = threading.RLock()
        self._active: str | None = None
        self._navigations = 0
        self._closed = True
        sessions = os.path.join(self.data_dir, "sessions")
        fileio.make_private_directory(sessions)
        self._lock_file = self._locked()
        try:
            catalog = Catalog(os.path.join(self.data_dir, "index.sqlite"))
            self._directory = Directory(sessions, catalog)
            self._closed = False
            self._directory.sweep()
            self._directory.listed()
        except BaseException:
            self.close()
            raise
        _hosts.add(self)

    def _locked(self) -> fileio.LockFile:
        path = os.path.join(self.data_dir, "host.lock")
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            return fileio.LockFile(path, owner)
        except BlockingIOError as error:
            raise LockedError(
                f"the directory has a host: {error.strerror}",
                path=path,
                hint="one host at a time; ask the one that is there",
            ) from error

    def close(self) -> None:
        """Let go of everything, and free the directory for another host."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._directory.close()
                self._directory.catalog.close()
            self._lock_file.close()

    def __enter__(self) -> Self:
        """Return the host itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the host."""
        self.close()

    @contextlib.contextmanager
    def _reading(self, session_id: str) -> Iterator[Opened]:
        with self._lock:
            yield self._here().open(session_id)

    @contextlib.contextmanager
    def _writing(self, session_id: str) -> Iterator[Opened]:
        """Open a session for a mutation: what is in its file is on the disk, and looked at."""
        with self._lock:
            directory = self._here()
            opened = directory.open(session_id)
            journal = opened.journal
            journal.settle()
            if not journal.verified:
                schema = (journal.header() or {}).get("schema", _SCHEMA)
                if isinstance(schema, int) and schema > _SCHEMA:
                    raise MmapStoreError(
                        f"a transcript of format {schema}: it is read and not written to",
                        path=journal.path,
                    )
            directory.verified(opened)
            yield opened

    def _here(self) -> Directory:
        if self._closed:
            message = f"{self.data_dir}: the host is closed"
            raise ValueError(message)
        return self._directory

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
        directory.indexed(opened)
        directory.put(opened, now(), [])
        return directory.session(opened)

    def list_sessions(self) -> list[Session]:
        """Return the sessions that lie in the directory, newest change first."""
        with self._lock:
            found = self._here().listed()
        return sorted(found, key=lambda session: session.updated_at, reverse=True)

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
            directory.catalog.remove(session_id)
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

    # -- appending --------------------------------------------------------------------

    def append_message(
        self, session_id: str, message: dict[str, Any], turn_id: str | None = None
    ) -> int:
        """Append a message; return its position. See :meth:`append_messages`."""
        return self.append_messages(session_id, [message], turn_id)[0]

    def append_messages(
        self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
    ) -> list[int]:
        """Append messages in one write and one sync; return the position of each.

        A message that is there already, under the same id with the same content, is not
        written again: it keeps its position.

        Raises
        ------
        ConflictError
            The id is there with other content; nothing was written.
        InvalidRecordError
            The format does not allow a message; nothing was written.
        WriteFailedError
            None was acknowledged; ask again.
        """
        if not isinstance(messages, list):
            message = f"messages are a list, not {type(messages).__name__}"
            raise InvalidRecordError(message)
        if turn_id is not None:
            check_text("turn id", turn_id)
        lines = [message_line(check_message(message), turn_id) for message in messages]
        with self._writing(session_id) as opened:
            journal = opened.journal
            if lines:
                journal.seal()
            count = journal.message_count
            new: dict[str, tuple[int, dict[str, Any]]] = {}
            data = []
            positions = []
            for message, line in zip(messages, lines, strict=True):
                position = self._known(journal, message, new)
                if position is None:
                    position = count + len(new)
                    new[message["id"]] = (position, message)
                    data.append(line)
                positions.append(position)
            if data:
                journal.append(b"".join(data))
                self._put_appended(opened, count)
        return positions

    def _known(
        self, journal: Journal, message: dict[str, Any], new: dict[str, tuple[int, dict[str, Any]]]
    ) -> int | None:
        """Return where a message is already, or None."""
        message_id = message["id"]
        if message_id in new:
            position, other = new[message_id]
            known = same_message(message, other)
        else:
            found = journal.position(message_id)
            stored = None if found is None else journal.stored(found)
            if found is None or stored is None:
                return None
            position = found
            known = same_message(message, stored) or same_message(
                message, journal.effective(stored)
            )
        if not known:
            raise ConflictError(
                f"the id {message_id!r} is there with other content",
                path=journal.path,
                hint="update_message() changes a message",
            )
        return position

    def _put_appended(self, opened: Opened, start: int) -> None:
        self._directory.put(opened, now(), message_rows(opened.journal, start), start=start)

    def turn_messages(self, session_id: str, turn_id: str) -> list[dict[str, Any]]:
        """Return the effective messages of a turn, in file order."""
        with self._reading(session_id) as opened:
            journal = opened.journal
            positions = self._directory.turn(opened, turn_id)
            # the lines say what turn they are of; the index only where they may be
            found = [position for position in positions if position < journal.message_count]
            messages = [message.record for message in effective(journal, found)]
        return [message for message in messages if message.get("turnId") == turn_id]

    def append_compaction(self, session_id: str, record: dict[str, Any]) -> None:
        """Append a checkpoint.

        Raises
        ------
        InvalidRecordError
            The id, the summary or the boundary is missing or empty, a count is negative.
        """
        line = compaction_line(record)
        with self._writing(session_id) as opened:
            journal = opened.journal
            journal.seal()
            if journal.newest_compaction_is(record):
                return  # asked for again, because its answer was lost
            journal.append(line)
            self._put_appended(opened, journal.message_count)

    def set_review_state(
        self, session_id: str, message_id: str, snapshot_id: str, state: str
    ) -> bool:
        """Say what became of a snapshot of a tool message; whether that had to be written.

        Appends one small line: no message moves, and the cost does not depend on history.

        Raises
        ------
        MessageNotFoundError
            No message has the id.
        InvalidRecordError
            The message does not own the snapshot, or the state is no string.
        """
        for name, value in (("message id", message_id), ("snapshot id", snapshot_id)):
            check_text(name, value)
        line = review_line(message_id, snapshot_id, check_text("review state", state))
        with self._writing(session_id) as opened:
            journal = opened.journal
            journal.seal()
            message = journal.stored(journal.require(message_id)) or {}
            journal.effective(message)
            states = [
                review.get("state")
                for review in (reviews(message) if message.get("role") == "tool" else ())
                if review.get("snapshotId") == snapshot_id
            ]
            if not states:
                raise InvalidRecordError(
                    f"message {message_id!r} owns no snapshot {snapshot_id!r}", path=journal.path
                )
            if all(known == state for known in states):
                return False
            journal.append(line)
            self._directory.put(opened, now(), [])
            return True

    # -- rewriting --------------------------------------------------------------------

    def _rewrite(self, opened: Opened, pieces: list[Piece], changed: int) -> None:
        opened.journal.rewrite(pieces)
        self._directory.put(opened, now(), message_rows(opened.journal, changed), start=changed)

    def update_message(self, session_id: str, message: dict[str, Any]) -> bool:
        """Rewrite one message, the last line with its id; whether that was needed.

        Every other byte is copied through. Review states still lie over what is written.

        Raises
        ------
        MessageNotFoundError
            No message has the id.
        InvalidRecordError
            The format does not allow the message; nothing was written.
        """
        check_text("message id", message.get("id") if isinstance(message, dict) else None)
        with self._writing(session_id) as opened:
            journal = opened.journal
            position = journal.require(message["id"])
            stored = journal.stored(position) or {}
            checked = check_message(message, stored)
            shown = journal.effective(journal.stored(position) or {})
            same_turn = checked.get("turnId", stored.get("turnId")) == stored.get("turnId")
            if same_turn and same_message(checked, shown):
                return False
            line = changed_line(checked, journal.line(position), stored)
            if stored.get("role") == "user":
                root = root_of(position, stored)
                opened.branches.before_restamping(root, root_of(position, checked).active)
            self._exchange(opened, position, line)
            return True

    def _exchange(self, opened: Opened, position: int, line: bytes) -> None:
        """Rewrite exactly one message line."""
        journal = opened.journal
        start = journal.start(position)
        end = start + len(journal.transcript.line(position))
        if start == 0 and journal.read(0, 3) == b"\xef\xbb\xbf":
            start = 3
        journal.rewrite([(0, start), line, (end, journal.transcript.nbytes)])
        self._directory.put(opened, now(), [message_row(position, journal.stored(position))])

    def replace_messages(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        """Put messages in the place of all of a session's.

        Right only for a caller that owns the whole transcript: what is not in the list is
        gone, a message that was appended since the list was read included. Nothing is
        merged. Messages that stay keep their turn, and their bytes where they are the same.

        Raises
        ------
        InvalidRecordError
            The format does not allow a message, or an id is there twice; nothing was written.
        """
        if not isinstance(messages, list):
            message = f"messages are a list, not {type(messages).__name__}"
            raise InvalidRecordError(message)
        for message in messages:
            check_text("message id", message.get("id") if isinstance(message, dict) else None)
        if len({message["id"] for message in messages}) != len(messages):
            raise InvalidRecordError("an id is there twice")
        with self._writing(session_id) as opened:
            journal = opened.journal
            order = [self._placed(journal, message) for message in messages]
            same = 0
            while same < min(len(order), journal.message_count) and order[same] == same:
                same += 1
            opened.branches.before_dropping(same)
            self._rewrite(opened, plan(journal, order), same)

    def _placed(self, journal: Journal, message: dict[str, Any]) -> int | Put:
        position = journal.position(message["id"])
        stored = None if position is None else journal.stored(position)
        checked = check_message(message, stored)
        if position is None or stored is None:
            return Put(message_line(checked, None), checked["id"])
        shown = journal.effective(journal.stored(position) or {})
        same_turn = checked.get("turnId", stored.get("turnId")) == stored.get("turnId")
        if same_turn and same_message(checked, shown):
            return position
        line = changed_line(checked, journal.line(position), stored)
        return Put(line, checked["id"], position)

    def truncate_from(
        self, session_id: str, message_id: str | None = None, before: int | None = None
    ) -> Cut:
        """Cut a session: a message and everything behind it go, archived first.

        Parameters
        ----------
        session_id : str
            The session.
        message_id : str, optional
            The first line with this id goes, and what is behind it.
        before : int, optional
            Messages [0, before) stay: right only from a window of the current generation.
            Where both are given the identity decides.

        Raises
        ------
        MessageNotFoundError
            No message has the id; nothing was changed.
        PositionError
            There are fewer messages; nothing was changed.
        """
        if message_id is None and before is None:
            message = "give message_id or before"
            raise TypeError(message)
        with self._writing(session_id) as opened:
            journal = opened.journal
            count = journal.message_count
            if message_id is not None:
                journal.require(check_text("message id", message_id))
                position = journal.positions(message_id)[0]
            else:
                position = _position(before, journal)
            if position == count:
                return Cut(count, 0, None)
            branches = opened.branches
            branches.before_dropping(position)
            key = branches.archive_tail(position)
            pieces = plan(journal, range(position), cut=journal.start(position))
            self._rewrite(opened, pieces, position)
            self._directory.put_revisions(opened)
            revision = None if key is None else branches.revision(*key)
        return Cut(position, count - position, revision)

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
            self._directory.put_revisions(opened)
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
            self._directory.put_revisions(opened)
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
            order = opened.branches.activate(root_id, index)
            if order is not None:
                self._rewrite(opened, plan(opened.journal, order), 0)
                self._directory.put_revisions(opened)
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
            self._directory.put_revisions(opened)


def _title(title: object) -> str | None:
    if title is not None and not isinstance(title, str):
        message = f"a title is a string, not {type(title).__name__}"
        raise InvalidRecordError(message)
    return title


def _position(before: object, journal: Journal) -> int:
    position = operator.index(before)  # type: ignore[arg-type]
    if isinstance(before, bool):
        message = "a position is an integer, not a truth value"
        raise TypeError(message)
    if position < 0:
        message = f"position {position} is negative"
        raise ValueError(message)
    if position > journal.message_count:
        raise PositionError(
            f"position {position} is outside [0, {journal.message_count}]", path=journal.path
        )
    return position


#: a child of this process must not hold a lock that its parent gave up
_hosts: weakref.WeakSet[Host] = weakref.WeakSet()


def _forget_in_child() -> None:
    for host in list(_hosts):
        host._lock = threading.RLock()
        host._closed = True
        host._lock_file.close()


os.register_at_fork(after_in_child=_forget_in_child)
