"""What got slower since a commit: the hot paths of two versions, measured in turns.

    python -m asv_bench.compare BASE [--head PATH|REV] [--only ROW ...] [--data DIR] [--json]

BASE and the head are revisions or directories that hold the package; the head is the working
tree where none is given. The benchmarks are those of the working tree for both.

A row is slower, faster or the same only if the whole interval of its ratio says so, for slower
and faster with 99 % confidence; while it does not, the row is measured again, and one that
stays undecided fails nothing.

Exit code 1 if a row is slower; 2 if there is no such version, or no row could be measured.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import data, options
from .columns import aligned
from .interval import CONFIDENCE, LEAST_COUNT, SURE, central, median_interval, sign_test
from .operations import OPERATIONS, specs
from .pair import Bench, CannotMeasureError
from .trees import NoSuchTreeError, extracted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .pair import Timing
    from .trees import Tree

    #: measures an operation once, given the number of the repetition
    Measure = Callable[[str, int], Timing]

SLOWER, FASTER, SAME, UNDECIDED, FAILED = "slower", "faster", "same", "undecided", "not measured"

#: a ratio that matters: what is within, or within its inverse, is no change
THRESHOLD = 1.10

#: repetitions: of all rows, of those that are undecided each time, and in all
FIRST_COUNT, MORE_COUNT, MOST_COUNT = LEAST_COUNT, 3, 24


@dataclass(frozen=True, slots=True)
class Comparison:
    """One operation of two versions, by one clock.

    Attributes
    ----------
    operation, clock : str
        Which.
    timings : tuple of Timing
        What each pair of processes measured.
    failure : str or None
        Why it was not measured.
    """

    operation: str
    clock: str
    timings: tuple[Timing, ...] = ()
    failure: str | None = None

    @property
    def name(self) -> str:
        """What the row is called."""
        return self.operation if self.clock == "cpu" else f"{self.operation}, {self.clock}"

    @property
    def ratios(self) -> list[float]:
        """Head by base, one number a pair."""
        return [timing.ratio(self.clock) for timing in self.timings]

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the greatest that the ratio may be."""
        return median_interval(self.ratios) or (0.0, float("inf"))

    @property
    def verdict(self) -> str:
        """Slower, faster, same, undecided or not measured."""
        if self.failure is not None:
            return FAILED
        least, greatest = median_interval(self.ratios, SURE) or (0.0, float("inf"))
        if least > THRESHOLD:
            return SLOWER
        if greatest < 1 / THRESHOLD:
            return FASTER
        least, greatest = self.interval
        return SAME if least >= 1 / THRESHOLD and greatest <= THRESHOLD else UNDECIDED


def compared(
    names: Sequence[str], measure: Measure, tell: Callable[[str], object] = lambda text: None
) -> list[Comparison]:
    """Measure operations until each is decided or has been measured often enough.

    The repetitions of an operation are spread over the whole run: what disturbs the machine
    for a while is in few of them.
    """
    found = {name: [Comparison(name, clock) for clock in OPERATIONS[name].clocks] for name in names}
    done = 0
    while done < MOST_COUNT:
        undecided = [
            name for name, rows in found.items() if UNDECIDED in [row.verdict for row in rows]
        ]
        if not undecided:
            break
        if done:
            tell(f"undecided after {done} pairs, measured again: {', '.join(undecided)}")
        upto = min(done + (MORE_COUNT if done else FIRST_COUNT), MOST_COUNT)
        for repetition in range(done, upto):
            tell(f"pair {repetition + 1} of {upto}: {len(undecided)} operations")
            for name in undecided:
                if found[name][0].failure is None:
                    found[name] = _with_another(found[name], measure, repetition)
        done = upto
    return [row for rows in found.values() for row in rows]


def _with_another(rows: list[Comparison], measure: Measure, repetition: int) -> list[Comparison]:
    try:
        timing = measure(rows[0].operation, repetition)
    except CannotMeasureError as error:
        return [replace(row, timings=(), failure=str(error)) for row in rows]
    return [replace(row, timings=(*row.timings, timing)) for row in rows]


def code(rows: Sequence[Comparison]) -> int:
    """Return the exit code: 1 for a regression, 2 if nothing at all was measured."""
    verdicts = [row.verdict for row in rows]
    if SLOWER in verdicts:
        return 1
    return 2 if all(verdict == FAILED for verdict in verdicts) else 0


