"""The archived branches of a session: one file of lines, the last that decodes counts.

A ``revision`` line holds a branch; a ``revision_live`` line says that the branch is the
transcript's own end, from its root on, so that a turn that ends costs a line and not a
copy. A branch's messages stand in its line with the bytes that they had in the transcript.
Decision record: 0060.
"""

from __future__ import annotations

import base64
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import fileio
from ..decode import UndecodableError, decode_object, decode_value
from ..errors import InvalidRecordError
from ..stamp import Stamp
from .jsonvalue import encode
from .linefile import LineFile
from .records import now
from .rewrite import Effective
from .splice import elements, members, values, with_last_member

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_STEP_NBYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Revision:
    """A branch of a session.

    Attributes
    ----------
    root_user_id : str
        The family: the id that its first root had.
    index : int
        Its number in the family, from 1.
    created_at : str
        When it was archived, or first referred to.
    message_count : int
        Messages of the branch.
    is_active : bool
        Whether it is what the transcript shows.
    """

    root_user_id: str
    index: int
    created_at: str
    message_count: int
    is_active: bool


class Entry(NamedTuple):
    """A line of the revisions file.

    Attributes
    ----------
    start, stop : int
        Bytes of the file, half-open, the newline included.
    is_live : bool
        Whether it refers to the transcript.
    created_at : str
        As the line says.
    message_count : int
        Messages that it holds.
    """

    start: int
    stop: int
    is_live: bool
    created_at: str
    message_count: int


class Behind(NamedTuple):
    """The place in a transcript behind a message, or at its beginning where that is None."""

    message_id: str | None


#: where a branch stood, if that is known
Place = Behind | None

Key = tuple[str, int]

#: beyond it an integer is no longer the same for every reader of JSON
MAX_INDEX = 2**53 - 1


