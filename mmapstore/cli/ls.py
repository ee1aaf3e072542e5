"""``mmapstore ls``: the sessions on this machine, newest first.

A terminal gets one line a session, whatever its width: title and path are cut to fit. A
pipe gets both whole.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from ..dialect import DIALECTS
from ..jsonline import encode
from ..sessions import listing
from . import output
from .bar import Bar
from .opening import json_option
from .visible import counted, cut, on_one_line, width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..sessions import Listing, Session

#: sessions shown on a terminal, if not asked for more
_ON_A_TERMINAL = 20
_DAY_LENGTH, _MINUTE_LENGTH, _TIME_LENGTH = 10, 16, 19
#: behind a time that is the file's and no line's
_OF_THE_FILE = "*"
_TITLE_COLUMNS = 48
#: of what a terminal has for title and path together, the share that a long title gets
_TITLE_SHARE = 0.4
_LEAST_COLUMNS = 8
_GAP = 2
_LIMIT_DIGITS = 18
_UNKNOWN = "-"
_HEADINGS = ("LAST ACTIVITY", "DIALECT", "MESSAGES", "SIZE", "TITLE", "FILE")


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
    messages, size and title. Times are UTC; one with a * is the file's own, where no line that
    was read has a time (last_activity is null, and "modified" tells it, with --json). Of a file that has changed, at most the first and the last 64 KiB
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
    if not sessions and not found.refused:
        where = ", ".join(map(output.shown_path, paths)) or "the folders of the agents known here"
        output.note(f"no sessions in {where}")
    return 3 if found.refused else 0


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
        "modified": session.modified,
        "session_id": session.session_id,
    }


def _shown(path: str) -> str:
    return path if path.isascii() else output.shown_path(path)


def _print_table(sessions: list[Session]) -> None:
    if _on_a_terminal():
        _print_fitted(sessions, shutil.get_terminal_size().columns)
        return
    rows = [_cells(session) for session in sessions]
    when, dialect, messages, nbytes, title, _ = (
        max(map(len, cells)) for cells in zip(*rows, strict=True)
    )
    form = f"%-{when}s  %-{dialect}s  %{messages}s  %{nbytes}s  %-{title}s  %s\n"
    output.write("".join([form % row for row in rows]).encode())


def _cells(session: Session) -> tuple[str, ...]:
    count, title = session.message_count, session.title or _UNKNOWN
    if len(title) > _TITLE_COLUMNS:
        title = f"{title[: _TITLE_COLUMNS - 3]}..."
    return (
        _when(session, _TIME_LENGTH),
        session.dialect or _UNKNOWN,
        _UNKNOWN if count is None else f"{count:,}",
        f"{session.nbytes:,}",
        _safe(title),
        _safe(_shown(session.path)),
    )


def _when(session: Session, length: int) -> str:
    """Return what the session is sorted by, so much of it."""
    time = session.last_activity or session.modified
    if time is None:
        return _UNKNOWN
    mark = "" if session.last_activity else _OF_THE_FILE
    return f"{time[:_DAY_LENGTH]} {time[_DAY_LENGTH + 1 : length]}Z{mark}"


# -- for a terminal -----------------------------------------------------------------------


def _print_fitted(sessions: list[Session], columns: int) -> None:
    """Print rows under headings, none longer than the terminal is wide, if it is not narrow."""
    rows = [_HEADINGS, *map(_short_cells, sessions)]
    when, dialect, messages, size = (
        max(map(len, cells)) for cells in list(zip(*rows, strict=True))[:4]
    )
    form = f"%-{when}s  %-{dialect}s  %{messages}s  %{size}s  "
    room = columns - len(form % _HEADINGS[:4]) - _GAP
    room = max(room, _LEAST_COLUMNS + len(_HEADINGS[-1]))
    titles, paths = (max(width(row[at]) for row in rows) for at in (4, 5))
    title = min(titles, max(int(room * _TITLE_SHARE), room - paths))
    for number, row in enumerate(rows):
        shown = cut(row[4], title)
        padding = " " * (title - width(shown) + _GAP)
        line = f"{form % row[:4]}{shown}{padding}{cut(row[5], room - title, keep_end=True)}"
        output.line(line if number else output.styled(line, "bold"))
    if paths > room - title:
        _note_for_people("paths are cut to fit; a pipe gets them whole: mmapstore ls | cat")
    if any(not session.last_activity for session in sessions):
        _note_for_people(f"{_OF_THE_FILE} the file's own time: no line that was read has one")


def _short_cells(session: Session) -> tuple[str, ...]:
    home, path = os.path.expanduser("~"), session.path
    if path.startswith(f"{home}{os.sep}"):
        path = f"~{path[len(home) :]}"
    _, dialect, messages, _, title, _ = _cells(session)
    when = _when(session, _MINUTE_LENGTH)
    return when, dialect, messages, _size(session.nbytes), title, _safe(_shown(path))


def _size(nbytes: int) -> str:
    """Return a size in three digits or so, and a unit."""
    size, unit = float(nbytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if size < 9.95 and unit != "B" else f"{size:.0f} {unit}"


def _note_for_people(text: str) -> None:
    if output.talks():
        output.note(text)


def _safe(text: str) -> str:
    # most are, and there may be ten thousand of them
    return text if text.isascii() and text.isprintable() else on_one_line(text)


def _mention(found: Listing, *, hidden: int) -> None:
    if hidden:
        _note_for_people(f"{counted(hidden, 'older session')}; -n all shows them")
    for trouble in found.refused:
        output.note(f"error: {output.shown_path(trouble.path)}: {trouble.reason}")
    for trouble in found.troubles:
        output.note(f"{output.shown_path(trouble.path)}: {trouble.reason}")
    if count := found.compressed_count:
        told = "1 compressed session is" if count == 1 else f"{count:,} compressed sessions are"
        output.note(f"{told} left out; to unpack one: zstd -d FILE.jsonl.zst")
