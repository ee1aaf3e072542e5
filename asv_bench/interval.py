"""The interval of a median: where it lies, from few numbers and no guess at their distribution.

Each of n numbers falls on either side of the true median like a coin. So the k-th least and
the k-th greatest enclose it unless a fair coin fell the same way more than n - k times: an
interval that needs no spread to be known, that one wild number cannot move, and that is the
same for ratios as for their logarithms.
"""

from __future__ import annotations

import statistics
from math import comb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95

#: the confidence of what fails a run: of a hundred rows none may be found by chance
SURE = 0.99

#: with fewer not even the least and the greatest enclose a median with that confidence
LEAST_COUNT = 6


def median_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return the least and the greatest that the median may be; None from too few values.

    >>> median_interval([1.01, 0.99, 1.0, 1.02, 0.98, 1.03])
    (0.98, 1.03)
    """
    ordered = sorted(values)
    count = len(ordered)
    left_out = -1
    tail = 0
    for fewer in range((count + 1) // 2):
        tail += comb(count, fewer)
        if 2 * tail > (1 - confidence) * 2**count:
            break
        left_out = fewer
    if left_out < 0:
        return None
    return ordered[left_out], ordered[count - 1 - left_out]


def sign_test(values: Sequence[float], median: float = 1.0) -> float:
    """Return how likely values fall at least as unevenly around what is their median.

    >>> sign_test([1.2, 1.3, 1.1, 1.2, 1.4, 1.1])
    0.03125
    """
    below = sum(value < median for value in values)
    above = sum(value > median for value in values)
    count = below + above
    tail = sum(comb(count, fewer) for fewer in range(min(below, above) + 1))
    return float(min(1.0, 2 * tail / 2**count))


def central(values: Sequence[float]) -> float:
    """Return the median as one of the values: of two in the middle the lesser."""
    return statistics.median_low(values)
