"""``mmapstore tail --follow``: what comes, as it comes, until somebody interrupts.

Each batch is flushed before the next is waited for. A file that was rewritten is shown
as if it had just been opened; what became of the path is said once on standard error.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import TYPE_CHECKING

import click

import mmapstore

from ..cachedir import CacheDir
from ..watch import Waiter
from . import output
from .bar import Bar
from .opening import STDIN, add_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .. import Transcript, Window
    from ..loader import Access

_COUNT = 1000


@contextlib.contextmanager
def opened(
    file: str, dialect: str | None, access: Access, *, no_cache: bool = False
) -> Iterator[Transcript]:
    """Open a transcript to follow it: its writer is taken to append."""
    if file == STDIN:
        message = f"{STDIN} cannot be followed: give the path of a file"
        raise click.UsageError(message, click.get_current_context())
    try:
        with Bar("reading") as bar:
            transcript = mmapstore.open(
                file,
                dialect=dialect,
                access=access,
                trust="append-only",
                cache_dir=None if no_cache else CacheDir.USER,
                progress=bar,
            )
    except mmapstore.NotATranscriptError as error:
        add_hint(error)
        raise
    with transcript:
        yield transcript


def follow(
    transcript: Transcript,
    name: str,
    show_newest: Callable[[bool], int],
    show: Callable[[Window], object],
) -> int:
    """Show the newest messages and then what comes.

    Parameters
    ----------
    transcript : Transcript
        What to follow.
    name : str
        What to call it.
    show_newest : callable
        Shows the newest messages; returns the position behind them. Called with whether what
        was shown before is void.
    show : callable
        Shows a window of messages that are new.

    Returns
    -------
    code : int
        0, if it ever ends by itself.
    """

    def lost(error: Exception) -> None:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            told = "the file is gone"
        elif isinstance(error, mmapstore.MmapStoreError):
            told = error.what
        else:
            told = getattr(error, "strerror", None) or str(error)
        output.note(f"{name}: {told}; waiting for a transcript to be there")

    with contextlib.closing(Waiter(os.path.abspath(transcript.path))) as waiter:

        def wait() -> bool:
            output.flush()
            _check_reader()
            return waiter()

        after = show_newest(False)
        while True:
            following = transcript.follow(after=after, limit=_COUNT, wait=wait, lost=lost)
            if not _shown(following, show):
                return 0
            # that it changed under the printing is told once, by what it is now
            with contextlib.suppress(mmapstore.TranscriptChangedError):
                output.note(f"{name}: the file was rewritten; this is what it is now")
                after = show_newest(True)


def _shown(windows: Iterator[Window], show: Callable[[Window], object]) -> bool:
    """Show windows; return True at one that makes void what was shown."""
    for window in windows:
        if window.reset:
            return True
        # a file that was changed in place is a reset when it is looked at again
        with contextlib.suppress(mmapstore.TranscriptChangedError):
            show(window)
    return False


def _check_reader() -> None:
    """Raise BrokenPipeError if whoever read standard output went away."""
    # nothing is written while nothing comes, so no write would tell
    if sys.stdout is None or not hasattr(select, "poll"):
        return
    try:
        out = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a stream of the system's
    poll = select.poll()
    poll.register(out, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError
