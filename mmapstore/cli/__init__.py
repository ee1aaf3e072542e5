"""The command line: ``mmapstore VERB FILE``, one module a verb.

The only code of the package that prints. Data goes to standard output as UTF-8
bytes, whatever the locale; talk goes to standard error. A file that is looked at
is never written. click and rich are an extra: without them :func:`main` says how to get them.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_EXTRA = ("click", "rich")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments after the program's name; by default those of this process.

    Returns
    -------
    code : int
        0 done; 1 the answer is no; 2 usage; 3 data error, or the system could not read or write;
        4 not found; 5 locked; 130 interrupted; 141 whoever read the output went away.
    """
    # rich is looked for and not imported: most commands run without it
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        if sys.stderr is not None:
            sys.stderr.write(
                f"mmapstore: error: the command line needs {' and '.join(missing)}; "
                "pip install 'mmapstore[cli]' (from a checkout: pip install '.[cli]')\n"
            )
        return 2
    try:
        from .run import run

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # while modules were being imported
        return 130
