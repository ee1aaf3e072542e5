"""``mmapstore verify``: every line read in full, each damaged or doubtful one reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..jsonline import encode
from . import output
from .bar import Bar
from .opening import file_argument, json_option, mention_torn_tail, reads_transcript
from .visible import on_one_line

if TYPE_CHECKING:
    from .. import Transcript


@click.command()
@file_argument
@json_option
@reads_transcript
def verify(transcript: Transcript, name: str, *, as_json: bool) -> int:
    """Report the damaged and doubtful lines of FILE.

    Every line is read in full. Exit code 1 if there are any. A last line without a newline is not data yet and no
    finding; it is mentioned on standard error.
    """
    count = 0
    with Bar("verifying") as bar:
        for finding in transcript.verify(progress=bar):
            count += 1
            bar.pause()
            if as_json:
                row = {
                    "offset": finding.offset,
                    "line_number": finding.line_number,
                    "kind": finding.kind,
                    "position": finding.position,
                    "reason": finding.reason,
                }
                output.write(encode(row) + b"\n")
            else:
                at = "" if finding.position is None else f" at position {finding.position}"
                output.line(
                    f"byte {finding.offset}  line {finding.line_number}  {finding.kind}{at}: "
                    f"{on_one_line(finding.reason)}"
                )
            # a bar that comes back must find the cursor where it left it
            output.flush()
    if not as_json:
        lines = transcript.layout.line_count
        output.line(f"{on_one_line(name)}: {lines:,} lines, {count:,} damaged or doubtful")
    mention_torn_tail(transcript, name)
    return 1 if count else 0
