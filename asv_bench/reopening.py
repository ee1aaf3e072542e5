"""The promises of what is not the first look: reopened, looked up, appended to, listed.

Same contenders, rounds and verdicts as for the first look; what belongs to a process
as a whole, its first call and its private memory, is measured inside a fresh one.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import mmapstore

from . import measure
from .measure import interleave, ratio, timed
from .verdict import Row, skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .data import Files
    from .promises import Effort

_US, _S, _MIB = 1e3, 1e9, 1 << 20
_IDS = 1000

_NOT_QUICK = "not in a quick run"


@contextmanager
def _cached(files: Files, *names: str) -> Iterator[tuple[Path, list[Path]]]:
    """Give a cache directory in which the named files have their layouts and identities."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [files.path(name) for name in names]
        for path in paths:
            with mmapstore.open(path, cache_dir=directory) as transcript:
                transcript.position("")
        yield Path(directory), paths


def cached_open(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure opening with a cache and touching the newest window's first line."""
    names = ("records-small", "huge") if effort.large else ("records-small", "records-large")
    with _cached(files, *names) as (directory, paths):
        samples = interleave(
            {
                name: timed(measure.reopened(path, directory), effort.number // 10, warm=True)
                for name, path in zip(names, paths, strict=True)
            },
            effort.warm,
        )
        fresh = interleave(
            {
                name: measure.fresh_reopened(path, directory)
                for name, path in zip(names, paths, strict=True)
            },
            effort.fresh,
        )
    small, large = names
    us = {name: min(samples[name]) / _US for name in names}
    yield Row("cached_open", us[large], detail=f"{small} {us[small]:.0f} us")
    detail = f"{us[large]:.0f} us by {us[small]:.0f} us"
    if not effort.large:
        yield skipped("cached_open_larger", _NOT_QUICK)
        yield skipped("cached_process_larger", _NOT_QUICK)
        return
    yield Row("cached_open_larger", *ratio(samples, large, small), detail)
    us = {name: min(fresh[name]) / _US for name in names}
    detail = f"the process's first open: {us[large]:.0f} us by {us[small]:.0f} us"
    yield Row("cached_process_larger", *ratio(fresh, large, small), detail)


def host_refresh(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure taking in an append of the host's own, over histories of two sizes."""
    names = ("records-small", "records-large")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        contenders = {}
        for name in names:
            path = Path(directory, name)
            shutil.copyfile(files.path(name), path)
            transcript = stack.enter_context(mmapstore.open(path, cache_dir=None))
            contenders[name] = measure.appended(transcript, stack)
        samples = interleave(contenders, effort.warm)
    small, large = names
    us = {name: min(samples[name]) / _US for name in names}
    yield Row("host_refresh", us[large], detail="1 KB appended to 12,000 messages")
    detail = f"{us[large]:.1f} us by {us[small]:.1f} us"
    yield Row("host_refresh_longer", *ratio(samples, large, small), detail)


def lookup(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure finding a message by its id among a million, without decoding it."""
    if not effort.large:
        yield skipped("lookup", _NOT_QUICK)
        return
    with mmapstore.open(files.path("million"), cache_dir=None) as transcript:
        count = transcript.message_count
        # spread over the file, in an order that no cache of the processor foresees
        positions = [(number * 7919 * 1009) % count for number in range(_IDS)]
        ids = [transcript.message_id(position) for position in positions]
        lines = [bytes(transcript.line(position)) for position in positions]
        transcript.position(ids[0])
        samples = interleave(
            {
                "position": timed(lambda: [transcript.position(each) for each in ids], warm=True),
                "decode": timed(measure.decoded_lines(lines), warm=True),
            },
            effort.warm,
        )
    found, decoded = (min(samples[name]) / _IDS / _US for name in ("position", "decode"))
    detail = f"{found:.1f} us with the decoding of its line, {decoded:.1f} us without anything else"
    yield Row("lookup", found - decoded, detail=detail)


def memory(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure private memory: of a tail with a cached layout, and of a layout."""
    if effort.large:
        with _cached(files, "huge") as (directory, [path]):
            nbytes = measure.private_nbytes(
                f"t = mmapstore.open({str(path)!r}, cache_dir={str(directory)!r})\n"
                "assert t.cache == 'hit'\nkept = t.window(limit=100).messages"
            )
        yield Row("memory_tail", nbytes / _MIB, detail=f"{path.stat().st_size:,} bytes")
    else:
        yield skipped("memory_tail", _NOT_QUICK)
    path = files.path("million" if effort.large else "short-lines")
    with mmapstore.open(path, cache_dir=None) as transcript:
        count = transcript.message_count
    nbytes = measure.private_nbytes(
        f"t = mmapstore.open({str(path)!r}, cache_dir=None)\nt.position('')", release=True
    )
    detail = f"{count:,} messages with their identities"
    yield Row("memory_layout", nbytes / count, detail=detail)


def listing(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure ``mmapstore ls`` as a whole, the second time, over many sessions."""
    if not effort.large:
        yield skipped("listing", _NOT_QUICK)
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch, "home")
        lines = files.path("records-small").read_bytes()[:200_000].splitlines(keepends=True)
        for number in range(effort.sessions):
            folder = home / ".claude" / "projects" / f"project-{number % 100}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:08d}.jsonl").write_bytes(b"".join(lines[: 1 + number % 3]))
        run = measure.command(["ls", "--json"], home=home, cache=Path(scratch, "cache"))
        run()
        samples = interleave({"ls": timed(run)}, effort.fresh)
    seconds = min(samples["ls"]) / _S
    yield Row("listing", seconds, detail=f"{effort.sessions:,} sessions, the whole command")


#: in the order of the budget
PROMISES: tuple[Callable[[Files, Effort], Iterator[Row]], ...] = (
    cached_open,
    host_refresh,
    lookup,
    memory,
    listing,
)
