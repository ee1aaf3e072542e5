"""A repository of ten commits with results that asv could have left, one of them a step."""

import json
import os
import subprocess
from pathlib import Path

from asv_bench import history

STEPPED = "made.Made.time_stepped"
FLAT = "made.Made.time_flat"
COUNTED = "made.Made.track_counted"
COMMITS = 10
STEP = 6
_BASE_S = 0.001

MACHINE = {
    "machine": "made",
    "os": "Linux",
    "arch": "x86_64",
    "cpu": "generic",
    "num_cpu": "2",
    "ram": "24GB",
    "version": 1,
}

BENCHMARKS = {
    name: {
        "code": "def made(): ...",
        "name": name,
        "param_names": ["file"] if name == FLAT else [],
        "params": [["'small'", "'large'"]] if name == FLAT else [],
        "timeout": 60,
        "type": kind,
        "unit": unit,
        "version": "1",
    }
    for name, kind, unit in (
        (STEPPED, "time", "seconds"),
        (FLAT, "time", "seconds"),
        (COUNTED, "track", "bytes"),
    )
}


def git(directory, *arguments, when=0):
    """Run git as nobody in particular, at a second of a fixed day."""
    stamp = f"{1_700_000_000 + 3600 * when} +0000"
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "made"), ("EMAIL", "made@example.org"), ("DATE", stamp))
    }
    settings = ["-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null"]
    done = subprocess.run(
        ["git", *settings, *arguments],
        cwd=directory,
        env=os.environ | who | {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def made_repository(directory):
    """Make the repository, and return its commits, oldest first."""
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch=main")
    for number in range(COMMITS):
        Path(directory, "file").write_text(f"{number}\n")
        git(directory, "add", "file")
        git(directory, "commit", "--quiet", "--message", f"change {number}", when=number)
    return git(directory, "rev-list", "--reverse", "HEAD").split()


def measured(commit, number, *, kernel="6.1"):
    """Return what asv writes of a commit, samples and machine facts and all."""
    values = {
        STEPPED: [_BASE_S * (3 if number >= STEP else 1) * (1 + number % 2 / 100)],
        FLAT: [_BASE_S * (1 + number % 3 / 100), 2 * _BASE_S],
        COUNTED: [4096],
    }
    stats = [[0.9], [1.1], [0.9], [1.1], [1], [5]]
    rows = {
        name: [result, BENCHMARKS[name]["params"], "1", 0, 1.5, *stats, [result * 500]]
        for name, result in values.items()
    }
    columns = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a"]
    columns += ["stats_ci_99_b", "stats_q_25", "stats_q_75", "stats_number", "stats_repeat"]
    return {
        "commit_hash": commit,
        "env_name": "existing-somewhere_venv_bin_python",
        "date": (1_700_000_000 + 3600 * number) * 1000,
        "params": {**MACHINE, "os": f"Linux {kernel}", "ram": str(number), "numpy": ""},
        "python": "/somewhere/venv/bin/python3.11",
        "requirements": {"numpy": ""},
        "env_vars": {"OMP_NUM_THREADS": str(number)},
        "result_columns": [*columns, "samples", "profile"],
        "results": rows,
        "durations": {"<build>": 3.5},
        "version": 2,
    }


def made_results(directory, commits):
    """Write what asv would have measured of some commits; return where it is, and what is kept."""
    left, kept = directory / "measured", directory / "kept"
    for place in (left / "made", kept / "made"):
        place.mkdir(parents=True)
        Path(place, "machine.json").write_text(json.dumps(MACHINE))
    Path(left, "benchmarks.json").write_text(json.dumps({**BENCHMARKS, "version": 2}))
    for number, commit in enumerate(commits):
        # an update of the kernel in between: the series has to go on
        result = measured(commit, number, kernel="6.1" if number < STEP - 2 else "6.12")
        Path(left, "made", f"{commit[:8]}-{number}.json").write_text(json.dumps(result))
    return left, kept


def published(directory):
    """Keep made results, and return the arguments to publish them with."""
    commits = made_repository(directory / "repository")
    left, kept = made_results(directory, commits)
    history.keep(left, kept)
    return {"results": kept, "html": directory / "html", "repository": directory / "repository"}
