"""Where a given number of extras goes: spread evenly over the messages.

Invariant: `Spread(count, total)` places exactly `count` extras, the m-th (m = 1, 2, ...) at
``m * total // (count + 1)``; any stretch can be asked for without the stretches before it.
"""

from dataclasses import dataclass

import numpy as np

from .noise import Index


@dataclass(frozen=True, slots=True)
class Spread:
    """`count` extras over `total` places; at most one a place if count <= total."""

    count: int
    total: int

    def before(self, place: int) -> int:
        """Return how many extras lie before a place, which is also the ordinal of the next one."""
        if not self.count:
            return 0
        return min(max(-(-place * (self.count + 1) // self.total) - 1, 0), self.count)

    def place(self, ordinal: int) -> int:
        """Return the place of the extra with that ordinal (from 0)."""
        return (ordinal + 1) * self.total // (self.count + 1)

    def counts(self, places: Index) -> Index:
        """Return how many extras lie at each of the places."""
        if not self.count:
            return np.zeros(len(places), dtype=np.int64)
        return self._before(places + 1) - self._before(places)

    def _before(self, places: Index) -> Index:
        ceiling = -(-places * (self.count + 1) // self.total)
        return np.clip(ceiling - 1, 0, self.count).astype(np.int64)
