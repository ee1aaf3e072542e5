"""The promises, each measured: files and contenders in, rows of the budget out.

The report and asv call the same functions, so the two never measure different things.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mmapstore

from . import compiled, measure
from .compiled import UnavailableError
from .measure import interleave, ratio, timed
from .verdict import Row, skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .data import Files

_US, _MS = 1e3, 1e6


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured.

    Attributes
    ----------
    cold, warm, fresh, read : int
        Rounds of full scans, of windows, of interpreters, and of full sequential reads.
    number : int
        Windows in a batch; a tenth of it where they are decoded.
    large : bool
        Whether the file of a million messages and the one of 2 GB are measured, too.
    sessions : int
        Sessions that are listed.
    """

    cold: int
    warm: int
    fresh: int
    read: int
    number: int = 200
    large: bool = True
    sessions: int = 10_000


THOROUGH = Effort(cold=25, warm=100, fresh=25, read=12)
QUICK = Effort(cold=7, warm=25, fresh=9, read=4, large=False)
ONCE = Effort(cold=1, warm=1, fresh=1, read=1, number=10, sessions=20)


def cold_type_first(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the scan of the records' large file."""
    return _by_bare_pass("cold_type_first", files.path("records-large"), effort)


def cold_type_last(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the scan of the same messages in the previous key order."""
    return _by_bare_pass("cold_type_last", files.path("type-last"), effort)


def cold_short_lines(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the scan of many short lines."""
    return _by_bare_pass("cold_short_lines", files.path("short-lines"), effort)


def cold_claude(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the scan of Claude's lines beside the compiled one."""
    path, source = files.claude()
    try:
        program = compiled.build(files.directory)
    except UnavailableError as error:
        yield skipped("cold_claude", str(error))
        return
    check_equal_work(program, path, "claude")
    samples = interleave(
        {
            "layout": measure.cold_layout(path, measure.COMPILED_REPETITIONS),
            "compiled": measure.compiled_scan(program, path, "claude"),
            "bare": timed(measure.bare_pass(path)),
        },
        effort.cold,
    )
    detail = f"{_ms(samples, 'layout')} by {_ms(samples, 'compiled')}, "
    detail += f"bare pass {_ms(samples, 'bare')}; {source}"
    yield Row("cold_claude", *ratio(samples, "layout", "compiled"), detail)


def warm_windows(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the warm window over histories of different sizes, all in the same rounds."""
    names = ["records-small", "records-large", "reviews"]
    names += ["million"] * effort.large
    with ExitStack() as stack:
        contenders = {
            name: timed(
                measure.warm_window(
                    stack.enter_context(
                        mmapstore.open(files.path(name), access="mmap", cache_dir=None)
                    )
                ),
                effort.number,
                warm=True,
            )
            for name in names
        }
        samples = interleave(contenders, effort.warm)
    us = {name: f"{min(samples[name]) / _US:.2f} us" for name in names}
    large = min(samples["records-large"]) / _US
    yield Row("window_warm", large, detail="over 12,000 messages")
    for key, name in (
        ("window_longer", "records-large"),
        ("window_million", "million"),
        ("window_reviews", "reviews"),
    ):
        if name in samples:
            detail = f"{us[name]} by {us['records-small']}"
            yield Row(key, *ratio(samples, name, "records-small"), detail)
        else:
            yield skipped(key, "not in a quick run")


def decoded_long(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure decoding a window of long lines."""
    return _by_loads("decoded_long", files.path("records-large"), effort)


def decoded_short(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure decoding a window of short lines."""
    return _by_loads("decoded_short", files.path("short-lines"), effort)


def records(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the records' own case, beside the full sequential read of both files."""
    names = ("records-small", "records-large")
    reads = interleave(
        {name: timed(measure.sequential_read(files.path(name))) for name in names}, effort.read
    )
    with ExitStack() as stack:
        contenders = {
            name: timed(
                measure.newest_messages(
                    stack.enter_context(mmapstore.open(files.path(name), cache_dir=None))
                ),
                effort.number // 10,
                warm=True,
            )
            for name in names
        }
        samples = interleave(contenders, effort.warm)
    for key, name in zip(("records_small", "records_large"), names, strict=True):
        detail = f"full sequential read {_ms(reads, name)}"
        yield Row(key, min(samples[name]) / _MS, detail=detail)


def importing(files: Files, effort: Effort) -> Iterator[Row]:
    """Measure the import above what it cannot do without."""
    samples = interleave(
        {
            "above": measure.fresh_import("mmapstore", after="numpy, orjson"),
            "needed": measure.fresh_import("numpy, orjson", after="sys"),
        },
        effort.fresh,
    )
    above = [ns / _MS for ns in samples["above"]]
    detail = f"numpy and orjson {_ms(samples, 'needed')}"
    yield Row("import", min(above), statistics.median(above), detail)


#: in the order of the budget; each gives one row or more
PROMISES: tuple[Callable[[Files, Effort], Iterator[Row]], ...] = (
    cold_type_first,
    cold_type_last,
    cold_short_lines,
    cold_claude,
    warm_windows,
    decoded_long,
    decoded_short,
    records,
    importing,
)


def check_equal_work(program: compiled.CompiledScan, path: Path, dialect: str) -> None:
    """Compare what the compiled scan and the library found in a file.

    Raises
    ------
    RuntimeError
        They differ, so their times must not be compared.
    """
    answer = program.run(path, compiled.MESSAGE_TYPES[dialect])
    with mmapstore.open(path, cache_dir=None) as transcript:
        layout = transcript.layout
        # A Claude summary is a user's line by its type; the library looks further.
        summaries = answer["messages"] - len(layout.message_offsets)
        ours = (transcript.dialect.name, layout.line_count, layout.file_len)
        possible = range(len(layout.compaction_offsets) + 1)
    theirs = (dialect, answer["lines"], answer["nbytes"] - answer["torn_nbytes"])
    if ours != theirs or summaries not in possible:
        message = f"{path.name}: {ours} and {theirs}, {summaries} message lines apart"
        raise RuntimeError(message)


def _by_bare_pass(key: str, path: Path, effort: Effort) -> Iterator[Row]:
    samples = interleave(
        {"layout": measure.cold_layout(path), "bare": timed(measure.bare_pass(path))},
        effort.cold,
    )
    detail = f"{_ms(samples, 'layout')} by {_ms(samples, 'bare')}"
    yield Row(key, *ratio(samples, "layout", "bare"), detail)


def _by_loads(key: str, path: Path, effort: Effort) -> Iterator[Row]:
    number = effort.number // 10
    with mmapstore.open(path, cache_dir=None) as transcript:
        lines = [bytes(line) for line in transcript.window(limit=measure.WINDOW_COUNT).lines]
        samples = interleave(
            {
                "window": timed(measure.decoded_window(transcript), number, warm=True),
                "loads": timed(measure.decoded_lines(lines), number, warm=True),
            },
            effort.warm,
        )
    detail = f"{_ms(samples, 'window')} by {_ms(samples, 'loads')}"
    yield Row(key, *ratio(samples, "window", "loads"), detail)


def _ms(samples: measure.Samples, name: str) -> str:
    return f"{min(samples[name]) / _MS:.3g} ms"
