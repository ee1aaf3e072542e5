"""A progress bar on standard error, if that is a terminal and rich is installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from .output import Progress


@contextmanager
def progress_bar(nbytes: int) -> Iterator[Progress | None]:
    """Give what to call with (done, total), or None where a bar would be in the way."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield None
        return
    parts = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*parts, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("generating", total=nbytes)
        yield lambda done, total: bar.update(task, completed=done, total=total)
