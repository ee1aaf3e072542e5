"""Waiting for a file to change: the system tells, where a library can ask it, else one looks.

A wait ends within a second whatever happens. So a change that nobody tells of, made by
another machine or in a directory that has itself been replaced, costs that second and
nothing else; whoever waits looks at the file afterwards in any case.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

#: seconds that a wait takes at most
LIMIT_S = 1.0
#: seconds between two looks at a file that was changing a moment ago
_SHORTEST_S = 0.1
#: milliseconds after which a change is told of, if no other follows
_STEP_MS = 20
#: milliseconds that changes which follow each other are gathered for
_GATHER_MS = 60
#: milliseconds after which the library gives its caller a turn
_TURN_MS = 100


class Waiter:
    """Waits for changes of the file at a path, which need not exist.

    Parameters
    ----------
    path : str
        Absolute.

    Notes
    -----
    Its directory is watched, for a file that is replaced is another file; so is the one
    that a symbolic link leads to. Without the library, the file's times and size are looked at, ever
    less often while they stay.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._delay_s = _SHORTEST_S
        self._seen = self._look()
        self._changes: Generator[set[tuple[Any, str]]] | None = None
        self._names: set[str] = set()
        self._directories: dict[str, tuple[int, int]] = {}

    def __call__(self) -> bool:
        """Wait until the file may have changed, for a second at most; always true."""
        try:
            if self._changes is None or self._find_directories() != self._directories:
                # what happened before the watch began was not told of: one look at it
                self._begin()
                self._turn()
                return True
            end_s = time.monotonic() + LIMIT_S
            while time.monotonic() < end_s and not self._turn():
                pass
        except (ImportError, OSError, RuntimeError, ValueError):
            # no library, no directory, too many watches, a name that is not text
            self.close()
            self._poll()
        return True

    def close(self) -> None:
        """Stop watching."""
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.close()

    def _begin(self) -> None:
        # loaded by who waits, and by nobody else
        from watchfiles import watch

        self.close()
        self._directories = self._find_directories()
        self._names = {os.path.basename(place) for place in self._places()}
        self._changes = watch(
            *self._directories,
            watch_filter=None,
            debounce=_GATHER_MS,
            step=_STEP_MS,
            rust_timeout=_TURN_MS,
            yield_on_timeout=True,
            recursive=False,
        )

    def _turn(self) -> bool:
        """Let a moment pass; return whether the file was told of, or nothing will be any more."""
        changes = None if self._changes is None else next(self._changes, None)
        if changes is None:
            self.close()
            return True
        places = {place for _, place in changes}
        if not places.isdisjoint(self._directories):
            # removed, perhaps: one of the same name is watched no longer
            self.close()
            return True
        return any(os.path.basename(place) in self._names for place in places)

    def _places(self) -> tuple[str, str]:
        return self._path, os.path.realpath(self._path)

    def _find_directories(self) -> dict[str, tuple[int, int]]:
        """Return the directories to be watched, and which they are."""
        found = {}
        for directory in map(os.path.dirname, self._places()):
            status = os.stat(directory)
            found[directory] = (status.st_dev, status.st_ino)
        return found

    def _poll(self) -> None:
        time.sleep(self._delay_s)
        seen = self._look()
        self._delay_s = _SHORTEST_S if seen != self._seen else min(2 * self._delay_s, LIMIT_S)
        self._seen = seen

    def _look(self) -> tuple[int, ...] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
