"""``mmapstore rpc``: a data directory's host, for other processes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys

import click

from . import output


@click.command()
@click.option("--data-dir", metavar="DIR", required=True, help="The directory; made if needed.")
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    help="Listen on a Unix socket, for many clients, instead of standard input and output.",
)
def rpc(data_dir: str, path: str | None) -> int:
    """Be the host of a data directory, and do what other processes ask.

    JSON-RPC 2.0, one object a line. host.handshake {"protocolVersion": 9} comes first. Ends
    with standard input, or by SIGTERM or Ctrl-C after the request that is being executed.
    Exit code 5 if the directory has a host, or the socket a server.
    """
    # here, so that no other verb pays for it
    from .. import Host
    from ..host.listening import Listener
    from ..host.rpc import Server

    if path is None and (sys.stdin is None or sys.stdout is None):
        # or the host's own files would get their descriptors
        raise OSError(errno.EBADF, "standard input or output is closed")
    with contextlib.ExitStack() as stack:
        listener: Listener | None = None
        # before the directory is made: a refusal leaves nothing
        try:
            listener = None if path is None else stack.enter_context(Listener(path))
        except FileNotFoundError:
            # the socket's folder may be made with the directory
            if os.path.dirname(os.path.abspath(path or "")) != os.path.abspath(data_dir):
                raise
        host = stack.enter_context(Host(data_dir))
        server = Server(host, _reported)
        ended_by: list[int] = []

        def end(number: int, _frame: object) -> None:
            ended_by.append(number)
            server.stop()

        # a request must not be torn: what a signal asks for is done between two of them
        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            if path is None:
                server.converse(0, 1)
            else:
                server.listen(path if listener is None else listener)
                output.note(f"listening on {output.shown_path(path)}")
            server.serve()
        finally:
            server.close()
            for number, handler in before.items():
                signal.signal(number, handler)
    if signal.SIGINT in ended_by:
        raise KeyboardInterrupt
    return 0


def _reported(error: BaseException) -> None:
    import traceback

    output.talk("".join(traceback.format_exception(error)).rstrip("\n"))