class Revisions:
    """The revisions file of one session; it need not exist.

    Parameters
    ----------
    file : LineFile
        Where it lies, or will.
    """

    def __init__(self, file: LineFile) -> None:
        self.path = file.path
        self.file = file
        self._stamp: Stamp | None = None
        self._entries: dict[Key, list[Entry]] = {}
        self._torn = b""

    # -- what is there ----------------------------------------------------------------

    def entries(self) -> dict[Key, Entry]:
        """Return the line that counts for each branch."""
        self._look()
        return {key: lines[-1] for key, lines in self._entries.items()}

    @property
    def stamp(self) -> Stamp | None:
        """The stamp of the file that was read last; None where there was none."""
        return self._stamp

    def of_family(self, root_id: str) -> dict[int, Entry]:
        """Return the line that counts for each branch of a family, by index."""
        return {index: entry for (root, index), entry in self.entries().items() if root == root_id}

    def last_stored(self, root_id: str, index: int) -> Entry | None:
        """Return the last line that holds a branch, whatever refers to it later."""
        self._look()
        lines = self._entries.get((root_id, index), [])
        return next((entry for entry in reversed(lines) if not entry.is_live), None)

    def _look(self) -> None:
        """Read the file where it is not the one that was read last.

        Notes
        -----
        O(nbytes), but for what this host appends itself.
        """
        try:
            descriptor = fileio.open_regular(self.path)
        except FileNotFoundError:
            self._stamp, self._entries, self._torn = None, {}, b""
            return
        stamp = descriptor.stamp()
        if stamp == self._stamp:
            return
        self._entries, self._torn = {}, b""
        self._read(descriptor, 0, stamp)

    def _read(self, descriptor: fileio.Descriptor, at: int, stamp: Stamp) -> None:
        torn = b""
        read = at
        while read < stamp.nbytes and (part := descriptor.read(read, read + _STEP_NBYTES)):
            read += len(part)
            *lines, torn = (torn + part).split(b"\n")
            for line in lines:
                self._note(line, at, at + len(line) + 1)
                at += len(line) + 1
        self._torn = torn
        self._stamp = stamp

    def _note(self, line: bytes, start: int, stop: int) -> None:
        try:
            record = _record(line)
        except UndecodableError:
            return
        key = record.get("rootUserId"), record.get("revisionIndex")
        kind, messages = record.get("type"), record.get("messages")
        if kind not in ("revision", "revision_live"):
            return
        if not isinstance(key[0], str) or type(key[1]) is not int or not 1 <= key[1] <= MAX_INDEX:
            return
        if kind == "revision" and not isinstance(messages, list):
            return
        count = len(messages) if isinstance(messages, list) else 0
        entry = Entry(start, stop, kind == "revision_live", str(record.get("createdAt")), count)
        self._entries.setdefault((key[0], key[1]), []).append(entry)

    def branch(self, entry: Entry) -> list[Effective]:
        """Return the messages that a line holds, with the turns that they belong to."""
        descriptor = fileio.open_regular(self.path)
        line = descriptor.read(entry.start, entry.stop - 1)
        record = _record(line)
        turns = record.get("turns")
        found = []
        for text, message in zip(elements(line, "messages"), record["messages"], strict=True):
            if not isinstance(message, dict):
                continue
            turn = turns.get(message.get("id")) if isinstance(turns, dict) else None
            if isinstance(turn, str) and "turnId" not in message:
                text = with_last_member(text, "turnId", turn)
                message = {**message, "turnId": turn}
            found.append(Effective(text, message))
        return found

    def place(self, entry: Entry) -> Place:
        """Return where the branch of a line stood; None if it does not say."""
        descriptor = fileio.open_regular(self.path)
        record = _record(descriptor.read(entry.start, entry.stop - 1))
        follows = record.get("followsMessageId", False)
        return Behind(follows) if follows is None or isinstance(follows, str) else None

    def text(self, entry: Entry) -> bytes:
        """Return the bytes of the messages of a line, as an array."""
        descriptor = fileio.open_regular(self.path)
        line = descriptor.read(entry.start, entry.stop - 1)
        for key, start, stop in members(line):
            if key == "messages":
                found = line[start:stop]
        return found

    # -- writing ----------------------------------------------------------------------

    def store(
        self, root_id: str, index: int, branch: Sequence[Effective], place: Place = None
    ) -> None:
        """Archive a branch, unless the line that counts says the same."""
        text = b"[" + b",".join(message.text for message in branch) + b"]"
        entry = self.entries().get((root_id, index))
        if (
            entry is not None
            and not entry.is_live
            and self.text(entry) == text
            and self.place(entry) == place
        ):
            self._settle()
            return
        turns = {
            message.record["id"]: message.record["turnId"]
            for message in branch
            if isinstance(message.record.get("turnId"), str) and message.record.get("id")
        }
        head = {"type": "revision", "rootUserId": root_id, "revisionIndex": index}
        if place is not None:
            head["followsMessageId"] = place.message_id
        line = encode({**head, "createdAt": now()})[:-1] + b',"messages":' + text
        if turns:
            line += b',"turns":' + encode(turns)
        line += b"}\n"
        self._check(line, len(branch))
        self._append(line)

    def _check(self, line: bytes, count: int) -> None:
        """Refuse a line that would not be read back: what is archived may be dropped elsewhere."""
        try:
            found = len(_record(line)["messages"])
        except UndecodableError:
            found = -1
        if found != count:
            raise InvalidRecordError(
                "the messages cannot be archived so that they are read back; nothing was changed",
                path=self.path,
            )

    def put_aside(self, lines: Sequence[bytes]) -> None:
        """Keep lines that are cut off and that no branch can hold, as they are.

        No operation gives them back; that is for whoever looks into the file.
        """
        if not lines:
            return
        data = []
        for line in lines:
            try:
                said = {"text": line.decode()}
            except UnicodeDecodeError:
                said = {"base64": base64.b64encode(line).decode()}
            data.append(encode({"type": "aside", "createdAt": now(), **said}) + b"\n")
        self._append(b"".join(data))

    def refer(self, root_id: str, index: int) -> None:
        """Say that a branch is the end of the transcript, unless the line that counts does."""
        entry = self.entries().get((root_id, index))
        if entry is not None and entry.is_live:
            self._settle()
            return
        record = {"type": "revision_live", "rootUserId": root_id, "revisionIndex": index}
        self._append(encode({**record, "createdAt": now()}) + b"\n")

    def delete(self, root_id: str, index: int) -> None:
        """Remove every line of a branch; all others keep their bytes."""
        self._settle()
        self._look()
        gone = self._entries.get((root_id, index), [])
        descriptor = fileio.open_regular(self.path)
        stamp = descriptor.stamp()
        self.file.replace(_without(descriptor, gone, stamp.nbytes), stamp)

    def _settle(self) -> None:
        if os.path.lexists(self.path):
            self.file.settle()

    def _append(self, line: bytes) -> None:
        self._settle()
        self._look()
        if self._stamp is None:
            self.file.create([line])
            return
        data = b"\n" + line if self._torn else line
        before = self._stamp
        after = self.file.append(data, before)
        # archives are appended to now and then: no descriptor is kept for the next time
        self.file.close()
        if after.nbytes == before.nbytes + len(data):
            start = after.nbytes - len(line)
            if self._torn:
                self._note(self._torn, before.nbytes - len(self._torn), start)
            self._note(line[:-1], start, after.nbytes)
            self._torn, self._stamp = b"", after


def _record(line: bytes) -> dict[str, Any]:
    """Return what a line says.

    Messages that decode each by itself may be more together, and in a line around them, than
    any decoder takes: then they are decoded one by one.
    """
    try:
        return decode_object(line)
    except UndecodableError:
        with contextlib.suppress(UndecodableError, ValueError, LookupError, TypeError):
            text = line.rstrip()
            *_, last = values(text)
            parts = {key: text[start:stop] for key, start, stop in members(text)}
            if last == ((), 0, len(text)) and parts.pop("messages", b""):
                record = {key: decode_value(part) for key, part in parts.items()}
                record["messages"] = [decode_value(part) for part in elements(text, "messages")]
                return record
        raise


def _without(descriptor: fileio.Descriptor, gone: list[Entry], nbytes: int) -> Iterator[bytes]:
    """Yield the bytes of a file but for those of some lines."""
    starts = [0, *(entry.stop for entry in gone)]
    stops = [*(entry.start for entry in gone), nbytes]
    for start, stop in zip(starts, stops, strict=True):
        for at in range(start, stop, _STEP_NBYTES):
            yield descriptor.read(at, min(at + _STEP_NBYTES, stop))
