"""Growth: what each operation costs as a transcript grows from 1 MB to 8 GB.

    python -m asv_bench.growth [--max SIZE] [--json [FILE]] [--plot FILE] [--data DIR]
    python -m asv_bench.growth --from FILE [--plot FILE]

The command measures, prints a table, and says of each operation whether it is flat. With
``--from`` it reads the figures of an earlier run and measures nothing.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mmapstore.fileio import LockFile
from tools.gen_synthetic.nbytes import parse_nbytes

from . import data, figures, growing, machine, options, sized
from .figures import Growth
from .growing import Rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .growing import Cost

ROUNDS = Rounds(passes=9, looks=300, writes=250, refreshes=25)

#: left free on the disk, whatever is measured
_RESERVE_NBYTES = 4_000_000_000


def measured(
    directory: Path, sizes: Sequence[int], rounds: Rounds, *, talk: bool = False
) -> Growth:
    """Measure; sizes that the disk has no room for are left out and named.

    Raises
    ------
    BlockingIOError
        Another run is measuring in the directory.
    """
    directory.mkdir(parents=True, exist_ok=True)
    lock = LockFile(str(directory / "lock"), "a run of the growth benchmark")
    try:
        files: list[sized.Sized] = []
        left_out: dict[int, str] = {}
        for nbytes in sizes:
            _say(f"the file of {figures.size(nbytes)}" * talk)
            free = shutil.disk_usage(directory).free
            if sized.missing_nbytes(directory, nbytes) > max(0, free - _RESERVE_NBYTES):
                left_out[nbytes] = f"the disk has {figures.size(free)} free"
            else:
                files.append(sized.prepared(directory, nbytes))
        costs = []
        for cost in growing.costs(files, rounds):
            _say(f"{cost.operation} is measured" * talk)
            costs.append(cost)
        _say("")
        return collected(costs, left_out)
    finally:
        lock.close()


def collected(costs: Iterable[Cost], left_out: dict[int, str]) -> Growth:
    """Return what was measured, operations and sizes in their order."""
    by_operation: dict[str, list[Cost]] = {operation: [] for operation in growing.OPERATIONS}
    for cost in sorted(costs, key=lambda cost: cost.nbytes):
        by_operation[cost.operation].append(cost)
    ns = {name: {cost.nbytes: cost.ns for cost in found} for name, found in by_operation.items()}
    fetched = {
        name: {cost.nbytes: cost.disk_nbytes for cost in found if cost.disk_nbytes}
        for name, found in by_operation.items()
    }
    return Growth(
        machine.facts(),
        {name: by_size for name, by_size in ns.items() if by_size},
        {name: by_size for name, by_size in fetched.items() if by_size},
        left_out,
    )


def report(growth: Growth) -> str:
    """Return figures as text: what the operations are, the table, the verdicts."""
    width = max(map(len, growth.ns))
    meanings = [f"{name:>{width}}: {growing.OPERATIONS.get(name, '')}" for name in growth.ns]
    return "\n".join([*meanings, "", figures.table(growth)])


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or read, print the table, write the figures and draw the plot."""
    parser = options.parser("growth", __doc__, kept=True)
    parser.add_argument(
        "--max", type=parse_nbytes, default=sized.SIZES[-1], metavar="SIZE", help="as 256MB"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them here, as SVG")
    chosen = parser.parse_args(arguments)
    sizes = [nbytes for nbytes in sized.SIZES if nbytes <= chosen.max]
    if not sizes:
        parser.error(f"the smallest size is {figures.size(sized.SIZES[0])}")
    if chosen.source:
        growth = figures.read(chosen.source)
    else:
        directory = (chosen.data or data.default_directory()) / "growth"
        growth = measured(directory, sizes, ROUNDS, talk=True)
    if chosen.json:
        Path(chosen.json).write_text(figures.as_json(growth), encoding="utf-8")
    if chosen.plot:
        from . import plot_growth  # measuring needs nothing of what it draws with

        chosen.plot.write_text(plot_growth.draw(growth), encoding="utf-8")
    print(figures.as_json(growth) if chosen.json == "" else report(growth))
    return 0


if __name__ == "__main__":
    sys.exit(main())
