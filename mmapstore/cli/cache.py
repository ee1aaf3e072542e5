"""``mmapstore cache``: the files that make the next opening cheap: where they are, and away."""

from __future__ import annotations

import datetime
from typing import NamedTuple

import click

from .. import cachedir, catalogue
from ..cache import read_header
from ..jsonline import encode
from . import output
from .opening import json_option
from .visible import counted, on_one_line

_UNREADABLE = "-"


@click.group(no_args_is_help=False)
def cache() -> None:
    """Show or clear the layout caches in the user's cache directory.

    A cache saves reading a whole transcript when it is opened again. Any of them may be
    removed at any time. MMAPSTORE_CACHE_DIR says where they are kept, else XDG_CACHE_HOME.
    """


@cache.command()
@json_option
def path(*, as_json: bool) -> int:
    """Print the directory."""
    directory = output.shown_path(cachedir.user_directory())
    if as_json:
        output.write(encode({"path": directory}) + b"\n")
    else:
        output.line(directory)
    return 0


class _Row(NamedTuple):
    nbytes: int
    used: str
    path: str | None
    messages: int | None
    dialect: str | None
    cache: str


def _rows() -> list[_Row]:
    rows = []
    for entry in cachedir.entries(cachedir.user_directory()):
        header = read_header(entry.path)
        rows.append(
            _Row(
                entry.nbytes,
                _spelled(entry.used_s),
                None if header is None else header.path,
                None if header is None else header.message_count,
                None if header is None else header.dialect_name,
                output.shown_path(entry.path),
            )
        )
    return rows


@cache.command("list")
@json_option
def list_(*, as_json: bool) -> int:
    """Print the layout caches, the last used first, and how many there are.

    Each with its size, transcript, messages and dialect; "-" (null with --json) where the
    file cannot be used. --json prints one object a cache.
    """
    rows = _rows()
    if as_json:
        output.write(b"".join([encode(row._asdict()) + b"\n" for row in rows]))
        return 0
    cells = [
        (
            f"{row.nbytes:,}",
            _UNREADABLE if row.messages is None else f"{row.messages:,}",
            row.dialect or _UNREADABLE,
            on_one_line(row.path or f"{_UNREADABLE} ({row.cache})"),
        )
        for row in rows
    ]
    total = (f"{sum(row.nbytes for row in rows):,}", f"{sum(row.messages or 0 for row in rows):,}")
    for nbytes, messages, dialect, transcript in cells:
        output.line(f"{nbytes:>15} bytes  {messages:>11} messages  {dialect:<12}  {transcript}")
    output.line(f"{total[0]:>15} bytes  {total[1]:>11} messages  in {counted(len(rows), 'cache')}")
    return 0


@cache.command()
@json_option
def clear(*, as_json: bool) -> int:
    """Remove the layout caches and the list of sessions that `ls` remembers; nothing else."""
    gone = [*cachedir.clear(cachedir.user_directory()), *catalogue.clear()]
    nbytes = sum(entry.nbytes for entry in gone)
    if as_json:
        output.write(encode({"removed": len(gone), "nbytes": nbytes}) + b"\n")
    else:
        files = counted(len(gone), "file")
        output.line(f"removed {files}, {counted(nbytes, 'byte')}")
    return 0


def _spelled(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(int(seconds), tz=datetime.UTC)
    return moment.isoformat().replace("+00:00", "Z")
