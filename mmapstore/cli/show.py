"""``mmapstore show``: one message, whole, by its position or its id."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from .. import PositionError
from . import describe, output
from .jsonline import encode
from .opening import file_argument, json_option, mention_torn_tail, reads_transcript
from .visible import as_text, on_one_line

if TYPE_CHECKING:
    from .. import Transcript

#: digits of the largest number that can be a position
_POSITION_DIGITS = 18


@click.command()
@file_argument
@click.argument("reference", metavar="POSITION|ID")
@click.option("--id", "is_id", is_flag=True, help="Take a number for an id as well.")
@click.option("--raw", is_flag=True, help="Write the line's bytes as they are in FILE.")
@json_option
@reads_transcript
def show(
    transcript: Transcript, name: str, *, reference: str, is_id: bool, raw: bool, as_json: bool
) -> int:
    """Print one message of FILE, whole.

    A number is a position, counted from 0; anything else is an id. @OFFSET is the id of a
    message that has none. --json prints the message as the library gives it, with the last
    review states laid over it; --raw works for a damaged line too.
    """
    if raw and as_json:
        message = "--raw and --json exclude each other"
        raise click.UsageError(message, click.get_current_context())
    mention_torn_tail(transcript, name)
    position = _position(transcript, reference, is_id=is_id)
    if raw:
        output.write(transcript.line(position))
        return 0
    record = transcript[position]
    if as_json:
        output.write(encode(record) + b"\n")
        return 0
    dialect = transcript.dialect
    offset = int(transcript.layout.message_offsets[position])
    nbytes = len(transcript.line(position))
    head = describe.head(dialect, record, position, transcript.message_id(position))
    output.line(f"{head}  ({nbytes:,} bytes at byte {offset})")
    text = dialect.text(record)
    if text:
        output.line(as_text(text))
    parts = list(describe.parts(record))
    for part_name, part in parts:
        output.line(output.styled(f"--- {on_one_line(part_name)}", "bold"))
        output.line(as_text(encode(part, indent=True).decode()))
    if not text and not parts:
        output.line(as_text(encode(record, indent=True).decode()))
    return 0


def _position(transcript: Transcript, reference: str, *, is_id: bool) -> int:
    number = reference.isascii() and reference.isdecimal() and len(reference) <= _POSITION_DIGITS
    if number and not is_id:
        position = int(reference)
        try:
            transcript.line(position)
        except PositionError as error:
            error.hint = error.hint or "with --id a number is taken for an id"
            raise
        return position
    # arguments are decoded by the locale, ids are UTF-8
    message_id = os.fsencode(reference).decode("utf-8", "surrogateescape")
    return transcript.window(around=message_id, limit=1).start
