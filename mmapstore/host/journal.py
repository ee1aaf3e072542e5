"""One session's transcript, as its host sees it: a generation to decide on, and a file to write.

Whatever is decided is decided on the file as it is, and what is written is written only
if the file still is what was decided on. Positions, ids and states come from the reading
side; this module is the one place where a writer looks behind its face.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .. import fileio
from ..cachedir import CacheDir
from ..decode import UndecodableError
from ..errors import (
    LineDecodeError,
    MessageNotFoundError,
    MmapStoreError,
    SessionNotFoundError,
    TranscriptChangedError,
)
from ..loader import Refresh
from ..review import overlay
from ..transcript import Transcript
from .linefile import LineFile
from .records import decode_line, header_line, now, same_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..generation import Generation
    from ..identity import Identities
    from ..layout import Layout
    from ..stamp import Stamp

#: a replacement of part of a file: bytes that are put in, or a range of the old file
Piece = bytes | tuple[int, int]

_HEADER_NBYTES = 1 << 12
_COPIED_NBYTES = 4 << 20
_BLANK = b" \t\r\n"
#: bytes of blank lines that a file without a header may begin with
_BLANK_NBYTES = 4096
#: messages that may have been appended and not taken in
_AHEAD_COUNT = 1024
CACHE_SUFFIX = ".layout"


class Journal:
    """A transcript of the host's directory.

    Parameters
    ----------
    file : LineFile
        Its file, with what is known of it and the disk.
    session_id : str
        Whose it is.

    Attributes
    ----------
    rewrites : int
        Grows with every state of the file that is not the one before with lines behind it.

    Raises
    ------
    SessionNotFoundError
        There is no file.
    NotATranscriptError
        Something else is there.
    """

    def __init__(self, file: LineFile, session_id: str) -> None:
        self.path = path = file.path
        self.session_id = session_id
        self.file = file
        self.rewrites = 0
        #: whether the header, the index and the last line have been looked at
        self.verified = False
        #: of the file as this host's last append has left it, if nothing is to be looked up
        #: before the next one
        self.tip: Stamp | None = None
        # of that state: its message lines, the ids that the transcript serves, and those that
        # it does not serve yet
        self._count = 0
        self._served: Identities | None = None
        self._ahead: set[str] = set()
        self._is_behind = False
        with self._found():
            # nothing but this host's own appends is taken on trust
            self._transcript = Transcript(
                path, dialect="native", trust="none", cache_dir=CacheDir.BESIDE
            )
        if file.stamp != self.stamp:
            file.unsettle()

    def close(self) -> None:
        """Let go of the file; windows that were given out stay."""
        # nothing has to be there to be let go of
        self.file.stamp = self.tip or self._transcript.layout.stamp
        try:
            # so that its layout can be kept
            with contextlib.suppress(OSError, MmapStoreError):
                self._take_in()
        finally:
            self._transcript.close()
            self.file.close()

    @contextlib.contextmanager
    def _found(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            if isinstance(error, SessionNotFoundError):
                raise
            raise SessionNotFoundError(f"no session {self.session_id!r}", path=self.path) from error

    # -- what is there ----------------------------------------------------------------

    @property
    def transcript(self) -> Transcript:
        """The reading side of the file, with all that was appended."""
        if self._is_behind:
            self._take_in()
        return self._transcript

    def _take_in(self) -> None:
        if self._is_behind and self._refreshed():
            self.file.unsettle()

    def refresh(self) -> None:
        """Serve the file as it is."""
        if self._refreshed():
            self.file.unsettle()

    def _refreshed(self) -> bool:
        """Look at the file; whether it has become another one."""
        tip, self.tip, self._served = self.tip, None, None
        self._ahead.clear()
        with self._found():
            found = self._transcript.refresh()
        self._is_behind = False
        if found is Refresh.REBUILT:
            self.rewrites += 1
            return True
        if tip == self._transcript.layout.stamp:
            self.tip = tip
        return False

    def settle(self) -> None:
        """Make ready for a mutation: serve the file as it is, all of it on the disk."""
        with self._found():
            waited = self.file.settle()
        if waited:
            self._refreshed()

    @property
    def generation(self) -> Generation:
        """What is served: the writer's own way to lines, ids and states."""
        return self.transcript._now

    @property
    def layout(self) -> Layout:
        """Where the lines are."""
        return self.transcript.layout

    @property
    def stamp(self) -> Stamp:
        """The stamp of the file as this host knows it."""
        return self.tip or self.layout.stamp

    @property
    def message_count(self) -> int:
        """Message lines."""
        return self._count if self.tip else self.transcript.message_count

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of the file that is served."""
        return bytes(self.generation.source.view(start, stop))

    def header(self) -> dict[str, Any] | None:
        """Return the session's header, or None if the first line is none."""
        nbytes = _HEADER_NBYTES
        while b"\n" not in (head := self.read(0, min(self.layout.file_len, nbytes))):
            if len(head) < nbytes:
                break
            nbytes *= 8
        line, newline, _ = head.partition(b"\n")
        try:
            record = decode_line(line, 0) if newline else {}
        except UndecodableError:
            return None
        return record if record.get("type") == "session" else None

    # -- messages ---------------------------------------------------------------------

    def line(self, position: int) -> bytes:
        """Return the bytes of a message line without its newline and byte order mark."""
        line = bytes(self.transcript.line(position))
        if position == 0 and self.start(0) == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        return line.removesuffix(b"\n")

    def start(self, position: int) -> int:
        """Return the byte offset of a message line."""
        return self.layout.messages.at(position)[0]

    def stored(self, position: int) -> dict[str, Any] | None:
        """Return a message as its line says, without review states; None if it is damaged."""
        try:
            return decode_line(self.line(position), 1)
        except UndecodableError:
            return None

    def effective(self, message: dict[str, Any]) -> dict[str, Any]:
        """Lay the review states over a stored message, and return it."""
        if len(self.layout.reviews):
            overlay(message, self.generation.review_states)
        return message

    def position(self, message_id: str) -> int | None:
        """Return the last position whose own id is this one; None too where all are damaged."""
        try:
            position = self.transcript.position(message_id)
        except LineDecodeError:
            return None
        return position if self._has_id(position, message_id) else None

    def require(self, message_id: str) -> int:
        """Return the last position whose own id is this one, or raise.

        Raises
        ------
        MessageNotFoundError
            No message has it.
        LineDecodeError
            Every line that has it is damaged.
        """
        position = self.transcript.position(message_id)
        if position is None:
            self.transcript.message(message_id)  # raises, and names damaged lines
        elif self._has_id(position, message_id):
            return position
        # an address, which reading takes
        raise MessageNotFoundError(
            f"no message has the id {message_id!r} of its own",
            path=self.path,
            hint="a message without an id can be read and not written to",
        )

    def _has_id(self, position: int | None, message_id: str) -> bool:
        record = None if position is None else self.stored(position)
        return record is not None and self.transcript.dialect.id(record) == message_id

    def positions(self, message_id: str) -> list[int]:
        """Return every position whose line has this id and decodes, in file order."""
        found = {
            position
            for position in self.generation.identities.candidates(message_id)
            if self._has_id(position, message_id)
        }
        last = self.position(message_id)
        return sorted(found if last is None else found | {last})

    def review_lines(self) -> list[tuple[int, int, dict[str, Any] | None]]:
        """Return start, stop and record of each review-state line; None where it is damaged."""
        return self._aside(self.layout.reviews)

    def compaction_lines(self) -> list[tuple[int, int, dict[str, Any] | None]]:
        """Return start, stop and record of each compaction line; None where it is damaged."""
        return self._aside(self.layout.compactions)

    def newest_compaction_is(self, record: dict[str, Any]) -> bool:
        """Whether the last checkpoint says what a record says."""
        count = len(self.layout.compactions)
        for _, newest in self.generation.records(self.layout.compactions, max(count - 1, 0), count):
            return isinstance(newest, dict) and same_message(record, newest)
        return False

    def _aside(self, extents: Any) -> list[tuple[int, int, dict[str, Any] | None]]:
        found = self.generation.records(extents, 0, len(extents))
        records = [record if isinstance(record, dict) else None for _, record in found]
        return list(zip(extents.starts.tolist(), extents.ends.tolist(), records, strict=True))

    # -- writing ----------------------------------------------------------------------

    def has_any(self, message_ids: Sequence[str]) -> bool:
        """Whether a message may have one of these ids, in the state of :attr:`tip`.

        If not, that still is the state that is known.
        """
        ahead = self._ahead
        if len(ahead) > _AHEAD_COUNT:
            # what is remembered is bounded, and so is what the next reader has to scan
            self._take_in()
            if self.tip is None:
                return True
        if self._served is None:
            self._served = self._transcript._now.identities
        return not ahead.isdisjoint(message_ids) or self._served.may_have_any(message_ids)

    def append(self, lines: bytes, message_ids: Sequence[str] = ()) -> bool:
        """Append whole lines; they are on the disk when this returns.

        Parameters
        ----------
        lines : bytes
            With their newlines.
        message_ids : sequence of str
            Those of the message lines among them; no two are the same, and no message that
            is there and decodes has one.

        Returns
        -------
        alone : bool
            Whether the lines stand behind those that were there and nothing else does. If not
            (what a crash left of a line has become one of its own, or another program has
            written at the same time), where they are is to be looked up.

        Raises
        ------
        TranscriptChangedError
            The file is not what was decided on; nothing was written.
        WriteFailedError
            The lines may be there, in part or whole; they are not acknowledged.

        Notes
        -----
        O(len(lines)). The transcript is read on when somebody looks.
        """
        known, is_racy, head = self.tip, False, b""
        if known is None:
            head = self._head()
            lines = head + lines
            known, self._count = self.stamp, self.message_count
            is_racy = self.generation.racy
        self.tip = None
        self._is_behind = True
        after = self.file.append(lines, known)
        if head or after.nbytes != known.nbytes + len(lines):
            self._take_in()
            return False
        self._count += len(message_ids)
        self._ahead.update(message_ids)
        # an edit may be hidden behind a racy stamp: then the file is looked at each time
        self.tip = None if is_racy else after
        return True

    def _head(self) -> bytes:
        """Return what has to stand before the next line: a header, the end of a torn line."""
        layout = self.layout
        # what a crash left of a line becomes a line of its own
        head = b"\n" if self.transcript.torn_nbytes else b""
        if layout.file_len <= _BLANK_NBYTES and not self.read(0, layout.file_len).strip(_BLANK):
            head += header_line(self.session_id, now(), None)
        return head

    def seal(self) -> bool:
        """Make a line of a torn tail that is a whole object; whether there was one.

        Only such a tail says something when it becomes a line.
        """
        if self.tip or not self.transcript.torn_nbytes:
            return False
        try:
            decode_line(self.transcript.torn_tail, self.layout.file_len)
        except UndecodableError:
            return False
        known = self.stamp
        self._is_behind = True
        self.file.append(b"\n", known)
        self._take_in()
        return True

    def rewrite(self, pieces: list[Piece]) -> None:
        """Put the pieces in the place of the whole file; they are on the disk, and served, then."""
        known = self.stamp
        parts = self._bytes(pieces)
        self.tip = None
        self.file.replace(parts, known)
        # the lines are elsewhere now: neither layout is good for anything
        with contextlib.suppress(OSError):
            fileio.remove(self.path + CACHE_SUFFIX)
        self._refreshed()

    def _bytes(self, pieces: list[Piece]) -> Iterator[bytes | memoryview]:
        source = self.generation.source
        for piece in joined(pieces):
            if isinstance(piece, bytes):
                yield piece
                continue
            start, stop = piece
            for at in range(start, stop, _COPIED_NBYTES):
                end = min(at + _COPIED_NBYTES, stop)
                part = source.view(at, end)
                if len(part) != end - at:
                    raise TranscriptChangedError(
                        "the file has become shorter; nothing was written", path=self.path
                    )
                yield part


def joined(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces with adjacent ranges made one, and empty ones left out."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            if piece:
                found.append(piece)
        elif piece[0] < piece[1]:
            last = found[-1] if found else b""
            if isinstance(last, tuple) and last[1] == piece[0]:
                found[-1] = (last[0], piece[1])
            else:
                found.append(piece)
    return found
