"""The opponents: each question answered with one library, as well as its users would.

Each works on bytes where it can, decodes no more than it has to, and looks for an id
with a plain search before it decodes the line. What it cannot answer is left out.
"""

from __future__ import annotations

import linecache
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import orjson

import mmapstore

from . import compiled
from .installed_opponents import prepare_duckdb, prepare_msgspec, prepare_polars, prepare_simdjson
from .measure import WINDOW_COUNT, compiled_scan
from .tasks import Task, UnfitError, asked, counts, line_by_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_STEP_NBYTES = 1 << 20


def _mmapstore(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    kept = mmapstore.open(path, cache_dir=None)

    def newest() -> list[dict[str, Any]]:
        with mmapstore.open(path, cache_dir=None) as transcript:
            return transcript.window(limit=WINDOW_COUNT).messages

    def newest_again() -> list[dict[str, Any]]:
        kept.refresh()
        return kept.window(limit=WINDOW_COUNT).messages

    def by_id() -> dict[str, Any]:
        with mmapstore.open(path, cache_dir=None) as transcript:
            return transcript.message(wanted)

    def by_id_again() -> dict[str, Any]:
        kept.refresh()
        return kept.message(wanted)

    def kinds() -> dict[str, int]:
        with mmapstore.open(path, cache_dir=None) as transcript:
            layout = transcript.layout
            return {
                "message": len(layout.message_offsets),
                "compaction": len(layout.compaction_offsets),
                "tool_review_state": len(layout.review_offsets),
            }

    return asked(newest, by_id, kinds, newest_again, by_id_again)


def _orjson(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    # The loop decodes a line to know its kind; decoding the last hundred again is 1 % of it.
    loads = orjson.loads
    return line_by_line(path, wanted, lambda line: loads(line)["type"], loads)


def _orjson_kept(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    """Keep every message decoded: nothing is faster, and nothing holds more memory."""
    held: dict[str, Any] = {}

    def load() -> None:
        status = os.stat(path)
        with open(path, "rb") as file:
            records = [orjson.loads(line) for line in file]
        held["messages"] = [record for record in records if record["type"] == "message"]
        held["by_id"] = {record["id"]: record for record in held["messages"]}
        held["kinds"] = Counter(record["type"] for record in records)
        held["stamp"] = (status.st_ino, status.st_size, status.st_mtime_ns)

    def look() -> None:
        status = os.stat(path)
        if held.get("stamp") != (status.st_ino, status.st_size, status.st_mtime_ns):
            load()

    def newest() -> list[dict[str, Any]]:
        load()
        return held["messages"][-WINDOW_COUNT:]

    def newest_again() -> list[dict[str, Any]]:
        look()
        return held["messages"][-WINDOW_COUNT:]

    def by_id() -> dict[str, Any]:
        load()
        return held["by_id"][wanted]

    def by_id_again() -> dict[str, Any]:
        look()
        return held["by_id"][wanted]

    return asked(newest, by_id, None, newest_again, by_id_again)


def _orjson_backwards(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    """Read back from the end until there are enough: no positions, no total, no look-ups."""

    def lines() -> Iterator[bytes]:
        with open(path, "rb") as file:
            at = file.seek(0, os.SEEK_END)
            rest = b""
            while at:
                nbytes = min(_STEP_NBYTES, at)
                at -= nbytes
                file.seek(at)
                rest, *whole = (file.read(nbytes) + rest).split(b"\n")
                yield from reversed(whole)
            yield rest

    def newest() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in lines():
            record = orjson.loads(line) if line else {}
            if record.get("type") == "message":
                found.append(record)
                if len(found) == WINDOW_COUNT:
                    break
        return found[::-1]

    return asked(newest)


def _linecache(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    name = str(path)

    def lines(*, again: bool) -> list[str]:
        if again:
            linecache.checkcache(name)
        else:
            linecache.clearcache()
        return linecache.getlines(name)

    def newest(*, again: bool = False) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for line in reversed(lines(again=again)):
            record = orjson.loads(line)
            if record["type"] == "message":
                found.append(record)
                if len(found) == WINDOW_COUNT:
                    break
        return found[::-1]

    def by_id(*, again: bool = False) -> dict[str, Any]:
        for line in reversed(lines(again=again)):
            if wanted in line:
                record = orjson.loads(line)
                if record["type"] == "message" and record["id"] == wanted:
                    return record
        raise LookupError(wanted)

    return asked(
        newest,
        by_id,
        lambda: Counter(orjson.loads(line)["type"] for line in lines(again=False)),
        lambda: newest(again=True),
        lambda: by_id(again=True),
    )


def _compiled(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    try:
        program = compiled.build(directory)
    except compiled.UnavailableError as error:
        raise UnfitError(str(error)) from error
    types = compiled.MESSAGE_TYPES["native"]
    return {
        "kinds": Task(
            lambda: counts(program.run(path, types)["types"]),
            compiled_scan(program, path, "native"),
        )
    }


#: each takes a native file, the id that will be asked for, and where programs may be built
OPPONENTS: dict[str, Callable[[Path, str, Path], dict[str, Task]]] = {
    "mmapstore": _mmapstore,
    "orjson loop": _orjson,
    "orjson, all kept decoded": _orjson_kept,
    "orjson, backwards": _orjson_backwards,
    "msgspec": prepare_msgspec,
    "pysimdjson": prepare_simdjson,
    "polars scan_ndjson": prepare_polars,
    "duckdb read_ndjson": prepare_duckdb,
    "linecache": _linecache,
    "compiled scan": _compiled,
}
