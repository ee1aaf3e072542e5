"""Review states: replay a log of small lines, lay the last one over its message.

A review record sits in a tool message, at ``blocks[].result.details.review`` or
in the list ``.details.reviews[]``, and names its ``snapshotId``. A
``tool_review_state`` line names a message, a snapshot and a state. File order is
the order of record: for one message and snapshot the last line wins, whatever the
clock said. Decision record: append-only review state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class ReviewStates:
    """The last state of each snapshot after the first `count` state lines of a transcript.

    Notes
    -----
    What a later line says stands in the same memory, behind a bound that each goes by: so
    an appended line costs that line, and what was replayed before does not change.
    """

    __slots__ = ("_log", "count")

    def __init__(self) -> None:
        self.count = 0
        #: message id -> snapshot id -> (index of the line, state), in file order
        self._log: dict[str, dict[str, list[tuple[int, str]]]] = {}

    def get(self, message_id: str) -> dict[str, str] | None:
        """Return the states of a message by snapshot, or None if it has none."""
        of_message = self._log.get(message_id)
        if of_message is None:
            return None
        states = {}
        for snapshot_id, entries in list(of_message.items()):
            for index, state in reversed(entries):
                if index < self.count:
                    states[snapshot_id] = state
                    break
        return states or None

    def grown(self, records: Iterable[dict[str, Any] | None], count: int) -> ReviewStates:
        """Return the states after `count` lines; `records` are those behind these, in file order.

        None stands for a line that does not decode. A record without the three strings, or
        with an empty state, says nothing.
        """
        grown = ReviewStates()
        grown._log, grown.count = self._log, count
        for index, record in enumerate(records, self.count):
            if record is None:
                continue
            message_id = record.get("messageId")
            snapshot_id = record.get("snapshotId")
            state = record.get("state")
            if (
                isinstance(message_id, str)
                and isinstance(snapshot_id, str)
                and isinstance(state, str)
                and state
            ):
                entries = self._log.setdefault(message_id, {}).setdefault(snapshot_id, [])
                if not entries or entries[-1][0] < index:
                    entries.append((index, state))
        return grown


def replay(records: Iterable[dict[str, Any] | None]) -> ReviewStates:
    """Return the last state of each (message, snapshot), from state records in file order."""
    listed = list(records)
    return ReviewStates().grown(listed, len(listed))


def overlay(message: dict[str, Any], states: ReviewStates) -> None:
    """Lay the last states of its snapshots over a decoded message, in place."""
    message_id = message.get("id")
    if not isinstance(message_id, str) or message.get("role") != "tool":
        return
    of_message = states.get(message_id)
    if of_message is None:
        return
    for review in reviews(message):
        snapshot_id = review.get("snapshotId")
        if isinstance(snapshot_id, str) and snapshot_id in of_message:
            review["state"] = of_message[snapshot_id]


def reviews(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the review records that a message holds, the objects themselves."""
    blocks = message.get("blocks")
    if not isinstance(blocks, list):
        return
    for block in blocks:
        result = block.get("result") if isinstance(block, dict) else None
        details = result.get("details") if isinstance(result, dict) else None
        if not isinstance(details, dict):
            continue
        single = details.get("review")
        if isinstance(single, dict):
            yield single
        plural = details.get("reviews")
        if isinstance(plural, list):
            yield from (review for review in plural if isinstance(review, dict))
