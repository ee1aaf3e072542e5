"""The proof of the comparison: slowdowns that are planted in a copy of the library.

    python -m asv_bench.planted [--of VERSION] [--plant NAME ...] [--nothing COUNT] [--data DIR]

Each plant makes one function of a copy take half as long again as it took, and the comparison
of the copy with the original must flag exactly the operations that this function is the most
of; without a plant it must flag none. The functions are chosen so that they are nearly all of
some operations and next to nothing of the others: one that is a fifth of an operation would
make it a tenth slower, and that is the threshold.

Exit code 1 if another operation was flagged, or one was not. Takes minutes a plant.
"""

from __future__ import annotations

import compileall
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import data, options
from .compare import SLOWER, measured_trees, table
from .operations import OPERATIONS
from .trees import PACKAGE, NoSuchTreeError, Tree, extracted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .compare import Comparison

_SLOWER = """

def _planted(function):
    import functools
    import time

    @functools.wraps(function)
    def slower(*args, **kwargs):
        start = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            now = time.perf_counter_ns()
            until = now + (now - start) // 2
            while time.perf_counter_ns() < until:
                pass

    return slower


{name} = _planted({name})
"""


@dataclass(frozen=True, slots=True)
class Plant:
    """A function, and what must be flagged if it is slower.

    Attributes
    ----------
    module : str
        Path of its module within the package, without the suffix.
    name : str
        The function, with its class if it has one.
    flagged : frozenset of str
        The operations, and no others.
    """

    module: str
    name: str
    flagged: frozenset[str]


def _plant(module: str, name: str, *flagged: str) -> Plant:
    return Plant(module, name, frozenset(flagged))


PLANTS = {
    "scan": _plant("layout", "build", *(name for name in OPERATIONS if name.startswith("cold"))),
    "open": _plant(
        "loader", "Loader.open", *(name for name in OPERATIONS if name.startswith("cold")), "reopen"
    ),
    "decode": _plant("decode", "decode_distinct", "decoded"),
    "lookup": _plant("transcript", "Transcript.position", "lookup"),
    "append": _plant("host/appends", "Appends.append_messages", "append", "append_batch"),
    "review": _plant("host/appends", "Appends.set_review_state", "review"),
    "update": _plant("host/edits", "Edits.update_message", "update"),
    "truncate": _plant("host/edits", "Edits.truncate_from", "truncate"),
    "listing": _plant("sessions", "listing", "listing"),
}


def plant(root: Path, one: Plant) -> None:
    """Make a function of the package in `root` half as slow again."""
    path = root / PACKAGE / f"{one.module}.py"
    with open(path, "a") as file:
        file.write(_SLOWER.format(name=one.name))
    compileall.compile_file(path, quiet=2)


def flagged(rows: Sequence[Comparison]) -> frozenset[str]:
    """Return the operations of which a row is slower."""
    return frozenset(row.operation for row in rows if row.verdict == SLOWER)


def judged(name: str, expected: frozenset[str], rows: Sequence[Comparison]) -> bool:
    """Print what was flagged, and return whether that is what was to be."""
    found = flagged(rows)
    print(f"\n== {name}: {'as it must be' if found == expected else 'NOT AS IT MUST BE'}")
    for label, names in (("not flagged", expected - found), ("flagged", found - expected)):
        if names:
            print(f"{label}, but must{' not' if label == 'flagged' else ''} be: {sorted(names)}")
    print(table(rows), flush=True)
    return found == expected


def proven(version: str | None, plants: Sequence[str], nothing_count: int, directory: Path) -> bool:
    """Compare copies of a version with it, and return whether all was flagged as it must be."""
    with tempfile.TemporaryDirectory() as scratch:
        base = extracted(version, Path(scratch, "-", "base"))
        good = True
        for number, name in enumerate([*[None] * nothing_count, *plants]):
            # a path as long as the other's
            copy = extracted(str(base.root), Path(scratch, str(number), "base"))
            if name is not None:
                plant(copy.root, PLANTS[name])
            head = Tree(copy.root, name or "nothing planted")
            rows = measured_trees(base, head, list(OPERATIONS), directory)
            expected = frozenset() if name is None else PLANTS[name].flagged
            good = judged(head.name, expected, rows) and good
    return good


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, compare, print, and return 1 if something else was flagged."""
    parser = options.parser("planted", __doc__, as_json=False)
    parser.add_argument("--of", help="a revision or directory; the working tree if not given")
    parser.add_argument(
        "--plant",
        nargs="*",
        default=list(PLANTS),
        choices=PLANTS,
        metavar="NAME",
        help=", ".join(PLANTS),
    )
    parser.add_argument("--nothing", type=int, default=2, help="comparisons without a plant (2)")
    chosen = parser.parse_args(arguments)
    directory = chosen.data or data.default_directory()
    try:
        return 0 if proven(chosen.of, chosen.plant, chosen.nothing, directory) else 1
    except NoSuchTreeError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
