"""The questions to an opponent: what a task is, and how one is made of plain functions.

An answer is reduced to what all can be compared by: ids, times of creation and counts.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .measure import WINDOW_COUNT, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .measure import Contender


class UnfitError(RuntimeError):
    """Is raised with the reason why an opponent cannot be measured here."""


@dataclass(frozen=True, slots=True)
class Task:
    """One question to one opponent: its answer, and its time."""

    answer: Callable[[], object]
    contender: Contender


def _ids(messages: Iterable[dict[str, Any]]) -> list[str]:
    return [message["id"] for message in messages]


def asked(
    newest: Callable[[], Iterable[dict[str, Any]]] | None = None,
    by_id: Callable[[], dict[str, Any]] | None = None,
    kinds: Callable[[], dict[str, int]] | None = None,
    newest_again: Callable[[], Iterable[dict[str, Any]]] | None = None,
    by_id_again: Callable[[], dict[str, Any]] | None = None,
) -> dict[str, Task]:
    """Return the tasks; an opponent that keeps nothing does the same work again."""
    tasks: dict[str, Task] = {}
    for question, ask, number in (
        ("newest cold", newest, 1),
        ("newest warm", newest_again or newest, 10 if newest_again else 1),
    ):
        if ask is not None:
            tasks[question] = Task(lambda ask=ask: _ids(ask()), timed(ask, number))
    for question, find, number in (
        ("id cold", by_id, 1),
        ("id warm", by_id_again or by_id, 10 if by_id_again else 1),
    ):
        if find is not None:
            tasks[question] = Task(lambda find=find: find()["createdAt"], timed(find, number))
    if kinds is not None:
        tasks["kinds"] = Task(lambda: counts(kinds()), timed(kinds))
    return tasks


def counts(kinds: dict[str, int]) -> dict[str, int]:
    """Return the counts of the kinds that all answers are compared by."""
    return {kind: kinds.get(kind, 0) for kind in ("message", "compaction", "tool_review_state")}


def line_by_line(
    path: Path, wanted: str, kind: Callable[[bytes], str], decode: Callable[[bytes], dict[str, Any]]
) -> dict[str, Task]:
    """Return the tasks of a parser in a loop over the lines of the file."""
    needle = wanted.encode()

    def newest() -> list[dict[str, Any]]:
        lines: deque[bytes] = deque(maxlen=WINDOW_COUNT)
        with open(path, "rb") as file:
            lines.extend(line for line in file if kind(line) == "message")
        return [decode(line) for line in lines]

    def by_id() -> dict[str, Any]:
        found = {}
        with open(path, "rb") as file:
            for line in file:
                if needle in line and kind(line) == "message":
                    record = decode(line)
                    if record["id"] == wanted:
                        found = record
        return found

    def kinds() -> dict[str, int]:
        with open(path, "rb") as file:
            return Counter(map(kind, file))

    return asked(newest, by_id, kinds)
