"""What a host rewrites: one message, all of them, or the end of a session.

A rewrite is decided on the file as it is, under the state lock, and what it drops is
archived first. Decision records: 0060; 0127, identity-based truncation.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InvalidRecordError, PositionError
from .branches import root_of
from .desk import Desk
from .records import changed_line, check_message, check_text, message_line, same_message
from .rewrite import Put, plan, unarchived

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .journal import Journal, Piece
    from .revisions import Revision
    from .session import Opened


class Cut(NamedTuple):
    """What a cut has done.

    Attributes
    ----------
    kept, discarded : int
        Message lines.
    revision : Revision or None
        Where the discarded messages are archived; None: none of a user's was among them, so
        they have no branch, and their lines were put aside in the revisions file.
    """

    kept: int
    discarded: int
    revision: Revision | None


class Edits(Desk):
    """The operations that put another file in the place of a session's."""

    def _rewrite(self, opened: Opened, pieces: list[Piece], changed: int) -> None:
        opened.journal.rewrite(pieces)
        self._index.put(opened, start=changed)

    def update_message(self, session_id: str, message: dict[str, Any]) -> bool:
        """Rewrite one message, the last line with its id; whether that was needed.

        Every other byte is copied through. Review states still lie over what is written.

        Raises
        ------
        MessageNotFoundError
            No message has the id.
        InvalidRecordError
            The format does not allow the message; nothing was written.
        """
        check_text("message id", message.get("id") if isinstance(message, dict) else None)
        with self._writing(session_id) as opened:
            journal = opened.journal
            position = journal.require(message["id"])
            stored = journal.stored(position) or {}
            checked = check_message(message, stored)
            shown = journal.effective(journal.stored(position) or {})
            same_turn = checked.get("turnId", stored.get("turnId")) == stored.get("turnId")
            if same_turn and same_message(checked, shown):
                return False
            line = changed_line(checked, journal.line(position), stored)
            if stored.get("role") == "user":
                opened.branches.before_changing(root_of(position, stored), checked)
            self._exchange(opened, position, line)
            return True

    def _exchange(self, opened: Opened, position: int, line: bytes) -> None:
        """Rewrite exactly one message line."""
        journal = opened.journal
        start = journal.start(position)
        end = start + len(journal.transcript.line(position))
        if start == 0 and journal.read(0, 3) == b"\xef\xbb\xbf":
            start = 3
        journal.rewrite([(0, start), line, (end, journal.transcript.nbytes)])
        self._index.put(opened, only=position)

    def replace_messages(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        """Put messages in the place of all of a session's.

        Right only for a caller that owns the whole transcript: what is not in the list is
        gone, a message that was appended since the list was read included. Nothing is
        merged. Messages that stay keep their turn, and their bytes where they are the same.

        Raises
        ------
        InvalidRecordError
            The format does not allow a message, or an id is there twice; nothing was written.
        """
        if not isinstance(messages, list):
            message = f"messages are a list, not {type(messages).__name__}"
            raise InvalidRecordError(message)
        for message in messages:
            check_text("message id", message.get("id") if isinstance(message, dict) else None)
        if len({message["id"] for message in messages}) != len(messages):
            raise InvalidRecordError("an id is there twice")
        with self._writing(session_id) as opened:
            journal = opened.journal
            order = [self._placed(journal, message) for message in messages]
            same = _unchanged(journal, order)
            opened.branches.before_dropping(same)
            self._rewrite(opened, plan(journal, order), same)

    def _placed(self, journal: Journal, message: dict[str, Any]) -> int | Put:
        position = journal.position(message["id"])
        stored = None if position is None else journal.stored(position)
        checked = check_message(message, stored)
        if position is None or stored is None:
            return Put(message_line(checked, None), checked["id"])
        shown = journal.effective(journal.stored(position) or {})
        same_turn = checked.get("turnId", stored.get("turnId")) == stored.get("turnId")
        if same_turn and same_message(checked, shown):
            return position
        line = changed_line(checked, journal.line(position), stored)
        return Put(line, checked["id"], position)

    def truncate_from(
        self, session_id: str, message_id: str | None = None, before: int | None = None
    ) -> Cut:
        """Cut a session: a message and everything behind it go, archived first.

        What no branch can hold is put aside: lines in the revisions file for whoever looks
        there, which no operation gives back.

        Parameters
        ----------
        session_id : str
            The session.
        message_id : str, optional
            The first line with this id goes, and what is behind it.
        before : int, optional
            Messages [0, before) stay: right only from a window of the current generation.
            Where both are given the identity decides.

        Raises
        ------
        MessageNotFoundError
            No message has the id; nothing was changed.
        PositionError
            There are fewer messages; nothing was changed.
        """
        if message_id is None and before is None:
            message = "give message_id or before"
            raise TypeError(message)
        with self._writing(session_id) as opened:
            journal = opened.journal
            journal.seal()
            count = journal.message_count
            if message_id is not None:
                journal.require(check_text("message id", message_id))
                position = journal.positions(message_id)[0]
            else:
                position = _position(before, journal)
            if position == count:
                return Cut(count, 0, None)
            branches = opened.branches
            branches.before_dropping(position)
            key = branches.archive_tail(position)
            aside = unarchived(journal, position, messages=key is None)
            branches.revisions.put_aside(aside)
            pieces = plan(journal, range(position), cut=journal.start(position))
            self._rewrite(opened, pieces, position)
            self._index.put_revisions(opened)
            revision = None if key is None else branches.revision(*key)
        return Cut(position, count - position, revision)


def _unchanged(journal: Journal, order: Sequence[int | Put]) -> int:
    """Return how many message lines, from the first on, a new order leaves where they are.

    A damaged line belongs to nobody's list of messages, and stays.
    """
    placed = iter(order)
    wanted = next(placed, None)
    for position in range(journal.message_count):
        if wanted == position:
            wanted = next(placed, None)
        elif journal.stored(position) is not None:
            return position
    return journal.message_count


def _position(before: object, journal: Journal) -> int:
    position = operator.index(before)  # type: ignore[arg-type]
    if isinstance(before, bool):
        message = "a position is an integer, not a truth value"
        raise TypeError(message)
    if position < 0:
        message = f"position {position} is negative"
        raise ValueError(message)
    if position > journal.message_count:
        raise PositionError(
            f"position {position} is outside [0, {journal.message_count}]", path=journal.path
        )
    return position
