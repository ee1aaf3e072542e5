"""From arguments to an exit code: the group of verbs, and what becomes of errors.

One table says which exit code an exception stands for. What it lists is told in one
line on standard error, what went wrong, where, what to do; what it does not list
is a bug, and keeps its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .. import __version__
from ..errors import LockedError, MessageNotFoundError, MmapStoreError, PositionError
from . import output
from .cache import cache
from .info import info
from .ls import ls
from .rpc import rpc
from .show import show
from .tail import tail
from .verify import verify

if TYPE_CHECKING:
    from collections.abc import Sequence

#: by the nearest class in the exception's ancestry
EXIT_CODES: dict[type[BaseException], int] = {
    click.ClickException: 2,
    MmapStoreError: 3,
    OSError: 3,
    MessageNotFoundError: 4,
    PositionError: 4,
    FileNotFoundError: 4,
    NotADirectoryError: 4,
    LockedError: 5,
    KeyboardInterrupt: 130,
    # what a shell reports of a program that SIGPIPE ended
    BrokenPipeError: 141,
}

_HINTS: dict[type[BaseException], str] = {
    FileNotFoundError: "check the path",
    NotADirectoryError: "check the path",
    PermissionError: "check who may read it",
    MessageNotFoundError: "`mmapstore tail FILE` shows the ids of the newest messages",
}


def _version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    output.line(f"mmapstore {__version__}")
    context.exit()


# Without a verb the answer is a usage error in every version of click.
@click.group(no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def app() -> None:
    """Look into the JSONL transcripts of coding agents, whatever their size.

    FILE is a transcript; "-" reads standard input. Only rpc writes, to its own directory.

    Exit codes: 0 done; 1 the answer is no (damage found); 2 usage; 3 data error, or the
    system could not read or write; 4 not found; 5 locked; 130 interrupted.
    """


for _verb in (tail, show, info, verify, ls, cache, rpc):
    app.add_command(_verb)


def run(argv: Sequence[str]) -> int:
    """Run the command that `argv` spells and return its exit code."""
    try:
        try:
            # Command.main would answer a broken pipe and Ctrl-C in its own way
            with app.make_context("mmapstore", list(argv)) as context:
                if argv:
                    code: int = app.invoke(context)
                else:
                    output.talk(context.get_help())
                    code = EXIT_CODES[click.ClickException]
        except click.exceptions.Exit as done:
            code = done.exit_code
        output.flush()
    except tuple(EXIT_CODES) as error:
        code = _of_class(EXIT_CODES, error)
        if not isinstance(error, BrokenPipeError):
            output.note(_told(error))
    output.settle()
    return code


def _of_class(table: dict[type[BaseException], Any], error: BaseException) -> Any:
    return next((table[cls] for cls in type(error).__mro__ if cls in table), None)


def _told(error: BaseException) -> str:
    """Return what to say of an error: what, where and what to do."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        path = context.command_path if context else "mmapstore"
        return f"error: {error.format_message().rstrip('.')}; try '{path} --help'"
    if isinstance(error, MmapStoreError):
        text, hint = str(error), None if error.hint else _of_class(_HINTS, error)
    elif isinstance(error, OSError):
        text, hint = error.strerror or str(error), _of_class(_HINTS, error)
        if error.filename is not None:
            text = f"{output.shown_path(error.filename)}: {text}"
    return f"error: {text}; {hint}" if hint else f"error: {text}"
