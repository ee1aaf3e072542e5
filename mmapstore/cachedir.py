"""Where layout caches lie, and how much room they take.

A host keeps a transcript's cache beside it. Everyone else's go into one directory of
the user's, never beside a file that another program owns. That directory is bounded:
what was not used for longest goes first. Any file in it may go at any time.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

from .fileio import TEMPORARY_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

#: bytes that the caches in one directory may take
LIMIT_NBYTES = 256 << 20
#: a directory is looked over when this process has added so many bytes to it
_SWEEP_NBYTES = LIMIT_NBYTES // 16
#: how long ago a cache must have been used for that to be noted again
_NOTED_S = 3600
#: how old a file must be to have been left over by a process that died
_LEFT_OVER_S = 3600
_STEM_LENGTH = 80

SUFFIX = ".layout"
#: compiled when it is first matched: importing the library must stay cheap
_OURS = r"[A-Za-z0-9._-]*-[0-9a-f]{8}\.layout(\.[0-9]+-[0-9]+\.tmp)?"


class CacheDir(enum.Enum):
    """Where the layout cache of a transcript is looked for and kept, if not in a given directory."""

    #: in the user's cache directory; a native transcript's also beside it, if one lies there
    USER = "user"
    #: beside the transcript: for the host that owns it
    BESIDE = "beside"


class Entry(NamedTuple):
    """A cache in a directory.

    Attributes
    ----------
    path : str
        The cache file.
    nbytes : int
        Its size.
    used_s : float
        When it was last used, seconds since the epoch; exact to an hour.
    """

    path: str
    nbytes: int
    used_s: float


def user_directory() -> str:
    """Return the user's directory for layout caches; it need not exist.

    ``MMAPSTORE_CACHE_DIR``, else ``mmapstore`` in ``XDG_CACHE_HOME`` or ``~/.cache``.
    """
    given = os.environ.get("MMAPSTORE_CACHE_DIR")
    if given:
        return os.path.abspath(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "mmapstore")


def beside(path: str) -> str:
    """Return where a host keeps the cache of the transcript at `path`."""
    return path + SUFFIX


def within(directory: str, path: str) -> str:
    """Return where the cache of the transcript at `path` lies in a directory.

    Two paths that share a name are rare, and take turns.
    """
    octets = os.fsencode(os.path.abspath(path))
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(path))[:_STEM_LENGTH]
    return os.path.join(directory, f"{stem}-{zlib.crc32(octets):08x}{SUFFIX}")


def candidates(where: str | CacheDir | None, path: str) -> Iterator[tuple[str, bool]]:
    """Yield where a cache of `path` may lie, and whether one there is good for a native file only."""
    if isinstance(where, CacheDir):
        yield beside(path), True
    if where is CacheDir.USER:
        yield within(user_directory(), path), False
    elif isinstance(where, str):
        yield within(where, path), False


def prepared(where: str | CacheDir, path: str) -> str:
    """Return where the cache of `path` is to be written, in a directory that is there.

    Raises
    ------
    OSError
        It cannot be made.
    """
    if where is CacheDir.BESIDE:
        return beside(path)
    directory = where if isinstance(where, str) else user_directory()
    os.makedirs(directory, 0o700, exist_ok=True)
    return within(directory, path)


def note_use(path: str) -> None:
    """Keep a cache from being the next to go."""
    with contextlib.suppress(OSError):
        now_s = time.time()
        if abs(now_s - os.stat(path).st_mtime) > _NOTED_S:
            os.utime(path)


def entries(directory: str) -> list[Entry]:
    """Return the caches in a directory, the last used one first."""
    found = [entry for entry in _ours(directory) if entry.path.endswith(SUFFIX)]
    return sorted(found, key=lambda entry: entry.used_s, reverse=True)


def clear(directory: str) -> list[Entry]:
    """Remove the caches in a directory, and what was left over; return what went."""
    return [entry for entry in _ours(directory) if _removed(entry)]


_added_nbytes: dict[str, int] = {}


def make_room(directory: str, nbytes: int) -> None:
    """Note that `nbytes` were added, and bound the directory from time to time.

    Notes
    -----
    O(files in the directory), the first time and then every few megabytes.
    """
    known = _added_nbytes.get(directory)
    added = nbytes if known is None else known + nbytes
    if known is not None and added < _SWEEP_NBYTES:
        _added_nbytes[directory] = added
        return
    _added_nbytes[directory] = 0
    now_s = time.time()
    total = 0
    for entry in sorted(_ours(directory), key=lambda entry: entry.used_s, reverse=True):
        if entry.path.endswith(TEMPORARY_SUFFIX):
            if now_s - entry.used_s > _LEFT_OVER_S:
                _removed(entry)
            continue
        # the last one used stays, whatever its size
        is_last_used = not total
        total += entry.nbytes
        if total > LIMIT_NBYTES and not is_last_used:
            _removed(entry)


def _ours(directory: str) -> Iterator[Entry]:
    with contextlib.suppress(OSError), os.scandir(directory) as files:
        for file in files:
            if not re.fullmatch(_OURS, file.name):
                continue
            with contextlib.suppress(OSError):
                if file.is_file(follow_symlinks=False):
                    status = file.stat(follow_symlinks=False)
                    yield Entry(file.path, status.st_size, status.st_mtime)


def _removed(entry: Entry) -> bool:
    try:
        os.unlink(entry.path)
    except OSError:
        return False
    return True
