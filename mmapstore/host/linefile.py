"""A file of lines on the disk: appended to, replaced whole, and doubted after a failure.

What was acknowledged is on the disk. So the file counts as *settled* only while every
byte of it, and its name, are known to be there: a file that was found is synced before
the first thing that relies on it; one whose sync failed is never synced again, because
the system would call that a success, but copied into a new file first. Nothing is
truncated and no byte is changed in place.
"""

from __future__ import annotations

import contextlib
import enum
import os
import stat
from typing import TYPE_CHECKING

from .. import fileio, provenance
from ..errors import NotATranscriptError, TranscriptChangedError, WriteFailedError
from ..stamp import Stamp, stamp_of, stamp_of_open

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COPIED_NBYTES = 1 << 20


class Trust(enum.Enum):
    """What is known of a file's bytes and the disk."""

    #: all of them are there
    SETTLED = enum.auto()
    #: a sync that succeeds will say so
    UNSYNCED = enum.auto()
    #: a sync has failed: some may be lost though they can be read
    DOUBTED = enum.auto()


# by themselves: an enumeration is slow to give its members away, and an append needs three
_SETTLED, _UNSYNCED, _DOUBTED = Trust


class LineFile:
    """One file of lines, written by this process alone.

    Parameters
    ----------
    path : str
        Where it is, or will be.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.trust = _UNSYNCED
        #: of the file when this host last let go of it
        self.stamp: Stamp | None = None
        # open to append, and the file that it leads to: while it is, no other can get its number
        self._fd = self._inode = -1

    def __del__(self) -> None:
        """Let go of the file."""
        self.close()

    def close(self) -> None:
        """Let go of the file; what is known of it stays."""
        fd, self._fd, self._inode = self._fd, -1, -1
        if fd >= 0:
            os.close(fd)

    def unsettle(self) -> None:
        """Take note that another program may have written to the file."""
        if self.trust is _SETTLED:
            self.trust = _UNSYNCED

    def settle(self) -> bool:
        """See to it that what is in the file is on the disk, before something relies on it.

        Returns
        -------
        waited : bool
            Whether the disk had to be waited for.

        Raises
        ------
        WriteFailedError
            It is not.
        NotATranscriptError
            A symbolic link, or not a file: replacing it would detach what it leads to.
        FileNotFoundError
            The file is gone.
        """
        status = os.lstat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise NotATranscriptError("not a regular file: nothing is written here", path=self.path)
        if self.trust is _SETTLED:
            return False
        if self.trust is _UNSYNCED:
            with self._failing("sync"):
                self.trust = _DOUBTED
                fd = fileio.open_for_append(self.path)
                try:
                    fileio.sync_data(fd)
                finally:
                    os.close(fd)
                fileio.sync_directory(os.path.dirname(self.path))
        else:
            with self._failing("copy"):
                fileio.replace_durably(self.path, _content(self.path), like=status)
        self.trust = _SETTLED
        return True

    def append(self, data: bytes, known: Stamp) -> Stamp:
        """Append bytes to the file that `known` is the stamp of; they are on the disk then.

        Returns
        -------
        after : Stamp
            Of the file behind the write; it is larger by something else than the data if
            another program has written meanwhile.

        Raises
        ------
        TranscriptChangedError
            The file is not that one, or not as it was; nothing was written.
        WriteFailedError
            The system refused; the bytes may be there, in part or whole.
        """
        try:
            if not self._is(known):
                raise self._changed()
            fd = self._fd if self._inode == known.inode else self._open(known)
            self.trust = _UNSYNCED
            fileio.append(fd, data)
            # waiting for the disk does not change it
            after = stamp_of(os.fstat(fd), known.inode_generation)
            self.trust = _DOUBTED
            fileio.sync_data(fd)
        except BaseException as error:
            # a descriptor that something has failed on is not used again
            self.close()
            if isinstance(error, OSError):
                raise self._failed("append", error) from error
            raise
        self.trust = _SETTLED
        if after.nbytes == known.nbytes + len(data):
            provenance.note_append(known, after)
        return after

    def _is(self, known: Stamp) -> bool:
        """Whether the path leads to a file, in the state that `known` is the stamp of."""
        try:
            return known.is_of(os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _open(self, known: Stamp) -> int:
        """Open the file that `known` is the stamp of, to append to it."""
        self.close()
        self._fd = fileio.open_for_append(self.path)
        if stamp_of_open(self._fd) != known:
            raise self._changed()
        self._inode = known.inode
        return self._fd

    def replace(self, parts: Iterable[bytes | memoryview], known: Stamp) -> None:
        """Put new content in the place of the file that `known` is the stamp of.

        Raises
        ------
        TranscriptChangedError
            The file is not as it was when the new content was decided on; it stays.
        WriteFailedError
            The system refused; the old file is there, or the new one, each whole.
        """
        status = os.lstat(self.path)
        self.close()

        def check() -> None:
            if not self._is(known):
                raise self._changed()
            # from here on the name may lead to the one or to the other after a crash
            self.trust = _DOUBTED

        settled = self.trust
        with self._failing("replace"):
            try:
                fileio.replace_durably(self.path, parts, like=status, before_rename=check)
            except BaseException:
                if os.lstat(self.path).st_ino == status.st_ino:
                    self.trust = settled
                raise
        self._note_creation()

    def create(self, parts: Iterable[bytes | memoryview]) -> None:
        """Make the file, with its first content.

        Raises
        ------
        WriteFailedError
            The system refused; there is no file, or a whole one that may not outlive a crash.
        """
        self.trust = _DOUBTED
        with self._failing("create"):
            fileio.replace_durably(self.path, parts)
        self._note_creation()

    def _note_creation(self) -> None:
        self.trust = _SETTLED
        # the directory has one writer: what is at the path is what was put there
        with contextlib.suppress(OSError):
            provenance.note_creation(fileio.open_regular(self.path).stamp())

    def _changed(self) -> TranscriptChangedError:
        return TranscriptChangedError(
            "another program has changed the file; nothing was written",
            path=self.path,
            hint="only its host may write here; ask again",
        )

    def _failed(self, what: str, error: OSError) -> OSError:
        """Return an error of the system as what a caller is told."""
        if isinstance(error, WriteFailedError):
            return error
        failed = WriteFailedError(
            f"{what} failed: {error.strerror or error}",
            path=self.path,
            hint="it was not acknowledged; ask again when the cause is gone",
        )
        failed.errno = error.errno
        return failed

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(what, error) from error


def _content(path: str) -> Iterator[bytes]:
    descriptor = fileio.open_regular(path)
    offset = 0
    while part := descriptor.read(offset, offset + _COPIED_NBYTES):
        yield part
        offset += len(part)
