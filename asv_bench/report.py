"""The report: every promise of the budget, its limit, what was measured, and the verdict.

    python -m asv_bench.report [--quick] [--data DIR] [--json [FILE]] [--from FILE] [--readme FILE]

Every promise is measured in several passes. What is undecided after those is measured again,
up to a number of passes; what then still is stays so, and breaks nothing.

Exit code 1 if a promise is broken.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import data, machine, options, reopening, writing
from .columns import aligned
from .interval import LEAST_COUNT
from .promises import PROMISES, QUICK
from .verdict import OVER, SKIPPED, UNDECIDED, UNDER, Judged, Limit, judge, read_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .promises import Effort
    from .verdict import Row

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
    return "\n".join(aligned([heads, *map(_cells, judged)], right=range(1, 6)))


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
    facts = {"machine": machine.facts(), "load_average": os.getloadavg()[0]}
    return json.dumps(facts | {"rows": list(map(_facts, judged))}, indent=1, ensure_ascii=False)


def _facts(one: Judged) -> dict[str, Any]:
    measured = asdict(one)
    return measured.pop("limit") | measured | {"margin": one.margin}


def kept(path: Path) -> list[Judged]:
    """Return the promises of a run that was kept."""
    return [_kept(row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]


def _kept(row: dict[str, Any]) -> Judged:
    limit = Limit(*(row[name] for name in ("key", "promise", "limit", "unit", "reason")))
    names = ("verdict", "measured", "least", "greatest")
    return Judged(limit, *(row[name] for name in names), tuple(row["passes"]), row["detail"])


def markdown(judged: Sequence[Judged]) -> str:
    """Return the promises as a table of Markdown, what is over its limit in bold."""
    lines = ["| promise | limit | measured |", "|---|---:|---:|"]
    for one in judged:
        measured = "not measured" if one.measured is None else f"{_short(one.measured)}"
        if one.verdict == OVER:
            measured = f"**{measured}**"
        elif one.verdict == UNDECIDED:
            measured += " (undecided)"
        limit = f"{one.limit.limit:g} {one.limit.unit}"
        lines.append(f"| {one.limit.promise} | {limit} | {measured} |")
    return "\n".join(lines) + "\n"


def _short(number: float) -> str:
    """Return a number to three digits, and to no more than two behind the point."""
    return (
        f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    )


def put_table(page: str, rows: str) -> str:
    """Return a page with rows in the place of its table of promises.

    Raises
    ------
    ValueError
        The page has no such table.
    """
    changed, count = re.subn(
        r"^\| promise \| limit \|.*\n(?:\|.*\n)*", lambda _: rows, page, flags=re.MULTILINE
    )
    if count != 1:
        message = f"the page has {count} tables of promises, not one"
        raise ValueError(message)
    return changed


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
    parser = options.parser("report", __doc__, quick="fewer rounds, and no large files", kept=True)
    parser.add_argument(
        "--readme", type=Path, metavar="FILE", help="put the table in the place of the one there"
    )
    chosen = parser.parse_args(arguments)
    if chosen.source:
        judged = kept(chosen.source)
    else:
        files = data.Files(
            chosen.data or data.default_directory(), data.FULL, data.real_directory()
        )
        judged = judge_all(files, QUICK_PASS if chosen.quick else PASS, read_budget(), _tell)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    verdicts = [one.verdict for one in judged]
    if chosen.json:
        Path(chosen.json).write_text(as_json(judged) + "\n", encoding="utf-8")
    if chosen.readme:
        page = chosen.readme.read_text(encoding="utf-8")
        chosen.readme.write_text(put_table(page, markdown(judged)), encoding="utf-8")
    if chosen.json == "":
        print(as_json(judged))
    else:
        print(table(judged))
        print()
        load = f"; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        print(summary(verdicts) + ("" if chosen.source else load))
    return 1 if OVER in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
