"""A transcript, open for reading: windows, look-ups and refresh over one file.

Opening passes over the bytes once; from then on every answer costs what it
touches. Everything is served from the generation of the last refresh, and a
refresh only swaps one immutable generation for another, so any thread may read
while one refreshes. Decision records: 0127; append-only review state.
"""

from __future__ import annotations

import enum
import operator
import os
import threading
from typing import TYPE_CHECKING, Any, Literal, Self

from . import detect, layout, verify
from .decode import Undecodable
from .dialect import dialect_named
from .errors import NotATranscriptError, PositionError
from .fileio import on_remote_filesystem, open_regular
from .filemap import MappedFile, ReadFile
from .generation import Generation
from .paging import at_least, page
from .review import overlay
from .stamp import Stamp, stamp_of
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fileio import Descriptor
    from .filemap import FileBytes
    from .grammar import Dialect
    from .layout import Layout
    from .verify import Finding
    from .walk import Progress

Access = Literal["auto", "mmap", "pread"]
Trust = Literal["none", "append-only"]


class Refresh(enum.IntEnum):
    """What a refresh found; false if nothing changed."""

    #: nothing changed
    SAME = 0
    #: the file has grown; every position still holds
    APPENDED = 1
    #: the file was read anew; positions may mean other messages
    REBUILT = 2


def open(
    path: str | os.PathLike[str],
    *,
    dialect: str | None = None,
    access: Access = "auto",
    trust: Trust = "none",
    progress: Progress | None = None,
) -> Transcript:
    """Open a transcript for reading.

    Parameters
    ----------
    path : path-like
        A JSONL file.
    dialect : str, optional
        What it is written in; detected where not given.
    access : {"auto", "mmap", "pread"}
        How bytes are reached. ``auto`` maps native transcripts on local file systems, whose
        writers replace by rename, and reads everything else.
    trust : {"none", "append-only"}
        ``append-only`` vouches that the file's writer only appends: a refresh after growth
        then scans the tail alone.
    progress : callable, optional
        Called with (bytes done, bytes in all) during a scan.

    Returns
    -------
    transcript : Transcript
        A context manager.

    Raises
    ------
    NotATranscriptError
        The path leads to something else: a directory, a FIFO, a binary file.
    ValueError
        An unknown dialect, access or trust.
    OSError
        As the system gives it.

    Notes
    -----
    O(nbytes) once. A file that another program truncates in place while it is mapped ends
    the process with SIGBUS when a lost page is touched; ``access="pread"`` cannot.
    """
    return Transcript(path, dialect=dialect, access=access, trust=trust, progress=progress)


