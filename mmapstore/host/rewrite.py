"""What a transcript becomes when its messages are cut, put in another order or exchanged.

A rewrite is given as the new order of the message lines. Every line that is not a
message follows the surviving line that it followed; what of them still says something is
decided here, and nowhere else: a compaction stays if its boundary does, a review state
goes into the message that it is about, and what nobody understands stays as it is.
Decision records: 0127; append-only review state, rewrite and archive folding.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, NamedTuple

from .records import header_line, now
from .splice import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .journal import Journal, Piece

_MARK = b"\xef\xbb\xbf"

States = dict[str, dict[str, str]]


class Put(NamedTuple):
    """A new message line.

    Attributes
    ----------
    line : bytes
        With its newline.
    message_id : str
        Its id.
    position : int or None
        Of the old line in whose place it stands.
    """

    line: bytes
    message_id: str
    position: int | None = None


class Effective(NamedTuple):
    """A message with its review states folded in, as it goes into an archive or a fork.

    Attributes
    ----------
    text : bytes
        The JSON text: that of its line, but for the states.
    record : dict
        What it decodes to.
    """

    text: bytes
    record: dict[str, Any]


def states_of(journal: Journal) -> States:
    """Return the last state of each snapshot: message id to snapshot id to state."""
    states: States = {}
    for _, _, record in journal.review_lines():
        if record is not None and (said := _said(record)):
            message_id, snapshot_id, state = said
            states.setdefault(message_id, {})[snapshot_id] = state
    return states


def _said(record: dict[str, Any]) -> tuple[str, str, str] | None:
    message_id, snapshot_id, state = (
        record.get(key) for key in ("messageId", "snapshotId", "state")
    )
    if isinstance(message_id, str) and isinstance(snapshot_id, str) and isinstance(state, str):
        return (message_id, snapshot_id, state) if state else None
    return None


def effective(journal: Journal, positions: Iterable[int]) -> list[Effective]:
    """Return the effective messages at positions; damaged lines are left out.

    A repeated id has its first place and its last content, as in a window.
    """
    states = journal.generation.review_states
    found: list[Effective] = []
    place: dict[str, int] = {}
    for position in positions:
        record = journal.stored(position)
        if record is None:
            continue
        text = journal.line(position).strip(b" \t\r")
        message_id = journal.transcript.dialect.id(record)
        if of_message := states.get(message_id or ""):
            text, _ = fold(text, of_message)
            record = journal.effective(record)
        index = place.setdefault(message_id, len(found)) if message_id else len(found)
        if index < len(found):
            found[index] = Effective(text, record)
        else:
            found.append(Effective(text, record))
    return found


def unarchived(journal: Journal, position: int, *, messages: bool) -> list[bytes]:
    """Return the lines from a message on that are in no archive, and a torn tail.

    Damaged ones and those of types that nobody knows; all `messages` where none could be.
    """
    told = {
        start
        for start, _, record in (*journal.review_lines(), *journal.compaction_lines())
        if record is not None
    }
    found: list[bytes] = []
    at = journal.start(position)

    def between(start: int, stop: int) -> None:
        for line in journal.read(start, stop).split(b"\n"):
            if start not in told and line.strip():
                found.append(line)
            start += len(line) + 1

    for each in range(position, journal.message_count):
        start, end = journal.layout.messages.at(each)
        between(at, start)
        if messages or journal.stored(each) is None:
            found.append(journal.line(each))
        at = end
    between(at, journal.transcript.nbytes)
    return found


def plan(journal: Journal, order: Sequence[int | Put], *, cut: int | None = None) -> list[Piece]:
    """Return the pieces that the transcript becomes.

    Parameters
    ----------
    journal : Journal
        The transcript as it is.
    order : sequence of int or Put
        The new message lines: old ones by position, and new ones.
    cut : int, optional
        Byte offset from which on everything goes but what still applies to what stays.

    Notes
    -----
    O(message lines), and the bytes of those that a review state or a compaction is about.
    """
    return _Plan(journal, order, cut).pieces()


class _Plan:
    def __init__(self, journal: Journal, order: Sequence[int | Put], cut: int | None) -> None:
        self.journal = journal
        self.order = order
        self.cut = cut
        self.starts: list[int] = journal.layout.messages.starts.tolist()
        self.ends: list[int] = journal.layout.messages.ends.tolist()
        #: old position -> place in the order
        self.place: dict[int, int] = {}
        for place, item in enumerate(order):
            position = item.position if isinstance(item, Put) else item
            if position is not None:
                self.place[position] = place
        self.new_ids = {
            item.message_id: at for at, item in enumerate(order) if isinstance(item, Put)
        }
        self.folded: dict[int, bytes] = {}
        self.reviews = journal.review_lines()
        self.compactions = journal.compaction_lines()
        gone = [*self._states_gone(), *self._compactions_gone()]
        self.gone = sorted(gone)

    def pieces(self) -> list[Piece]:
        layout = self.journal.layout
        mark = self.journal.read(0, 3) == _MARK
        pieces: list[Piece] = [_MARK] if mark else []
        if not self.order and self.journal.header() is None:
            # or nothing might be left that says what file this is
            pieces.append(header_line(self.journal.session_id, now(), None))
        behind = self._behind()
        pieces += behind.get(-1, [])
        for place, item in enumerate(self.order):
            if isinstance(item, Put):
                pieces.append(item.line)
            elif item in self.folded:
                pieces.append(self.folded[item])
            else:
                pieces.append((self._start(item), self.ends[item]))
            pieces += behind.get(place, [])
        if self.cut is None:
            start = max(layout.file_len, len(_MARK) if mark else 0)
            pieces.append((start, self.journal.transcript.nbytes))
        else:
            pieces += self._still_applying()
        return pieces

    def _start(self, position: int) -> int:
        # a byte order mark belongs to the file and not to its first line
        start = self.starts[position]
        return len(_MARK) if start == 0 and self.journal.read(0, 3) == _MARK else start

    def _behind(self) -> dict[int, list[Piece]]:
        """Return what follows each new line, by its place; -1 is the beginning."""
        stop = self.journal.layout.file_len if self.cut is None else self.cut
        mark = len(_MARK) if self.journal.read(0, 3) == _MARK else 0
        behind: dict[int, list[Piece]] = {}
        anchor = -1
        at = mark
        for position, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            if start >= stop:
                break
            behind.setdefault(anchor, []).extend(self._left_of(at, start))
            at = end
            place = self.place.get(position)
            if place is not None:
                anchor = place
            elif self.journal.stored(position) is None:
                at = max(start, mark)  # nobody can say that it is not needed
        if at < stop:
            behind.setdefault(anchor, []).extend(self._left_of(at, stop))
        return behind

    def _left_of(self, start: int, stop: int) -> Iterator[Piece]:
        """Yield [start, stop) without the lines that go."""
        index = bisect.bisect_left(self.gone, (start, start))
        while index < len(self.gone) and self.gone[index][0] < stop:
            first, end = self.gone[index]
            yield start, first
            start = end
            index += 1
        yield start, stop

    def _still_applying(self) -> list[Piece]:
        """Return the lines behind the cut that are about what stays in front of it."""
        gone = set(self.gone)
        lines = [
            (start, stop)
            for start, stop, record in (*self.reviews, *self.compactions)
            if self.cut is not None
            and start >= self.cut
            and record is not None
            and (start, stop) not in gone
        ]
        return sorted(lines)

    # -- what goes --------------------------------------------------------------------

    def _states_gone(self) -> Iterator[tuple[int, int]]:
        """Fold the states of the messages that stay; yield the lines that are done with."""
        done: dict[str, set[str] | None] = {}
        for message_id, states in states_of(self.journal).items():
            there = self.journal.positions(message_id)
            staying = [position for position in there if position in self.place]
            old = [position for position in staying if self.order[self.place[position]] == position]
            if not there:
                done[message_id] = set()
            elif not old:
                done[message_id] = None  # cut, or what the caller says instead
            else:
                done[message_id] = self._fold(old, states)
        for start, stop, record in self.reviews:
            said = None if record is None else _said(record)
            if said is not None:
                of_message = done[said[0]]
                if of_message is None or said[1] in of_message:
                    yield start, stop

    def _fold(self, positions: list[int], states: dict[str, str]) -> set[str]:
        folded: set[str] = set()
        for position in positions:
            text, snapshots = fold(self.journal.line(position), states)
            if snapshots:
                self.folded[position] = text + b"\n"
                folded |= snapshots
        return folded

    def _compactions_gone(self) -> Iterator[tuple[int, int]]:
        for start, stop, record in self.compactions:
            if record is not None and not self._applies(record):
                yield start, stop

    def _applies(self, compaction: dict[str, Any]) -> bool:
        """Whether a compaction's boundary stays, and what it kept in front of it, if it says so."""
        through = self._places(compaction.get("throughMessageId"))
        if not through:
            return False
        first_kept = compaction.get("firstKeptMessageId")
        if first_kept is None:
            return True
        kept = self._places(first_kept)
        return bool(kept) and min(kept) <= max(through)

    def _places(self, message_id: object) -> list[int]:
        if not isinstance(message_id, str):
            return []
        places = [
            self.place[position]
            for position in self.journal.positions(message_id)
            if position in self.place
        ]
        if message_id in self.new_ids:
            places.append(self.new_ids[message_id])
        return places
