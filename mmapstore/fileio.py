"""The operating system's side of a file: opening without blocking, replacing whole.

A file that is read is opened without waiting and without changing a thing. A file
that is written is made beside its place under a name of its own and renamed, so
whoever opens the place finds the old file or the new one, each of them whole.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import stat
import sys
from typing import TYPE_CHECKING

from .errors import NotATranscriptError
from .stamp import Stamp, stamp_of_open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Descriptor:
    """A read-only file descriptor that is closed when its last holder lets go.

    Windows hold it, so a window that was not touched before its transcript was
    closed can still read its lines; while it is open, the inode cannot be handed
    out again to another file.
    """

    __slots__ = ("fd", "path")

    def __init__(self, fd: int, path: str) -> None:
        self.fd = fd
        self.path = path

    def close(self, _close: Callable[[int], None] = os.close) -> None:
        """Close the descriptor now; for one that nothing was given out of."""
        # bound early: at the interpreter's end the module's own names may be gone
        fd, self.fd = self.fd, -1
        if fd >= 0:
            _close(fd)

    def __del__(self) -> None:
        """Close the descriptor."""
        self.close()

    def stamp(self) -> Stamp:
        """Return the stamp of the open file."""
        return stamp_of_open(self.fd)

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of the file, fewer where it has become shorter."""
        parts = []
        while start < stop and (part := os.pread(self.fd, stop - start, start)):
            parts.append(part)
            start += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def open_regular(path: str) -> Descriptor:
    """Open a regular file for reading; never block, never change a thing.

    Raises
    ------
    NotATranscriptError
        `path` is a directory, a FIFO, a socket or a device.
    OSError
        As the system gives it: no such file, no permission, too many open files.
    """
    # O_NONBLOCK: opening a FIFO without a writer would wait for one.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags)
    except OSError as error:
        # A socket refuses open(2) itself; say what it is, as for the other kinds.
        if error.errno == errno.ENXIO:
            raise _not_regular(path, "a socket or a device without a driver") from error
        raise
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return Descriptor(fd, path)
    os.close(fd)
    names = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO"}
    raise _not_regular(path, names.get(stat.S_IFMT(mode), "a device"))


def _not_regular(path: str, what: str) -> NotATranscriptError:
    return NotATranscriptError(
        f"{what}, not a transcript", path=path, hint="give the path of a .jsonl file"
    )


#: file system types whose files another machine may change or take away under a map
_REMOTE_TYPES = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre"})


@functools.lru_cache(maxsize=64)
def on_remote_filesystem(device: int) -> bool:
    """Whether a device number belongs to a network or user-space file system.

    Notes
    -----
    Read from the mount table on Linux; elsewhere, and for a device that is not listed
    there, the answer is no.
    """
    if sys.platform != "linux":
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
            for row in table:
                fields = row.split()
                if len(fields) > 2 and fields[2] == wanted:
                    kind = fields[fields.index("-") + 1]
                    return kind in _REMOTE_TYPES or kind.startswith("fuse")
    except (OSError, ValueError):
        return False
    return False


_serial = itertools.count()

#: how the name of a file ends that is still being written
TEMPORARY_SUFFIX = ".tmp"


def replace_file(path: str, parts: Iterable[bytes | memoryview], *, mode: int = 0o600) -> None:
    """Put a file at `path` in one step, without waiting for the disk.

    Raises
    ------
    OSError
        As the system gives it; what was at `path` is still there, and nothing is left beside it.

    Notes
    -----
    After a crash of the machine the file may be there with bytes missing: right only for a
    file that is checked when it is read.
    """
    temporary = f"{path}.{os.getpid()}-{next(_serial)}{TEMPORARY_SUFFIX}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            for part in parts:
                write_all(fd, part)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_all(fd: int, part: bytes | memoryview) -> None:
    """Write every byte (a view is one of bytes), going on after a short count."""
    rest = memoryview(part)
    while len(rest):
        rest = rest[os.write(fd, rest) :]
