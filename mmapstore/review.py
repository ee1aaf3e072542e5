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

#: message id -> snapshot id -> state
ReviewStates = dict[str, dict[str, str]]


def replay(records: Iterable[dict[str, Any]]) -> ReviewStates:
    """Return the last state of each (message, snapshot), from state records in file order.

    A record without the three strings, or with an empty state, says nothing.
    """
    states: ReviewStates = {}
    for record in records:
        message_id = record.get("messageId")
        snapshot_id = record.get("snapshotId")
        state = record.get("state")
        if (
            isinstance(message_id, str)
            and isinstance(snapshot_id, str)
            and isinstance(state, str)
            and state
        ):
            states.setdefault(message_id, {})[snapshot_id] = state
    return states


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
