"""What can be told of a transcript from its first 64 KiB and its last.

A glance costs the same for any size. What lies between the two ends is not known, and
what would have to be known for an answer makes that answer None: nothing is guessed.
Where a dialect writes titles and the session's id is a table.
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import layout
from .decode import BYTE_ORDER_MARK, UndecodableError, decode_object
from .detect import DETECTION_NBYTES, check_is_transcript, detect
from .errors import NotATranscriptError
from .filemap import Run
from .paths import Path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from .fileio import Descriptor
    from .grammar import Dialect
    from .scan import Searchable
    from .stamp import Stamp

#: bytes of the beginning and of the end that are read
END_NBYTES = DETECTION_NBYTES
#: characters of a title that are kept
TITLE_LENGTH = 100
_ID_LENGTH = 200
#: lines with a key that are decoded for it, of each end
_TRIES = 16

_TAGGED = re.compile(r"\s*<([A-Za-z][\w-]*)(?:\s[^>]*)?>.*?</\1>\s*", re.DOTALL)
_SPOKEN_BY_USER = ("user", "human")


class Facts(NamedTuple):
    """What a glance tells.

    Attributes
    ----------
    dialect : str or None
        The dialect's name; None: the file is not a transcript, and nothing else is told.
    title : str or None
        On one line, clipped.
    message_count : int or None
        Message lines; known where both ends are the whole file.
    last_activity : str or None
        The time of the last line that has one: RFC 3339, UTC, milliseconds.
    session_id : str or None
        As the agent calls the session.
    """

    dialect: str | None
    title: str | None = None
    message_count: int | None = None
    last_activity: str | None = None
    session_id: str | None = None


NOT_A_TRANSCRIPT = Facts(None)


class Rule(NamedTuple):
    """Where a line tells something.

    Attributes
    ----------
    path : Path
        Leads to it, in a decoded line.
    type : str
        What the line's ``type`` must be; empty: anything.
    leaf : str
        A key whose value must be said elsewhere in what is read, for the line to be about
        this session; empty: none.
    """

    path: Path
    type: str = ""
    leaf: str = ""

    @property
    def key(self) -> bytes:
        """The last key of the path as a line spells it."""
        return b'"%s"' % self.path.keys[0][-1]


#: lines that name a session, by dialect: what the user called it first; of one sort the last counts
TITLES: dict[str, tuple[Rule, ...]] = {
    "native": (Rule(Path("title"), "session"),),
    "claude": (
        Rule(Path("customTitle"), "custom-title"),
        Rule(Path("aiTitle"), "ai-title"),
        # often another session's
        Rule(Path("summary"), "summary", "leafUuid"),
    ),
    "pi": (Rule(Path("name"), "session_info"),),
    "gemini": (Rule(Path("$set.summary")),),
    "droid": (Rule(Path("title"), "session_start"),),
    "qwen": (Rule(Path("systemPayload.customTitle"), "system"),),
}

#: lines that name it where no message of the user's can be seen
LAST_RESORTS: dict[str, tuple[Rule, ...]] = {"claude": (Rule(Path("summary"), "summary"),)}

#: lines that tell a session's id: the first counts
SESSION_IDS: dict[str, Rule] = {
    "native": Rule(Path("sessionId"), "session"),
    "pi": Rule(Path("id"), "session"),
    "claude": Rule(Path("sessionId")),
    "codex": Rule(Path("payload.id"), "session_meta"),
    "codex-2025": Rule(Path("id")),
    "copilot": Rule(Path("data.sessionId"), "session.start"),
    "gemini": Rule(Path("sessionId")),
    "qwen": Rule(Path("sessionId")),
    "droid": Rule(Path("id"), "session_start"),
    "droid-stream": Rule(Path("session_id")),
}


def glance(path: str, descriptor: Descriptor, stamp: Stamp) -> Facts:
    """Look at both ends of an open file.

    Parameters
    ----------
    path : str
        Absolute: where the file lies may tell its dialect.
    descriptor : Descriptor
        The open file.
    stamp : Stamp
        Taken from it before; bytes behind its size are not looked at.

    Notes
    -----
    Reads at most 2 * :data:`END_NBYTES`.
    """
    head = descriptor.read(0, min(stamp.nbytes, END_NBYTES))
    tail_offset = max(END_NBYTES, stamp.nbytes - END_NBYTES)
    tail = descriptor.read(tail_offset, stamp.nbytes)
    try:
        check_is_transcript(path, head)
    except NotATranscriptError:
        return NOT_A_TRANSCRIPT
    dialect = detect(path, head)
    # shorter: it shrank just now, and what was read is not its end
    intact = len(head) + len(tail) == min(stamp.nbytes, 2 * END_NBYTES)
    whole = intact and stamp.nbytes <= 2 * END_NBYTES
    front = head + tail if whole else head
    ends = (front,) if whole else (front, tail.partition(b"\n")[2])
    known = layout.build(_InMemory(front, descriptor), dialect, stamp)
    return Facts(
        dialect.name,
        _title(ends, dialect, known),
        len(known.messages) if whole else None,
        _last_time(ends[-1], dialect) if intact else None,
        _session_id(front, dialect),
    )


# -- title and id -------------------------------------------------------------------------


def _title(ends: tuple[bytes, ...], dialect: Dialect, known: layout.Layout) -> str | None:
    for rules in (TITLES, LAST_RESORTS):
        for rule in rules.get(dialect.name, ()):
            for text in _told(ends, rule, from_end=True):
                if title := _on_one_line(text):
                    return title
        if rules is TITLES and (request := _first_request(ends[0], dialect, known)):
            return request
    return None


def _first_request(front: bytes, dialect: Dialect, known: layout.Layout) -> str | None:
    """Return what the user said first; what agents put in their mouth only if that is all."""
    scaffolding: str | None = None
    for index in range(len(known.messages)):
        record = _decoded(front, *known.messages.at(index))
        if record is None:
            continue
        role = dialect.role(record)
        if role is None or not role.lower().startswith(_SPOKEN_BY_USER):
            continue
        text = dialect.text(record)
        scaffolding = scaffolding or _on_one_line(text)
        while tagged := _TAGGED.match(text):
            text = text[tagged.end() :]
        title = _on_one_line(text)
        if title and not record.get("isMeta"):
            return title
    return scaffolding or None


def _session_id(front: bytes, dialect: Dialect) -> str | None:
    rule = SESSION_IDS.get(dialect.name)
    told = next(_told((front,), rule), None) if rule else None
    return None if told is None or len(told) > _ID_LENGTH else _spelled(told)


def _told(ends: tuple[bytes, ...], rule: Rule, *, from_end: bool = False) -> Iterator[str]:
    """Yield what lines tell by a rule."""
    for data in reversed(ends) if from_end else ends:
        for start, stop in _lines_with(data, rule.key, from_end=from_end):
            record = _decoded(data, start, stop)
            if record is None or (rule.type and record.get("type") != rule.type):
                continue
            value = rule.path.first(record)
            if not isinstance(value, str) or not value:
                continue
            if rule.leaf and not _is_told_elsewhere(ends, record.get(rule.leaf)):
                continue
            yield value


def _is_told_elsewhere(ends: tuple[bytes, ...], value: Any) -> bool:
    if not isinstance(value, str) or not value.isascii():
        return False
    key = b'"uuid":"%s"' % value.encode()
    return any(key in data or key.replace(b":", b": ", 1) in data for data in ends)


def _lines_with(data: bytes, key: bytes, *, from_end: bool) -> Iterator[tuple[int, int]]:
    """Yield where complete lines lie that hold a key somewhere, a few of them."""
    low, high = 0, data.rfind(b"\n") + 1
    for _ in range(_TRIES):
        at = data.rfind(key, low, high) if from_end else data.find(key, low, high)
        if at < 0:
            return
        start, stop = data.rfind(b"\n", 0, at) + 1, data.index(b"\n", at) + 1
        yield start, stop
        if from_end:
            high = start
        else:
            low = stop


def _decoded(data: bytes, start: int, stop: int) -> dict[str, Any] | None:
    line = data[start:stop]
    try:
        return decode_object(line.removeprefix(BYTE_ORDER_MARK) if start == 0 else line)
    except UndecodableError:
        return None


def _on_one_line(text: str) -> str:
    # of a long text no more is looked at than can be shown
    title = _spelled(" ".join(text[: 20 * TITLE_LENGTH].split()))
    return title if len(title) <= TITLE_LENGTH else title[: TITLE_LENGTH - 3].rstrip() + "..."


def _spelled(text: str) -> str:
    """Return text without lone surrogates, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode()


