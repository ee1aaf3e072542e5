"""The exception tree: what went wrong, where, and what to do.

Every error of this package descends from :class:`MmapStoreError` and from the
builtin that a Python programmer would catch. The facts are attributes; the
message is built from them and never the other way round.
"""

from __future__ import annotations

import os


class MmapStoreError(Exception):
    """Is the root of every error that this package raises on its own account.

    Parameters
    ----------
    what : str
        What went wrong, one clause.
    path : str or path-like, optional
        The file concerned.
    offset : int, optional
        Byte offset in that file.
    hint : str, optional
        What to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = None if path is None else os.fspath(path)
        self.offset = offset
        self.hint = hint

    def __str__(self) -> str:
        """Say what, where and what to do, in that order."""
        text = self.what
        if self.path is not None:
            text = f"{self.path}: {text}"
        if self.offset is not None:
            text += f" (at byte {self.offset})"
        if self.hint:
            text += f"; {self.hint}"
        return text


class NotATranscriptError(MmapStoreError, ValueError):
    """Is raised when a path does not lead to a file of JSON lines."""


class MessageNotFoundError(MmapStoreError, KeyError):
    """Is raised when no message of the transcript has the id asked for."""


class PositionError(MmapStoreError, IndexError):
    """Is raised when a position lies outside [0, message_count)."""


class LineDecodeError(MmapStoreError, ValueError):
    """Is raised when a line that was asked for does not decode to one JSON object.

    Attributes
    ----------
    line_number : int
        Physical line number, counted from 1.
    reason : str
        What the decoder objected to.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset: int | None = None,
        line_number: int | None = None,
        hint: str | None = None,
    ) -> None:
        where = "" if line_number is None else f" {line_number}"
        super().__init__(
            f"line{where} does not decode: {reason}", path=path, offset=offset, hint=hint
        )
        self.reason = reason
        self.line_number = line_number


class TranscriptChangedError(MmapStoreError, RuntimeError):
    """Is raised when the bytes under a layout are no longer those it was built from."""


class SessionNotFoundError(MmapStoreError, FileNotFoundError):
    """Is raised when the host has no session of that id."""


class RevisionNotFoundError(MmapStoreError, LookupError):
    """Is raised when a session has no branch of that root and index."""


class LockedError(MmapStoreError, BlockingIOError):
    """Is raised when another host owns the data directory."""


class InvalidSessionIdError(MmapStoreError, ValueError):
    """Is raised for a session id that is refused before any file is touched."""


class InvalidRecordError(MmapStoreError, ValueError):
    """Is raised for a record that the format does not allow; nothing has been written."""


class ConflictError(MmapStoreError, ValueError):
    """Is raised when what is there already contradicts what was asked for."""


class WriteFailedError(MmapStoreError, OSError):
    """Is raised when the system refused a write or a sync.

    What was to be written may be in the file, whole, or may not: it was not acknowledged.
    """
