"""The outbox: what it queues arrives, in order, once; what fails is told and not lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import (
    ConflictError,
    InvalidRecordError,
    InvalidSessionIdError,
    MmapStoreError,
    Outbox,
    SessionNotFoundError,
    TranscriptChangedError,
    WriteFailedError,
    fileio,
)
from mmapstore.host.outbox import Refused
from tests.host_support import failing, ids, lines, message, root_meta, shown, transcript, user

#: no test waits so long but one that has failed
LONG = 60.0


@pytest.fixture
def host(tmp_path: Path) -> Iterator[mmapstore.Host]:
    with mmapstore.Host(tmp_path) as host:
        yield host


@pytest.fixture
def session(host: mmapstore.Host) -> str:
    return host.create_session().id


class Gate:
    """A host that writes when it is let to, and how a test says; it notes what it was asked."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)
        self.is_open = False
        self.failures: list[BaseException | None] = []
        self.batches: list[tuple[str, list[str], str | None]] = []
        self.archived: list[str] = []

    def append_messages(
        self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
    ) -> list[int]:
        self.entered.release()
        if not self.is_open:
            self.allowed.acquire()
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.batches.append((session_id, [each["id"] for each in messages], turn_id))
        return list(range(len(messages)))

    def save_active_revision(self, session_id: str) -> str:
        self.archived.append(session_id)
        return "archived"

    def let(self) -> None:
        self.allowed.release()

    def open(self) -> None:
        self.is_open = True
        self.let()


@contextmanager
def gated(capacity: int = 1000) -> Iterator[tuple[Gate, Outbox]]:
    gate = Gate()
    outbox = Outbox(gate, capacity)
    try:
        yield gate, outbox
    finally:
        gate.failures.clear()
        gate.open()
        outbox.close()


