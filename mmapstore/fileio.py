"""The operating system's side of a file: opening without blocking, and the stamp.

A stamp is what ``fstat`` of the open descriptor says of a file's identity and last
change. Two equal stamps are taken for the same content; ctime is part of them, so
setting mtime back fools nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import sys
from typing import TYPE_CHECKING, NamedTuple

from .errors import NotATranscriptError

if TYPE_CHECKING:
    from collections.abc import Callable


class Stamp(NamedTuple):
    """Identity and last change of a file, as ``fstat`` of an open descriptor gives them.

    Attributes
    ----------
    device, inode : int
        Where the file lives.
    nbytes : int
        Size in bytes.
    mtime_ns, ctime_ns : int
        Last change of the content and of the inode, nanoseconds.
    """

    device: int
    inode: int
    nbytes: int
    mtime_ns: int
    ctime_ns: int

    def same_file(self, other: Stamp) -> bool:
        """Whether both are stamps of one inode."""
        return self.device == other.device and self.inode == other.inode


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp that a stat result holds."""
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


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
        return stamp_of(os.fstat(self.fd))

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
