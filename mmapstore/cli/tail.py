"""``mmapstore tail``: the newest messages, oldest of them first.

Costs the window and not the history: a long one is read in pages, so memory is
bounded whatever the limit. A repeated id is shown once a page.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from ..decode import UndecodableError, decode_object
from . import following, output
from .opening import file_argument, json_option, mention_torn_tail, reads_transcript, torn_tail_told
from .printing import Printer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .. import Transcript, Window
    from ..loader import Access

_PAGE_COUNT = 10_000
_PAGE_NBYTES = 64 << 20
_LIMIT_DIGITS = 18


def _limit(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """Return the number that was given, or None for all."""
    if value == "all":
        return None
    if value.isascii() and value.isdecimal() and 0 < len(value.lstrip("0")) <= _LIMIT_DIGITS:
        return int(value)
    message = f"{value!r} is neither a number of 1 or more nor 'all'."
    raise click.BadParameter(message, context, parameter)


def _can_follow(command: Callable[..., int]) -> Callable[..., int]:
    """Give `tail` the option of going on, for which the file is opened in another way."""

    @click.option("-f", "--follow", is_flag=True, help="Go on with what is written from then on.")
    @functools.wraps(command)
    def tail(*, file: str, follow: bool, **options: Any) -> int:
        if not follow:
            return command(file=file, **options)
        return _follow(file, **options)

    return tail


def _follow(
    file: str,
    dialect: str | None,
    access: Access,
    *,
    no_cache: bool,
    limit: int | None,
    before: int | None,
    full: bool,
    unterminated: bool,
    as_json: bool,
) -> int:
    if before is not None or unterminated:
        other = "--unterminated" if before is None else "--before"
        message = f"--follow and {other} exclude each other"
        raise click.UsageError(message, click.get_current_context())
    name = output.shown_path(file)
    with following.opened(file, dialect, access, no_cache=no_cache) as transcript:

        def printer() -> Printer:
            # of a file that is rewritten the dialect may be another
            return Printer(transcript.dialect, name, as_json, full)

        def show_newest(reset: bool) -> int:
            stop = _show_newest(transcript, printer(), limit, None, reset=reset)
            mention_torn_tail(transcript, name)
            return stop

        def show(window: Window) -> None:
            printer().window(window, frozenset(window.updates))

        return following.follow(transcript, name, show_newest, show)


@click.command()
@file_argument
@click.option(
    "-n",
    "--limit",
    metavar="N|all",
    default="10",
    show_default=True,
    callback=_limit,
    help="How many messages.",
)
@click.option(
    "--before",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="Only messages before this position: the older page.",
)
@click.option(
    "--full", is_flag=True, help="Clip nothing: long text, tool calls, results, thinking."
)
@click.option("--unterminated", is_flag=True, help="Show the unterminated last line as well.")
@json_option
@_can_follow
@reads_transcript
def tail(
    transcript: Transcript,
    name: str,
    *,
    limit: int | None,
    before: int | None,
    full: bool,
    unterminated: bool,
    as_json: bool,
) -> int:
    """Print the newest messages of FILE.

    Each with its position, role, time and id, then the text. A message without text is summed up in a line. Damaged lines, and a last line without a
    newline, are mentioned on standard error. --follow goes on with what is written from then on:
    a message that changes one that was there is marked as an update, and a file that is
    rewritten is shown anew. With --json those rows say "update": true, and the first after a
    rewrite "reset": true: what came before it is void. Where no message is left that is a row
    of nulls.
    """
    printer = Printer(transcript.dialect, name, as_json, full)
    _show_newest(transcript, printer, limit, before)
    if not unterminated:
        mention_torn_tail(transcript, name, hint="; --unterminated shows it")
    elif transcript.torn_nbytes:
        _print_torn_tail(transcript, printer)
    return 0


def _show_newest(
    transcript: Transcript,
    printer: Printer,
    limit: int | None,
    before: int | None,
    *,
    reset: bool = False,
) -> int:
    """Print the newest messages, of those before a position; return the position behind them."""
    name = printer.name
    total = transcript.message_count
    stop = total if before is None else min(before, total)
    start = 0 if limit is None else max(0, stop - limit)
    folded = 0
    for window in _pages(transcript, start, stop):
        folded += printer.window(window, reset=reset)
        reset = reset and not window.messages
    if reset:
        printer.nothing_left()
    if folded > 0:
        output.note(
            f"{name}: {folded:,} of {stop - start:,} messages are folded into another with the same id"
        )
    _mention_bounds(transcript, name, before, stop)
    if start and not printer.as_json and output.talks():
        output.note(f"{start:,} older messages: --before {start}")
    return stop


def _pages(transcript: Transcript, start: int, stop: int) -> Iterator[Window]:
    while start < stop:
        window = transcript.window(
            after=start, limit=min(_PAGE_COUNT, stop - start), max_nbytes=_PAGE_NBYTES
        )
        yield window
        start = window.stop


def _mention_bounds(transcript: Transcript, name: str, before: int | None, stop: int) -> None:
    """Say why there is nothing to show, or less than was asked for."""
    total = transcript.message_count
    if not transcript.nbytes:
        output.note(f"{name}: no messages: the file is empty")
    elif not total:
        lines, dialect = transcript.layout.line_count, transcript.dialect.name
        output.note(f"{name}: no messages: {lines:,} other lines, dialect {dialect}")
    elif not stop:
        output.note(f"{name}: no messages before position 0; there are {total:,}")
    elif before is not None and before > total:
        output.note(f"{name}: --before {before} is past the end: taken as {total}")


def _print_torn_tail(transcript: Transcript, printer: Printer) -> None:
    data = transcript.torn_tail
    try:
        message = decode_object(data)
    except UndecodableError:
        message = None
    told = torn_tail_told(transcript)
    mark = f"unterminated and not data yet: {told} (at byte {transcript.layout.file_len})"
    printer.torn_tail(data, message, mark)
