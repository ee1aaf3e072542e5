"""The options that the programs of the benchmarks share, each declared once."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser(
    module: str,
    description: str | None,
    *,
    quick: str | None = None,
    as_json: bool = True,
    kept: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser with ``--data``, and with the others where they apply.

    Parameters
    ----------
    module : str
        The program's, within this package.
    description : str
        Its docstring.
    quick : str, optional
        What a quick run leaves out, if there is one.
    as_json : bool
        Whether the program prints JSON, too.
    kept : bool
        Whether its figures can be kept in a file, and shown again.
    """
    made = argparse.ArgumentParser(
        prog=f"python -m asv_bench.{module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if quick is not None:
        made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument("--data", type=Path, help="where the measured files are kept")
    if kept:
        made.add_argument(
            "--json",
            nargs="?",
            const="",
            metavar="FILE",
            help="one JSON object in place of the table, or in a file",
        )
        made.add_argument(
            "--from",
            type=Path,
            dest="source",
            metavar="FILE",
            help="measure nothing, show what is kept there",
        )
    elif as_json:
        made.add_argument(
            "--json", action="store_true", help="one JSON object in place of the table"
        )
    return made
