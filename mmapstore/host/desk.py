"""What every operation of a host stands on: the lock, the directory, and the session in hand.

One host owns a data directory, by a lock of the kernel. Every mutation reads, decides and
writes while it holds the state lock; reading takes it only to pick a generation.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from typing import TYPE_CHECKING, Self

from .. import fileio
from ..errors import LockedError, MmapStoreError
from .directory import Directory
from .index import Index
from .records import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .session import Opened


class Desk:
    """The place that one host works at.

    Parameters
    ----------
    data_dir : str or path-like
        Made if it is not there.

    Raises
    ------
    LockedError
        Another host owns it.
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
            self._index = Index(os.path.join(self.data_dir, "index.sqlite"))
            self._directory = Directory(sessions, self._index)
            self._closed = False
            self._directory.sweep()
            self._directory.listed()
        except BaseException:
            self.close()
            raise
        _desks.add(self)

    def __repr__(self) -> str:
        """Show the directory."""
        return f"<Host of {self.data_dir!r}{', closed' if self._closed else ''}>"

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
        # in the opposite order, each of them whatever becomes of the others
        with self._lock, contextlib.ExitStack() as stack:
            stack.callback(self._lock_file.close)
            if not self._closed:
                self._closed = True
                stack.callback(self._index.close)
                stack.callback(self._directory.close)

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
                schema = (journal.header() or {}).get("schema", SCHEMA)
                if isinstance(schema, int) and schema > SCHEMA:
                    raise MmapStoreError(
                        f"a transcript of format {schema}: it is read and not written to",
                        path=journal.path,
                    )
            self._index.verify(opened)
            yield opened

    def _here(self) -> Directory:
        if self._closed:
            message = f"{self.data_dir}: the host is closed"
            raise ValueError(message)
        return self._directory


#: a child of this process must not hold a lock that its parent gave up
_desks: weakref.WeakSet[Desk] = weakref.WeakSet()


def _forget_in_child() -> None:
    for desk in list(_desks):
        desk._lock = threading.RLock()
        desk._closed = True
        desk._lock_file.close()


os.register_at_fork(after_in_child=_forget_in_child)
