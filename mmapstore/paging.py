"""Which positions a page covers: pure arithmetic over a layout's message lines.

Positions are clamped to the layout, never to a count kept elsewhere. Decision
record: 0127, one coordinate space.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .layout import Extents


def page(
    messages: Extents,
    before: int | None,
    after: int | None,
    centre: int | None,
    limit: int | None,
    max_nbytes: int | None,
) -> tuple[int, int]:
    """Return the half-open range of positions that a window asked for.

    At most one of `before`, `after` and `centre` is given; see
    :meth:`Transcript.window` for what they mean.
    """
    total = len(messages)
    span = total if limit is None else at_least(limit, 1, "limit")
    if after is not None:
        anchor = start = min(at_least(after, 0, "after"), total)
        stop = min(start + span, total)
    elif centre is not None:
        anchor = centre
        start = max(0, min(anchor - span // 2, total - span))
        stop = min(start + span, total)
    else:
        stop = total if before is None else min(at_least(before, 0, "before"), total)
        start = max(0, stop - span)
        anchor = stop - 1
    if max_nbytes is None:
        return start, stop
    return _cut(messages, start, stop, anchor, at_least(max_nbytes, 1, "max_nbytes"))


def _cut(messages: Extents, start: int, stop: int, anchor: int, max_nbytes: int) -> tuple[int, int]:
    """Return the part of [start, stop) around `anchor` that grows to few enough bytes.

    The nearer neighbour is taken first; a side ends where its next line does not fit.
    """
    if start == stop:
        return start, stop
    starts, ends = messages.part(start, stop)
    sizes = (ends - starts).astype(np.int64)
    low = min(max(anchor, start), stop - 1)
    high = low + 1
    room = max_nbytes - int(sizes[low - start])
    first, end = start, stop
    while first < low or high < end:
        older = high == end or (first < low and anchor - low < high - 1 - anchor)
        at = low - 1 if older else high
        nbytes = int(sizes[at - start])
        if nbytes > room:
            first, end = (low, end) if older else (first, high)
            continue
        room -= nbytes
        low, high = (at, high) if older else (low, at + 1)
    return low, high


def integer(value: int, name: str) -> int:
    """Return `value` as an integer, refusing what is none by the argument's name."""
    try:
        return operator.index(value)
    except TypeError:
        message = f"{name} must be an integer, not {type(value).__name__}"
        raise TypeError(message) from None


def at_least(value: int, least: int, name: str) -> int:
    """Return `value` as an integer, refusing one below `least`."""
    number = integer(value, name)
    if number < least:
        message = f"{name} must be at least {least}, not {number}"
        raise ValueError(message)
    return number
