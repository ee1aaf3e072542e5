"""``mmapstore show``: one message, whole, by its position or its id."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from .. import LineDecodeError, PositionError
from ..jsonline import encode
from . import describe, output
from .opening import file_argument, json_option, mention_torn_tail, reads_transcript
from .spread import sections
from .visible import as_text, counted

if TYPE_CHECKING:
    from .. import Transcript

#: digits of the largest number that can be a position
_POSITION_DIGITS = 18


class _FromZero(click.Command):
    """A command to which a negative number is no unknown option but a position there is not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not error.option_name[1:].isdecimal():
                raise
            message = (
                "positions count from 0 and none is negative; "
                "`mmapstore tail -n 1 FILE` shows the last one"
            )
            raise click.UsageError(message, ctx) from error


@click.command(cls=_FromZero)
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
    review states laid over it; --raw works for a damaged line too. Without either, long
    strings are taken out of the JSON and follow it as text.
    """
    if raw and as_json:
        message = "--raw and --json exclude each other"
        raise click.UsageError(message, click.get_current_context())
    mention_torn_tail(transcript, name)
    try:
        position = _position(transcript, reference, is_id=is_id)
        record = None if raw else transcript[position]
    except LineDecodeError as error:
        if error.offset is not None:
            at = transcript.layout.messages.first_from(error.offset)
            error.hint = f"`mmapstore show FILE {at} --raw` writes its bytes"
        raise
    if record is None:
        output.write(transcript.line(position))
        return 0
    if as_json:
        output.write(encode(record) + b"\n")
        return 0
    dialect = transcript.dialect
    offset = int(transcript.layout.message_offsets[position])
    nbytes = len(transcript.line(position))
    head = describe.head(dialect, record, position, transcript.message_id(position))
    output.line(f"{head}  ({counted(nbytes, 'byte')} at byte {offset})")
    text = describe.own_text(dialect, record)
    if text:
        output.line(as_text(text))
    parts = list(describe.parts(record))
    for part_name, part in parts:
        for heading, shown in sections(part_name, part, text):
            output.line(output.styled(f"--- {heading}", "bold"))
            output.line(shown)
    if not text and not parts:
        for number, (heading, shown) in enumerate(sections("field", record)):
            if number:
                output.line(output.styled(f"--- {heading}", "bold"))
            output.line(shown)
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
