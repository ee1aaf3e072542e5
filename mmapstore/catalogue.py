"""The catalogue: one file in the user's cache directory that remembers what sessions are.

It maps a path to a stamp and to what was told of the file that had it. The file is
disposable: whatever is wrong with it, other rules than this package's included, makes it
empty, and every session is looked at anew. It is replaced in one step; the sessions seen
last stand first, and beyond :data:`LIMIT_COUNT` the others go.

A first line of ASCII, ``mmapstore sessions 1 RULES CHECKSUM`` with two CRC-32 in hexadecimal:
of the dialect table and the tables of :mod:`~mmapstore.glance`, and of what follows. Then one JSON
object: by a path, its bytes as Latin-1, an array of what :func:`entry_of` says.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import zlib
from typing import TYPE_CHECKING, Any

import orjson

from . import cachedir, glance
from .dialect import DIALECTS
from .fileio import TEMPORARY_SUFFIX, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: sessions that are remembered
LIMIT_COUNT = 50_000
NAME = "sessions.catalogue"

_FORMAT = 1
_FIRST_LINE_NBYTES = 200
#: more than LIMIT_COUNT entries take
_LIMIT_NBYTES = 256 << 20

# An entry is a list as JSON gives it: ten thousand are compared before anything else is
# made of them. Its fields, in this order:
INODE, DEVICE, NBYTES, MTIME_NS, CTIME_NS = range(5)
DIALECT, TITLE, COUNT, LAST, SESSION_ID = range(5, 10)
#: of a session that is not counted: the name of its layout cache, and (inode, mtime_ns) of
#: caches that turned out to be of no use
CACHE, USELESS = range(10, 12)

Entry = list[Any]


def entry_of(path: str, status: os.stat_result, facts: glance.Facts) -> Entry:
    """Return what is to be remembered of the file at `path` that has this stat result."""
    uncounted = facts.message_count is None and facts.dialect is not None
    return [
        status.st_ino,
        status.st_dev,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        *facts,
        cachedir.within("", path) if uncounted else None,
        [],
    ]


def is_of(entry: Entry, status: os.stat_result) -> bool:
    """Whether an entry is of the file that has this stat result, as it is now."""
    return entry[:DIALECT] == [
        status.st_ino,
        status.st_dev,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def place() -> str:
    """Return where the catalogue lies; it need not exist."""
    return os.path.join(cachedir.user_directory(), NAME)


def load() -> dict[str, Entry]:
    """Return the entries by path; none where the file is not as it was written."""
    try:
        with open(place(), "rb") as file:
            first, data = file.readline(_FIRST_LINE_NBYTES), file.read(_LIMIT_NBYTES)
        if first != _first_line(data):
            return {}
        entries: dict[str, Entry] = orjson.loads(data)
    except (OSError, ValueError):
        return {}
    if all(map(str.isascii, entries)):
        return entries
    return {_path(name): entry for name, entry in entries.items()}


def save(entries: Iterable[tuple[str, Entry]]) -> None:
    """Write the entries, those seen last first; that it cannot be done is no error."""
    kept = {_name(path): entry for path, entry in itertools.islice(entries, LIMIT_COUNT)}
    # TypeError: an integer that JSON has no room for
    with contextlib.suppress(OSError, TypeError):
        data = orjson.dumps(kept)
        os.makedirs(cachedir.user_directory(), 0o700, exist_ok=True)
        replace_file(place(), [_first_line(data), data])


def files() -> Iterator[cachedir.Entry]:
    """Yield the catalogue, and what is left over of writing it."""
    with contextlib.suppress(OSError), os.scandir(cachedir.user_directory()) as found:
        for file in found:
            if file.name != NAME and not (
                file.name.startswith(f"{NAME}.") and file.name.endswith(TEMPORARY_SUFFIX)
            ):
                continue
            with contextlib.suppress(OSError):
                if file.is_file(follow_symlinks=False):
                    status = file.stat(follow_symlinks=False)
                    yield cachedir.Entry(file.path, status.st_size, status.st_mtime)


def clear() -> list[cachedir.Entry]:
    """Remove the catalogue, and what is left over of writing it; return what went."""
    gone = []
    for file in list(files()):
        with contextlib.suppress(OSError):
            os.unlink(file.path)
            gone.append(file)
    return gone


@functools.cache
def _rules() -> int:
    tables = (DIALECTS, glance.TITLES, glance.LAST_RESORTS, glance.SESSION_IDS, glance.TITLE_LENGTH)
    return zlib.crc32(repr(tables).encode())


def _first_line(data: bytes) -> bytes:
    return b"mmapstore sessions %d %08x %08x\n" % (_FORMAT, _rules(), zlib.crc32(data))


# Paths are bytes: what is not ASCII is kept byte for byte.


def _name(path: str) -> str:
    return path if path.isascii() else os.fsencode(path).decode("latin-1")


def _path(name: str) -> str:
    return name if name.isascii() else os.fsdecode(name.encode("latin-1"))
