"""``mmapstore ls``: the sessions on this machine, newest first."""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import TYPE_CHECKING, Any

import click

from ..dialect import DIALECTS
from ..jsonline import encode
from ..sessions import listing
from . import output
from .bar import Bar
from .opening import json_option
from .visible import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..sessions import Listing, Session

#: sessions shown on a terminal, if not asked for more
_ON_A_TERMINAL = 20
_TIME_COLUMNS = len("2026-01-02 03:04:05")
_TITLE_COLUMNS = 48
_LIMIT_DIGITS = 18
_UNKNOWN = "-"
_HEADINGS = ("LAST ACTIVITY", "DIALECT", "MESSAGES", "BYTES", "TITLE", "FILE")


def _limit(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Return the number that was given, or None for all."""
    if value is None:
        return _ON_A_TERMINAL if _on_a_terminal() else None
    if value == "all":
        return None
    if value.isascii() and value.isdecimal() and 0 < len(value.lstrip("0")) <= _LIMIT_DIGITS:
        return int(value)
    message = f"{value!r} is neither a number of 1 or more nor 'all'."
    raise click.BadParameter(message, context, parameter)


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "-n",
    "--limit",
    callback=_limit,
    metavar="N|all",
    help=f"How many sessions; on a terminal {_ON_A_TERMINAL} when not given, else all.",
)
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    type=click.Choice([dialect.name for dialect in DIALECTS]),
    metavar="NAME",
    help="Only sessions of this dialect; may be repeated.",
)
@json_option
def ls(
    paths: tuple[str, ...], *, limit: int | None, dialects: tuple[str, ...], as_json: bool
) -> int:
    """List the sessions of the agents installed here, newest first.

    With PATH, those in folders, to the bottom, and files. Each with its last activity, dialect,
    messages, size and title. Of a file that has changed, at most the first and the last 64 KiB
    are read; what they do not tell is shown as "-" (null with --json). The messages of a longer
    file are known once it has been opened.
    """
    with _collecting_nothing():
        return _listed(paths, limit, dialects, as_json=as_json)


@contextlib.contextmanager
def _collecting_nothing() -> Iterator[None]:
    # of ten thousand rows none is a cycle, and looking for one takes a tenth of the time
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _listed(
    paths: tuple[str, ...], limit: int | None, dialects: tuple[str, ...], *, as_json: bool
) -> int:
    with Bar("looking at sessions") as bar:
        found = listing(paths or None, progress=bar)
    sessions = [each for each in found.sessions if not dialects or each.dialect in dialects]
    shown = sessions[:limit]
    if as_json:
        output.write(b"".join([encode(_facts(session)) + b"\n" for session in shown]))
    elif shown:
        _print_table(shown)
    _mention(found, hidden=len(sessions) - len(shown))
    if not sessions:
        where = ", ".join(map(output.shown_path, paths)) or "the folders of the agents known here"
        output.note(f"no sessions in {where}")
    return 0


def _on_a_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _facts(session: Session) -> dict[str, Any]:
    return {
        "path": _shown(session.path),
        "dialect": session.dialect,
        "title": session.title,
        "messages": session.message_count,
        "nbytes": session.nbytes,
        "last_activity": session.last_activity,
        "session_id": session.session_id,
    }


def _shown(path: str) -> str:
    return path if path.isascii() else output.shown_path(path)


def _print_table(sessions: list[Session]) -> None:
    rows = [_cells(session) for session in sessions]
    heads = []
    if _on_a_terminal():
        # a pipe has one line a session
        heads = [_HEADINGS]
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    when, dialect, messages, nbytes, title, _ = widths
    form = f"%-{when}s  %-{dialect}s  %{messages}s  %{nbytes}s  %-{title}s  %s"
    for head in heads:
        output.line(output.styled(form % head, "bold"))
    output.write("".join([f"{form % row}\n" for row in rows]).encode())


def _cells(session: Session) -> tuple[str, ...]:
    count, title = session.message_count, session.title or _UNKNOWN
    if len(title) > _TITLE_COLUMNS:
        title = f"{title[: _TITLE_COLUMNS - 3]}..."
    return (
        (session.last_activity or _UNKNOWN)[:_TIME_COLUMNS].replace("T", " "),
        session.dialect or _UNKNOWN,
        _UNKNOWN if count is None else f"{count:,}",
        f"{session.nbytes:,}",
        _safe(title),
        _safe(_shown(session.path)),
    )


def _safe(text: str) -> str:
    # most are, and there may be ten thousand of them
    return text if text.isascii() and text.isprintable() else on_one_line(text)


def _mention(found: Listing, *, hidden: int) -> None:
    if hidden and output.talks():
        told = "1 older session" if hidden == 1 else f"{hidden:,} older sessions"
        output.note(f"{told}; -n all shows them")
    for trouble in found.troubles:
        output.note(f"{output.shown_path(trouble.path)}: {trouble.reason}")
    if count := found.compressed_count:
        told = "1 compressed session is" if count == 1 else f"{count:,} compressed sessions are"
        output.note(f"{told} left out; to unpack one: zstd -d FILE.jsonl.zst")
