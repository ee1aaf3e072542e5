"""How a torture tells what it has done: progress on standard error, counts on standard output."""

from __future__ import annotations

import sys
import time
from collections import Counter


class Report:
    """Counts what happened.

    Parameters
    ----------
    name : str
        Of the torture.
    total : int
        Rounds to come; 0 where that is not known.
    """

    def __init__(self, name: str, total: int = 0) -> None:
        self.name = name
        self.total = total
        self.counts: Counter[str] = Counter()
        self._started_s = time.monotonic()
        self._told_s = self._started_s

    def add(self, what: str, count: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += count

    def step(self, what: str) -> None:
        """Count a round, and tell from time to time."""
        self.counts[what] += 1
        now_s = time.monotonic()
        if now_s - self._told_s >= 5:
            self._told_s = now_s
            of = f" of {self.total}" if self.total else ""
            print(
                f"{self.name}: {self.counts[what]}{of} {what}, {now_s - self._started_s:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    def summary(self) -> str:
        """Return what is printed at the end."""
        lines = [f"{self.name}: held in {time.monotonic() - self._started_s:.0f} s"]
        return "\n".join(lines + [f"{count:>10} {what}" for what, count in self.counts.items()])
