"""The system calls that Python code makes, where they can be counted, watched and made to fail.

In a child that was forked for it: the functions of ``os``, ``fcntl`` and ``mmap`` that
touch files are exchanged. SQLite's own calls are not seen; :mod:`.strace` sees them too.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

#: calls that change something, by module
WRITING = {
    os: ("write", "pwrite", "fdatasync", "fsync", "replace", "unlink", "mkdir", "fchmod", "open"),
}
#: calls that look at something, or let go of it
READING = {
    os: ("close", "fstat", "lstat", "stat", "pread", "preadv", "scandir", "listdir"),
    fcntl: ("fcntl", "ioctl", "flock"),
    mmap: ("mmap",),
}
#: how the system refuses
ERRORS = ("ENOSPC", "EIO", "EDQUOT", "EINTR", "EMFILE", "ENOMEM", "EACCES", "EROFS")


class Fault(NamedTuple):
    """What becomes of one call.

    Attributes
    ----------
    at : int
        Its number, from 0; -1 for no call.
    how : str
        ``kill``: the process ends before the call; ``kill torn``: when half is written;
        ``short``: half is written, and that is said; ``short ENOSPC``: half is written, and the
        next write is refused; else the name of an error, with ``late`` before it if
        the call is made all the same.
    """

    at: int
    how: str


class Seam:
    """Counts the calls from :meth:`install` to :meth:`remove`, and lets one of them fail.

    Attributes
    ----------
    made : list of str
        The names of the calls.
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.made: list[str] = []
        #: the name of the call that failed, and what it was about
        self.hit: tuple[str, str] | None = None
        self._is_full = False
        self._real: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        """Exchange the functions."""
        for module, names in [*WRITING.items(), *READING.items()]:
            for name in names:
                real = getattr(module, name)
                self._real.append((module, name, real))
                setattr(module, name, self._watched(name, real))

    def remove(self) -> None:
        """Put the functions back."""
        for module, name, real in self._real:
            setattr(module, name, real)
        self._real.clear()

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            number = len(self.made)
            self.made.append(name)
            if self._is_full and name == "write":
                self._is_full = False
                raise _error("ENOSPC")
            if number != self.fault.at:
                return real(*args, **kwargs)
            return self._fail(name, real, args, kwargs)

        return call

    def _fail(self, name: str, real: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        how = self.fault.how
        self.hit = name, _about(args)
        if how in ("short", "short ENOSPC", "kill torn"):
            if name != "write":
                return real(*args, **kwargs)
            fd, data = args
            written = real(fd, bytes(data)[: (len(data) + 1) // 2])
            if how == "kill torn":
                os.kill(os.getpid(), signal.SIGKILL)
            self._is_full = how == "short ENOSPC"
            return written
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how.startswith("late ") or name == "close":
            # a descriptor is closed whatever close says
            real(*args, **kwargs)
        raise _error(how.removeprefix("late "))


def _about(args: Any) -> str:
    if args and isinstance(args[0], int):
        try:
            return os.readlink(f"/proc/self/fd/{args[0]}")
        except OSError:
            return "?"
    return str(args[0]) if args else "?"


def _error(name: str) -> OSError:
    number = getattr(errno, name)
    return OSError(number, f"{os.strerror(number)}, injected")


def faults(made: list[str], errors: tuple[str, ...] = ERRORS) -> list[Fault]:
    """Return every fault that the calls of an operation can meet."""
    found = []
    for at, name in enumerate(made):
        ways = ["kill", *errors]
        if name == "write":
            ways += ["kill torn", "short", "short ENOSPC"]
        if name in ("fdatasync", "fsync", "replace", "unlink", "mkdir"):
            ways += ["late EIO"]
        found += [Fault(at, how) for how in ways]
    return [*found, Fault(len(made), "kill")]
