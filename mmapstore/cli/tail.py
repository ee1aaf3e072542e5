"""``mmapstore tail``: the newest messages, oldest of them first.

Costs the window and not the history: a long one is read in pages, so memory is
bounded whatever the limit. A repeated id is shown once a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..decode import UndecodableError, decode_object
from . import describe, output
from .jsonline import encode
from .opening import file_argument, json_option, mention_torn_tail, reads_transcript, torn_tail_told
from .spread import sections
from .visible import as_text, clipped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .. import Dialect, Transcript, Window

_PAGE_COUNT = 10_000
_PAGE_NBYTES = 64 << 20
_CLIP_CHARACTERS = 1000
_CLIP_LINES = 12
_LIMIT_DIGITS = 18


def _limit(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """Return the number that was given, or None for all."""
    if value == "all":
        return None
    if value.isascii() and value.isdecimal() and 0 < len(value.lstrip("0")) <= _LIMIT_DIGITS:
        return int(value)
    message = f"{value!r} is neither a number of 1 or more nor 'all'."
    raise click.BadParameter(message, context, parameter)


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
    newline, are mentioned on standard error.
    """
    dialect = transcript.dialect
    total = transcript.message_count
    stop = total if before is None else min(before, total)
    start = 0 if limit is None else max(0, stop - limit)
    folded = 0
    for window in _pages(transcript, start, stop):
        shown = zip(window.message_positions, window.message_ids, window.messages, strict=True)
        for position, message_id, message in shown:
            if as_json:
                _print_json(_row(dialect, message, position, message_id))
            else:
                output.line(describe.head(dialect, message, position, message_id))
                _print_body(dialect.text(message), message, full=full)
        folded += len(window) - len(window.messages) - _mention_damage(window, name)
    if folded > 0:
        output.note(
            f"{name}: {folded:,} of {stop - start:,} messages are folded into another with the same id"
        )
    _mention_bounds(transcript, name, before, stop)
    if not unterminated:
        mention_torn_tail(transcript, name, hint="; --unterminated shows it")
    elif transcript.torn_nbytes:
        _print_torn_tail(transcript, as_json=as_json, full=full)
    if start and not as_json and output.talks():
        output.note(f"{start:,} older messages: --before {start}")
    return 0


def _pages(transcript: Transcript, start: int, stop: int) -> Iterator[Window]:
    while start < stop:
        window = transcript.window(
            after=start, limit=min(_PAGE_COUNT, stop - start), max_nbytes=_PAGE_NBYTES
        )
        yield window
        start = window.stop


def _row(
    dialect: Dialect, message: dict[str, Any], position: int | None, message_id: str | None
) -> dict[str, Any]:
    return {
        "position": position,
        "id": message_id,
        "role": dialect.role(message),
        "time": dialect.time(message),
        "text": dialect.text(message),
        "message": message,
    }


def _print_json(row: dict[str, Any]) -> None:
    output.write(encode(row) + b"\n")


def _print_body(text: str, message: dict[str, Any], *, full: bool) -> None:
    text = text.rstrip("\n")
    shown = text if full else clipped(text, characters=_CLIP_CHARACTERS, lines=_CLIP_LINES)
    lines = as_text(shown).split("\n") if shown else []
    if len(shown) < len(text):
        lines.append(f"[{len(text) - len(shown):,} more characters; --full shows all]")
    if full:
        for part_name, part in describe.parts(message):
            for heading, section in sections(part_name, part, text):
                lines += [f"--- {heading}", *section.split("\n")]
    elif summary := describe.summary(message, text):
        lines.append(summary)
    if not lines:
        lines.append(describe.fields(message))
    # indented: no text can pass for the head of a message
    output.line("".join(f"  {line}".rstrip(" ") + "\n" for line in lines))


def _mention_damage(window: Window, name: str) -> int:
    """Say which messages are damaged; return how many."""
    # Only a window with a gap is asked: the answer takes a look at every checkpoint.
    if len(window.messages) == len(window):
        return 0
    count = 0
    for position, offset, reason in window.damaged:
        if position is not None:
            count += 1
            output.note(f"{name}: position {position} is damaged: {reason} (at byte {offset})")
    return count


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


def _print_torn_tail(transcript: Transcript, *, as_json: bool, full: bool) -> None:
    data = transcript.torn_tail
    try:
        message = decode_object(data)
    except UndecodableError:
        message = None
    if message is not None:
        row = _row(transcript.dialect, message, None, transcript.dialect.id(message))
    else:
        row = dict.fromkeys(("position", "id", "role", "time", "text", "message"))
        row["text"] = data.decode("utf-8", "backslashreplace")
    if as_json:
        _print_json({**row, "unterminated": True})
        return
    told = torn_tail_told(transcript)
    mark = f"unterminated and not data yet: {told} (at byte {transcript.layout.file_len})"
    output.line(output.styled(f"--- {mark} ---", "bold red"))
    if message is not None:
        output.line(describe.head(transcript.dialect, message))
    _print_body(row["text"], message or {}, full=full)
