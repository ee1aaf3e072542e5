"""A queue before a host: whoever has something to say goes on, and one sync does for many.

A record leaves the head of the queue only when it is on the disk or refused. So nothing
overtakes a write that failed, the records of a session keep their order, and an empty
queue means that nothing is missing. Decision record: 0060.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections import deque
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeGuard

from ..decode import decode_value
from ..errors import InvalidRecordError, MmapStoreError, TranscriptChangedError, WriteFailedError
from ..rpc import Code, RpcError, Skipped
from .jsonvalue import encode

#: of one write and one sync: the most messages, and the bytes after which no other is added
_BATCH_COUNT = 1000
_BATCH_NBYTES = 16 << 20


class Appender(Protocol):
    """What an outbox needs: a host, or a client of one."""

    def append_messages(
        self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
    ) -> list[int]:
        """Append messages, durably."""

    def save_active_revision(self, session_id: str) -> Any:
        """Archive the branch that a session ends in."""


class Refused(NamedTuple):
    """A record that the host will not take.

    Attributes
    ----------
    session_id, message, turn_id
        As they were given.
    error : MmapStoreError
        Why.
    """

    session_id: str
    message: dict[str, Any]
    turn_id: str | None
    error: MmapStoreError


class _Record(NamedTuple):
    number: int
    session_id: str
    turn_id: str | None
    text: bytes


class Outbox:
    """Appends in the background, in order, with one sync for each batch.

    Parameters
    ----------
    host : Host or rpc.Client
        What it appends to; stays the caller's, and is closed after the outbox.
    capacity : int
        Messages that wait at most.

    Attributes
    ----------
    refused : list of Refused
        What the host did not take. It is the caller's to look at and to empty.

    Notes
    -----
    Any thread may call any method. At the end of the interpreter an outbox that was not
    closed drains.

    After a failed write the queue waits, the write at its head. The next call raises the
    failure, and with that lets the queue try again. What a client raises whose server has
    gone, a ``ConnectionError``, comes for good: give :attr:`pending` to an outbox of a new
    client. What the old one had written already is not written twice.
    """

    #: what :meth:`save_active_revision` returns for an archive that was not made; false
    SKIPPED: ClassVar[Literal[Skipped.SKIPPED]] = Skipped.SKIPPED

    def __init__(self, host: Appender, capacity: int = 1000) -> None:
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
            message = f"a capacity is a positive integer, not {capacity!r:.100}"
            raise ValueError(message)
        self.refused: list[Refused] = []
        self._host = host
        self._capacity = capacity
        self._queue: deque[_Record] = deque()
        self._last = 0
        self._batch_count = _BATCH_COUNT
        self._error: BaseException | None = None
        #: a write has failed, and no call has told that yet
        self._is_held = False
        self._closing = False
        self._stopped = False
        self._changed = threading.Condition()
        # a daemon, or the interpreter would wait for it before it could be told to end
        self._thread = threading.Thread(target=self._work, name="mmapstore-outbox", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        _outboxes.add(self)

    def __repr__(self) -> str:
        """Show the host, and how much waits."""
        return f"<Outbox to {self._host!r}, {len(self._queue)} waiting>"

    # -- what callers do --------------------------------------------------------------

    @property
    def error(self) -> BaseException | None:
        """Why the write at the head has failed; None while none has, and once it succeeds."""
        return self._error

    @property
    def pending(self) -> list[tuple[str, dict[str, Any], str | None]]:
        """The session, message and turn of each record that is not on the disk, in order."""
        with self._changed:
            waiting = list(self._queue)
        return [(each.session_id, decode_value(each.text), each.turn_id) for each in waiting]

    def append_message(
        self, session_id: str, message: dict[str, Any], turn_id: str | None = None
    ) -> None:
        """Queue a message as it is now; blocks while the queue is full.

        Raises
        ------
        WriteFailedError
            An earlier write has failed; this message was not queued. Ask again.
        ValueError
            The outbox is closed.
        """
        refusal = text = None
        try:
            text = encode(message)
        except InvalidRecordError as error:
            refusal = error
        with self._changed:
            self._check()
            if text is None:
                assert refusal is not None
                self.refused.append(Refused(session_id, message, turn_id, refusal))
                return
            self._changed.wait_for(
                lambda: len(self._queue) < self._capacity or self._is_held or self._closing
            )
            self._check()
            self._last += 1
            self._queue.append(_Record(self._last, session_id, turn_id, text))
            self._changed.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until all that was queued before is on the disk; whether it is.

        Parameters
        ----------
        timeout : float, optional
            Seconds; without it, as long as it takes.

        Returns
        -------
        is_drained : bool
            False when the time is over, or if the outbox was closed with records left.
            What was refused does not wait any more: it is in `refused`.

        Raises
        ------
        WriteFailedError
            A write has failed, before the call or during it. It is tried again.
        """
        with self._changed:
            last = self._last

            def is_drained() -> bool:
                return not self._queue or self._queue[0].number > last

            self._changed.wait_for(lambda: is_drained() or self._is_held or self._stopped, timeout)
            if is_drained():
                return True
            self._tell()
            return False

    def save_active_revision(self, session_id: str, timeout: float | None = None) -> Any:
        """Drain, then archive the branch that a session ends in.

        A branch that lacks a message would be wrong for good, so it is not archived where
        the queue does not drain, in `timeout` seconds if that is given, or where `refused`
        holds a message of the session.

        Returns
        -------
        revision : Revision, None or SKIPPED
            What the host returns; SKIPPED, with a warning, if it was not asked.
        """
        with self._changed:
            if self._closing:
                raise self._closed()
        try:
            reason = None if self.drain(timeout) else "messages still wait"
        except Exception as error:  # noqa: BLE001 - whatever it was, the warning tells it
            reason = str(error)
        if reason is None and any(each.session_id == session_id for each in list(self.refused)):
            reason = "a message of the session was refused"
        if reason is None:
            return self._host.save_active_revision(session_id)
        warnings.warn(
            f"the branch of session {session_id!r} is not archived: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return self.SKIPPED

    def close(self) -> None:
        """Drain, and end the thread; a write that fails is tried once more.

        Raises
        ------
        WriteFailedError
            It failed again. What is left is in `pending`.
        """
        failed = None
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            for _ in range(2):
                if not self._stopped and self._queue:
                    self._is_held = False
                    self._changed.notify_all()
                    self._changed.wait_for(
                        lambda: not self._queue or self._is_held or self._stopped
                    )
            if not self._stopped:
                self._stopped = True
                self._is_held = False
                failed = self._error if self._queue else None
                self._changed.notify_all()
        self._thread.join()
        atexit.unregister(self.close)
        if failed is not None:
            raise failed

    def __enter__(self) -> Self:
        """Return the outbox itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the outbox."""
        self.close()

    def _check(self) -> None:
        if self._closing:
            raise self._closed()
        self._tell()

    def _tell(self) -> None:
        """Raise the failure that no call has told, and let the queue try again."""
        if self._is_held:
            self._is_held = False
            self._changed.notify_all()
            assert self._error is not None
            raise self._error

    @staticmethod
    def _closed() -> ValueError:
        return ValueError("the outbox is closed")

    # -- what its thread does ---------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopped or (bool(self._queue) and not self._is_held)
                )
                if self._stopped:
                    return
                batch = self._next_batch()
            self._send(batch)

    def _next_batch(self) -> list[_Record]:
        """Return the records that go with the head: of its session and turn, in order."""
        head = self._queue[0]
        batch: list[_Record] = []
        nbytes = 0
        for record in self._queue:
            if record.session_id != head.session_id:
                continue
            if (
                record.turn_id != head.turn_id
                or len(batch) == self._batch_count
                or nbytes >= _BATCH_NBYTES
            ):
                break
            batch.append(record)
            nbytes += len(record.text)
        return batch

    def _send(self, batch: list[_Record]) -> None:
        head = batch[0]
        try:
            messages = [decode_value(record.text) for record in batch]
            self._host.append_messages(head.session_id, messages, head.turn_id)
        except BaseException as error:  # noqa: BLE001 - told by the next call, whatever it is
            if _is_refusal(error):
                self._refuse(batch, error)
            else:
                self._hold(error)
            return
        self._batch_count = min(2 * self._batch_count, _BATCH_COUNT)
        with self._changed:
            self._remove(batch)

    def _refuse(self, batch: list[_Record], error: MmapStoreError) -> None:
        if len(batch) > 1:
            # one of them is refused, and none was written: look for it among fewer
            self._batch_count = len(batch) // 2
            return
        head = batch[0]
        refusal = Refused(head.session_id, decode_value(head.text), head.turn_id, error)
        with self._changed:
            self.refused.append(refusal)
            self._remove(batch)

    def _hold(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._is_held = True
            self._changed.notify_all()

    def _remove(self, batch: list[_Record]) -> None:
        numbers = {record.number for record in batch}
        self._queue = deque(record for record in self._queue if record.number not in numbers)
        self._error = None
        self._changed.notify_all()


def _is_refusal(error: BaseException) -> TypeGuard[MmapStoreError]:
    """Whether it is about the record, so that no other try can mend it."""
    if isinstance(error, RpcError) and error.code == Code.INTERNAL:
        return False
    return isinstance(error, MmapStoreError) and not isinstance(
        error, WriteFailedError | TranscriptChangedError
    )


#: a child of this process has no thread that would send what is queued, nor a host
_outboxes: weakref.WeakSet[Outbox] = weakref.WeakSet()


def _forget_in_child() -> None:
    for outbox in list(_outboxes):
        atexit.unregister(outbox.close)
        outbox._changed = threading.Condition()
        outbox._queue = deque()
        outbox._is_held = False
        outbox._closing = outbox._stopped = True


os.register_at_fork(after_in_child=_forget_in_child)
