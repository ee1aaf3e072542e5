"""A column: integers of one width that only ever gain values at their end.

A column is immutable, and so is everything that is cut from it. The column that
it becomes by an append shares its memory: what a scan or a cache gave stays where
it is, and what came since stands in a tail with room to grow, so an append costs
what it appends. A column that lies in a file of doubtful content names a guard,
which proves each block before its first value is handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[Any]

#: bytes that are proven together, and within which a search stays
BLOCK_NBYTES = 8192
_LEAST_ROOM = 1024


class Guard(Protocol):
    """What vouches for values that were not computed here."""

    def proven(self, start: int, stop: int) -> Values:
        """Return the values, of which those at [start, stop) can be relied on."""


class _Tail:
    """Memory behind a base, of which the first `used` values are taken."""

    __slots__ = ("_memory", "used", "values")

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.used = 0
        self._take(np.empty(_LEAST_ROOM, dtype))

    def _take(self, memory: Values) -> None:
        self._memory = memory
        self.values = memory.view()
        self.values.flags.writeable = False

    def append(self, values: Values) -> None:
        stop = self.used + len(values)
        if stop > len(self._memory):
            # Views of the old memory stay what they are.
            larger = np.empty(max(2 * len(self._memory), stop), self._memory.dtype)
            larger[: self.used] = self._memory[: self.used]
            self._take(larger)
        self._memory[self.used : stop] = values
        self.used = stop


class Column:
    """A column of `count` values.

    Parameters
    ----------
    values : (count,) integer array
        Is not copied, and must not be written to any more.
    guard : Guard, optional
        Proves values of `values` before they are used.
    """

    __slots__ = ("_base", "_count", "_guard", "_split", "_tail", "_whole")

    def __init__(self, values: Values, guard: Guard | None = None) -> None:
        if values.flags.writeable:
            values = values.view()
            values.flags.writeable = False
        self._base = values
        self._guard = guard
        self._split = self._count = len(values)
        self._tail: _Tail | None = None
        self._whole: Values | None = None if guard else values

    def __repr__(self) -> str:
        """Show the count."""
        return f"<Column of {self._count} values>"

    def __len__(self) -> int:
        """Return the number of values."""
        return self._count

    def part(self, start: int, stop: int) -> Values:
        """Return values [start, stop), which must lie within the column; read-only."""
        split = self._split
        if stop <= split:
            guard = self._guard
            return (self._base if guard is None else guard.proven(start, stop))[start:stop]
        tail: _Tail = self._tail  # type: ignore[assignment]  # there is one behind the split
        if start >= split:
            return tail.values[start - split : stop - split]
        joined = np.concatenate([self.part(start, split), tail.values[: stop - split]])
        joined.flags.writeable = False
        return joined

    @property
    def at_hand(self) -> Values | None:
        """All values, if nothing has to be proven or joined for them; read-only."""
        return self._whole

    def at(self, index: int) -> int:
        """Return one value; `index` must lie within the column."""
        if index < self._split:
            guard = self._guard
            values = self._base if guard is None else guard.proven(index, index + 1)
            return values.item(index)  # type: ignore[no-any-return]
        tail: _Tail = self._tail  # type: ignore[assignment]  # there is one behind the split
        return tail.values.item(index - self._split)  # type: ignore[no-any-return]

    def whole(self) -> Values:
        """Return all values; read-only.

        Notes
        -----
        Once O(count) where a guard has to prove them or a tail has to be joined to them.
        """
        if self._whole is not None:
            return self._whole
        values = self.part(0, self._count)
        if self._guard is None:
            # what a guard vouches for may be replaced by what it should have been
            self._whole = values
        return values

    def search(self, value: int, side: str = "left") -> int:
        """Return where `value` would stand in a column that ascends, as ``searchsorted`` does.

        Notes
        -----
        O(log count); of a guarded column it has a few blocks proven.
        """
        low, high = 0, self._count
        if self._tail is not None and self._split:
            last = self.at(self._split - 1)
            if last < value or (side == "right" and last == value):
                low = self._split
            else:
                high = self._split
        if low < self._split and self._guard is not None:
            low, high = self._bracket(value, side, low, high)
        # of the column's own type, or numpy would convert the column to compare it
        wanted = self._base.dtype.type(value)
        return low + int(self.part(low, high).searchsorted(wanted, side))  # type: ignore[call-overload]

    def _bracket(self, value: int, side: str, low: int, high: int) -> tuple[int, int]:
        """Narrow a search to one block."""
        count = BLOCK_NBYTES // self._base.itemsize
        first, last = low // count, (high - 1) // count
        while first < last:
            middle = (first + last + 1) // 2
            at = self.at(middle * count)
            if at < value or (side == "right" and at == value):
                first = middle
            else:
                last = middle - 1
        return max(low, first * count), min(high, (first + 1) * count)

    def grown(self, values: Values) -> Column:
        """Return the column that has `values`, of the same width, behind these.

        Notes
        -----
        O(len(values)), amortised. The first column that grows out of this one shares its
        memory; a second one is given a copy of the tail.
        """
        if not len(values):
            return self
        if not self._count:
            # an int64 that is no offset below zero is the same as a uint64
            return Column(np.ascontiguousarray(values).view(self._base.dtype))
        used = self._count - self._split
        tail = self._tail
        if tail is None or tail.used != used:
            fresh = _Tail(self._base.dtype)
            if tail is not None:
                fresh.append(tail.values[:used])
            tail = fresh
        tail.append(values)
        column = Column.__new__(Column)
        column._base, column._guard, column._split = self._base, self._guard, self._split
        column._tail, column._whole = tail, None
        column._count = self._count + len(values)
        return column
