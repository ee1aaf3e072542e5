"""``mmapstore info``: what a file is, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..jsonline import encode
from . import output
from .opening import file_argument, json_option, reads_transcript, torn_tail_told
from .visible import counted, on_one_line

if TYPE_CHECKING:
    from .. import Transcript

#: of a fact: what people call it, and how its value reads
_LABELS = {
    "path": ("file", "{}"),
    "nbytes": ("size", "{}"),
    "file_len": ("complete lines end at", "byte {}"),
    "torn_nbytes": ("torn tail", "{}"),
    "compaction_lines": ("compaction lines", "{}"),
    "review_states": ("review states", "{}"),
    "other": ("other lines", "{}"),
    "cache": ("layout cache", "{}"),
    "access": ("read by", "{}"),
}


@click.command()
@file_argument
@json_option
@reads_transcript
def info(transcript: Transcript, name: str, *, as_json: bool) -> int:
    """Print dialect, sizes and counts of FILE.

    lines = messages + compaction_lines + review_states + other; compactions counts
    checkpoints, of which some agents write two lines each. torn_nbytes (the torn tail) is the
    size of an unterminated last line, which counts as nothing else. cache says what became of
    the layout cache: hit (used), miss (none there), stale (there and of no use), off (not
    asked); why it cannot be kept for the next time is mentioned on standard error.
    """
    layout = transcript.layout
    messages = transcript.message_count
    compaction_lines = len(layout.compaction_offsets)
    review_states = len(layout.review_offsets)
    facts: dict[str, str | int] = {
        "path": name,
        "dialect": transcript.dialect.name,
        "nbytes": transcript.nbytes,
        "file_len": layout.file_len,
        "torn_nbytes": transcript.torn_nbytes,
        "lines": layout.line_count,
        "messages": messages,
        "compactions": len(layout.checkpoints),
        "compaction_lines": compaction_lines,
        "review_states": review_states,
        "other": layout.line_count - messages - compaction_lines - review_states,
        "cache": transcript.cache,
        "access": transcript.access,
    }
    if as_json:
        output.write(encode(facts) + b"\n")
    else:
        torn = torn_tail_told(transcript) if transcript.torn_nbytes else "none"
        size = counted(transcript.nbytes, "byte")
        output.table(_for_people({**facts, "nbytes": size, "torn_nbytes": torn}))
    if (error := transcript.cache_error) is not None:
        told = error.strerror or str(error)
        where = "" if error.filename is None else f"{output.shown_path(error.filename)}: "
        output.note(f"{name}: the layout cache cannot be kept: {where}{told}")
    return 0


def _for_people(facts: dict[str, str | int]) -> dict[str, str]:
    rows = {}
    for key, value in facts.items():
        label, form = _LABELS.get(key, (key, "{}"))
        rows[label] = form.format(f"{value:,}" if isinstance(value, int) else on_one_line(value))
    return rows
