"""The figures of growth: a value that is written, read again, and judged.

A judgement looks at nothing but the figures, so the table and the plot of a stored run
say what those of the run itself said.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeVar

from . import machine
from .columns import aligned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

#: an operation that costs no more than this many times its cost at the smallest size is flat
FLAT = 1.3
FLAT_VERDICT, GROWS = "flat", "grows"

#: a file of which the disk had to give more than this share was not in the page cache
_FETCHED_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Growth:
    """The figures of one run.

    Attributes
    ----------
    machine : dict of str to str
        What they were measured on.
    ns : dict of str to dict of int to float
        By operation and size in bytes, the least of all rounds.
    disk_nbytes : dict of str to dict of int to int
        What the disk had to give in the least round, where that was more than nothing.
    left_out : dict of int to str
        Sizes that were not measured, and why.
    """

    machine: dict[str, str]
    ns: dict[str, dict[int, float]]
    disk_nbytes: dict[str, dict[int, int]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """The sizes that were measured, ascending."""
        return sorted({nbytes for ns in self.ns.values() for nbytes in ns})

    @property
    def remarks(self) -> list[str]:
        """What has to be known with the figures: what came from the disk, what was not measured."""
        fetched = [
            f"{operation}, {size(nbytes)}: not in the page cache, {size(given)} came from the disk"
            for operation, by_size in self.disk_nbytes.items()
            for nbytes, given in by_size.items()
            if given > _FETCHED_SHARE * nbytes
        ]
        missing = [f"not measured: {size(nbytes)}: {why}" for nbytes, why in self.left_out.items()]
        return fetched + missing


def verdict(ns: Sequence[float], limit: float = FLAT) -> str:
    """Return whether costs, smallest size first, are flat; a hump between counts as growth."""
    return FLAT_VERDICT if max(ns) <= limit * ns[0] else GROWS


def ordered(ns: Mapping[int, float]) -> list[float]:
    """Return the costs of one operation, smallest size first."""
    return [ns[nbytes] for nbytes in sorted(ns)]


def size(nbytes: float) -> str:
    """Return a size as people write it.

    >>> size(256_000_000), size(2_000_000_000), size(60_000), size(12)
    ('256 MB', '2 GB', '60 kB', '12 B')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes:.0f} B"


def duration(ns: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(9_432), duration(27_640_000), duration(1.6e9), duration(640)
    ('9.4 us', '28 ms', '1.6 s', '640 ns')
    """
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            value = ns / unit
            return f"{value:.1f} {name}" if value < 10 else f"{value:.0f} {name}"
    return f"{ns:.0f} ns"


def table(growth: Growth) -> str:
    """Return the figures, the ratio of the last to the first, and the verdicts as lines of text."""
    sizes = growth.sizes
    cells = [["", *map(size, sizes), "last / first", ""]]
    for operation, ns in growth.ns.items():
        costs = ordered(ns)
        row = [duration(ns[nbytes]) if nbytes in ns else "-" for nbytes in sizes]
        cells.append([operation, *row, f"{costs[-1] / costs[0]:.2f}", verdict(costs)])
    lines = aligned(cells, right=range(1, len(sizes) + 2))
    rule = f"flat: at no size more than {FLAT:g} times what the smallest one costs"
    return "\n".join([*lines, "", rule, *growth.remarks, machine.sentence(growth.machine)])


def as_json(growth: Growth) -> str:
    """Return the figures as one JSON object."""
    return json.dumps(asdict(growth), indent=1, ensure_ascii=False) + "\n"


def read(path: Path) -> Growth:
    """Return the figures that :func:`as_json` gave."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return Growth(
        found["machine"],
        {operation: _by_size(ns) for operation, ns in found["ns"].items()},
        {operation: _by_size(nbytes) for operation, nbytes in found["disk_nbytes"].items()},
        _by_size(found["left_out"]),
    )


def _by_size(found: dict[str, T]) -> dict[int, T]:
    return {int(nbytes): value for nbytes, value in found.items()}
