"""A host in another process: the protocol's numbers, and a client.

What goes over the wire is JSON-RPC 2.0, one object a line. An error comes back as the
exception that the host raised, so that a caller handles both alike; a connection that
ends is a ``ConnectionError``, because then nobody knows whether a request was executed.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import threading
import warnings
from typing import IO, TYPE_CHECKING, Any, Final, Self

import orjson

from . import errors
from .decode import UndecodableError, decode_object
from .errors import InvalidRecordError, LockedError, MmapStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PROTOCOL_VERSION: Final = 9

#: of a request, the newline included; a longer one is not executed
MAX_LINE_NBYTES: Final = 64 << 20

#: exit code of a server whose directory has a host already
LOCKED_EXIT_CODE: Final = 5


class Code(enum.IntEnum):
    """What an error's ``code`` says; its ``data.kind`` is the name."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INTERNAL = 1000
    INVALID_PARAMS = 1002
    LOCKED = 1003
    WRITE_FAILED = 1004
    NOT_FOUND = 1007
    CONFLICT = 1008
    PROTOCOL_MISMATCH = 1011


class Skipped(enum.Enum):
    """Stands for an archive that was not made; false."""

    SKIPPED = "skipped"

    def __bool__(self) -> bool:
        """Whether there is an archive: no."""
        return False


class RpcError(MmapStoreError):
    """Is raised for an error of the server that no other class stands for.

    Where one does, this is its ``__cause__``.

    Attributes
    ----------
    code : int
        One of :class:`Code`, or what a newer server has.
    data : dict
        ``kind``, and what else the server says.
    """

    def __init__(self, code: int, what: str, data: dict[str, Any]) -> None:
        super().__init__(
            what, path=data.get("path"), offset=data.get("offset"), hint=data.get("hint")
        )
        self.code = code
        self.data = data


