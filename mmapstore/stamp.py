"""The stamp: what the system says of a file's identity and last change, and when to believe it.

Two equal stamps are taken for the same content. The change time of the inode is
part of them, so setting the modification time back fools nothing; the inode's
generation is part of them, so an inode number that is handed out again is another
file. A stamp proves nothing while it is *racy*: while the next edit could still
fall into the same tick of the file system's clock. How long a tick is, is tried
out, once a file system, on a file without a name.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import NamedTuple

#: what a file system's clock may be behind in the worst case that is in use
COARSE_NS = 2_000_000_000
#: two ticks of a kernel that stamps by its coarsest timer, 100 Hz
TICK_NS = 20_000_000
_TRIES = 64

#: Linux: CLOCK_REALTIME_COARSE, which Python does not name
_REALTIME_COARSE = 5

#: Linux: FS_IOC_GETVERSION, _IOR('v', 1, long)
_GET_GENERATION = 0x80087601 if sys.maxsize > 1 << 32 else 0x80047601


class Stamp(NamedTuple):
    """Identity and last change of a file, as an open descriptor tells them.

    Attributes
    ----------
    device, inode : int
        Where the file lives.
    nbytes : int
        Size in bytes.
    mtime_ns, ctime_ns : int
        Last change of the content and of the inode, nanoseconds.
    inode_generation : int
        Which file of those that have had the inode number; 0 where the file system does
        not say.
    """

    device: int
    inode: int
    nbytes: int
    mtime_ns: int
    ctime_ns: int
    inode_generation: int = 0

    def same_file(self, other: Stamp) -> bool:
        """Whether both are stamps of one inode."""
        return (self.device, self.inode, self.inode_generation) == (
            other.device,
            other.inode,
            other.inode_generation,
        )

    def is_of(self, status: os.stat_result) -> bool:
        """Whether a stat result is of this state of the file, as far as it tells."""
        return (
            status.st_ctime_ns == self.ctime_ns
            and status.st_size == self.nbytes
            and status.st_ino == self.inode
            and status.st_dev == self.device
            and status.st_mtime_ns == self.mtime_ns
        )


def stamp_of(status: os.stat_result, inode_generation: int = 0) -> Stamp:
    """Return the stamp that a stat result holds."""
    return Stamp(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        inode_generation,
    )


def stamp_of_open(fd: int) -> Stamp:
    """Return the stamp of an open file, with the inode's generation."""
    return stamp_of(os.fstat(fd), _inode_generation(fd))


def _inode_generation(fd: int) -> int:
    if sys.platform != "linux":
        return int(getattr(os.fstat(fd), "st_gen", 0))
    # here, so that a look at a layout does not pay for it
    from fcntl import ioctl

    buffer = bytearray(8)
    try:
        ioctl(fd, _GET_GENERATION, buffer)
    except OSError:
        return 0  # ENOTTY and the like: the file system does not keep one
    return int.from_bytes(buffer[:4], sys.byteorder)


def is_racy(stamp: Stamp, directory: str, *, remote: bool) -> bool:
    """Whether an edit after `stamp` was taken might have left it as it is.

    Parameters
    ----------
    stamp : Stamp
        Taken just now: before the content was read.
    directory : str
        The file's; a file without a name is made there to try the clock out, if the last
        change was a short while ago.
    remote : bool
        Whether another machine may keep the file's times.
    """
    changed_ns = max(stamp.mtime_ns, stamp.ctime_ns) if remote else stamp.ctime_ns
    age_ns = _now_ns() - changed_ns
    if age_ns > COARSE_NS:
        return False
    granule_ns = COARSE_NS if remote else _granule_ns(stamp.device, directory)
    return granule_ns > 0 and age_ns <= granule_ns


def _now_ns() -> int:
    """Return the time by the clock that file systems stamp with."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(_REALTIME_COARSE)
    return time.time_ns()


_known_granules: dict[int, int] = {}


def _granule_ns(device: int, directory: str) -> int:
    """Return for how long two edits may share a stamp; 0 if every edit that is seen is told."""
    known = _known_granules.get(device)
    if known is None:
        known = _measured_granule_ns(device, directory)
        _known_granules[device] = known
    return known


def _measured_granule_ns(device: int, directory: str) -> int:
    temporary = getattr(os, "O_TMPFILE", None)
    if temporary is None:
        return COARSE_NS
    try:
        # no name: nothing is to be seen in a directory that is another program's
        fd = os.open(directory or ".", temporary | os.O_RDWR | os.O_CLOEXEC, stat.S_IRUSR)
    except OSError:
        return COARSE_NS  # a directory that is not ours to write in tells nothing
    try:
        seen = set()
        for _ in range(_TRIES):
            os.pwrite(fd, b".", 0)
            status = os.fstat(fd)
            seen.add(status.st_ctime_ns)
    except OSError:
        return COARSE_NS
    finally:
        os.close(fd)
    if status.st_dev != device:
        return COARSE_NS  # a layered file system keeps its files elsewhere
    if len(seen) == _TRIES:
        return 0
    return TICK_NS if any(ns % 1_000_000_000 for ns in seen) else COARSE_NS
