"""A Unix socket under a path: its owner's alone, and not taken from a server that lives.

Whether a server lives is asked of the system, by connecting; a file that is left of a dead
one is replaced. What is at the path and is no socket is nobody's to remove.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from typing import Self

from ..errors import LockedError, MmapStoreError

_BACKLOG = 128


class Listener:
    """A listening socket; its file goes with it.

    Parameters
    ----------
    path : str or path-like
        Where its file will be.

    Raises
    ------
    LockedError
        A server listens there.
    MmapStoreError
        Something else is there.
    OSError
        As the system gives it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        self._status: os.stat_result | None = None
        self._spare = -1
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.setblocking(False)
            self._remove_dead()
            # the file gets the mode of the socket, where the system does that
            with contextlib.suppress(OSError):
                os.fchmod(self.socket.fileno(), 0o600)
            self.socket.bind(self.path)
            self._status = os.lstat(self.path)
            os.chmod(self.path, 0o600)
            self.socket.listen(_BACKLOG)
            self._reserve()
        except BaseException:
            self.close()
            raise

    def _remove_dead(self) -> None:
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(status.st_mode):
            raise MmapStoreError("something that is no socket is there", path=self.path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            failure = probe.connect_ex(self.path)
        if failure in (0, errno.EAGAIN):  # it took the connection, or has too many waiting
            raise LockedError("a server listens there", path=self.path)
        if failure not in (errno.ECONNREFUSED, errno.ENOENT):
            raise OSError(failure, os.strerror(failure), self.path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def accept(self) -> socket.socket | None:
        """Return the connection that waits, not blocking; None if it is gone already.

        Without a descriptor to spare for it, it is ended.
        """
        try:
            connection, _ = self.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return None
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            # left alone it would wait for ever, and keep the server awake
            os.close(self._spare)
            with contextlib.suppress(OSError):
                self.socket.accept()[0].close()
            self._reserve()
            return None
        connection.setblocking(False)
        return connection

    def _reserve(self) -> None:
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """End it, and remove its file if it is still there."""
        if self._status is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.lstat(self.path), self._status):
                    os.unlink(self.path)
            self._status = None
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        self.socket.close()

    def __enter__(self) -> Self:
        """Return the listener itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the listener."""
        self.close()
