"""The sessions on this machine: what is on disk, told without reading it twice.

The list is what a walk finds, never what was remembered: the catalogue only saves looking
at a file again whose stamp is as it was. Of a file that is looked at no more than both its
ends is read, and its messages are counted only if that is all of it or a layout cache of the
same stamp has counted them. Nothing is written but the catalogue, and nothing is deleted.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
from typing import TYPE_CHECKING, NamedTuple

from . import cache, cachedir, catalogue
from .catalogue import CACHE, COUNT, DIALECT, MTIME_NS, NBYTES, USELESS
from .detect import DETECTION_NBYTES, check_is_transcript
from .dialect import NATIVE, dialect_named
from .errors import NotATranscriptError
from .fileio import on_remote_filesystem, open_regular
from .glance import END_NBYTES, NOT_A_TRANSCRIPT, glance
from .places import Root, Search, Trouble, has_vanished, known_roots, root_at
from .stamp import is_racy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .catalogue import Entry

    #: called with (bytes done, bytes in all)
    Progress = Callable[[int, int], object]


class Session(NamedTuple):
    """A transcript on disk, as far as it is known.

    Attributes
    ----------
    path : str
        Absolute.
    nbytes : int
        Size of the file.
    mtime_ns : int
        When the file was last written to.
    dialect : str or None
        The dialect's name; None: the file cannot be read.
    title : str or None
        On one line.
    message_count : int or None
        Message lines.
    last_activity : str or None
        The time of the last line that has one: RFC 3339, UTC, milliseconds.
    session_id : str or None
        As the agent calls it.
    """

    path: str
    nbytes: int
    mtime_ns: int
    dialect: str | None
    title: str | None
    message_count: int | None
    last_activity: str | None
    session_id: str | None

    @property
    def modified(self) -> str | None:
        """When the file was last written to: RFC 3339, UTC, milliseconds; None beyond the calendar."""
        seconds, rest = divmod(self.mtime_ns, 1_000_000_000)
        try:
            moment = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
        except (ValueError, OverflowError, OSError):
            return None
        # by hand, since ten thousand may be asked: as spelled_time does, in a fifth of the time
        return f"{moment.isoformat()[:19]}.{rest // 1_000_000:03}Z"


class Listing(NamedTuple):
    """What was found.

    Attributes
    ----------
    sessions : list of Session
        Newest first: by the last activity, or the file's own time where that is not known.
    troubles : list of Trouble
        What could not be looked into.
    refused : list of Trouble
        Those of the paths that were given which are not transcripts or cannot be looked into.
    compressed_count : int
        Transcripts that would have to be unpacked first.
    """

    sessions: list[Session]
    troubles: list[Trouble]
    refused: list[Trouble]
    compressed_count: int


def listing(paths: Sequence[str] | None = None, *, progress: Progress | None = None) -> Listing:
    """List the sessions in folders.

    Parameters
    ----------
    paths : sequence of str, optional
        Folders, looked through to the bottom, and files; where not given, the folders of the
        agents that are installed here.
    progress : callable, optional
        Called with (bytes done, bytes in all) while files are looked at.

    Raises
    ------
    OSError
        A path that was given leads nowhere.

    Notes
    -----
    One stat a file. Reads at most 128 KiB of a file that is not as the catalogue knows it.
    """
    roots = known_roots() if paths is None else [root_at(path) for path in paths]
    search = Search()
    for root in roots:
        try:
            search.add(root)
        except OSError as error:
            if paths is not None:
                raise
            if not has_vanished(error):
                search.troubles.append(Trouble(root.path, error.strerror or str(error)))
    known = catalogue.load()
    found: dict[str, Entry] = {}
    unknown: list[str] = []
    for path, status in search.files.items():
        entry = known.get(path)
        if entry is not None and catalogue.is_of(entry, status):
            found[path] = entry
        else:
            unknown.append(path)
    fresh = _looked_at(unknown, search, progress)
    counted = _count(found, search) | _count(fresh.entries, search)
    found |= fresh.entries
    gone = {path for path in known if path not in search.files and _is_below(path, roots)}
    if fresh.entries.keys() - fresh.unsettled or counted or gone:
        others = (item for item in known.items() if item[0] not in found and item[0] not in gone)
        seen = (item for item in found.items() if item[0] not in fresh.unsettled)
        catalogue.save([*seen, *others])
    sessions = [_session(path, entry) for path, entry in found.items() if entry[DIALECT]]
    sessions += fresh.unreadable
    for root in roots:
        entry = found.get(root.path)
        if entry is not None and entry[DIALECT] is None:
            search.troubles.append(Trouble(root.path, _why_not(root.path)))
    given = {root.path: path for root, path in zip(roots, paths or (), strict=False)}
    refused = [
        Trouble(given[trouble.path], trouble.reason)
        for trouble in search.troubles
        if trouble.path in given
    ]
    troubles = [trouble for trouble in search.troubles if trouble.path not in given]
    sessions.sort(key=_age, reverse=True)
    return Listing(sessions, troubles, refused, search.compressed_count)


def _why_not(path: str) -> str:
    """Return why a file is not a transcript, as opening it says."""
    try:
        descriptor = open_regular(path)
        try:
            check_is_transcript(path, descriptor.read(0, DETECTION_NBYTES))
        finally:
            descriptor.close()
    except NotATranscriptError as error:
        error.path = None
        return str(error)
    except OSError as error:
        return error.strerror or str(error)
    return "not a transcript"  # it has become one just now


def _session(path: str, entry: Entry) -> Session:
    return Session(path, entry[NBYTES], entry[MTIME_NS], *entry[DIALECT:CACHE])


def _age(session: Session) -> tuple[str, str]:
    """Return what sorts sessions by age, and those of one age in some order that stays."""
    return session.last_activity or session.modified or "", session.path


def _is_below(path: str, roots: list[Root]) -> bool:
    return any(path == root.path or path.startswith(f"{root.path}{os.sep}") for root in roots)


# -- looking at files ---------------------------------------------------------------------


class _Fresh:
    """What was told of files that the catalogue does not know as they are.

    Attributes
    ----------
    entries : dict
        By path.
    unsettled : set of str
        Paths of which that must not be remembered: an edit might leave their stamp as it is.
    unreadable : list of Session
        Files that are there and cannot be read.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.unsettled: set[str] = set()
        self.unreadable: list[Session] = []