class Aside:
    """A call in another thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.result = call()
        except BaseException as failure:  # noqa: BLE001 - told by get()
            self.failure = failure

    def get(self) -> Any:
        self._thread.join(LONG)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure
        return self.result


def waits(outbox: Outbox, count: int = 1) -> None:
    """Return when so many threads wait for the outbox; its own counts where it has nothing to do."""
    while True:
        with outbox._changed:
            if len(outbox._changed._waiters) >= count:  # type: ignore[attr-defined]
                return


# -- what arrives -----------------------------------------------------------------------


def test_what_is_queued_arrives_in_order(host: mmapstore.Host, session: str) -> None:
    with Outbox(host) as outbox:
        for number in range(50):
            assert outbox.append_message(session, message(f"m{number}"), f"t{number // 10}") is None
        assert outbox.drain() is True
        assert ids(host, session) == [f"m{number}" for number in range(50)]
        assert [m["id"] for m in host.turn_messages(session, "t3")] == [
            f"m{number}" for number in range(30, 40)
        ]
        assert outbox.error is None
        assert outbox.refused == []
        assert outbox.pending == []


def test_one_sync_for_all_that_waits(
    host: mmapstore.Host, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.append_message(session, message("first"))
    syncs = []
    reached, go_on = threading.Event(), threading.Event()
    real = fileio.sync_data

    def sync_data(fd: int) -> None:
        syncs.append(fd)
        if len(syncs) == 1:
            reached.set()
            assert go_on.wait(LONG)
        real(fd)

    monkeypatch.setattr(fileio, "sync_data", sync_data)
    with Outbox(host) as outbox:
        outbox.append_message(session, message("m0"))
        assert reached.wait(LONG)
        for number in range(1, 200):
            outbox.append_message(session, message(f"m{number}"))
        assert outbox.drain(0) is False
        go_on.set()
        assert outbox.drain() is True
    assert len(syncs) == 2
    assert len(ids(host, session)) == 201


def test_a_message_is_taken_as_it_is_when_it_is_queued() -> None:
    with gated() as (gate, outbox):
        given = message("a")
        outbox.append_message("s", given)
        assert gate.entered.acquire(timeout=LONG)
        other = message("b")
        outbox.append_message("s", other)
        other["id"] = "changed"
        other["blocks"].append("changed")
        (_, _, _), (_, waiting, _) = outbox.pending
        assert waiting == message("b")
        gate.open()
        assert outbox.drain()
        assert gate.batches == [("s", ["a"], None), ("s", ["b"], None)]


def test_a_batch_is_of_one_session_and_one_turn_and_keeps_the_order_of_each() -> None:
    with gated() as (gate, outbox):
        outbox.append_message("x", message("first"))
        assert gate.entered.acquire(timeout=LONG)
        for session, name, turn in [
            ("a", "a1", "t1"), ("b", "b1", "t1"), ("a", "a2", "t1"), ("a", "a3", "t2"),
            ("b", "b2", "t1"), ("a", "a4", "t1"), ("b", "b3", None),
        ]:  # fmt: skip
            outbox.append_message(session, message(name), turn)
        gate.open()
        assert outbox.drain()
        assert gate.batches[1:] == [
            ("a", ["a1", "a2"], "t1"),
            ("b", ["b1", "b2"], "t1"),
            ("a", ["a3"], "t2"),
            ("a", ["a4"], "t1"),
            ("b", ["b3"], None),
        ]


def test_a_batch_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmapstore.host.outbox._BATCH_NBYTES", 1000)
    with gated() as (gate, outbox):
        outbox.append_message("x", message("first"))
        assert gate.entered.acquire(timeout=LONG)
        for number in range(5):
            outbox.append_message("s", message(str(number), text="x" * 600))
        gate.open()
        assert outbox.drain()
        assert [names for _, names, _ in gate.batches[1:]] == [["0", "1"], ["2", "3"], ["4"]]


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from([None, "t1", "t2"]), st.booleans()),
        max_size=40,
    )
)
def test_any_records_leave_each_session_in_its_order(
    records: list[tuple[str, str | None, bool]],
) -> None:
    """Against a list: all arrive once, in order; the bad are set aside, in order."""
    taken: dict[str, list[str]] = {"a": [], "b": []}

    class Naive:
        def append_messages(
            self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
        ) -> list[int]:
            if any(each["role"] == "bad" for each in messages):
                raise InvalidRecordError("bad")
            assert all(each["turn"] == turn_id for each in messages)
            taken[session_id] += [each["id"] for each in messages]
            return []

        def save_active_revision(self, session_id: str) -> None:
            raise AssertionError

    with Outbox(Naive(), capacity=7) as outbox:
        for number, (session, turn, is_bad) in enumerate(records):
            role = "bad" if is_bad else "user"
            outbox.append_message(session, message(str(number), role, turn=turn), turn)
        assert outbox.drain() is True
        for name in "ab":
            assert taken[name] == [
                str(number)
                for number, (session, _, is_bad) in enumerate(records)
                if session == name and not is_bad
            ]
            assert [each.message["id"] for each in outbox.refused if each.session_id == name] == [
                str(number)
                for number, (session, _, is_bad) in enumerate(records)
                if session == name and is_bad
            ]


def test_threads_share_an_outbox(host: mmapstore.Host, session: str) -> None:
    with Outbox(host, capacity=5) as outbox:

        def send(writer: int) -> None:
            for number in range(40):
                outbox.append_message(session, message(f"{writer}-{number}"))

        for aside in [Aside(lambda writer=writer: send(writer)) for writer in range(4)]:
            aside.get()
        assert outbox.drain()
    found = ids(host, session)
    assert len(found) == 160
    for writer in range(4):
        assert [name for name in found if name.startswith(f"{writer}-")] == [
            f"{writer}-{number}" for number in range(40)
        ]


# -- a full queue, and draining ---------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -1, 1.5, True, None, "7"])
def test_a_capacity_that_is_none(capacity: Any) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Outbox(Gate(), capacity)


def test_it_blocks_while_it_is_full() -> None:
    with gated(capacity=2) as (gate, outbox):
        outbox.append_message("s", message("a"))
        outbox.append_message("s", message("b"))
        assert gate.entered.acquire(timeout=LONG)
        aside = Aside(lambda: outbox.append_message("s", message("c")))
        waits(outbox)
        assert [each["id"] for _, each, _ in outbox.pending] == ["a", "b"]
        gate.open()
        aside.get()
        assert outbox.drain()
        assert [name for _, names, _ in gate.batches for name in names] == ["a", "b", "c"]


def test_it_waits_for_what_was_queued_before_and_not_for_what_comes_after() -> None:
    with gated() as (gate, outbox):
        assert outbox.drain(0) is True
        outbox.append_message("s", message("a"))
        assert gate.entered.acquire(timeout=LONG)
        assert outbox.drain(0) is False
        assert outbox.drain(-1) is False
        aside = Aside(outbox.drain)
        waits(outbox)
        outbox.append_message("s", message("b"))
        gate.let()
        assert gate.entered.acquire(timeout=LONG)
        assert aside.get() is True  # though b waits
        assert outbox.drain(0) is False


# -- what fails -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        WriteFailedError("full"),
        TranscriptChangedError("changed"),
        OSError(24, "too many"),
        MemoryError(),
        ValueError("the host is closed"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failure_stays_at_the_head_is_told_once_and_tried_again(failure: Exception) -> None:
    with gated() as (gate, outbox):
        gate.failures = [failure]
        outbox.append_message("s", message("a"))
        gate.let()
        with pytest.raises(type(failure)) as told:
            outbox.drain()
        assert told.value is failure
        assert outbox.error is failure
        assert [each["id"] for _, each, _ in outbox.pending] == ["a"]
        assert gate.entered.acquire(timeout=LONG)
        assert gate.entered.acquire(timeout=LONG)  # the other try
        outbox.append_message("s", message("b"))  # it was told
        gate.open()
        assert outbox.drain() is True
        assert outbox.error is None
        assert [name for _, names, _ in gate.batches for name in names] == ["a", "b"]
        assert outbox.refused == []


def test_nothing_is_tried_again_before_a_call() -> None:
    with gated() as (gate, outbox):
        gate.failures = [WriteFailedError("full")]
        outbox.append_message("s", message("a"))
        gate.open()
        waits(outbox)  # its thread: it has failed, and does nothing
        assert isinstance(outbox.error, WriteFailedError)
        assert gate.batches == []
        with pytest.raises(WriteFailedError):
            outbox.append_message("s", message("b"))
        assert outbox.drain() is True
        assert gate.batches == [("s", ["a"], None)]  # b was not queued: its call raised


def test_a_failure_ends_the_wait_for_room() -> None:
    with gated(capacity=1) as (gate, outbox):
        gate.failures = [WriteFailedError("full")]
        outbox.append_message("s", message("a"))
        assert gate.entered.acquire(timeout=LONG)
        aside = Aside(lambda: outbox.append_message("s", message("b")))
        waits(outbox)
        gate.let()
        with pytest.raises(WriteFailedError):
            aside.get()
        gate.open()
        assert outbox.drain()


@pytest.mark.parametrize("mode", ["error", "short", "late"])
@pytest.mark.parametrize("call", ["append", "sync_data"])
def test_the_system_fails_and_nothing_is_lost_or_twice(
    host: mmapstore.Host, session: str, monkeypatch: pytest.MonkeyPatch, call: str, mode: str
) -> None:
    host.append_message(session, message("m0"))
    with Outbox(host) as outbox:
        with failing(monkeypatch, 0, mode, only=call) as made:
            outbox.append_message(session, message("m1"))
            with pytest.raises(WriteFailedError):
                outbox.drain()
            assert outbox.drain() is True
            assert made
        outbox.append_message(session, message("m2"))
        assert outbox.drain() is True
        assert ids(host, session) == ["m0", "m1", "m2"]
        assert outbox.refused == []
    found = [
        line.get("id")
        for line in map(_decoded, transcript(host, session).read_bytes().split(b"\n"))
    ]
    assert [name for name in found if name] == ["m0", "m1", "m2"]


def _decoded(line: bytes) -> dict[str, Any]:
    import orjson

    try:
        record: dict[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return record


# -- what is refused --------------------------------------------------------------------


def test_what_the_host_refuses_is_set_aside_and_the_queue_goes_on(
    host: mmapstore.Host, session: str
) -> None:
    host.append_message(session, message("there"))
    wrong: list[tuple[str, Any, str | None, type[MmapStoreError]]] = [
        (session, message("there", text="other"), None, ConflictError),
        (session, {"id": "x", "role": "nobody", "blocks": []}, None, InvalidRecordError),
        (session, {"role": "user", "blocks": []}, None, InvalidRecordError),
        (session, "no object", None, InvalidRecordError),
        (session, {"id": "x", "role": "user", "blocks": [float("nan")]}, None, InvalidRecordError),
        (session, {"id": "x", "role": "user", "blocks": [object]}, None, InvalidRecordError),
        (session, {"id": "x", "role": "user", "blocks": (1, 2)}, None, InvalidRecordError),
        (session, message("y"), "", InvalidRecordError),
        ("nobody", message("z"), None, SessionNotFoundError),
        ("../z", message("z"), None, InvalidSessionIdError),
    ]
    with Outbox(host) as outbox:
        for number, (where, record, turn, _) in enumerate(wrong):
            outbox.append_message(session, message(f"m{number}"))
            outbox.append_message(where, record, turn)
        outbox.append_message(session, message("last"))
        assert outbox.drain() is True
        assert outbox.error is None
        by_class = sorted(type(each.error).__name__ for each in outbox.refused)
        assert by_class == sorted(cls.__name__ for *_, cls in wrong)
        conflict = next(each for each in outbox.refused if isinstance(each.error, ConflictError))
        assert conflict == Refused(session, message("there", text="other"), None, conflict.error)
    assert ids(host, session) == ["there", *(f"m{number}" for number in range(10)), "last"]


def test_one_refused_among_many_costs_few_tries() -> None:
    calls = 0

    class Picky(Gate):
        def append_messages(
            self, session_id: str, messages: list[dict[str, Any]], turn_id: str | None = None
        ) -> list[int]:
            nonlocal calls
            calls += 1
            if len(messages) == 1 and messages[0]["id"] == "first":
                return super().append_messages(session_id, messages, turn_id)
            if any(each["id"] == "617" for each in messages):
                raise InvalidRecordError("no")
            self.batches.append((session_id, [each["id"] for each in messages], turn_id))
            return []

    gate = Picky()
    with Outbox(gate) as outbox:
        outbox.append_message("s", message("first"))
        assert gate.entered.acquire(timeout=LONG)
        for number in range(999):
            outbox.append_message("s", message(str(number)))
        gate.let()
        assert outbox.drain()
        assert [each.message["id"] for each in outbox.refused] == ["617"]
    names = [name for _, batch, _ in gate.batches for name in batch]
    assert names == ["first", *(str(number) for number in range(999) if number != 617)]
    assert calls < 60


# -- archiving --------------------------------------------------------------------------


def test_an_outbox_that_cannot_drain_skips_the_archive(
    host: mmapstore.Host, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.append_messages(session, [user("u"), message("a1")])
    host.save_revision(session, "u", [message("a0")])
    before = host.list_revisions(session, "u")
    with Outbox(host) as outbox:
        with monkeypatch.context() as patch:

            def sync_data(fd: int) -> None:
                raise OSError(5, "injected")

            patch.setattr(fileio, "sync_data", sync_data)
            outbox.append_message(session, message("a2"))
            for _ in range(3):
                with pytest.warns(RuntimeWarning, match="not archived.*injected"):
                    assert outbox.save_active_revision(session) is outbox.SKIPPED
        assert host.list_revisions(session, "u") == before
        assert not Outbox.SKIPPED
        # whatever the last try came to, it has been told or is told now
        while True:
            try:
                assert outbox.drain() is True
                break
            except WriteFailedError:
                continue
        saved = outbox.save_active_revision(session)
        assert saved is not None
        assert (saved.root_user_id, saved.is_active, saved.message_count) == ("u", True, 3)
        assert ids(host, session) == ["u", "a1", "a2"]


def test_it_archives_what_was_queued(host: mmapstore.Host, session: str) -> None:
    with Outbox(host) as outbox:
        outbox.append_message(session, user("u", meta=root_meta("u", 2, 2)))
        outbox.append_message(session, message("a"))
        saved = outbox.save_active_revision(session)
        assert (saved.root_user_id, saved.index, saved.message_count) == ("u", 2, 2)
        outbox.append_message(session, user("v"))
        other = host.create_session().id
        assert outbox.save_active_revision(other) is None  # no family: not the same as skipped


def test_time_that_is_over_skips_the_archive() -> None:
    with gated() as (gate, outbox):
        outbox.append_message("s", message("a"))
        with pytest.warns(RuntimeWarning, match="'s' is not archived: messages still wait"):
            assert outbox.save_active_revision("s", timeout=0) is Outbox.SKIPPED
        assert gate.archived == []
        gate.open()
        assert outbox.save_active_revision("s") == "archived"


def test_a_refused_message_skips_the_archive_of_its_session_alone(
    host: mmapstore.Host, session: str
) -> None:
    other = host.create_session().id
    with Outbox(host) as outbox:
        for each in (session, other):
            outbox.append_message(each, user(f"u-{each}", meta=root_meta(f"u-{each}", 1, 1)))
        outbox.append_message(session, {"id": "no"})
        with pytest.warns(RuntimeWarning, match="refused"):
            assert outbox.save_active_revision(session) is outbox.SKIPPED
        assert outbox.save_active_revision(other).index == 1
        outbox.refused.clear()  # taken notice of
        assert outbox.save_active_revision(session).index == 1


# -- the end ----------------------------------------------------------------------------


def test_close_drains_and_may_be_called_twice(host: mmapstore.Host, session: str) -> None:
    outbox = Outbox(host)
    for number in range(100):
        outbox.append_message(session, message(f"m{number}"))
    outbox.close()
    outbox.close()
    assert len(ids(host, session)) == 100
    assert not outbox._thread.is_alive()
    for call in (
        lambda: outbox.append_message(session, message("x")),
        lambda: outbox.save_active_revision(session),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert outbox.drain() is True


@pytest.mark.parametrize("is_known", [False, True])
def test_close_mends_a_failure_that_passes(is_known: bool) -> None:
    gate = Gate()
    outbox = Outbox(gate)
    gate.failures = [WriteFailedError("full")]
    outbox.append_message("s", message("a"))
    if is_known:
        gate.open()
        waits(outbox)  # its thread, which has failed
        assert outbox.error is not None
    else:
        assert gate.entered.acquire(timeout=LONG)
        closing = Aside(outbox.close)
        waits(outbox)
        gate.open()
        closing.get()
    outbox.close()
    assert gate.batches == [("s", ["a"], None)]
    assert outbox.pending == []


def test_close_tells_a_failure_that_stays_and_keeps_what_is_left() -> None:
    gate = Gate()
    gate.open()
    gate.failures = [WriteFailedError("full") for _ in range(10)]
    outbox = Outbox(gate)
    outbox.append_message("s", message("a"), "t")
    with pytest.raises(WriteFailedError):
        outbox.close()
    outbox.close()
    assert outbox.pending == [("s", message("a"), "t")]
    assert outbox.drain() is False
    assert not outbox._thread.is_alive()
    assert isinstance(outbox.error, WriteFailedError)


def test_close_ends_the_waits_of_others() -> None:
    gate = Gate()
    outbox = Outbox(gate, capacity=1)
    outbox.append_message("s", message("a"))
    assert gate.entered.acquire(timeout=LONG)
    blocked = Aside(lambda: outbox.append_message("s", message("b")))
    draining = Aside(outbox.drain)
    waits(outbox, 2)
    closing = [Aside(outbox.close), Aside(outbox.close)]
    with pytest.raises(ValueError, match="closed"):
        blocked.get()
    gate.open()
    for each in closing:
        each.get()
    assert draining.get() is True
    assert gate.batches == [("s", ["a"], None)]


def test_a_host_that_is_closed_first_keeps_nothing_secret(tmp_path: Path) -> None:
    host = mmapstore.Host(tmp_path)
    session = host.create_session().id
    outbox = Outbox(host)
    host.close()
    outbox.append_message(session, message("a"))
    with pytest.raises(ValueError, match="the host is closed"):
        outbox.close()
    assert [each["id"] for _, each, _ in outbox.pending] == ["a"]


def _child(code: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        capture_output=True,
        check=False,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )


EXIT = """
import sys, mmapstore
host = mmapstore.Host(sys.argv[1])
session = host.create_session().id
outbox = mmapstore.Outbox(host)
for number in range(500):
    outbox.append_message(session, {"id": f"m{number}", "role": "user", "blocks": []})
