"""Limits and verdicts: measured numbers against what was promised.

A promise is measured in several passes, each with everything set up anew. What disturbs a
machine only ever adds to a time, so the least of a time's passes is its estimate, and one
pass within the limit shows that the operation keeps it. A ratio is disturbed both ways: its
estimate is the median of its passes, and its verdict stands when the whole interval of that
median is on one side of the limit, of the wrong side surer than of the right one. Until then
the row is undecided, and is measured again.
"""

from __future__ import annotations

import statistics
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .interval import CONFIDENCE, SURE, central, median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    @property
    def is_ratio(self) -> bool:
        """Whether two things were measured, so that what disturbs may add or take away."""
        return self.unit.startswith("x ")


@dataclass(frozen=True, slots=True)
class Row:
    """What one pass measured for one promise.

    Attributes
    ----------
    key : str
        Which promise.
    measured : float or None
        In the promise's unit; None where it was not measured.
    median : float or None
        The median of the pass's rounds, where there is one: for information.
    detail : str
        What the number was made of; the reason, where it was not measured.
    """

    key: str
    measured: float | None
    median: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A promise, and what its passes say of it.

    Attributes
    ----------
    limit : Limit
        The promise.
    verdict : str
        Under, over, undecided or skipped.
    measured : float or None
        The estimate; None where it was not measured.
    least, greatest : float or None
        The least and the greatest that may be the number that the limit is held against.
    passes : tuple of float
        What each pass measured.
    detail : str
        Of the pass that the estimate is from.
    """

    limit: Limit
    verdict: str
    measured: float | None
    least: float | None
    greatest: float | None
    passes: tuple[float, ...]
    detail: str

    @property
    def margin(self) -> float | None:
        """The share of the limit that is left; negative where it is exceeded."""
        return None if self.measured is None else 1 - self.measured / self.limit.limit


def read_budget(path: Path = BUDGET_PATH) -> dict[str, Limit]:
    """Return the promises by their keys, in the order of the file."""
    with open(path, "rb") as file:
        return {key: Limit(key, **table) for key, table in tomllib.load(file).items()}


def skipped(key: str, reason: str) -> Row:
    """Return the row of a promise that was not measured."""
    return Row(key, None, detail=reason)


def judge(limit: Limit, rows: Sequence[Row]) -> Judged:
    """Return what the passes of one promise say of its limit."""
    passes = {row.measured: row for row in rows if row.measured is not None}
    values = [row.measured for row in rows if row.measured is not None]
    if not values:
        return Judged(limit, SKIPPED, None, None, None, (), rows[0].detail)
    estimate = central(values) if limit.is_ratio else min(values)
    least, greatest = bounds(values, is_ratio=limit.is_ratio)
    verdict = UNDECIDED
    if greatest <= limit.limit:
        verdict = UNDER
    elif bounds(values, is_ratio=limit.is_ratio, confidence=SURE)[0] > limit.limit:
        verdict = OVER
    return Judged(limit, verdict, estimate, least, greatest, tuple(values), passes[estimate].detail)


def bounds(
    values: Sequence[float], *, is_ratio: bool, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Return the least and the greatest that an undisturbed machine may show.

    A time is at most the least that was measured. It may be less, and is taken to be no
    further below that than the passes typically are above it.
    """
    if not is_ratio:
        return 2 * min(values) - statistics.median(values), min(values)
    if len(set(values)) == 1 and len(values) > 1:
        return values[0], values[0]
    return median_interval(values, confidence) or (0.0, float("inf"))
