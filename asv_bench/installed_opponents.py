"""The opponents that may not be installed: each is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from .measure import WINDOW_COUNT
from .tasks import asked, line_by_line

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from .tasks import Task


def prepare_msgspec(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    import msgspec

    class Head(msgspec.Struct):
        type: str

    head = msgspec.json.Decoder(Head).decode
    whole = msgspec.json.Decoder().decode
    return line_by_line(path, wanted, lambda line: head(line).type, whole)


def prepare_simdjson(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    import simdjson

    parser = simdjson.Parser()
    parse = parser.parse
    return line_by_line(
        path, wanted, lambda line: parse(line)["type"], lambda line: parse(line, True)
    )


def prepare_polars(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    import polars as pl

    message = pl.col("type") == "message"

    def scan() -> pl.LazyFrame:
        return pl.scan_ndjson(path, infer_schema_length=1000)

    def kinds() -> dict[str, int]:
        types = pl.scan_ndjson(path, schema={"type": pl.String})
        return dict(types.group_by("type").len().collect().rows())

    return asked(
        lambda: scan().filter(message).tail(WINDOW_COUNT).collect().to_dicts(),
        lambda: scan().filter(message & (pl.col("id") == wanted)).tail(1).collect().to_dicts()[0],
        kinds,
    )


def prepare_duckdb(path: Path, wanted: str, directory: Path) -> dict[str, Task]:
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    objects = (
        "WITH message AS (SELECT json, row_number() OVER () AS number"
        " FROM read_ndjson_objects(?) WHERE json->>'type' = 'message')"
    )
    types = "SELECT type, count(*) FROM read_ndjson(?, columns={type: 'VARCHAR'}) GROUP BY type"

    def rows(query: str, *values: str) -> list[Any]:
        return connection.execute(query, [str(path), *values]).fetchall()

    def newest() -> list[dict[str, Any]]:
        found = rows(
            f"{objects} SELECT json FROM message ORDER BY number DESC LIMIT {WINDOW_COUNT}"
        )
        return [orjson.loads(text) for (text,) in reversed(found)]

    def by_id() -> dict[str, Any]:
        last = "SELECT json FROM message WHERE json->>'id' = ? ORDER BY number DESC LIMIT 1"
        return orjson.loads(rows(f"{objects} {last}", wanted)[0][0])

    return asked(newest, by_id, lambda: dict(rows(types)))
