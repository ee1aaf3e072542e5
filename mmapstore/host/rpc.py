"""The server: lines in, lines out, for one client on two descriptors or many on a socket.

One thread does all of it: it reads what has come, executes one request, writes what fits,
and looks again. So requests are executed in the order of their arrival over all clients,
no client waits for another that does not read or send, and one that dies is closed and
nothing else. What a client can make the server hold is bounded: a line, a read, and
answers up to :data:`CLOGGED_NBYTES` plus one.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
from collections import deque
from typing import TYPE_CHECKING

from ..rpc import MAX_LINE_NBYTES
from .jsonrpc import Conversation, too_long
from .listening import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from .host import Host

_READ_NBYTES = 64 << 10

#: of answers that a client does not read, after which its requests wait
CLOGGED_NBYTES = 1 << 20

#: that a client which takes nothing is waited for at the end
_GRACE_SECONDS = 1.0

#: what a full pipe takes without blocking, once the system says that it takes something
_PIPE_NBYTES = select.PIPE_BUF

_AGAIN = (BlockingIOError, InterruptedError)


class Lines:
    """Bytes as they come to lines; of one that is too long only its end is looked for."""

    def __init__(self, limit: int = MAX_LINE_NBYTES) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._is_dropping = False

    def feed(self, data: bytes) -> list[bytearray | None]:
        """Return the lines that end in `data`; None for one that was too long."""
        *ends, rest = data.split(b"\n")
        found = []
        for end in ends:
            self._add(end, 1)
            found.append(None if self._is_dropping else self._begun)
            self._begun, self._is_dropping = bytearray(), False
        self._add(rest, 0)
        return found

    def _add(self, part: bytes, newline: int) -> None:
        if len(self._begun) + len(part) + newline > self._limit:
            self._begun, self._is_dropping = bytearray(), True
        elif not self._is_dropping:
            self._begun += part


class _Client:
    """One conversation, the bytes on their way, and where they come from and go to."""

    def __init__(
        self,
        conversation: Conversation,
        reader: int,
        writer: int,
        connection: socket.socket | None = None,
    ) -> None:
        self.conversation = conversation
        self.reader = reader
        self.writer = writer
        self.connection = connection
        self.lines = Lines()
        #: requests that were read and not executed yet
        self.waiting = 0
        self.out = bytearray()
        #: it sends nothing any more; it takes nothing any more
        self.has_ended = False
        self.is_gone = False

    @property
    def is_clogged(self) -> bool:
        return len(self.out) >= CLOGGED_NBYTES

    def wanted(self) -> dict[int, int]:
        """Return the events to wait for, by descriptor."""
        found: dict[int, int] = {}
        if not (self.has_ended or self.waiting or self.is_clogged):
            found[self.reader] = selectors.EVENT_READ
        if self.out:
            found[self.writer] = found.get(self.writer, 0) | selectors.EVENT_WRITE
        return found

    def read(self) -> list[bytearray | None]:
        """Return the lines that came; what has no newline at the end was no request."""
        try:
            data = os.read(self.reader, _READ_NBYTES)
        except _AGAIN:
            return []
        except OSError:
            data = b""
        if not data:
            self.has_ended = True
            self.lines = Lines()
            return []
        return self.lines.feed(data)

    def write(self) -> None:
        """Write what goes out without waiting."""
        step = _PIPE_NBYTES if self.connection is None else len(self.out)
        try:
            with memoryview(self.out) as out:
                written = os.write(self.writer, out[:step])
        except _AGAIN:
            return
        except OSError:
            self.let_go()
            return
        del self.out[:written]

    def let_go(self) -> None:
        """Take note that nobody takes what goes out, nor will send anything."""
        self.has_ended = self.is_gone = True
        self.out = bytearray()
        self.lines = Lines()


class Server:
    """Serves a host to other processes until its clients are gone or it is told to stop.

    Parameters
    ----------
    host : Host
        Stays the caller's.
    report : callable
        Called with an exception that no client can have caused: a bug's.
    """

    def __init__(self, host: Host, report: Callable[[BaseException], None]) -> None:
        self._host = host
        self._report = report
        # it takes pipes, sockets and regular files alike
        self._selector = selectors.PollSelector()
        self._listener: Listener | None = None
        self._clients: list[_Client] = []
        self._requests: deque[tuple[_Client, bytearray | None]] = deque()
        self._is_stopping = False
        self._waking, self._waker = socket.socketpair()
        for end in (self._waking, self._waker):
            end.setblocking(False)
        self._selector.register(self._waking, selectors.EVENT_READ)

    def listen(self, at: str | os.PathLike[str] | Listener) -> None:
        """Take clients on a Unix socket; see :class:`Listener` for what that raises.

        A listener that is given is closed with the server.
        """
        self._listener = at if isinstance(at, Listener) else Listener(at)
        self._selector.register(self._listener.socket, selectors.EVENT_READ, self._accept)

    def converse(self, reader: int, writer: int) -> None:
        """Take one client on two descriptors, which stay the caller's."""
        self._add(_Client(Conversation(self._host, self._report), reader, writer))

    def stop(self) -> None:
        """End :meth:`serve` after the request that it executes; from any thread or signal."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def serve(self) -> None:
        """Serve; the socket and the connections are closed then."""
        try:
            while self._listener is not None or self._clients:
                is_due = any(not client.is_clogged for client, _ in self._requests)
                for key, events in self._selector.select(0 if is_due else None):
                    if key.data is not None:
                        key.data(events)
                if self._is_stopping:
                    self._finish()
                    break
                self._execute()
        finally:
            self.close()

    def close(self) -> None:
        """End every connection, and the socket with its file."""
        self._requests.clear()
        for client in list(self._clients):
            client.let_go()
            client.waiting = 0
            self._watch(client)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._selector.close()
        self._waking.close()
        self._waker.close()

    # -- clients ----------------------------------------------------------------------

    def _accept(self, _events: int) -> None:
        assert self._listener is not None
        connection = self._listener.accept()
        if connection is not None:
            fd = connection.fileno()
            conversation = Conversation(self._host, self._report)
            self._add(_Client(conversation, fd, fd, connection))

    def _add(self, client: _Client) -> None:
        self._clients.append(client)
        self._watch(client)

    def _watch(self, client: _Client) -> None:
        """Wait for what a client can do next; let go of one that can do nothing."""
        is_over = client.has_ended and not client.waiting and not client.out
        wanted = {} if is_over else client.wanted()
        watched = self._selector.get_map()
        for fd in {client.reader, client.writer}:
            events = wanted.get(fd, 0)
            if fd not in watched:
                if events:
                    self._selector.register(fd, events, self._on(client))
            elif not events:
                self._selector.unregister(fd)
            elif watched[fd].events != events:
                self._selector.modify(fd, events, self._on(client))
        if is_over and client in self._clients:
            self._clients.remove(client)
            if client.connection is not None:
                client.connection.close()

    def _on(self, client: _Client) -> Callable[[int], None]:
        def act(events: int) -> None:
            if events & selectors.EVENT_WRITE:
                client.write()
            if events & selectors.EVENT_READ and not client.has_ended:
                lines = client.read()
                client.waiting += len(lines)
                self._requests += ((client, line) for line in lines)
            self._watch(client)

        return act

    # -- requests ---------------------------------------------------------------------

    def _execute(self) -> None:
        """Execute the request that came first, of those whose clients read their answers."""
        requests = enumerate(self._requests)
        index = next((index for index, (client, _) in requests if not client.is_clogged), None)
        if index is None:
            return
        client, line = self._requests[index]
        del self._requests[index]
        client.waiting -= 1
        answer = too_long() if line is None else client.conversation.answer(line)
        if answer is not None and not client.is_gone:
            client.out += answer
            if client.connection is not None:
                client.write()
        self._watch(client)

    def _finish(self) -> None:
        """Write the answers that are ready, as long as somebody takes them."""
        self._requests.clear()
        if self._listener is not None:
            self._selector.unregister(self._listener.socket)
        for client in list(self._clients):
            client.has_ended = True
            client.waiting = 0
            self._watch(client)
        self._selector.unregister(self._waking)
        while self._clients and (ready := self._selector.select(_GRACE_SECONDS)):
            for key, events in ready:
                key.data(events)
