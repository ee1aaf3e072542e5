"""The report: every promise of the budget, its limit, what was measured, and the verdict.

    python -m asv_bench.report [--quick] [--data DIR] [--json]

Every promise is measured in several passes. What is undecided after those is measured again,
up to a number of passes; what then still is stays so, and breaks nothing.

Exit code 1 if a promise is broken.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from . import data, options, reopening, writing
from .interval import LEAST_COUNT
from .promises import PROMISES, QUICK
from .verdict import OVER, SKIPPED, UNDECIDED, UNDER, judge, read_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .promises import Effort
    from .verdict import Judged, Limit, Row

    Promise = Callable[[data.Files, Effort], Iterator[Row]]

#: passes: of all promises, of the undecided ones each time, and in all
FIRST_COUNT, MORE_COUNT, MOST_COUNT = LEAST_COUNT, 3, 24

#: what one pass measures
PASS = replace(QUICK, cold=15, warm=50, large=True)
QUICK_PASS = replace(QUICK, cold=4, warm=10, fresh=3, read=2)


def all_promises() -> tuple[Promise, ...]:
    """Return the promises in the order of the budget."""
    return PROMISES + reopening.PROMISES + writing.PROMISES


def measure_all(
    files: data.Files,
    effort: Effort,
    promises: Sequence[Promise] | None = None,
    tell: Callable[[str], object] = lambda text: None,
) -> list[Row]:
    """Return the rows of one pass over promises, all of them by default."""
    rows: list[Row] = []
    for promise in all_promises() if promises is None else promises:
        tell(promise.__name__)
        rows.extend(promise(files, effort))
    return rows


def judge_all(
    files: data.Files,
    effort: Effort,
    budget: dict[str, Limit],
    tell: Callable[[str], object] = lambda text: None,
) -> list[Judged]:
    """Measure all promises until each is decided or has been measured often enough."""
    rows: dict[str, list[Row]] = {}
    #: which promise a row is from
    source: dict[str, Promise] = {}
    promises = all_promises()
    done = 0
    while promises and done < MOST_COUNT:
        upto = min(done + (MORE_COUNT if done else FIRST_COUNT), MOST_COUNT)
        for number in range(done + 1, upto + 1):
            for promise in promises:
                tell(f"pass {number} of {upto}: {promise.__name__}")
                for row in promise(files, effort):
                    source[row.key] = promise
                    rows.setdefault(row.key, []).append(row)
        done = upto
        undecided = [key for key in rows if judge(budget[key], rows[key]).verdict == UNDECIDED]
        if undecided and done < MOST_COUNT:
            tell(f"undecided after {done} passes, measured again: {', '.join(undecided)}\n")
        promises = tuple(dict.fromkeys(source[key] for key in undecided))
    return [judge(budget[key], rows[key]) for key in rows]


def table(judged: Sequence[Judged]) -> str:
    """Return the promises as lines of text."""
    heads = ("promise", "limit", "measured", "margin", "between", "passes", "unit", "verdict", "")
    cells = [heads, *map(_cells, judged)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for cell in cells:
        padded = [
            text.rjust(width) if 1 <= number <= 5 else text.ljust(width)
            for number, (text, width) in enumerate(zip(cell, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _cells(one: Judged) -> tuple[str, ...]:
    between = "-" if one.least is None else f"{one.least:.3f} .. {one.greatest:.3f}"
    return (
        one.limit.promise,
        f"{one.limit.limit:g}",
        "-" if one.measured is None else f"{one.measured:.3f}",
        "-" if one.margin is None else f"{one.margin:+.0%}",
        between,
        str(len(one.passes)),
        one.limit.unit,
        one.verdict,
        one.detail,
    )


def as_json(judged: Sequence[Judged]) -> str:
    """Return the promises, and what they were measured on, as one JSON object."""
    return json.dumps(
        {
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "orjson": version("orjson"),
            "system": f"{platform.system()} {platform.machine()}",
            "cpu_count": os.cpu_count(),
            "load_average": os.getloadavg()[0],
            "rows": [
                {**asdict(one.limit), **_without_limit(one), "margin": one.margin} for one in judged
            ],
        },
        indent=1,
    )


def _without_limit(one: Judged) -> dict[str, object]:
    return {name: value for name, value in asdict(one).items() if name != "limit"}


def summary(verdicts: Sequence[str]) -> str:
    """Return the sentence below the table."""
    counts = ((name, verdicts.count(name)) for name in (UNDER, OVER, UNDECIDED, SKIPPED))
    return ", ".join(f"{count} {name}" for name, count in counts if count)


def _tell(text: str) -> None:
    """Show what is being done: on a terminal in one line, else only what is worth keeping."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text.endswith("\n"):
        print(text, end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a promise is broken."""
    parser = options.parser("report", __doc__, quick="fewer rounds, and no large files")
    chosen = parser.parse_args(arguments)
    files = data.Files(chosen.data or data.default_directory(), data.FULL, data.real_directory())
    judged = judge_all(files, QUICK_PASS if chosen.quick else PASS, read_budget(), _tell)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    verdicts = [one.verdict for one in judged]
    if chosen.json:
        print(as_json(judged))
    else:
        print(table(judged))
        print()
        print(f"{summary(verdicts)}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 1 if OVER in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