class Transcript:
    """One transcript; see :func:`open` for the parameters."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dialect: str | None = None,
        access: Access = "auto",
        trust: Trust = "none",
        progress: Progress | None = None,
    ) -> None:
        if access not in ("auto", "mmap", "pread"):
            message = f"unknown access {access!r}; known are auto, mmap, pread"
            raise ValueError(message)
        if trust not in ("none", "append-only"):
            message = f"unknown trust {trust!r}; known are none, append-only"
            raise ValueError(message)
        self._asked = None if dialect is None else dialect_named(dialect)
        self.path = os.fsdecode(path)
        # a later change of the working directory must not lead refresh() elsewhere
        relative = self.path and not os.path.isabs(self.path)
        self._absolute = os.path.join(os.getcwd(), self.path) if relative else self.path
        self._access = access
        self._trust = trust
        self._progress = progress
        self._has_shrunk = False
        self._generation: Generation | None = None
        self._lock = threading.Lock()
        self._refreshing: int | None = None
        descriptor = open_regular(self._absolute)
        self._generation = self._built(descriptor, 0, fresh=True)

    # -- lifetime ---------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the file. Windows and views that were given out stay valid."""
        self._generation = None

    def __enter__(self) -> Self:
        """Return the transcript itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the transcript."""
        self.close()

    def __repr__(self) -> str:
        """Show path, dialect and count."""
        if self._generation is None:
            return f"<Transcript {self.path!r}, closed>"
        return f"<Transcript {self.path!r}, {self.dialect.name}, {self.message_count} messages>"

    @property
    def _now(self) -> Generation:
        generation = self._generation
        if generation is None:
            message = f"{self.path}: the transcript is closed"
            raise ValueError(message)
        return generation

    # -- facts ------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Where the lines of this generation are."""
        return self._now.layout

    @property
    def generation(self) -> int:
        """The number of the generation being served; grows with every change found."""
        return self._now.number

    @property
    def dialect(self) -> Dialect:
        """What the transcript is written in."""
        return self._now.dialect

    @property
    def access(self) -> str:
        """How bytes are reached: ``mmap`` or ``pread``."""
        return self._now.source.access

    @property
    def message_count(self) -> int:
        """Message lines, repeated and damaged ones included."""
        return len(self._now.layout.messages)

    def __len__(self) -> int:
        """Return :attr:`message_count`."""
        return self.message_count

    @property
    def nbytes(self) -> int:
        """Size of the file in this generation, bytes."""
        return self._now.source.nbytes

    @property
    def torn_nbytes(self) -> int:
        """Bytes behind the last newline: not data yet, even if they are whole JSON."""
        generation = self._now
        return generation.source.nbytes - generation.layout.file_len

    @property
    def torn_tail(self) -> bytes:
        """Those bytes."""
        generation = self._now
        return bytes(generation.source.view(generation.layout.file_len, generation.source.nbytes))

    # -- windows ----------------------------------------------------------------------

    def window(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: str | None = None,
        limit: int | None = 100,
        max_nbytes: int | None = None,
    ) -> Window:
        """Return a page of messages: the newest, or those next to a position or an id.

        Parameters
        ----------
        before : int, optional
            [max(0, before - limit), before): the page before an older page's ``start``.
        after : int, optional
            [after, after + limit): continue from a page's ``stop``.
        around : str, optional
            A page with the message of this id at ``limit // 2``, clamped.
        limit : int or None
            Positions at most; None for all.
        max_nbytes : int, optional
            Cut the page short of this many bytes of lines, keeping at least one: the end
            farthest from what was asked for goes.

        Raises
        ------
        ValueError
            More than one place, a limit or size below 1, a negative position.
        TypeError
            Not integers, or an id that is not a string.
        MessageNotFoundError
            No message has the id.

        Notes
        -----
        Independent of the history; the first ``around`` reads the ids of all messages.
        """
        generation = self._now
        if (before is not None) + (after is not None) + (around is not None) > 1:
            message = "give one of before, after and around"
            raise ValueError(message)
        centre = None if around is None else self._resolve(generation, around)
        messages = generation.layout.messages
        start, stop = page(messages, before, after, centre, limit, max_nbytes)
        return Window(generation, start, stop)

    def iter(
        self, start: int = 0, stop: int | None = None, *, reverse: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Iterate over the effective messages at positions [start, stop).

        Damaged lines are left out; every physical line of a repeated id comes by itself.

        Notes
        -----
        Serves the generation of this call, a few megabytes at a time.
        """
        generation = self._now
        total = len(generation.layout.messages)
        first = min(at_least(start, 0, "start"), total)
        end = total if stop is None else min(at_least(stop, 0, "stop"), total)
        return _effective(generation, first, end, reverse=reverse)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over all effective messages, as :meth:`iter` does."""
        return self.iter()

    # -- single messages --------------------------------------------------------------

    def _checked(self, generation: Generation, position: int) -> int:
        at = operator.index(position)
        count = len(generation.layout.messages)
        if not 0 <= at < count:
            raise PositionError(f"position {at} is outside [0, {count})", path=self.path)
        return at

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return the effective message at a position.

        Raises
        ------
        PositionError
            The position is outside [0, message_count).
        LineDecodeError
            The line is damaged.
        """
        generation = self._now
        return generation.message(self._checked(generation, position))

    def line(self, position: int) -> memoryview:
        """Return the bytes of the line at a position, newline included, without copying."""
        generation = self._now
        return generation.line(generation.layout.messages, self._checked(generation, position))

    def message_id(self, position: int) -> str:
        """Return the id of the message at a position; ``@<offset>`` where it has none."""
        generation = self._now
        return generation.message_id(self._checked(generation, position))

    def position(self, message_id: str) -> int | None:
        """Return the position of the last line with that id that decodes, or None.

        Raises
        ------
        LineDecodeError
            Lines have that id, and none of them decodes.

        Notes
        -----
        The first look-up of a generation reads the ids of all messages; the others cost a
        search and the lines found.
        """
        return self._now.position(_string(message_id))

    def message(self, message_id: str) -> dict[str, Any]:
        """Return the effective message with that id.

        Raises
        ------
        MessageNotFoundError
            There is none; its hint names damaged lines whose id cannot be read.
        LineDecodeError
            Lines have that id, and none of them decodes.
        """
        generation = self._now
        return generation.message(self._resolve(generation, message_id))

    def _resolve(self, generation: Generation, message_id: str) -> int:
        position = generation.position(_string(message_id))
        if position is None:
            raise generation.not_found(message_id)
        return position

    def tool_parent(self, call_id: str) -> dict[str, Any]:
        """Return the newest message line that holds this tool call, effective, wherever it is.

        A line whose id a later line repeats without the call still holds it.

        Raises
        ------
        MessageNotFoundError
            None does.

        Notes
        -----
        Searches the message lines from the newest on.
        """
        return self._now.tool_parent(_string(call_id))

    def verify(self, *, progress: Progress | None = None) -> Iterator[Finding]:
        """Read every line in full and yield those that are damaged or doubtful."""
        generation = self._now
        return verify.findings(generation.layout, generation.source, progress=progress)

    # -- change -----------------------------------------------------------------------

    def refresh(self) -> Refresh:
        """Look whether the file has changed, and serve what it is now.

        Returns
        -------
        refresh : Refresh
            ``SAME`` (false), ``APPENDED`` if every position still holds, else ``REBUILT``.

        Raises
        ------
        OSError
            The path is gone or unreadable; what was served before still is.
        NotATranscriptError
            Something else is at the path now.

        Notes
        -----
        One ``stat`` where nothing changed. A change is read anew from the start, unless it
        is growth of the same file and the caller vouched for it with ``trust``.
        """
        generation = self._now
        # the file is open, so its inode cannot have been handed out again
        known = generation.layout.stamp
        stamp = stamp_of(os.stat(self._absolute), known.inode_generation)
        if stamp == known and not generation.doubted:
            return Refresh.SAME
        if self._refreshing == threading.get_ident():
            return Refresh.SAME  # asked by the progress callback of this very refresh
        with self._lock:
            current = self._now
            if current is not generation:
                return Refresh.REBUILT
            self._refreshing = threading.get_ident()
            try:
                return self._renew(current, stamp)
            finally:
                self._refreshing = None

    def _renew(self, current: Generation, stamp: Stamp) -> Refresh:
        known = current.layout.stamp
        fresh = not stamp.same_file(known)
        descriptor = open_regular(self._absolute) if fresh else current.source.descriptor
        stamp = descriptor.stamp()
        self._has_shrunk |= stamp.same_file(known) and stamp.nbytes < known.nbytes
        number = current.number + 1
        if (
            self._trust == "append-only"
            and not current.doubted
            and stamp.same_file(known)
            and stamp.nbytes > known.nbytes
            and current.claimed
        ):
            source = self._source(descriptor, stamp, current.dialect)
            grown = layout.extend(current.layout, source, stamp, progress=self._progress)
            self._publish(Generation(number, self.path, grown, source))
            return Refresh.APPENDED
        self._publish(self._built(descriptor, number, fresh=fresh))
        return Refresh.REBUILT

    def _publish(self, generation: Generation) -> None:
        # closed in the meantime, it stays so
        if self._generation is not None:
            self._generation = generation

    def _built(self, descriptor: Descriptor, number: int, *, fresh: bool) -> Generation:
        """Return a generation of the file as it is; a `fresh` descriptor is held by no other."""
        try:
            stamp = descriptor.stamp()
            while True:
                generation = self._build(descriptor, stamp, number)
                now = descriptor.stamp()
                if now.nbytes >= stamp.nbytes:
                    return generation
                # it has become shorter under the scan: what was seen is of no state
                stamp, self._has_shrunk = now, True
        except BaseException:
            # an error that someone keeps would keep the file open
            if fresh:
                descriptor.close()
            raise

    def _build(self, descriptor: Descriptor, stamp: Stamp, number: int) -> Generation:
        head = descriptor.read(0, min(stamp.nbytes, detect.DETECTION_NBYTES))
        if not stamp.nbytes and descriptor.read(0, 1) and not descriptor.stamp().nbytes:
            raise NotATranscriptError(
                "a file of no size that has bytes", path=self.path, hint="copy it to a file first"
            )
        detect.check_is_transcript(self.path, head)
        dialect = self._asked or detect.detect(self._absolute, head)
        # what no line claims yet may turn out to be of another dialect
        claimed = self._asked is not None or detect.is_claimed(dialect, head)
        source = self._source(descriptor, stamp, dialect)
        built = layout.build(source, dialect, stamp, progress=self._progress)
        return Generation(number, self.path, built, source, claimed=claimed)

    def _source(self, descriptor: Descriptor, stamp: Stamp, dialect: Dialect) -> FileBytes:
        if self._access == "mmap":
            return MappedFile(descriptor, stamp.nbytes)
        if (
            self._access == "auto"
            and dialect.safe_to_map
            and not self._has_shrunk
            and not on_remote_filesystem(stamp.device)
        ):
            try:
                return MappedFile(descriptor, stamp.nbytes)
            except OSError:
                pass  # ENODEV, ENOMEM, EMFILE: reading gives the same answers
        return ReadFile(descriptor, stamp.nbytes)


def _effective(
    generation: Generation, start: int, stop: int, *, reverse: bool
) -> Iterator[dict[str, Any]]:
    messages = generation.layout.messages
    parts = list(generation.parts(messages, start, stop))
    for first, end in reversed(parts) if reverse else parts:
        records = generation.decoded(messages, first, end)
        for record in reversed(records) if reverse else records:
            if isinstance(record, Undecodable):
                continue
            if len(generation.layout.reviews):
                overlay(record, generation.review_states)
            yield record


def _string(value: str) -> str:
    if not isinstance(value, str):
        message = f"an id is a string, not {type(value).__name__}"
        raise TypeError(message)
    return value
