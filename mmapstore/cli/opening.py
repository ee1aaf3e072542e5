"""FILE to an open transcript: what every verb begins with, and its options.

``-`` stands for standard input, which is spooled into a file without a name, so that
nothing is left behind whatever happens. A file that was named is only ever read.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import click

import mmapstore

from ..cachedir import CacheDir
from ..decode import UndecodableError, decode_object
from ..dialect import DIALECTS
from . import output
from .bar import Bar
from .visible import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..loader import Access

#: as FILE: standard input
STDIN = "-"
#: of an unterminated line, the most bytes that are read to tell whether it is whole
_TOLD_NBYTES = 64 << 20

file_argument = click.argument("file", metavar="FILE")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")


def reads_transcript(verb: Callable[..., int]) -> Callable[..., int]:
    """Give a verb that has a :data:`file_argument` the options of opening it.

    The verb is called with the open transcript and the name to call it by.
    """

    @click.option(
        "--dialect",
        type=click.Choice([dialect.name for dialect in DIALECTS]),
        metavar="NAME",
        help="Which agent's dialect FILE is in; recognised when not given. One of: "
        + ", ".join(dialect.name for dialect in DIALECTS)
        + ".",
    )
    @click.option(
        "--access",
        type=click.Choice(["auto", "mmap", "pread"]),
        default="auto",
        show_default=True,
        help="How to read FILE.",
    )
    @click.option("--no-cache", is_flag=True, help="Neither use nor keep a layout cache of FILE.")
    @functools.wraps(verb)
    def command(
        file: str, dialect: str | None, access: Access, no_cache: bool, **options: Any
    ) -> int:
        name = output.shown_path(file)
        with opened(file, dialect, access, no_cache=no_cache) as transcript:
            return verb(transcript, name, **options)

    return command


@contextlib.contextmanager
def opened(
    file: str, dialect: str | None, access: Access, *, no_cache: bool = False
) -> Iterator[mmapstore.Transcript]:
    """Open a transcript, or standard input, showing a bar if that takes long."""
    with contextlib.ExitStack() as stack:
        path = file
        if file == STDIN:
            # by its descriptor: the file has no name, so nothing can be left behind
            path = f"/dev/fd/{stack.enter_context(_spooled())}"
        try:
            with Bar("reading") as bar:
                transcript = mmapstore.open(
                    path,
                    dialect=dialect,
                    access=access,
                    # what was piped in can never be opened again
                    cache_dir=None if no_cache or file == STDIN else CacheDir.USER,
                    progress=bar,
                )
            yield stack.enter_context(transcript)
        except mmapstore.MmapStoreError as error:
            add_hint(error)
            error.path = file if error.path == path else error.path
            raise


def add_hint(error: mmapstore.MmapStoreError) -> None:
    """Say what to do about an error on the command line."""
    if isinstance(error, mmapstore.NotATranscriptError):
        if "FIFO" in error.what:
            error.hint = f"use {STDIN} to read standard input"
        elif "directory" in error.what:
            error.hint = "`mmapstore ls DIR` lists the sessions in it"


@contextlib.contextmanager
def _spooled() -> Iterator[int]:
    """Give the descriptor of a file without a name that holds what standard input held."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    with tempfile.TemporaryFile() as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool, 1 << 20)
        spool.flush()
        yield spool.fileno()


def torn_tail_told(transcript: mmapstore.Transcript) -> str:
    """Return how much of a line is unterminated, and whether it only lacks its newline."""
    size = counted(transcript.torn_nbytes, "byte")
    if transcript.torn_nbytes > _TOLD_NBYTES:
        return f"{size}, no newline yet"
    try:
        decode_object(transcript.torn_tail)
    except UndecodableError:
        return f"{size} of an unfinished line"
    return f"{size}, whole JSON, but no newline yet"


def mention_torn_tail(transcript: mmapstore.Transcript, name: str, *, hint: str = "") -> None:
    """Say on standard error that the last line is unterminated, if it is."""
    if transcript.torn_nbytes:
        output.note(
            f"{name}: the last line is unterminated and not data yet: "
            f"{torn_tail_told(transcript)} (at byte {transcript.layout.file_len}){hint}"
        )