# -- time ---------------------------------------------------------------------------------


def _last_time(end: bytes, dialect: Dialect) -> str | None:
    if not dialect.time_path.expression:
        return None
    stop = end.rfind(b"\n") + 1
    while stop:
        start = end.rfind(b"\n", 0, stop - 1) + 1
        record = _decoded(end, start, stop)
        time = None if record is None else _instant(dialect.time(record))
        if time is not None:
            return time
        stop = start
    return None


def _instant(text: str | None) -> str | None:
    """Return a time in one spelling, in which later is greater; None if it is none."""
    try:
        moment = datetime.datetime.fromisoformat(text or "")
        if moment.tzinfo is None:
            return None
        return spelled_time(moment)
    except (ValueError, OverflowError):
        return None


def spelled_time(moment: datetime.datetime) -> str:
    """Return a time as RFC 3339, UTC, milliseconds."""
    moment = moment.astimezone(datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- bytes in memory ----------------------------------------------------------------------


class _InMemory:
    """Bytes that were read, with the face of a file's."""

    access = "pread"

    def __init__(self, data: bytes, descriptor: Descriptor) -> None:
        self._data = data
        self.nbytes = len(data)
        self.descriptor = descriptor

    def view(self, start: int, stop: int) -> memoryview:
        return memoryview(self._data)[start:stop]

    def run(self, start: int, stop: int) -> Run:
        return Run(0, self._data)

    def reader(self, start: int) -> _Once:
        return _Once(self._data, start)


class _Once:
    """Presents bytes in one step."""

    full = True

    def __init__(self, data: bytes, start: int) -> None:
        self.buffer: Searchable = data
        self.octets: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.base = 0
        self.start = self.stop = start

    def advance(self, keep: int) -> bool:
        self.start, self.stop = self.stop, len(self.octets)
        return self.start < self.stop
