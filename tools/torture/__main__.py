"""Run a torture: ``python -m tools.torture kills --cycles 1000 --seed 7``."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from .report import Report

NAMES = ("kills", "syscalls", "strace", "power", "readers", "clients", "nofile")


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; return 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--cycles", type=int, help="rounds; without it, the full form")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", type=Path, help="where to work, on another disk for instance"
    )
    given = parser.parse_args(arguments)
    torture = importlib.import_module(f"{__package__}.{given.name}")
    if given.directory:
        given.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"torture-{given.name}-", dir=given.directory))
    report = Report(given.name)
    cycles = torture.CYCLES if given.cycles is None else given.cycles
    try:
        torture.run(directory, cycles, given.seed, report)
    except Exception:  # noqa: BLE001 - whatever it was, it is what was looked for
        traceback.print_exc()
        print(report.summary().replace("held", "DID NOT HOLD"))
        print(f"seed {given.seed}; what is left: {directory}")
        return 1
    shutil.rmtree(directory)
    print(report.summary())
    return 0


if __name__ == "__main__":
    sys.exit(main())