class Client:
    """A connection to ``mmapstore rpc``; use :meth:`connect` or :meth:`spawn` to make one.

    Parameters
    ----------
    reader, writer : binary files
        What the server writes and reads.
    ended : callable, optional
        Called when both are closed; also says why a server that does not answer is gone.

    Notes
    -----
    Any thread may call any method; the answers of one call are waited for before the next.
    """

    SKIPPED: Final = Skipped.SKIPPED

    def __init__(
        self,
        reader: IO[bytes],
        writer: IO[bytes],
        ended: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._ended = ended
        self._lock = threading.Lock()
        self._serial = 0
        self._is_closed = False
        self._is_lost = False
        try:
            #: what the server says of itself: ``protocolVersion``, ``name``, ``version``
            self.server = self.call("host.handshake", protocolVersion=PROTOCOL_VERSION)
        except BaseException as failure:
            reason = self._close()
            if reason is not None and isinstance(failure, ConnectionError):
                raise reason from failure
            raise

    @classmethod
    def connect(cls, path: str | os.PathLike[str]) -> Self:
        """Return a client of the server that listens on a Unix socket.

        Raises
        ------
        OSError
            Nobody does.
        """
        import socket

        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with connection:
            connection.connect(os.fspath(path))
            # the two files keep the connection open; it ends with them
            return cls(connection.makefile("rb"), connection.makefile("wb"))

    @classmethod
    def spawn(cls, data_dir: str | os.PathLike[str], command: Sequence[str] | None = None) -> Self:
        """Return a client of a server of its own, a child process that ends with it.

        Parameters
        ----------
        data_dir : path-like
            The directory that the child becomes the host of.
        command : sequence of str, optional
            What to run instead of this interpreter's ``mmapstore``.

        Raises
        ------
        LockedError
            The directory has a host; the child's standard error names it.
        """
        import subprocess
        import sys

        command = command or [sys.executable, "-m", "mmapstore"]
        child = subprocess.Popen(
            [*command, "rpc", "--data-dir", os.fspath(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stdin is not None
        assert child.stdout is not None

        def ended() -> BaseException | None:
            code = child.wait()
            if code == LOCKED_EXIT_CODE:
                return LockedError("the directory has a host", path=data_dir)
            return ConnectionError(f"the server ended with exit code {code}") if code else None

        return cls(child.stdout, child.stdin, ended)

    # -- operations -------------------------------------------------------------------

    def call(self, method: str, /, **params: Any) -> Any:
        """Return the result of a method; see the table of methods in ``docs/rpc.md``.

        Raises
        ------
        MmapStoreError
            What the host raised: of its own class, else :class:`RpcError`.
        ConnectionError
            The server is gone, and whether it executed the request is not known.
        """
        return self._asked(method, params)

    def append_messages(
        self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
    ) -> list[int]:
        """Append messages, durably; return the position of each.

        One request and one write, more where they are much together. What stands behind
        messages that are refused or fail is not asked for, so nothing overtakes them; to ask
        for all of them again is safe.
        """
        turn = {} if turn_id is None else {"turnId": turn_id}
        positions: list[int] = []
        for part in _parts(messages):
            params = {"sessionId": session_id, "messages": part, **turn}
            positions += self._asked("session.appendMessages", params)["positions"]
        return positions

    def save_active_revision(self, session_id: str) -> dict[str, Any] | Skipped | None:
        """Archive the branch that a session ends in; None if its roots have no family.

        A server that does not have the method has not archived it: a warning, and SKIPPED.
        """
        try:
            result = self.call("session.saveActiveRevision", sessionId=session_id)
        except RpcError as error:
            if error.code != Code.METHOD_NOT_FOUND:
                raise
            warnings.warn(
                f"the branch of session {session_id!r} is not archived: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return self.SKIPPED
        saved: dict[str, Any] | None = result["saved"]
        return saved

    def close(self) -> None:
        """End the connection, and the server if it is a child of this client."""
        self._close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the client."""
        self.close()

    # -- the wire ---------------------------------------------------------------------

    def _close(self) -> BaseException | None:
        with self._lock:
            if self._is_closed:
                return None
            self._is_closed = True
            for file in (self._writer, self._reader):
                with contextlib.suppress(OSError):  # what was not sent has no reader any more
                    file.close()
            return self._ended()

    def _asked(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result of a request, or raise its error."""
        with self._lock:
            if self._is_closed:
                message = "the client is closed"
                raise ValueError(message)
            number = self._serial
            line = _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            if self._is_lost:
                message = "the connection was lost in an earlier call"
                raise ConnectionError(message)
            # until the answer is here, whatever stops this leaves it behind
            self._is_lost = True
            self._serial += 1
            self._writer.write(line)
            self._writer.flush()
            answer = self._answer(number)
            self._is_lost = False
        if "error" in answer:
            raise _failure(answer["error"])
        return answer.get("result")

    def _answer(self, number: int) -> dict[str, Any]:
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            message = "the server closed the connection; it may have executed the request"
            raise ConnectionError(message)
        try:
            answer = decode_object(line)
        except UndecodableError as error:
            message = f"not an answer: {error}"
            raise ConnectionError(message) from error
        if answer.get("id") not in (number, None):
            message = f"an answer to {answer['id']!r:.100} where one to {number} is due"
            raise ConnectionError(message)
        return answer


#: of messages in one request; a server reads lines of four times as many bytes
_PART_NBYTES = 16 << 20

#: what orjson would turn into a string of its own choice is refused instead
_OPTIONS = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)


def _line(request: dict[str, Any]) -> bytes:
    """Return a request as a line, or raise InvalidRecordError if it would arrive as another."""
    try:
        try:
            text = orjson.dumps(request, option=_OPTIONS)
        except TypeError:  # a lone surrogate, a large integer, deep nesting
            text = json.dumps(request, allow_nan=False, separators=(",", ":")).encode("ascii")
        is_same = decode_object(text) == request
    except (TypeError, ValueError, RecursionError) as error:
        message = f"not JSON: {error}"
        raise InvalidRecordError(message) from error
    if not is_same:
        message = "a value that would not arrive as it was given"
        raise InvalidRecordError(message)
    return text + b"\n"


def _parts(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield messages in parts that a server reads as a line, an only one whatever its size."""
    part: list[dict[str, Any]] = []
    nbytes = 0
    for message in messages:
        more = len(_line(message))
        if part and nbytes + more > _PART_NBYTES:
            yield part
            part, nbytes = [], 0
        part.append(message)
        nbytes += more
    if part or not messages:
        yield part


def _failure(error: dict[str, Any]) -> MmapStoreError:
    """Return the exception that an error stands for."""
    data = error.get("data")
    cause = RpcError(error["code"], str(error.get("message")), data if data else {})
    cls = getattr(errors, str(cause.data.get("error")), None)
    if not isinstance(cls, type) or not issubclass(cls, MmapStoreError) or cls is MmapStoreError:
        return cause
    failure: MmapStoreError = cls(cause.what, path=cause.path, offset=cause.offset, hint=cause.hint)
    failure.__cause__ = cause
    return failure
