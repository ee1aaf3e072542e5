"""The command line: options to a Spec, and the Spec to a file or standard output.

Invariant: standard output carries the transcript and nothing else. Exit codes: 0 written; 2 what was asked
for is impossible; 3 it could not be written; 130 interrupted. Nothing is left of what was not finished.
"""

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from .nbytes import parse_nbytes
from .output import write, write_to
from .progress import progress_bar
from .spec import DAMAGE_KINDS, KEY_ORDERS, PRESETS, SHAPES, Spec


def _to_nbytes(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Read an option as a number of bytes."""
    try:
        return None if value is None else parse_nbytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _interrupt(signum: int, frame: object) -> NoReturn:
    """Turn a request to end into an exception, so that the temporary file is removed."""
    raise SystemExit(128 + signum)


@click.command(name="gen_synthetic", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--preset", type=click.Choice(sorted(PRESETS)), help="Start from this; options go over it."
)
@click.option("--messages", type=int, help="Message lines.")
@click.option("--nbytes", callback=_to_nbytes, help="Bytes of the file, met within 1 %.")
@click.option("--seed", type=int, help="Same seed, same bytes.  [default: 1]")
@click.option("--shape", type=click.Choice(SHAPES), help="Whose transcript.  [default: native]")
@click.option("--header/--no-header", default=None, help="The session line.  [default: header]")
@click.option(
    "--key-order", type=click.Choice(KEY_ORDERS), help="Where `type` is.  [default: first]"
)
@click.option("--tool-share", type=float, help="Share of tool messages.  [default: 0.4]")
@click.option("--tool-factor", type=float, help="Tool text by other text.  [default: 1]")
@click.option("--images", type=int, help="Messages with a base64 image.")
@click.option("--image-nbytes", callback=_to_nbytes, help="Base64 bytes of each.  [default: 200k]")
@click.option("--compactions", type=int, help="Checkpoints, spread evenly.")
@click.option("--reviews", type=int, help="Review state lines.")
@click.option("--repeats", type=int, help="Messages that carry an earlier id.")
@click.option("--non-ascii", type=float, help="Share of messages with characters of 2 to 4 bytes.")
@click.option("--escaped", type=float, help="Share of messages with JSON escapes.")
@click.option("--lone-surrogates", type=int, help="Messages with half a surrogate pair.")
@click.option("--nested", type=int, help="Messages with misleading nested and quoted keys.")
@click.option("--whitespace", is_flag=True, default=None, help="White space between tokens.")
@click.option("--crlf", is_flag=True, default=None, help="CR LF line ends.")
@click.option("--torn-nbytes", callback=_to_nbytes, help="Bytes after the last line end.")
@click.option("--damaged", type=int, help="Damaged lines, in addition, spread evenly.")
@click.option("--damage", multiple=True, type=click.Choice(DAMAGE_KINDS), help="Only these kinds.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
def main(out: Path, preset: str | None, force: bool, **options: Any) -> None:
    """Write a synthetic transcript to OUT (- is standard output).

    The same options give the same bytes. Sizes take the suffixes k, M, G, Ki, Mi and Gi.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    try:
        spec = replace(PRESETS[preset], **given) if preset else _spec(given)
        _run(spec, out, force=force)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except BrokenPipeError:
        # The reader has seen enough. Python must not fail on flushing what nobody reads.
        sys.stdout = None
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        click.echo(f"Error: {out}: {error.strerror or error}", err=True)
        sys.exit(3)
    except KeyboardInterrupt:
        click.echo("interrupted: nothing was written", err=True)
        sys.exit(130)


def _spec(given: dict[str, Any]) -> Spec:
    missing = [f"--{name}" for name in ("messages", "nbytes") if name not in given]
    if missing:
        message = f"give {' and '.join(missing)}, or --preset"
        raise ValueError(message)
    return Spec(**given)


def _run(spec: Spec, out: Path, *, force: bool) -> None:
    with progress_bar(spec.nbytes) as progress:
        if str(out) == "-":
            write_to(spec, sys.stdout.buffer, progress=progress)
            sys.stdout.buffer.flush()
            return
        if out.exists() and not force:
            message = f"{out} exists: --force replaces it"
            raise ValueError(message)
        signal.signal(signal.SIGTERM, _interrupt)
        write(spec, out, progress=progress)
