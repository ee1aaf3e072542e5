"""A progress bar that appears only where somebody looks, and only when it is worth it.

It is a callback of the library's: called with (bytes done, bytes in all). Standard
error must be a terminal, and the work must have taken a moment already.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Self

from . import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

#: seconds of work before a bar appears
PATIENCE = 0.3
#: seconds between two drawings
_BETWEEN = 0.1


class Bar:
    """A progress bar on standard error; leaves nothing on the screen.

    Parameters
    ----------
    label : str
        What is being done.
    clock : callable, optional
        Seconds that only grow.
    """

    def __init__(self, label: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._clock = clock
        self._wanted = output.talks() and os.environ.get("TERM") != "dumb"
        self._next = clock() + PATIENCE
        self._drawn: Progress | None = None

    def __enter__(self) -> Self:
        """Begin; nothing is shown yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self.pause()

    def __call__(self, done: int, total: int) -> None:
        """Show how far the work has come."""
        if not self._wanted or (now := self._clock()) < self._next:
            return
        self._next = now + _BETWEEN
        if self._drawn is None:
            self._drawn = _progress()
            self._drawn.add_task(self._label)
        self._drawn.start()
        self._drawn.update(self._drawn.task_ids[0], completed=done, total=total)
        self._drawn.refresh()

    def pause(self) -> None:
        """Take the bar away until the next call, to make room for output."""
        if self._drawn is not None:
            self._drawn.stop()


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    # No thread of its own and no hold on the streams: the callback draws, output is bytes.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
