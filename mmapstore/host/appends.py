"""What a host appends: messages, checkpoints and review states, each decided on the file.

What is there already is not written again; what is written is one write and one sync.
Decision record: append-only review state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConflictError, InvalidRecordError, TranscriptChangedError
from ..review import reviews
from .desk import Desk
from .records import (
    check_message,
    check_text,
    compaction_line,
    message_line,
    review_line,
    same_message,
)
from .rewrite import effective

if TYPE_CHECKING:
    from .journal import Journal


class Appends(Desk):
    """The operations that add lines to a session."""

    def append_message(
        self, session_id: str, message: dict[str, Any], turn_id: str | None = None
    ) -> int:
        """Append a message; return its position. See :meth:`append_messages`."""
        return self.append_messages(session_id, [message], turn_id)[0]

    def append_messages(
        self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
    ) -> list[int]:
        """Append messages in one write and one sync; return the position of each.

        A message that is there already, under the same id with the same content, is not
        written again: it keeps its position.

        Raises
        ------
        ConflictError
            The id is there with other content; nothing was written.
        InvalidRecordError
            The format does not allow a message; nothing was written.
        WriteFailedError
            None was acknowledged; ask again.
        """
        if not isinstance(messages, list):
            message = f"messages are a list, not {type(messages).__name__}"
            raise InvalidRecordError(message)
        if turn_id is not None:
            check_text("turn id", turn_id)
        lines = [message_line(check_message(message), turn_id) for message in messages]
        with self._lock:
            positions = self._appended_unseen(session_id, messages, lines) if lines else None
            return positions or self._appended(session_id, messages, lines)

    def _appended_unseen(
        self, session_id: str, messages: list[dict[str, Any]], lines: list[bytes]
    ) -> list[int] | None:
        """Append messages with new ids to the session that was appended to before.

        Returns None, and has written nothing, where anything has to be looked up first.
        """
        opened = self._here().ready(session_id)
        if opened is None:
            return None
        journal = opened.journal
        message_ids = [message["id"] for message in messages]
        is_repeated = len(message_ids) > 1 and len(set(message_ids)) < len(message_ids)
        if is_repeated or journal.has_any(message_ids):
            return None
        count = journal.message_count
        try:
            alone = journal.append(b"".join(lines), message_ids)
        except TranscriptChangedError:
            return None
        self._index.note(opened)
        if alone:
            return list(range(count, count + len(lines)))
        return [journal.require(message_id) for message_id in message_ids]

    def _appended(
        self, session_id: str, messages: list[dict[str, Any]], lines: list[bytes]
    ) -> list[int]:
        with self._writing(session_id) as opened:
            journal = opened.journal
            if lines:
                journal.seal()
            count = journal.message_count
            new: dict[str, tuple[int, dict[str, Any]]] = {}
            data = []
            positions = []
            for message, line in zip(messages, lines, strict=True):
                position = self._known(journal, message, new)
                if position is None:
                    position = count + len(new)
                    new[message["id"]] = (position, message)
                    data.append(line)
                positions.append(position)
            if data:
                alone = journal.append(b"".join(data), list(new))
                self._index.note(opened)
                if not alone:
                    return [journal.require(message["id"]) for message in messages]
        return positions

    def _known(
        self, journal: Journal, message: dict[str, Any], new: dict[str, tuple[int, dict[str, Any]]]
    ) -> int | None:
        """Return where a message is already, or None."""
        message_id = message["id"]
        if message_id in new:
            position, other = new[message_id]
            known = same_message(message, other)
        else:
            found = journal.position(message_id)
            stored = None if found is None else journal.stored(found)
            if found is None or stored is None:
                return None
            position = found
            known = same_message(message, stored) or same_message(
                message, journal.effective(stored)
            )
        if not known:
            raise ConflictError(
                f"the id {message_id!r} is there with other content",
                path=journal.path,
                hint="update_message() changes a message",
            )
        return position

    def turn_messages(self, session_id: str, turn_id: str) -> list[dict[str, Any]]:
        """Return the effective messages of a turn, in file order."""
        with self._reading(session_id) as opened:
            journal = opened.journal
            positions = self._index.turn(opened, turn_id)
            # the lines say what turn they are of; the index only where they may be
            found = [position for position in positions if position < journal.message_count]
            messages = [record for _, record in effective(journal, found)]
            # what a later line of its id says otherwise is said no more
            there = set(found)
            named = [(record, journal.transcript.dialect.id(record)) for record in messages]
            messages = [
                record
                for record, message_id in named
                if not message_id or journal.position(message_id) in there
            ]
        return [message for message in messages if message.get("turnId") == turn_id]

    def append_compaction(self, session_id: str, record: dict[str, Any]) -> None:
        """Append a checkpoint.

        Raises
        ------
        InvalidRecordError
            The id, the summary or the boundary is missing or empty, a count is negative.
        """
        line = compaction_line(record)
        with self._writing(session_id) as opened:
            journal = opened.journal
            journal.seal()
            if journal.newest_compaction_is(record):
                return  # asked for again, because its answer was lost
            journal.append(line)
            self._index.note(opened)

    def set_review_state(
        self, session_id: str, message_id: str, snapshot_id: str, state: str
    ) -> bool:
        """Say what became of a snapshot of a tool message; whether that had to be written.

        Appends one small line: no message moves, and the cost does not depend on history.

        Raises
        ------
        MessageNotFoundError
            No message has the id.
        InvalidRecordError
            The message does not own the snapshot, or the state is no string.
        """
        for name, value in (("message id", message_id), ("snapshot id", snapshot_id)):
            check_text(name, value)
        line = review_line(message_id, snapshot_id, check_text("review state", state))
        with self._writing(session_id) as opened:
            journal = opened.journal
            journal.seal()
            message = journal.stored(journal.require(message_id)) or {}
            journal.effective(message)
            states = [
                review.get("state")
                for review in (reviews(message) if message.get("role") == "tool" else ())
                if review.get("snapshotId") == snapshot_id
            ]
            if not states:
                raise InvalidRecordError(
                    f"message {message_id!r} owns no snapshot {snapshot_id!r}", path=journal.path
                )
            if all(known == state for known in states):
                return False
            journal.append(line)
            self._index.note(opened)
            return True
