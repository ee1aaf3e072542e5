"""A transcript, open for reading: windows, look-ups and refresh over one file.

Opening passes over the bytes once; from then on every answer costs what it
touches. Everything is served from the generation of the last refresh, and a
refresh only swaps one immutable generation for another, so any thread may read
while one refreshes. Decision records: 0127; append-only review state.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, get_ident
from typing import TYPE_CHECKING, Any, Self, TypeVar

from . import lookup
from .cachedir import CacheDir
from .decode import Undecodable
from .dialect import dialect_named
from .errors import LineDecodeError, PositionError, TranscriptChangedError
from .loader import Loader, Refresh
from .paging import at_least, integer, page
from .review import overlay
from .stamp import stamp_of
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .errors import NotATranscriptError
    from .generation import Generation
    from .grammar import Dialect
    from .layout import Layout
    from .loader import Access, Trust
    from .verify import Finding
    from .walk import Progress

T = TypeVar("T")


def open(
    path: str | os.PathLike[str],
    *,
    dialect: str | None = None,
    access: Access = "auto",
    trust: Trust = "none",
    cache_dir: str | os.PathLike[str] | CacheDir | None = CacheDir.USER,
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
        then scans the tail alone, and a cache that lags behind is of use.
    cache_dir : path-like, CacheDir or None
        Where the layout cache is kept: in the user's cache directory when not given, see
        :func:`mmapstore.cachedir.user_directory`; None for nowhere.
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
    O(nbytes) once; with a cache of the file as it is, the same for any size. A file that another program truncates in place while it is mapped ends
    the process with SIGBUS when a lost page is touched; ``access="pread"`` cannot.
    """
    return Transcript(
        path,
        dialect=dialect,
        access=access,
        trust=trust,
        cache_dir=cache_dir,
        progress=progress,
    )


