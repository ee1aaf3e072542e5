"""One line of a client to one line of answer, as JSON-RPC 2.0 says.

Whatever a line holds, a client gets one answer for each request in it and none for a
notification, and the host's errors come as codes. The connection's one state is whether
the protocol's version was agreed on: until then nothing is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import __version__
from ..decode import UndecodableError, decode_value
from ..errors import (
    ConflictError,
    InvalidRecordError,
    InvalidSessionIdError,
    LockedError,
    MessageNotFoundError,
    MmapStoreError,
    PositionError,
    RevisionNotFoundError,
    SessionNotFoundError,
    TranscriptChangedError,
    WriteFailedError,
)
from ..jsonline import encode
from ..rpc import MAX_LINE_NBYTES, PROTOCOL_VERSION, Code
from .methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from .host import Host

HANDSHAKE = "host.handshake"

#: by the nearest class in the exception's ancestry; every other is internal
_CODES: dict[type[BaseException], Code] = {
    InvalidRecordError: Code.INVALID_PARAMS,
    InvalidSessionIdError: Code.INVALID_PARAMS,
    PositionError: Code.INVALID_PARAMS,
    LockedError: Code.LOCKED,
    WriteFailedError: Code.WRITE_FAILED,
    SessionNotFoundError: Code.NOT_FOUND,
    MessageNotFoundError: Code.NOT_FOUND,
    RevisionNotFoundError: Code.NOT_FOUND,
    ConflictError: Code.CONFLICT,
    TranscriptChangedError: Code.CONFLICT,
}


class _Refusal(Exception):
    def __init__(self, code: Code, what: str, **data: Any) -> None:
        super().__init__(what)
        self.code = code
        self.data = data


class Conversation:
    """What one client and the host say to each other.

    Parameters
    ----------
    host : Host
        Who does what is asked.
    report : callable
        Called with an exception that no client can have caused.
    """

    def __init__(self, host: Host, report: Callable[[BaseException], None]) -> None:
        self._host = host
        self._report = report
        self._is_agreed = False

    def answer(self, line: bytes | bytearray) -> bytes | None:
        """Execute what a line asks for; return the line of the answer, if there is to be one.

        Notes
        -----
        A batch is executed in its order, each request of it in full before the next.
        """
        try:
            request = decode_value(memoryview(line))
        except UndecodableError as error:
            return _error(None, Code.PARSE_ERROR, str(error)) + b"\n"
        if not isinstance(request, list):
            answer = self._answer(request)
            return None if answer is None else answer + b"\n"
        if not request:
            return _error(None, Code.INVALID_REQUEST, "a batch without a request") + b"\n"
        answers = [answer for each in request if (answer := self._answer(each)) is not None]
        return b"[" + b",".join(answers) + b"]\n" if answers else None

    def _answer(self, request: object) -> bytes | None:
        request_id: Any = None
        try:
            if not isinstance(request, dict):
                raise _Refusal(Code.INVALID_REQUEST, "a request is an object")
            request_id = _id(request)
            method, params = _parts(request)
        except _Refusal as refusal:
            # it may have been meant as a notification, and is none
            return _error(request_id, refusal.code, str(refusal))
        answer = self._executed(request_id, method, params)
        return answer if "id" in request else None

    def _executed(self, request_id: Any, method: str, params: Any) -> bytes:
        try:
            result = self._result(method, params)
            return encode({"jsonrpc": "2.0", "id": request_id, "result": result})
        except _Refusal as refusal:
            return _error(request_id, refusal.code, str(refusal), **refusal.data)
        except Exception as error:  # noqa: BLE001 - a client gets an answer, whatever it was
            if not isinstance(error, (MmapStoreError, OSError)):
                self._report(error)
            return _failed(request_id, error)

    def _result(self, method: str, params: Any) -> dict[str, Any]:
        if method == HANDSHAKE:
            return self._agreed(params)
        if not self._is_agreed:
            raise _Refusal(
                Code.PROTOCOL_MISMATCH,
                f"{HANDSHAKE} comes first",
                protocolVersion=PROTOCOL_VERSION,
            )
        if method not in METHODS:
            raise _Refusal(Code.METHOD_NOT_FOUND, f"no method {method!r:.100}")
        if not isinstance(params, dict):
            raise _Refusal(Code.INVALID_PARAMS, "parameters are given by name")
        return METHODS[method](self._host, params)

    def _agreed(self, params: Any) -> dict[str, Any]:
        version = params.get("protocolVersion") if isinstance(params, dict) else None
        self._is_agreed = type(version) is int and version == PROTOCOL_VERSION
        if not self._is_agreed:
            raise _Refusal(
                Code.PROTOCOL_MISMATCH,
                f"the protocol's version is {PROTOCOL_VERSION}, not {version!r:.100}",
                protocolVersion=PROTOCOL_VERSION,
            )
        return {"protocolVersion": PROTOCOL_VERSION, "name": "mmapstore", "version": __version__}


def too_long() -> bytes:
    """Return the answer to a line that was not read."""
    what = f"a line of more than {MAX_LINE_NBYTES:,} bytes was not read"
    return _error(None, Code.INVALID_REQUEST, what, limit=MAX_LINE_NBYTES) + b"\n"


def _id(request: dict[str, Any]) -> Any:
    given = request.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, (str, int, float))):
        raise _Refusal(Code.INVALID_REQUEST, "an id is a string, a number or null")
    return given


def _parts(request: dict[str, Any]) -> tuple[str, Any]:
    if request.get("jsonrpc") != "2.0":
        raise _Refusal(Code.INVALID_REQUEST, 'jsonrpc is "2.0"')
    method = request.get("method")
    if not isinstance(method, str):
        raise _Refusal(Code.INVALID_REQUEST, "a method is a string")
    params = request.get("params", {})
    if not isinstance(params, (dict, list)):
        raise _Refusal(Code.INVALID_REQUEST, "params are an object or a list")
    return method, params


def _failed(request_id: Any, error: Exception) -> bytes:
    code = next((_CODES[cls] for cls in type(error).__mro__ if cls in _CODES), Code.INTERNAL)
    if not isinstance(error, MmapStoreError):
        return _error(request_id, code, str(error) or type(error).__name__)
    facts = {
        # what a client of the same library can raise again
        "error": next(
            cls.__name__
            for cls in type(error).__mro__
            if cls.__module__ == MmapStoreError.__module__
        ),
        "path": error.path,
        "offset": error.offset,
        "hint": error.hint,
    }
    given = {key: value for key, value in facts.items() if value is not None}
    return _error(request_id, code, error.what, **given)


def _error(request_id: Any, code: Code, what: str, **data: Any) -> bytes:
    error = {"code": code.value, "message": what, "data": {"kind": code.name, **data}}
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error})