def _looked_at(paths: list[str], search: Search, progress: Progress | None) -> _Fresh:
    fresh = _Fresh()
    total = sum(min(search.files[path].st_size, 2 * END_NBYTES) for path in paths)
    done = 0
    for path in paths:
        status = search.files[path]
        try:
            _look_at(path, fresh)
        except NotATranscriptError as error:
            search.troubles.append(Trouble(path, error.what))
        except OSError as error:
            if not has_vanished(error):
                search.troubles.append(Trouble(path, error.strerror or str(error)))
                fresh.unreadable.append(
                    Session(path, status.st_size, status.st_mtime_ns, *NOT_A_TRANSCRIPT)
                )
        done += min(status.st_size, 2 * END_NBYTES)
        if progress is not None:
            progress(done, total)
    return fresh


def _look_at(path: str, fresh: _Fresh) -> None:
    descriptor = open_regular(path)
    try:
        status = os.fstat(descriptor.fd)
        stamp = descriptor.stamp()
        remote = on_remote_filesystem(stamp.device)
        racy = is_racy(stamp, os.path.dirname(path), remote=remote)
        facts = glance(path, descriptor, stamp)
        if racy or descriptor.stamp() != stamp or stamp[:5] != _fields(status):
            fresh.unsettled.add(path)
    finally:
        descriptor.close()
    fresh.entries[path] = catalogue.entry_of(path, status, facts)


def _fields(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


# -- counts -------------------------------------------------------------------------------


def _count(entries: dict[str, Entry], search: Search) -> bool:
    """Take the counts that are not known from layout caches; return whether anything is new."""
    uncounted = [(path, entry) for path, entry in entries.items() if entry[CACHE] is not None]
    if not uncounted:
        return False
    directory = cachedir.user_directory()
    names: set[str] = set()
    with contextlib.suppress(OSError):
        names.update(os.listdir(directory))
    news = False
    for path, entry in uncounted:
        if entry[CACHE] in names:
            news |= _count_by(os.path.join(directory, entry[CACHE]), entry)
        beside = cachedir.beside(path)
        if entry[COUNT] is None and entry[DIALECT] == NATIVE.name and beside in search.layouts:
            news |= _count_by(beside, entry)
    return news


def _count_by(place: str, entry: Entry) -> bool:
    """Look at a layout cache, unless that was of no use before; return whether it was done."""
    try:
        status = os.stat(place)
    except OSError:
        return False
    seen = [status.st_ino, status.st_mtime_ns]
    if seen in entry[USELESS]:
        return False
    header = cache.read_header(place)
    if header is not None and _is_of(header, entry):
        entry[COUNT], entry[CACHE] = header.message_count, None
    else:
        # one in the user's directory, and one beside the session
        entry[USELESS] = [*entry[USELESS][-1:], seen]
    return True


def _is_of(header: cache.Header, entry: Entry) -> bool:
    stamp = header.stamp
    return (
        [stamp.inode, stamp.device, stamp.nbytes, stamp.mtime_ns, stamp.ctime_ns] == entry[:DIALECT]
        and header.dialect_name == entry[DIALECT]
        and header.dialect_rules == _rules(header.dialect_name)
    )


@functools.cache
def _rules(name: str) -> int:
    return cache.rules_of(dialect_named(name))