class Transcript:
    """One transcript; see :func:`open` for the parameters."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dialect: str | None = None,
        access: Access = "auto",
        trust: Trust = "none",
        cache_dir: str | os.PathLike[str] | CacheDir | None = CacheDir.USER,
        progress: Progress | None = None,
    ) -> None:
        if access not in ("auto", "mmap", "pread"):
            message = f"unknown access {access!r}; known are auto, mmap, pread"
            raise ValueError(message)
        if trust not in ("none", "append-only"):
            message = f"unknown trust {trust!r}; known are none, append-only"
            raise ValueError(message)
        asked = None if dialect is None else dialect_named(dialect)
        self.path = _path(path, "path")
        # a later change of the working directory must not lead refresh() elsewhere
        relative = self.path and not os.path.isabs(self.path)
        self._absolute = os.path.join(os.getcwd(), self.path) if relative else self.path
        if cache_dir is not None and not isinstance(cache_dir, CacheDir):
            cache_dir = os.path.abspath(_path(cache_dir, "cache_dir"))
        self._loader = Loader(
            self._absolute,
            self.path,
            asked=asked,
            access=access,
            trust=trust,
            cache_dir=cache_dir,
            progress=progress,
        )
        self._generation: Generation | None = None
        self._lock = allocate_lock()
        self._refreshing: int | None = None
        self._generation = self._loader.open()

    # -- lifetime ---------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the file, and keep its layout for the next time.

        Windows and views that were given out stay valid.
        """
        generation, self._generation = self._generation, None
        if generation is not None:
            self._loader.keep(generation)

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
    def cache(self) -> str:
        """What became of the layout cache when the transcript was opened.

        ``hit``; ``miss``: there was none; ``stale``: there was one of no use; ``off``.
        """
        return self._loader.cache_state

    @property
    def cache_error(self) -> OSError | None:
        """Why the layout could not be kept for the next time; None where it was, or need not be."""
        return self._loader.cache_error

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
        return self._now.layout.stamp.nbytes

    @property
    def torn_nbytes(self) -> int:
        """Bytes behind the last newline: not data yet, even if they are whole JSON."""
        generation = self._now
        return generation.layout.stamp.nbytes - generation.layout.file_len

    @property
    def torn_tail(self) -> bytes:
        """Those bytes."""
        generation = self._now
        start, stop = generation.layout.file_len, generation.layout.stamp.nbytes
        return bytes(generation.source.view(start, stop)) if start < stop else b""

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
        if (before is not None) + (after is not None) + (around is not None) > 1:
            message = "give one of before, after and around"
            raise ValueError(message)

        def cut(generation: Generation) -> Window:
            centre = None if around is None else _resolve(generation, around, "around")
            messages = generation.layout.messages
            start, stop = page(messages, before, after, centre, limit, max_nbytes)
            if generation.from_cache and start < stop:
                generation.vouch(start, stop)
            return Window(generation, start, stop)

        return self._served(cut)

    def _served(self, ask: Callable[[Generation], T]) -> T:
        """Return an answer; one that the file denies to a cached layout is worked out anew."""
        generation = self._now
        try:
            return ask(generation)
        except TranscriptChangedError:
            if not generation.from_cache:
                raise
            with self._lock:
                if self._generation is generation:
                    self._publish(self._loader.rebuilt(generation))
            return ask(self._now)

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

    def __contains__(self, message_id: str) -> bool:
        """Whether a message has that id, damaged ones included.

        Raises
        ------
        TypeError
            Asked for anything but an id.
        """
        try:
            return self.position(message_id) is not None
        except LineDecodeError:
            return True

    # -- single messages --------------------------------------------------------------

    def _checked(self, generation: Generation, position: int) -> int:
        at = integer(position, "position")
        count = len(generation.layout.messages)
        if not 0 <= at < count:
            # counting from the end, what a position means would change with every append
            newest = "window(limit=...) gives the newest" if at < 0 and count else None
            raise PositionError(
                f"position {at} is outside [0, {count})", path=self.path, hint=newest
            )
        return at

    def __getitem__(self, position: int) -> dict[str, Any]:
        """Return the effective message at a position.

        Raises
        ------
        PositionError
            The position is outside [0, message_count).
        LineDecodeError
            The line is damaged.
        TypeError
            No integer: pages are cut by :meth:`window` and :meth:`iter`, ids are looked up by
            :meth:`message`.
        """
        if isinstance(position, slice):
            message = "a position is one integer; window(after=..., limit=...) or iter() gives more"
            raise TypeError(message)
        return self._served(lambda now: now.message(self._checked(now, position)))

    def line(self, position: int) -> memoryview:
        """Return the bytes of the line at a position, newline included, without copying."""
        return self._served(lambda now: now.line(now.layout.messages, self._checked(now, position)))

    def message_id(self, position: int) -> str:
        """Return the id of the message at a position; ``@<offset>`` where it has none."""
        return self._served(lambda now: lookup.message_id(now, self._checked(now, position)))

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
        wanted = _string(message_id, "message_id")
        return self._served(lambda now: lookup.position(now, wanted))

    def message(self, message_id: str) -> dict[str, Any]:
        """Return the effective message with that id.

        Raises
        ------
        MessageNotFoundError
            There is none; its hint names damaged lines whose id cannot be read.
        LineDecodeError
            Lines have that id, and none of them decodes.
        """
        return self._served(lambda now: now.message(_resolve(now, message_id, "message_id")))

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
        wanted = _string(call_id, "call_id")
        return self._served(lambda now: lookup.tool_parent(now, wanted))

    def verify(self, *, progress: Progress | None = None) -> Iterator[Finding]:
        """Read every line in full and yield those that are damaged or doubtful."""
        generation = self._now
        # loaded by who verifies, and by nobody else
        from . import verify

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
        return self._refresh(None)

    def _refresh(self, trust: Trust | None) -> Refresh:
        generation = self._now
        # the file is open, so its inode cannot have been handed out again
        known = generation.layout.stamp
        stamp = stamp_of(os.stat(self._absolute), known.inode_generation)
        if stamp == known and not generation.doubted and not generation.racy:
            return Refresh.SAME
        if self._refreshing == get_ident():
            return Refresh.SAME  # asked by the progress callback of this very refresh
        with self._lock:
            current = self._now
            if current is not generation:
                return Refresh.REBUILT
            self._refreshing = get_ident()
            try:
                renewed, found = self._loader.renewed(current, stamp, trust)
                self._publish(renewed)
                return found
            finally:
                self._refreshing = None

    def follow(
        self,
        *,
        after: int | None = None,
        limit: int = 1000,
        max_nbytes: int = 64 << 20,
        wait: Callable[[], bool] | None = None,
        lost: Callable[[OSError | NotATranscriptError], object] | None = None,
    ) -> Iterator[Window]:
        """Iterate over windows of new messages as they come: each message line once, in order.

        A window's ``reset`` is true if anything but growth has happened: the file was
        rewritten, replaced or cut short. It begins at position 0, and what was given before is
        void; it is empty if no messages are left. A repeated id comes as a line of its own,
        see :attr:`Window.updates`.

        Parameters
        ----------
        after : int, optional
            The position to begin at, as a window's ``stop``; when not given, what is served
            now is not given again. Past the end of what the file has, it is a reset.
        limit, max_nbytes : int
            Positions and bytes in a window at most, but one line at least.
        wait : callable, optional
            Called when there is nothing new; the iteration ends when it returns False. By
            default a change is waited for: with the extra ``watch`` it is seen at once, else
            within a second.
        lost : callable, optional
            Called once with what is wrong each time that the path stops leading to a
            transcript that can be read. What was read is given all the same, and the
            iteration waits for a file to be there again.

        Raises
        ------
        ValueError
            The transcript is closed already. It ends the iteration when it is closed later.

        Notes
        -----
        Growth of the same file is taken for an append, as with ``trust="append-only"``.
        Any thread may refresh the transcript meanwhile. Ctrl-C while waiting raises
        KeyboardInterrupt.
        """
        # loaded by who follows, and by nobody else
        from . import follow

        return follow.windows(
            self, after=after, limit=limit, max_nbytes=max_nbytes, wait=wait, lost=lost
        )

    def _publish(self, generation: Generation) -> None:
        # closed in the meantime, it stays so
        if self._generation is not None:
            self._generation = generation


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


def _path(value: str | os.PathLike[str], name: str) -> str:
    try:
        return os.fsdecode(value)
    except TypeError:
        message = f"{name} must be a path, not {type(value).__name__}"
        raise TypeError(message) from None


def _string(value: str, name: str) -> str:
    if not isinstance(value, str):
        message = f"{name} must be a string, not {type(value).__name__}"
        raise TypeError(message)
    return value


def _resolve(generation: Generation, message_id: str, name: str) -> int:
    position = lookup.position(generation, _string(message_id, name))
    if position is None:
        raise lookup.not_found(generation, message_id)
    return position
