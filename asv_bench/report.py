"""The report: every promise of the budget, its limit, what was measured, and the verdict.

    python -m asv_bench.report [--quick] [--data DIR] [--json]

Exit code 1 if a promise is broken; a run that decides nothing breaks none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from . import data, reopening, writing
from .promises import PROMISES, QUICK, THOROUGH
from .verdict import OVER, SKIPPED, UNDECIDED, UNDER, read_budget, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .promises import Effort
    from .verdict import Limit, Row


def measure_all(files: data.Files, effort: Effort, *, talk: bool = False) -> list[Row]:
    """Return the rows of all promises; with `talk` their names go to stderr as they are begun."""
    rows: list[Row] = []
    for promise in PROMISES + reopening.PROMISES + writing.PROMISES:
        if talk:
            print(f"\r\x1b[K{promise.__name__} ...", end="", file=sys.stderr, flush=True)
        rows.extend(promise(files, effort))
    if talk:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return rows


def table(rows: Sequence[Row], budget: dict[str, Limit]) -> str:
    """Return the rows as lines of text."""
    heads = ("promise", "limit", "measured", "median", "unit", "verdict", "")
    cells = [heads]
    for row in rows:
        limit = budget[row.key]
        cells.append(
            (
                limit.promise,
                f"{limit.limit:g}",
                _number(row.measured),
                _number(row.median),
                limit.unit,
                verdict(row, limit.limit),
                row.detail,
            )
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for cell in cells:
        padded = [
            text.rjust(width) if 1 <= number <= 3 else text.ljust(width)
            for number, (text, width) in enumerate(zip(cell, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def as_json(rows: Sequence[Row], budget: dict[str, Limit]) -> str:
    """Return the rows, and what they were measured on, as one JSON object."""
    return json.dumps(
        {
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "orjson": version("orjson"),
            "system": f"{platform.system()} {platform.machine()}",
            "cpu_count": os.cpu_count(),
            "load_average": os.getloadavg()[0],
            "rows": [
                {
                    **asdict(budget[row.key]),
                    **asdict(row),
                    "verdict": verdict(row, budget[row.key].limit),
                }
                for row in rows
            ],
        },
        indent=1,
    )


def summary(verdicts: Sequence[str]) -> str:
    """Return the sentence below the table."""
    counts = ((name, verdicts.count(name)) for name in (UNDER, OVER, UNDECIDED, SKIPPED))
    return ", ".join(f"{count} {name}" for name, count in counts if count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.report", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and no large files")
    parser.add_argument("--data", type=Path, help="where the measured files are kept")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    chosen = parser.parse_args(arguments)
    files = data.Files(chosen.data or data.default_directory(), data.FULL, data.real_directory())
    rows = measure_all(files, QUICK if chosen.quick else THOROUGH, talk=sys.stderr.isatty())
    budget = read_budget()
    verdicts = [verdict(row, budget[row.key].limit) for row in rows]
    if chosen.json:
        print(as_json(rows, budget))
    else:
        print(table(rows, budget))
        print()
        print(f"{summary(verdicts)}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 1 if OVER in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
