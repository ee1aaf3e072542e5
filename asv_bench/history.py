"""The results that are kept: one small file a commit, in the form that asv reads.

    python -m asv_bench.history record [--machine NAME] [--bench REGEX] [RANGE]
    python -m asv_bench.history keep
    python -m asv_bench.history prune [--newest 200] [--every 10]

asv's own files hold every sample, and name the kernel, the memory and the interpreter's
path; each of them would begin a new graph. A kept file holds one number a benchmark, and of
the machine only what the file of its name in this repository says. So a series goes on
whatever happens to the machine, until somebody gives it another name.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BENCH = Path(__file__).resolve().parent
#: what is kept, and where asv leaves what it measured
KEPT = BENCH / "results"
MEASURED = BENCH / ".asv" / "results"

_COLUMNS = ("result", "params", "version")
_DIGITS = 5
#: what a dashboard shows of a benchmark, and what tells whether a number is of the same one
_SHOWN = ("name", "param_names", "params", "pretty_name", "type", "unit", "version")
_PYTHON = re.compile(r"(\d+\.\d+)")


def compact(result: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Return a result of asv without samples, and with nothing of the machine but its name.

    Parameters
    ----------
    result : dict
        A result file of asv.
    machine : dict
        The machine's file.

    Returns
    -------
    dict
        What is kept; asv reads it like its own.
    """
    names = result["result_columns"]
    python = _python(result["python"])
    results = {}
    for benchmark, values in result["results"].items():
        row = dict(zip(names, values, strict=False))
        numbers = [_number(value) for value in row["result"] or ()]
        if any(number is not None for number in numbers):
            results[benchmark] = [numbers, row["params"], row["version"]]
    facts = {name: value for name, value in machine.items() if name != "version"}
    return {
        "commit_hash": result["commit_hash"],
        "date": result["date"],
        "env_name": f"python{python}",
        "python": python,
        "params": {**facts, "python": python},
        "requirements": {},
        "env_vars": {},
        "durations": {},
        "result_columns": list(_COLUMNS),
        "version": result["version"],
        "results": results,
    }


def _python(text: str) -> str:
    """Return major and minor of what asv calls an environment's Python: a version or a path."""
    found = _PYTHON.search(text.rpartition("/")[2])
    return found[1] if found else f"{sys.version_info.major}.{sys.version_info.minor}"


