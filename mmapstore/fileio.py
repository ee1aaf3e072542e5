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
from typing import TYPE_CHECKING, Any

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
    descriptor = Descriptor(fd, path)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return descriptor
    except BaseException:
        descriptor.close()
        raise
    descriptor.close()
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


# -- what must outlive a crash of the machine -------------------------------------------


def sync_data(fd: int) -> None:
    """Wait until the disk has a file's content and its size.

    Notes
    -----
    Never called again for a descriptor that it failed on: the system has dropped what it
    could not write and would report success.
    """
    if sys.platform == "darwin":  # where fsync stops at the drive's cache
        fcntl_module().fcntl(fd, fcntl_module().F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def fcntl_module() -> Any:
    """Return the module, loaded on the first use: a reader pays nothing for it."""
    import fcntl

    return fcntl


def sync_directory(path: str) -> None:
    """Wait until the disk has a directory's names.

    Raises
    ------
    OSError
        As the system gives it: a rename or a creation before it may be lost.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_for_append(path: str) -> int:
    """Open a file that is there, to append to it; a link is not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(path, flags)


def append(fd: int, data: bytes | memoryview) -> None:
    """Write `data` at the end of a file in one piece; go on after a short count."""
    written = os.write(fd, data)
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        if written == 0:
            raise OSError(errno.EIO, "the system wrote nothing and did not say why")
        written = os.write(fd, rest)
        rest = rest[written:]


def replace_durably(
    path: str,
    parts: Iterable[bytes | memoryview],
    *,
    like: os.stat_result | None = None,
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Put a file at `path` in one step; it is on the disk when this returns.

    Parameters
    ----------
    path : str
        A file of any age, or none.
    parts : iterable of bytes-like
        The new content.
    like : stat result, optional
        Whose mode and owner the new file has; without it, its owner's alone to use.
    before_rename : callable, optional
        Called when all is written and nothing is replaced yet; may raise.

    Raises
    ------
    OSError
        As the system gives it. Up to the rename the old file is untouched and nothing is left
        beside it; behind it, the new file is there and may not outlive a crash.
    """
    temporary = f"{path}.{os.getpid()}-{next(_serial)}{TEMPORARY_SUFFIX}"
    fd = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        try:
            for part in parts:
                append(fd, part)
            if like is not None:
                if (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                    with contextlib.suppress(OSError):  # only a privileged user may
                        os.fchown(fd, like.st_uid, like.st_gid)
                os.fchmod(fd, stat.S_IMODE(like.st_mode))
            sync_data(fd)
        finally:
            os.close(fd)
        if before_rename is not None:
            before_rename()
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(os.path.dirname(path) or ".")


def make_private_directory(path: str) -> None:
    """Make a directory, and those above it, that only its owner may use; it may be there."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(os.path.abspath(path))
    make_private_directory(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        sync_directory(above)


def make_private_file(path: str) -> None:
    """Make an empty file that only its owner may use; it may be there."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def remove(path: str) -> bool:
    """Remove a file; False if there was none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


class LockFile:
    """A lock of the kernel on a file that is never removed.

    The kernel frees it when its owner ends, however it ends. What is written in the file
    is for people: it decides nothing.

    Parameters
    ----------
    path : str
        Made if it is not there.
    owner : str
        What the file says while the lock is held.

    Raises
    ------
    BlockingIOError
        Somebody has it; ``strerror`` is what the file says.
    """

    _NBYTES = 256

    def __init__(self, path: str, owner: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not _take_lock(self.fd):
                said = os.pread(self.fd, self._NBYTES, 0).decode("utf-8", "replace").strip("\0 \n")
                raise BlockingIOError(errno.EAGAIN, said or "an owner that did not say who it is")
            text = owner.encode("utf-8", "replace")[: self._NBYTES - 1]
            # as long as any other: no old text shows behind it, and nothing is truncated
            os.pwrite(self.fd, text.ljust(self._NBYTES - 1) + b"\n", 0)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        """Free the lock of an owner that has gone without a word."""
        if hasattr(self, "fd"):
            self.close()

    def close(self) -> None:
        """Free the lock."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _take_lock(fd: int) -> bool:
    fcntl = fcntl_module()
    try:
        if hasattr(fcntl, "F_OFD_SETLK"):
            # unlike a process's own locks, not lost when the process closes the file elsewhere
            import struct

            whole_file = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole_file)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
