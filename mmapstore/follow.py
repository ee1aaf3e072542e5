"""Following a transcript: windows of what is new, each message line once and in order.

A follower keeps its own place, a position in the generation that it saw last. A
generation that grew out of that one by appends alone continues from there, whoever
found it; in any other a position may mean another message, so the follower begins at
its start and says so. Growth of the same file is taken for an append, by the caller's word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from .errors import NotATranscriptError
from .layout import is_behind
from .loader import Refresh
from .paging import at_least, page
from .watch import Waiter
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .generation import Generation
    from .loader import Trust

    Wait = Callable[[], bool]
    Lost = Callable[[OSError | NotATranscriptError], object]

T = TypeVar("T")


class Followed(Protocol):
    """What is followed: a transcript, as far as is needed of it here."""

    _absolute: str
    _generation: Generation | None

    @property
    def _now(self) -> Generation: ...
    def _refresh(self, trust: Trust | None) -> Refresh: ...
    def _served(self, ask: Callable[[Generation], T]) -> T: ...


def windows(
    transcript: Followed,
    *,
    after: int | None,
    limit: int,
    max_nbytes: int,
    wait: Wait | None,
    lost: Lost | None,
) -> Iterator[Window]:
    """Return the windows that :meth:`mmapstore.Transcript.follow` gives."""
    # now, and not when the first window is asked for
    known = transcript._now
    place = len(known.layout.messages) if after is None else at_least(after, 0, "after")
    span = at_least(limit, 1, "limit")
    room = at_least(max_nbytes, 1, "max_nbytes")
    return _windows(transcript, known, place, span, room, wait, lost)


def _windows(
    transcript: Followed,
    known: Generation,
    place: int,
    limit: int,
    max_nbytes: int,
    wait: Wait | None,
    lost: Lost | None,
) -> Iterator[Window]:
    def cut(now: Generation) -> tuple[Generation, Window]:
        messages = now.layout.messages
        reset = place > len(messages) or not _has_grown(known, now)
        start, stop = page(messages, None, 0 if reset else place, None, limit, max_nbytes)
        if now.from_cache and start < stop:
            now.vouch(start, stop)
        window = Window(now, start, stop)
        window.reset = reset
        return now, window

    missing = False
    waiter = None
    try:
        while True:
            found = Refresh.SAME
            window = None
            trouble: OSError | NotATranscriptError | None = None
            try:
                try:
                    found = transcript._refresh("append-only")
                except (OSError, NotATranscriptError) as error:
                    trouble = error
                # what is served already is served on
                known, window = transcript._served(cut)
            except (OSError, NotATranscriptError) as error:
                trouble = error
            except ValueError:
                if transcript._generation is None:
                    return  # closed in the meantime
                raise
            if trouble is not None and not missing and lost is not None:
                lost(trouble)
            missing = trouble is not None
            # its traceback would keep this frame alive, and what it holds open
            trouble = None
            if window is not None and (window.reset or len(window)):
                place = window.stop
                yield window
            elif not found:
                # after a change one looks again: another thread may have found an older one
                if wait is None:
                    wait = waiter = Waiter(transcript._absolute)
                if not wait():
                    return
    finally:
        if waiter is not None:
            waiter.close()


def _has_grown(known: Generation, now: Generation) -> bool:
    """Whether every position of one generation is the same message in a later one."""
    if now.continues(known):
        return True
    if known.claimed or known.doubted or now.number != known.number + 1:
        return False
    # While no line says what a file is written in, growth is read anew, for the dialect may
    # be another; where the answer is the same it was growth all the same.
    old, new = known.layout, now.layout
    count = len(old.messages)
    return (
        new.stamp.same_file(old.stamp)
        and new.stamp.nbytes > old.stamp.nbytes
        and (new.dialect is old.dialect or not count)
        and len(new.messages) >= count
        and np.array_equal(new.messages.part(0, count)[0], old.message_offsets)
        and is_behind(old, now.source)
    )