def table(rows: Sequence[Comparison]) -> str:
    """Return the rows as lines of text."""
    interval = f"{CONFIDENCE:.0%} interval"
    heads = ("operation", "base", "head", "head/base", interval, "pairs", "p", "calls", "verdict")
    lines = aligned([heads, *map(_cells, rows)], right=range(1, 8))
    failures = {row.operation: row.failure for row in rows if row.failure is not None}
    lines += [f"{operation}: {failure}" for operation, failure in failures.items()]
    return "\n".join(lines)


def _cells(row: Comparison) -> tuple[str, ...]:
    if row.failure is not None:
        return (row.name, *["-"] * 7, row.verdict)
    least, greatest = row.interval
    return (
        row.name,
        _time(min(getattr(timing.base, row.clock) for timing in row.timings)),
        _time(min(getattr(timing.head, row.clock) for timing in row.timings)),
        f"{central(row.ratios):.3f}",
        f"{least:.3f} .. {greatest:.3f}",
        str(len(row.timings)),
        f"{sign_test(row.ratios):.3f}",
        _calls(row.timings[0]),
        row.verdict,
    )


def _calls(first: Timing) -> str:
    if first.base_calls == first.head_calls:
        return "-" if first.base_calls is None else f"{first.base_calls}"
    return f"{first.base_calls} > {first.head_calls}"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e3:.3g} us"


def as_json(rows: Sequence[Comparison], base: str, head: str) -> str:
    """Return the rows, and what they were measured on, as one JSON object."""
    return json.dumps(
        {
            "base": base,
            "head": head,
            "threshold": THRESHOLD,
            "confidence": CONFIDENCE,
            "python": platform.python_version(),
            "cpu_count": os.cpu_count(),
            "load_average": os.getloadavg()[0],
            "rows": [_facts(row) for row in rows],
        },
        indent=1,
    )


def _facts(row: Comparison) -> dict[str, object]:
    facts: dict[str, object] = {
        "operation": row.operation,
        "what": OPERATIONS[row.operation].what,
        "clock": row.clock,
    }
    if row.failure is not None:
        return facts | {"verdict": row.verdict, "failure": row.failure}
    return facts | {
        "verdict": row.verdict,
        "ratio": central(row.ratios),
        "interval": row.interval,
        "p": sign_test(row.ratios),
        "base_ns": [getattr(timing.base, row.clock) for timing in row.timings],
        "head_ns": [getattr(timing.head, row.clock) for timing in row.timings],
        "calls": [row.timings[0].base_calls, row.timings[0].head_calls],
    }


def summary(rows: Sequence[Comparison]) -> str:
    """Return the sentence below the table."""
    verdicts = [row.verdict for row in rows]
    counts = ((name, verdicts.count(name)) for name in (SLOWER, FASTER, SAME, UNDECIDED, FAILED))
    return ", ".join(f"{count} {name}" for name, count in counts if count)


def measured_trees(
    base: Tree, head: Tree, names: Sequence[str], directory: Path
) -> list[Comparison]:
    """Compare two versions over files that are kept in a directory."""
    files = data.Files(directory, specs())
    paths = {name: files.path(name) for name in files.specs}
    bench = Bench(base, head, paths, directory)
    return compared(names, bench, lambda text: print(text, file=sys.stderr, flush=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return 1 for a regression."""
    parser = options.parser("compare", __doc__)
    parser.add_argument("base", help="a revision, or a directory that holds the package")
    parser.add_argument("--head", help="the same; the working tree where it is not given")
    parser.add_argument(
        "--only", nargs="+", choices=OPERATIONS, metavar="ROW", help=", ".join(OPERATIONS)
    )
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        try:
            base = extracted(chosen.base, Path(directory, "base"))
            head = extracted(chosen.head, Path(directory, "head"))
        except NoSuchTreeError as error:
            parser.error(str(error))
        names = [name for name in OPERATIONS if chosen.only is None or name in chosen.only]
        rows = measured_trees(base, head, names, chosen.data or data.default_directory())
    if chosen.json:
        print(as_json(rows, base.name, head.name))
    else:
        print(table(rows))
        print()
        print(f"{summary(rows)}; {head.name} against {base.name}")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return code(rows)


if __name__ == "__main__":
    sys.exit(main())
