"""A file of lines on the disk: appended to, replaced whole, and doubted after a failure.

What was acknowledged is on the disk. So the file counts as *settled* only while every
byte of it, and its name, are known to be there: a file that was found is synced before
the first thing that relies on it; one whose sync failed is never synced again, because
the system would call that a success, but copied into a new file first. Nothing is
truncated and no byte is changed in place.
"""

from __future__ import annotations

import enum
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .. import fileio
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


class LineFile:
    """One file of lines, written by this process alone.

    Parameters
    ----------
    path : str
        Where it is, or will be.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.trust = Trust.UNSYNCED
        #: of the file when this host last let go of it
        self.stamp: Stamp | None = None

    def unsettle(self) -> None:
        """Take note that another program may have written to the file."""
        if self.trust is Trust.SETTLED:
            self.trust = Trust.UNSYNCED

    def settle(self) -> None:
        """See to it that what is in the file is on the disk, before something relies on it.

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
        if self.trust is Trust.UNSYNCED:
            with self._failing("sync"):
                self.trust = Trust.DOUBTED
                fd = fileio.open_for_append(self.path)
                try:
                    fileio.sync_data(fd)
                finally:
                    os.close(fd)
                fileio.sync_directory(os.path.dirname(self.path))
            self.trust = Trust.SETTLED
        elif self.trust is Trust.DOUBTED:
            with self._failing("copy"):
                fileio.replace_durably(self.path, _content(self.path), like=status)
            self.trust = Trust.SETTLED

    def append(self, data: bytes, known: Stamp) -> tuple[Stamp, Stamp]:
        """Append bytes to the file that `known` is the stamp of; they are on the disk then.

        Returns
        -------
        before, after : Stamp
            Of the open file around the write.

        Raises
        ------
        TranscriptChangedError
            The file is not that one, or not as it was; nothing was written.
        WriteFailedError
            The system refused; the bytes may be there, in part or whole.
        """
        with self._failing("append"):
            fd = fileio.open_for_append(self.path)
        try:
            before = stamp_of_open(fd)
            if before != known:
                raise self._changed()
            with self._failing("append"):
                self.trust = Trust.UNSYNCED
                fileio.append(fd, data)
                self.trust = Trust.DOUBTED
                fileio.sync_data(fd)
            self.trust = Trust.SETTLED
            return before, stamp_of_open(fd)
        finally:
            os.close(fd)

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

        def check() -> None:
            if stamp_of(os.lstat(self.path), known.inode_generation) != known:
                raise self._changed()
            # from here on the name may lead to the one or to the other after a crash
            self.trust = Trust.DOUBTED

        settled = self.trust
        with self._failing("replace"):
            try:
                fileio.replace_durably(self.path, parts, like=status, before_rename=check)
            except BaseException:
                if os.lstat(self.path).st_ino == status.st_ino:
                    self.trust = settled
                raise
        self.trust = Trust.SETTLED

    def create(self, parts: Iterable[bytes | memoryview]) -> None:
        """Make the file, with its first content.

        Raises
        ------
        WriteFailedError
            The system refused; there is no file, or a whole one that may not outlive a crash.
        """
        self.trust = Trust.DOUBTED
        with self._failing("create"):
            fileio.replace_durably(self.path, parts)
        self.trust = Trust.SETTLED

    def _changed(self) -> TranscriptChangedError:
        return TranscriptChangedError(
            "another program has changed the file; nothing was written",
            path=self.path,
            hint="only its host may write here; ask again",
        )

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, WriteFailedError):
                raise
            failed = WriteFailedError(
                f"{what} failed: {error.strerror or error}",
                path=self.path,
                hint="it was not acknowledged; ask again when the cause is gone",
            )
            failed.errno = error.errno
            raise failed from error


def _content(path: str) -> Iterator[bytes]:
    descriptor = fileio.open_regular(path)
    offset = 0
    while part := descriptor.read(offset, offset + _COPIED_NBYTES):
        yield part
        offset += len(part)
