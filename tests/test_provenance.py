"""Appends of this process: what they lead through, how much of it is remembered, who believes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import Refresh, provenance
from mmapstore.provenance import is_own, note_append, note_creation, only_appended
from mmapstore.stamp import Stamp
from tests.host_support import message, transcript


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(provenance, "_chains", {})
    yield


def state(number: int, file: int = 1) -> Stamp:
    return Stamp(1, file, number, number, number, 7)


def test_a_state_that_nobody_here_wrote_is_in_no_chain() -> None:
    assert not is_own(state(0))
    assert not only_appended(state(0), state(1))


def test_every_earlier_state_leads_to_the_newest() -> None:
    for number in range(9):
        note_append(state(number), state(number + 1))
    assert all(only_appended(state(number), state(9)) for number in range(9))
    assert not only_appended(state(9), state(3))
    assert not only_appended(state(0), state(5))
    assert is_own(state(9))
    assert not is_own(state(5))


def test_a_change_by_another_ends_the_chain() -> None:
    note_append(state(0), state(1))
    note_append(state(5), state(6))
    assert not only_appended(state(0), state(6))
    assert not only_appended(state(1), state(6))
    assert only_appended(state(5), state(6))


def test_a_file_that_was_made_anew_begins_anew() -> None:
    note_append(state(0), state(1))
    note_creation(state(2))
    assert is_own(state(2))
    assert not only_appended(state(1), state(2))
    note_append(state(2), state(3))
    assert only_appended(state(2), state(3))


def test_files_are_told_apart() -> None:
    note_append(state(0, 1), state(1, 1))
    note_append(state(0, 2), state(1, 2))
    assert not only_appended(state(0, 1), state(1, 2))
    other = state(1, 1)._replace(inode_generation=8)
    assert not only_appended(state(0, 1), other)


def test_what_is_remembered_of_a_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "STATE_COUNT", 10)
    for number in range(1000):
        note_append(state(number), state(number + 1))
        (chain,) = provenance._chains.values()
        assert len(chain.states) <= 10
    assert not only_appended(state(0), state(1000))
    assert only_appended(state(996), state(1000))


def test_files_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "FILE_COUNT", 3)
    for file in range(10):
        note_append(state(0, file), state(1, file))
    assert len(provenance._chains) == 3
    assert only_appended(state(0, 9), state(1, 9))
    assert not only_appended(state(0, 0), state(1, 0))


@given(
    st.lists(
        st.tuples(st.sampled_from(["ours", "theirs", "made anew"]), st.integers(0, 2)), max_size=40
    )
)
def test_a_state_is_led_from_by_appends_exactly_if_all_since_were_ours(
    changes: list[tuple[str, int]],
) -> None:
    provenance._chains.clear()
    histories: dict[int, list[tuple[Stamp, str]]] = {
        file: [(state(0, file), "theirs")] for file in range(3)
    }
    for number, (who, file) in enumerate(changes, 1):
        history = histories[file]
        new = state(number, file)
        if who == "ours":
            note_append(history[-1][0], new)
        elif who == "made anew":
            note_creation(new)
        history.append((new, who))
    for history in histories.values():
        newest = history[-1][0]
        for index, (stamp, _) in enumerate(history[:-1]):
            ours = all(who == "ours" for _, who in history[index + 1 :])
            assert only_appended(stamp, newest) is ours
        assert is_own(newest) is (history[-1][1] != "theirs")


# -- readers of the host's process --------------------------------------------------------


class Scans:
    """Counts the scans that a transcript makes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, done: int, total: int) -> None:
        self.count += 1


@pytest.mark.parametrize("access", ["mmap", "pread"])
def test_a_reader_of_the_same_process_extends_by_what_the_host_appends(
    tmp_path: Path, access: Any
) -> None:
    scans = Scans()
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, message("m0"))
        path = transcript(host, session)
        with mmapstore.open(path, access=access, progress=scans, cache_dir=None) as t:
            first = scans.count
            for number in range(1, 30):
                host.append_message(session, message(f"m{number}"))
                if number % 3 == 0:
                    assert t.refresh() is Refresh.APPENDED
                    assert t.position(f"m{number}") == number
            host.append_messages(session, [message(f"n{i}", text="x" * 999) for i in range(99)])
            assert t.refresh() is Refresh.APPENDED
            assert [m["id"] for m in t][-1] == "n98"
            assert t.layout.message_offsets.tolist() == whole(path)
            host.update_message(session, message("m3", text="changed"))
            assert t.refresh() is Refresh.REBUILT
            host.append_message(session, message("last"))
            scans.count = 0
            assert t.refresh() is Refresh.APPENDED
            assert scans.count == 0 < first


def whole(path: Path) -> list[int]:
    with mmapstore.open(path, cache_dir=None) as t:
        return t.layout.message_offsets.tolist()


def test_what_another_writes_between_two_appends_is_read_anew(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, message("m0"))
        path = transcript(host, session)
        with mmapstore.open(path, cache_dir=None) as t:
            host.append_message(session, message("m1"))
            with path.open("ab") as file:
                file.write(b'{"type":"message","id":"theirs","role":"user","blocks":[]}\n')
            host.append_message(session, message("m2"))
            assert t.refresh() is Refresh.REBUILT
            assert [m["id"] for m in t] == ["m0", "m1", "theirs", "m2"]


def test_a_reader_of_another_process_is_told_nothing(tmp_path: Path) -> None:
    """A state is known to who wrote it, and to nobody by what lies on the disk."""
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, message("m0"))
        with mmapstore.open(transcript(host, session), cache_dir=None) as t:
            host.append_message(session, message("m1"))
            provenance._chains.clear()  # as in a process of its own
            assert t.refresh() is Refresh.REBUILT


def test_readers_in_threads_see_every_append_in_order(tmp_path: Path) -> None:
    failures: list[Exception] = []
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, message("m0"))
        path = transcript(host, session)
        done = threading.Event()

        def read() -> None:
            try:
                with mmapstore.open(path, cache_dir=None) as t:
                    last = 1
                    while not done.is_set():
                        t.refresh()
                        count = t.message_count
                        assert count >= last
                        assert t[count - 1]["id"] == f"m{count - 1}"
                        last = count
            except Exception as error:  # noqa: BLE001  # is raised by the test itself
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 300):
            host.append_message(session, message(f"m{number}"))
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
