"""Limits and verdicts: a measured number against what was promised.

Two statistics of the same rounds stand for a ratio: the ratio of the minima, and the
median of the ratios of each round. They err in different ways, so a verdict is given
only where they agree; where they do not, the run has decided nothing. A time has its
minimum alone: what disturbs a machine only ever adds to it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

BUDGET_PATH = Path(__file__).with_name("budget.toml")

UNDER, OVER, UNDECIDED, SKIPPED = "under", "over", "undecided", "skipped"


@dataclass(frozen=True, slots=True)
class Limit:
    """One promise of the budget."""

    key: str
    promise: str
    limit: float
    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured for one promise.

    Attributes
    ----------
    key : str
        Which promise.
    measured : float or None
        In the promise's unit; None where it was not measured.
    median : float or None
        The second statistic, where there is one.
    detail : str
        What the number was made of; the reason, where it was not measured.
    """

    key: str
    measured: float | None
    median: float | None = None
    detail: str = ""


def read_budget(path: Path = BUDGET_PATH) -> dict[str, Limit]:
    """Return the promises by their keys, in the order of the file."""
    with open(path, "rb") as file:
        return {key: Limit(key, **table) for key, table in tomllib.load(file).items()}


def skipped(key: str, reason: str) -> Row:
    """Return the row of a promise that was not measured."""
    return Row(key, None, detail=reason)


def verdict(row: Row, limit: float) -> str:
    """Return whether a row keeps within a limit: under, over, undecided or skipped."""
    if row.measured is None:
        return SKIPPED
    over = {value > limit for value in (row.measured, row.median) if value is not None}
    if len(over) > 1:
        return UNDECIDED
    return OVER if over.pop() else UNDER
