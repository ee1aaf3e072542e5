"""A look at what the library is for: two generated transcripts, opened, paged, compared.

The files are those of the decision record behind the layout index: 3,000 messages
in 32 MB and 12,000 in 129 MB. Each is opened cold and warm and paged back to its
first message, and every time is put beside parsing the whole file. Times are the
best of several rounds on a warm page cache.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import mmapstore
from tools.gen_synthetic import RECORDS_LARGE, RECORDS_SMALL, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.gen_synthetic import Spec

FOLDER = Path(".demo")
ROUNDS = 7


def main() -> None:
    """Generate the files if they are not there, then show and measure."""
    console = Console(highlight=False)
    console.print(f"Two transcripts of made-up words, 161 MB in all, are kept in {FOLDER}/.\n")
    paths = {
        "32 MB": generated(FOLDER / "records-3000.jsonl", RECORDS_SMALL),
        "129 MB": generated(FOLDER / "records-12000.jsonl", RECORDS_LARGE),
    }
    show_newest(console, paths["129 MB"])
    table = Table(title="milliseconds, best of several rounds", title_justify="left")
    table.add_column("what", no_wrap=True)
    for size in paths:
        table.add_column(size, justify="right", no_wrap=True)
    for what, measured in (
        ("first open: one pass over the bytes", cold),
        ("every later one, from a cache", reopened),
        ("newest 100 messages, decoded", warm),
        ("the 100 before them, decoded", older),
        ("page back to the first, not decoded", paged_back),
        ("page back to the first, all decoded", decoded_back),
        ("beside it: orjson.loads of every line", parse_all),
    ):
        table.add_row(what, *(f"{best(measured, path):.2f}" for path in paths.values()))
    console.print(table)


def generated(path: Path, spec: Spec) -> Path:
    """Return `path`, written from `spec` unless it already is there."""
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        # without a terminal nothing is drawn, and nothing is left to be cleared away
        with Progress(transient=True, disable=not sys.stdout.isatty()) as bar:
            task = bar.add_task(f"generating {path}", total=spec.nbytes)
            write(spec, path, progress=lambda done, _: bar.update(task, completed=done))
    return path


def show_newest(console: Console, path: Path) -> None:
    """Print the newest messages, a line each."""
    with mmapstore.open(path, cache_dir=None) as t:
        window = t.window(limit=5)
        console.print(f"{path}: {t.message_count:,} messages, the newest {len(window)}:")
        for position, message in zip(window.message_positions, window.messages, strict=True):
            text = " ".join(t.dialect.text(message).split())
            line = f"  {position:>6}  {t.dialect.role(message):<9}  {text}"
            console.print(line[: console.width - 1], markup=False, no_wrap=True)
    console.print()


def cold(path: Path) -> Callable[[], object]:
    """Return what opens a transcript that nothing is known of."""
    return lambda: mmapstore.open(path, cache_dir=None).close()


def reopened(path: Path) -> Callable[[], object]:
    """Return what opens a transcript whose layout was kept."""
    mmapstore.open(path, cache_dir=FOLDER / "cache").close()
    return lambda: mmapstore.open(path, cache_dir=FOLDER / "cache").close()


def warm(path: Path) -> Callable[[], object]:
    """Return what refreshes and decodes the newest page of an open transcript."""
    t = mmapstore.open(path, cache_dir=None)
    return lambda: (t.refresh(), t.window(limit=100).messages)


def older(path: Path) -> Callable[[], object]:
    """Return what decodes the second newest page."""
    t = mmapstore.open(path, cache_dir=None)
    start = t.window(limit=100).start
    return lambda: t.window(before=start, limit=100).messages


def pages(t: mmapstore.Transcript, look: Callable[[mmapstore.Window], object]) -> None:
    """Walk back through all pages to the first message."""
    window = t.window(limit=100)
    look(window)
    while window.has_before:
        window = t.window(before=window.start, limit=100)
        look(window)


def paged_back(path: Path) -> Callable[[], object]:
    """Return what walks back and touches the first line of every page."""
    t = mmapstore.open(path, cache_dir=None)
    return lambda: pages(t, lambda window: window.lines[0])


def decoded_back(path: Path) -> Callable[[], object]:
    """Return what walks back and decodes every page."""
    t = mmapstore.open(path, cache_dir=None)
    return lambda: pages(t, lambda window: window.messages)


def parse_all(path: Path) -> Callable[[], object]:
    """Return what a tool without a layout does for the newest page."""

    def parse() -> list[object]:
        with path.open("rb") as file:
            return [orjson.loads(line) for line in file][-100:]

    return parse


def best(measured: Callable[[Path], Callable[[], object]], path: Path) -> float:
    """Return the shortest of several runs, milliseconds."""
    run = measured(path)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - began)
    return min(times) / 1e6


if __name__ == "__main__":
    main()