def _number(value: float | None) -> float | int | None:
    if value is None or math.isnan(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    # counts are kept to the last digit
    return int(value) if value == int(value) else rounded


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a commit when a part of it has been measured anew."""
    return {**new, "results": {**old["results"], **new["results"]}}


def written(result: dict[str, Any]) -> str:
    """Return a kept result as JSON, one benchmark a line in the order of their names."""
    head = {name: value for name, value in result.items() if name != "results"}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    rows = [
        f"  {json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}"
        for name, row in sorted(result["results"].items())
    ]
    return "\n".join(["{", *lines, ' "results": {', ",\n".join(rows), " }", "}", ""])


def keep(
    measured: Path = MEASURED, kept: Path = KEPT, known: Mapping[Path, int] | None = None
) -> list[Path]:
    """Take over what asv has measured, and return the files that it is kept in.

    Results of a machine that has no file among those that are kept are left where they are,
    and so are those that are `known`, as :func:`times` gives them.
    """
    files = []
    before = known or {}
    for machine_path in sorted(kept.glob("*/machine.json")):
        machine = json.loads(machine_path.read_text())
        for path, time_ns in times(measured / machine["machine"]).items():
            if before.get(path) == time_ns:
                continue
            result = compact(json.loads(path.read_text()), machine)
            name = f"{result['commit_hash'][:8]}-{result['env_name']}.json"
            target = machine_path.with_name(name)
            if target.exists():
                result = merged(json.loads(target.read_text()), result)
            target.write_text(written(result))
            files.append(target)
    if files:
        _keep_benchmarks(measured / "benchmarks.json", kept)
    return files


def times(directory: Path) -> dict[Path, int]:
    """Return the results that asv has left below a directory, and when each was written."""
    paths = sorted(directory.rglob("*-*.json"))
    return {path: path.stat().st_mtime_ns for path in paths}


def _keep_benchmarks(measured: Path, kept: Path) -> None:
    """Keep what a page shows of the benchmarks: their sources are in the repository already.

    Of those without a number a page would only show an empty graph.
    """
    benchmarks = json.loads(measured.read_text())
    numbered: set[str] = set()
    for path in kept.glob("*/*-*.json"):
        numbered |= json.loads(path.read_text())["results"].keys()
    rows = {
        name: {**{key: row[key] for key in _SHOWN if key in row}, "code": ""}
        for name, row in benchmarks.items()
        if name in numbered
    }
    lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items())]
    lines.append(f' "version": {benchmarks["version"]}')
    (kept / "benchmarks.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def thinned(commits: Sequence[str], newest: int, every: int) -> list[str]:
    """Return which commits, oldest first, are not kept: of the older ones each but every nth.

    Counted from the first commit, so that a commit that was kept once is not dropped later
    for another.
    """
    older = commits[: max(len(commits) - newest, 0)]
    return [commit for number, commit in enumerate(older) if number % every]


def prune(kept: Path, newest: int, every: int) -> list[Path]:
    """Remove results of older commits, and return the files that are gone.

    Numbered are the commits that the branch has, not those with a result, so that pruning
    again removes nothing more.
    """
    order = _git("rev-list", "--reverse", "--first-parent", "HEAD").split()
    gone = {commit[:8] for commit in thinned(order, newest, every)}
    paths = [path for path in sorted(kept.glob("*/*-*.json")) if path.name[:8] in gone]
    for path in paths:
        path.unlink()
    return paths


def record(machine: str, commits: Iterable[str], bench: Sequence[str] = ()) -> list[Path]:
    """Measure commits with asv, keep the results, and return the files that they are in.

    What asv measured before is not kept again, since it may have been pruned.

    Raises
    ------
    subprocess.CalledProcessError
        asv could not measure.
    """
    facts = json.loads((KEPT / machine / "machine.json").read_text())
    options = [f"--{name}={value}" for name, value in facts.items() if name != "version"]
    known = times(MEASURED)
    _asv("machine", "--yes", *options)
    chosen = [f"--bench={one}" for one in bench]
    for each in commits:
        # 2 says that a benchmark failed: the others are kept
        _asv("run", f"--machine={machine}", *chosen, each, allowed=(0, 2))
    return keep(known=known)


def _asv(*arguments: str, allowed: tuple[int, ...] = (0,)) -> None:
    command = [sys.executable, "-m", "asv", *arguments]
    code = subprocess.run(command, cwd=BENCH, check=False).returncode
    if code not in allowed:
        raise subprocess.CalledProcessError(code, command)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=BENCH, capture_output=True, text=True, check=True
    )
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep, keep what is measured, or remove old results."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.history", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="measure commits, and keep the results")
    recording.add_argument("--machine", default="ci-2core", help="the name of the series")
    recording.add_argument("--bench", action="append", default=[], help="only these benchmarks")
    recording.add_argument("range", nargs="*", default=["HEAD^!"], help="as asv run takes them")
    commands.add_parser("keep", help="keep what asv has measured")
    pruning = commands.add_parser("prune", help="remove results of older commits")
    pruning.add_argument("--newest", type=int, default=200, help="commits of which all stay")
    pruning.add_argument("--every", type=int, default=10, help="of the older ones, each nth stays")
    chosen = parser.parse_args(arguments)
    if chosen.command == "record":
        files = record(chosen.machine, chosen.range, chosen.bench)
    elif chosen.command == "keep":
        files = keep()
    else:
        files = prune(KEPT, chosen.newest, chosen.every)
    for path in files:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