print(session, flush=True)
if sys.argv[2] == "raise":
    raise SystemExit(3)
if sys.argv[2] == "closed":
    host.close()
"""


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 3)])
def test_it_drains_at_the_end_of_the_interpreter(tmp_path: Path, how: str, code: int) -> None:
    done = _child(EXIT, str(tmp_path), how)
    assert (done.returncode, done.stderr) == (code, b"")
    path = tmp_path / "sessions" / f"{done.stdout.decode().strip()}.jsonl"
    assert [line["id"] for line in lines(path)[1:]] == [f"m{number}" for number in range(500)]


def test_the_end_of_the_interpreter_tells_what_could_not_be_written(tmp_path: Path) -> None:
    done = _child(EXIT, str(tmp_path), "closed")
    path = tmp_path / "sessions" / f"{done.stdout.decode().strip()}.jsonl"
    assert (b"the host is closed" in done.stderr) == (len(lines(path)) < 501)


FORK = """
import os, sys, mmapstore
host = mmapstore.Host(sys.argv[1])
session = host.create_session().id
outbox = mmapstore.Outbox(host)
for number in range(50):
    outbox.append_message(session, {"id": f"m{number}", "role": "user", "blocks": []})
    if number == 25 and not os.fork():
        try:
            outbox.append_message(session, {"id": "child", "role": "user", "blocks": []})
        except ValueError:
            outbox.close()
            sys.exit(0)
        os._exit(9)
_, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 0
outbox.close()
assert len(host.get_session(session, limit=None).messages) == 50
host.close()
"""


def test_a_child_of_the_process_has_no_outbox(tmp_path: Path) -> None:
    # a fork beside threads is what is looked at here
    done = _child("import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n" + FORK,
                  str(tmp_path))  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_it_is_reached_without_the_reading_side_paying_for_it() -> None:
    code = "import sys, mmapstore; assert 'mmapstore.rpc' not in sys.modules; mmapstore.Outbox"
    assert _child(code).returncode == 0


def test_what_was_shown_is_what_was_queued(host: mmapstore.Host, session: str) -> None:
    odd = message("odd", text="\ud800 \u2028", big=2**64, deep={"a": [[[[]]]]})
    with Outbox(host) as outbox:
        outbox.append_message(session, odd)
    assert shown(host, session) == [odd]
