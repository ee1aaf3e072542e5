"""Standard output as UTF-8 bytes, standard error as one-line notes.

Nothing here depends on the locale: text is encoded here and never by the stream,
and what UTF-8 cannot spell is escaped. What was written stands before any note
that is made after it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

from .visible import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    return sys.stdout.buffer


def write(data: bytes | memoryview) -> None:
    """Write bytes to standard output as they are."""
    out = _stdout()
    with _output_named():
        out.write(data)


@contextlib.contextmanager
def _output_named() -> Iterator[None]:
    """Say of what the system refuses that it was the output, and not a file that is read."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            error.filename = "standard output"
        raise


def line(text: str) -> None:
    """Write a line of text to standard output."""
    write(text.encode("utf-8", "backslashreplace") + b"\n")


def flush() -> None:
    """Hand over what was written so far."""
    if sys.stdout is not None:
        with _output_named():
            sys.stdout.flush()


def note(text: str) -> None:
    """Say something on standard error, on one line."""
    talk(f"mmapstore: {on_one_line(text)}")


def talk(text: str) -> None:
    """Write lines to standard error; a reader that went away is not missed."""
    with contextlib.suppress(OSError, ValueError):
        flush()
    if sys.stderr is None:
        return
    data = f"{text}\n".encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()


def settle() -> None:
    """Drop what a stream cannot take any more, so that the interpreter's own flush is quiet."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def shown_path(path: str | bytes) -> str:
    """Return a path as text, the same in every locale; what is not UTF-8 stays a surrogate."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def in_colour() -> bool:
    """Whether standard output is a terminal that takes colour, and nobody objects to it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout is not None and sys.stdout.isatty()


def talks() -> bool:
    """Whether somebody sits before standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


def styled(text: str, style: str) -> str:
    """Return text in a style of rich's where :func:`in_colour`, else as it is."""
    if not in_colour():
        return text
    from rich.color import ColorSystem
    from rich.style import Style

    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


def table(rows: dict[str, str]) -> None:
    """Write names and values, aligned."""
    width = max(map(len, rows))
    for name, value in rows.items():
        line(f"{styled(f'{name:<{width}}', 'bold')}  {value}")
