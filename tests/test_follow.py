"""Following: each new message once and in order, whatever happens to the file."""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import types
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import follow as follow_module
from mmapstore import watch as watch_module
from mmapstore.fileio import open_regular
from mmapstore.provenance import note_append
from mmapstore.stamp import stamp_of_open
from mmapstore.watch import Waiter

HEADER = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-02T03:04:05Z"}\n'
REVIEW = b'{"type":"tool_review_state","messageId":"a","snapshotId":"s","state":"active"}\n'
COMPACTION = b'{"type":"compaction","id":"k","summary":"x","throughMessageId":"a"}\n'


def message(message_id: str, text: str = "") -> bytes:
    record = {"type": "message", "id": message_id, "role": "user", "blocks": [{"text": text}]}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


A, B, C, D = map(message, "abcd")


def messages_of(data: bytes) -> list[bytes]:
    """Return the complete lines that a parser finds to be messages."""
    lines = data.split(b"\n")[:-1]
    return [
        line + b"\n" for line in lines if line.strip() and json.loads(line).get("type") == "message"
    ]


@dataclass
class Consumer:
    """Keeps what it is given, by position, and forgets it at a reset."""

    have: dict[int, bytes] = field(default_factory=dict)
    resets: list[bool] = field(default_factory=list)
    start: int = 0

    def take(self, window: mmapstore.Window) -> None:
        self.resets.append(window.reset)
        if window.reset:
            self.have.clear()
            self.start = 0
        assert window.reset or len(window)
        assert window.start == self.start + len(self.have)
        self.have.update(
            zip(range(window.start, window.stop), map(bytes, window.lines), strict=True)
        )

    @property
    def lines(self) -> list[bytes]:
        return list(self.have.values())


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


_seconds = iter(range(1_000_000_000, 2_000_000_000))


def rewrite(path: Path, data: bytes) -> None:
    """Write a file anew in place, at a time of its own, however fast the test is."""
    path.write_bytes(data)
    second = next(_seconds)
    os.utime(path, (second, second))


def replace(path: Path, data: bytes) -> None:
    beside = path.with_name("new")
    beside.write_bytes(data)
    beside.replace(path)


def followed(t: mmapstore.Transcript, *steps, **keywords) -> Consumer:
    """Follow a transcript; whenever there is nothing new, take the next step, or end."""
    rest = iter(steps)

    def wait() -> bool:
        step = next(rest, None)
        if step is not None:
            step()
        return step is not None

    consumer = Consumer(start=keywords.get("after", t.message_count))
    for window in t.follow(wait=wait, **keywords):
        consumer.take(window)
    assert next(rest, None) is None
    return consumer


# -- growth -------------------------------------------------------------------------------


def test_by_default_it_gives_what_comes_from_now_on(write, access):
    path = write(HEADER + A)
    with mmapstore.open(path, access=access, trust="append-only") as t:
        following = t.follow(wait=lambda: False)
        append(path, B + C)
        t.refresh()
        (window,) = following
        assert [bytes(line) for line in window.lines] == [B, C]
        assert (window.start, window.stop, window.total, window.reset) == (1, 3, 3, False)
        assert list(t.follow(wait=lambda: False)) == []


def test_what_came_since_the_last_refresh_is_new(write):
    path = write(HEADER + A)
    with mmapstore.open(path) as t:
        append(path, B)
        assert followed(t).lines == [B]


def test_it_goes_on_from_a_windows_stop(write):
    path = write(HEADER + A + B + C)
    with mmapstore.open(path) as t:
        after = t.window(after=0, limit=2).stop
        assert followed(t, lambda: append(path, D), after=after).lines == [C, D]


def test_growth_byte_by_byte_gives_a_message_when_its_newline_is_there(write, access):
    """A1.3 for a follower."""
    path = write(b"")
    data = HEADER + A + REVIEW + B + b"\n" + COMPACTION + C
    consumer, given_at = Consumer(), []
    with mmapstore.open(path, access=access, dialect="native") as t:
        nbytes = 0

        def wait() -> bool:
            nonlocal nbytes
            append(path, data[nbytes : nbytes + 1])
            nbytes += 1
            return nbytes <= len(data)

        for window in t.follow(wait=wait):
            consumer.take(window)
            given_at.append(nbytes)
    assert consumer.lines == [A, B, C]
    assert given_at == [data.index(line) + len(line) for line in (A, B, C)]
    assert not any(consumer.resets)


def test_a_torn_tail_is_given_when_it_is_completed(write):
    path = write(HEADER + A + B[:9])
    with mmapstore.open(path) as t:
        consumer = followed(
            t, lambda: append(path, B[9:-1]), lambda: append(path, b"\n" + C[:1]), after=0
        )
        assert consumer.lines == [A, B]
        assert consumer.resets == [False, False]


def test_windows_are_bounded_in_count_and_in_bytes(write):
    path = write(HEADER + b"".join(message(f"m{n}") for n in range(7)))
    nbytes = len(message("m0"))
    with mmapstore.open(path) as t:
        by_count = list(t.follow(after=0, limit=3, wait=lambda: False))
        assert [len(window) for window in by_count] == [3, 3, 1]
        by_nbytes = t.follow(after=0, max_nbytes=2 * nbytes + 1, wait=lambda: False)
        assert [len(window) for window in by_nbytes] == [2, 2, 2, 1]
        by_line = t.follow(after=0, max_nbytes=1, wait=lambda: False)
        assert [len(window) for window in by_line] == [1] * 7


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"after": -1}, ValueError),
        ({"limit": 0}, ValueError),
        ({"max_nbytes": 0}, ValueError),
        ({"after": "1"}, TypeError),
        ({"limit": None}, TypeError),
    ],
)
def test_what_cannot_be_meant_is_refused_at_the_call(write, keywords, error):
    with mmapstore.open(write(HEADER)) as t, pytest.raises(error):
        t.follow(**keywords)


# -- a repeated id ------------------------------------------------------------------------


def test_a_repeated_id_comes_as_an_update(write, access):
    path = write(HEADER + A + B)
    second, third = message("a", "second"), message("a", "third")
    with mmapstore.open(path, access=access) as t:
        steps = iter([second, C + third + C, D])

        def wait() -> bool:
            data = next(steps, b"")
            append(path, data)
            return bool(data)

        windows = [
            ([bytes(line) for line in window.lines], window.updates, window.messages)
            for window in t.follow(wait=wait)
        ]
        (one, updated, (shown,)), (two, again, folded), (_, none, _) = windows
        assert (one, updated, shown) == ([second], [2], json.loads(second))
        # C stands before itself in the same window
        assert (two, again) == ([C, third, C], [4, 5])
        assert folded == [json.loads(C), json.loads(third)]
        assert none == []


def test_updates_are_told_of_any_window(write):
    damaged = b'{"type":"message","id":"a","blocks":[\n'
    without = b'{"type":"message"}\n'
    path = write(HEADER + A + damaged + A + without + without + B + A)
    with mmapstore.open(path) as t:
        assert t.window().updates == [2, 6]
        assert t.window(before=2).updates == []
        assert t.window(after=3).updates == [6]
    with mmapstore.open(path, dialect="generic") as t:
        assert t.window().updates == []


def test_ids_of_one_checksum_are_told_apart(write):
    # both have the CRC-32 0x4DDB0C25
    path = write(HEADER + message("plumless") + message("buckeroo"))
    with mmapstore.open(path) as t:
        assert t.window().updates == []


# -- anything but growth ------------------------------------------------------------------

LONGER = HEADER + D + C + B + A
SAME = HEADER + C + B
SHORTER = HEADER + D


@pytest.mark.parametrize("data", [LONGER, SAME, SHORTER])
@pytest.mark.parametrize("how", [rewrite, replace])
def test_a_file_that_was_rewritten_is_given_anew(write, access, how, data):
    path = write(HEADER + A + B)
    with mmapstore.open(path, access=access) as t:
        consumer = followed(t, lambda: how(path, data), lambda: append(path, C), after=0)
        assert consumer.lines == [*messages_of(data), C]
        assert consumer.resets == [False, True, False]


def test_a_reset_is_told_once_and_in_pages(write):
    path = write(HEADER + A + B)
    with mmapstore.open(path) as t:
        consumer = followed(t, lambda: replace(path, LONGER), limit=3)
        assert consumer.lines == [D, C, B, A]
        assert consumer.resets == [True, False]


@pytest.mark.parametrize(
    "data", [b"", HEADER, HEADER + A[:5]], ids=["empty", "header alone", "torn tail alone"]
)
@pytest.mark.parametrize("how", [rewrite, replace])
def test_a_file_that_lost_all_its_messages_is_an_empty_reset(write, how, data):
    path = write(HEADER + A + B)
    with mmapstore.open(path) as t:
        consumer = followed(t, lambda: how(path, data), after=0)
        assert consumer.lines == []
        assert consumer.resets == [False, True]


def test_what_is_left_of_a_truncated_file_is_given_anew(write, access):
    path = write(HEADER + A + B + C)
    with mmapstore.open(path, access=access) as t:
        consumer = followed(
            t,
            lambda: os.truncate(path, len(HEADER + A) + 7),
            lambda: append(path, B[7:] + D),
            after=0,
        )
        assert consumer.lines == [A, B, D]
        assert consumer.resets == [False, True, False]


def test_truncation_and_growth_between_two_looks_is_no_growth(write):
    path = write(HEADER + A + B)

    def change() -> None:
        os.truncate(path, len(HEADER + A))
        append(path, C + D)

    with mmapstore.open(path) as t:
        consumer = followed(t, change, after=0)
        assert (consumer.lines, consumer.resets) == ([A, C, D], [False, True])


def test_a_change_in_the_midst_of_catching_up_begins_anew(write):
    path = write(HEADER + A + B + C)
    with mmapstore.open(path) as t:
        consumer = Consumer()
        for window in t.follow(after=0, limit=1, wait=lambda: False):
            consumer.take(window)
            if consumer.lines == [A, B]:
                replace(path, HEADER + D)
        assert (consumer.lines, consumer.resets) == ([D], [False, False, True])


def test_a_position_that_the_file_does_not_have_is_a_reset(write):
    path = write(HEADER + A + B)
    with mmapstore.open(path) as t:
        assert followed(t, after=2).resets == []
        consumer = followed(t, after=3)
        assert (consumer.lines, consumer.resets) == ([A, B], [True])


# -- a file that is not there -------------------------------------------------------------


def test_a_deleted_file_is_waited_for(write, access):
    path = write(HEADER + A)
    errors = []
    steps = [
        path.unlink,
        lambda: None,
        lambda: path.write_bytes(HEADER + B),
        lambda: append(path, C),
        path.unlink,
        lambda: path.write_bytes(b""),
    ]
    with mmapstore.open(path, access=access) as t:
        consumer = followed(t, *steps[:2], lost=errors.append)
        assert (consumer.lines, bytes(t.line(0))) == ([], A)
        assert [type(error) for error in errors] == [FileNotFoundError]
        consumer = followed(t, *steps[2:4], lost=errors.append)
        assert (consumer.lines, consumer.resets) == ([B, C], [True, False])
        consumer = followed(t, *steps[4:], lost=errors.append)
        assert (consumer.lines, consumer.resets) == ([], [True])
        # once each time: the file was away three times as each following began or went on
        assert len(errors) == 3


def test_a_loss_is_told_once_until_the_file_is_back(write):
    path = write(HEADER + A)
    errors = []
    with mmapstore.open(path) as t:
        followed(
            t,
            path.unlink,
            lambda: None,
            lambda: path.mkdir(),
            path.rmdir,
            lambda: path.write_bytes(HEADER),
            lambda: None,
            path.unlink,
            lambda: None,
            lost=errors.append,
        )
    assert [type(error) for error in errors] == [FileNotFoundError, FileNotFoundError]


def test_a_file_that_vanishes_is_given_to_its_end(write, access):
    """A12.6 for a follower: what was counted is given, though the file is gone."""
    path = write(HEADER + A + B + C)
    with mmapstore.open(path, access=access) as t:
        consumer = Consumer()
        for window in t.follow(after=0, limit=1, wait=lambda: False):
            consumer.take(window)
            path.unlink(missing_ok=True)
            assert window.total == 3
        assert consumer.lines == [A, B, C]
        assert not any(consumer.resets)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("put", "error"),
    [
        (Path.mkdir, mmapstore.NotATranscriptError),
        (_fifo, mmapstore.NotATranscriptError),
        (lambda path: path.write_bytes(b"plain text\n"), mmapstore.NotATranscriptError),
        (lambda path: path.write_bytes(b"\x28\xb5\x2f\xfd"), mmapstore.NotATranscriptError),
        (lambda path: path.symlink_to(path), OSError),
        (lambda path: path.symlink_to("nowhere"), FileNotFoundError),
    ],
    ids=["directory", "fifo", "text", "zstd", "loop", "dangling link"],
)
def test_something_else_at_the_path_is_waited_out(write, put, error):
    path = write(HEADER + A)

    def instead() -> None:
        path.unlink()
        put(path)

    def back() -> None:
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(HEADER + B)

    errors = []
    with mmapstore.open(path) as t:
        consumer = followed(t, instead, lambda: None, back, lost=errors.append)
        assert (consumer.lines, consumer.resets) == ([B], [True])
    assert [isinstance(told, error) for told in errors] == [True]


def test_a_file_that_may_not_be_read_is_waited_out(write, monkeypatch):
    path = write(HEADER + A)
    opens = iter([PermissionError(errno.EACCES, "Permission denied"), None])

    def opened(name: str) -> object:
        if error := next(opens):
            raise error
        return open_regular(name)

    errors = []
    with mmapstore.open(path) as t:
        monkeypatch.setattr(mmapstore.loader, "open_regular", opened)
        consumer = followed(t, lambda: replace(path, HEADER + B), lambda: None, lost=errors.append)
        assert (consumer.lines, consumer.resets) == ([B], [True])
    assert [type(error) for error in errors] == [PermissionError]


def test_a_directory_that_is_removed_and_made_again(tmp_path):
    directory = tmp_path / "d"
    path = directory / "t.jsonl"

    def make(data: bytes) -> None:
        directory.mkdir()
        path.write_bytes(data)

    def remove() -> None:
        path.unlink()
        directory.rmdir()

    make(HEADER + A)
    with mmapstore.open(path) as t:
        consumer = followed(t, remove, lambda: make(HEADER + B), lambda: append(path, C))
        assert (consumer.lines, consumer.resets) == ([B, C], [True, False])


# -- ends ---------------------------------------------------------------------------------


class Recorded:
    """A waiter that notes what is done with it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.closed = 0
        made.append(self)

    def __call__(self) -> bool:
        if self.path in interrupted:
            raise KeyboardInterrupt
        append(Path(self.path), A)
        return True

    def close(self) -> None:
        self.closed += 1


made: list[Recorded] = []
interrupted: list[str] = []


@pytest.fixture
def recorded(monkeypatch):
    monkeypatch.setattr(follow_module, "Waiter", Recorded)
    yield made
    made.clear()
    interrupted.clear()


def test_a_follower_that_is_closed_stops_waiting(write, recorded):
    path = write(HEADER)
    with mmapstore.open(path, dialect="native") as t:
        following = t.follow()
        assert [len(next(following)), len(next(following))] == [1, 1]
        following.close()
        (waiter,) = recorded
        assert (waiter.path, waiter.closed) == (str(path), 1)
        assert list(following) == []
        assert t.message_count == 2


def test_ctrl_c_while_waiting_passes_and_costs_nothing(write, recorded):
    path = write(HEADER + A)
    interrupted.append(str(path))
    with mmapstore.open(path) as t:
        with pytest.raises(KeyboardInterrupt):
            next(t.follow())
        assert [waiter.closed for waiter in recorded] == [1]
        append(path, B)
        assert followed(t).lines == [B]


def test_closing_the_transcript_ends_it_quietly(write):
    path = write(HEADER + A)
    t = mmapstore.open(path)
    consumer = followed(t, t.close, after=0)
    assert consumer.lines == [A]
    with pytest.raises(ValueError, match="closed"):
        t.follow()


def test_closing_it_between_two_windows_ends_it_as_well(write):
    t = mmapstore.open(write(HEADER + A + B))
    following = t.follow(after=0, limit=1)
    window = next(following)
    t.close()
    assert list(following) == []
    assert [bytes(line) for line in window.lines] == [A]


def test_an_error_of_the_callers_own_is_not_taken_for_an_end(write):
    def wait() -> bool:
        message = "not a matter of the transcript"
        raise ValueError(message)

    with mmapstore.open(write(HEADER)) as t, pytest.raises(ValueError, match="not a matter"):
        next(t.follow(wait=wait))


def test_replacements_do_not_keep_files_open(write, open_fds):
    path = write(HEADER + A)
    with mmapstore.open(path) as t:
        gc.collect()
        before = open_fds()
        steps = [lambda: replace(path, LONGER), path.unlink, lambda: path.write_bytes(SAME)] * 5
        followed(t, *steps)
        assert open_fds() == before


# -- others who look at the same transcript -----------------------------------------------


def _host_append(t: mmapstore.Transcript, path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        before = stamp_of_open(file.fileno())
        file.write(data)
        note_append(before, stamp_of_open(file.fileno()))
    assert t.refresh()


def test_what_the_host_appends_is_given_as_growth(write):
    path = write(HEADER + A)
    with mmapstore.open(path) as t:
        consumer = followed(
            t, lambda: _host_append(t, path, B), lambda: _host_append(t, path, C[:4]), after=0
        )
        assert (consumer.lines, consumer.resets) == ([A, B], [False, False])


def _by_someone_else(t: mmapstore.Transcript, change, *rest) -> None:
    change(*rest)
    t.refresh()


def test_growth_that_someone_else_found_is_given_once(write, access):
    path = write(HEADER + A)
    with mmapstore.open(path, access=access, trust="append-only") as t:
        consumer = followed(
            t,
            lambda: _by_someone_else(t, append, path, B),
            lambda: (_by_someone_else(t, append, path, C), append(path, D)),
            after=0,
        )
        assert (consumer.lines, consumer.resets) == ([A, B, C, D], [False] * 3)


def test_a_rebuild_that_someone_else_did_is_a_reset(write):
    path = write(HEADER + A + B)

    def shrink_and_grow() -> None:
        # the bytes end up as a growth, and yet they were not one
        _by_someone_else(t, os.truncate, path, len(HEADER + A))
        _by_someone_else(t, append, path, B + C)

    with mmapstore.open(path, trust="append-only") as t:
        consumer = followed(t, shrink_and_grow, after=0)
        assert (consumer.lines, consumer.resets) == ([A, B, C], [False, True])


def test_lines_that_turned_out_to_be_others_are_a_reset(write):
    path = write(HEADER + A + B)

    def spoil() -> None:
        status = path.stat()
        with path.open("r+b") as file:
            file.seek(len(HEADER))
            file.write(b" " * (len(A) - 1))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(mmapstore.TranscriptChangedError):
            t.line(0)

    with mmapstore.open(path, access="pread", dialect="native") as t:
        consumer = followed(t, spoil, after=0)
        assert (consumer.lines, consumer.resets) == ([B], [False, True])


def test_it_looks_again_before_it_waits_where_someone_else_looked_first(write, monkeypatch):
    path = write(HEADER + A)
    refresh = mmapstore.Transcript._refresh
    with mmapstore.open(path) as t:
        # another thread was refreshing, and may have looked before this was written
        beaten = iter([mmapstore.Refresh.REBUILT])
        monkeypatch.setattr(
            mmapstore.Transcript,
            "_refresh",
            lambda self, trust: next(beaten, None) or refresh(self, trust),
        )
        append(path, B)
        assert followed(t).lines == [B]


def test_two_followers_of_one_transcript_both_get_everything(write):
    path = write(HEADER + A)
    with mmapstore.open(path) as t:
        consumers = [Consumer(), Consumer()]
        followers = [t.follow(after=0, limit=1, wait=lambda: False) for _ in consumers]
        consumers[0].take(next(followers[0]))
        replace(path, HEADER + B + C)
        consumers[0].take(next(followers[0]))
        append(path, D)
        for consumer, follower in zip(consumers, followers, strict=True):
            for window in follower:
                consumer.take(window)
        assert [consumer.lines for consumer in consumers] == [[B, C, D]] * 2
        # the second began on a file that was replaced before it looked
        assert consumers[1].resets == [True, False, False]


def test_threads_that_write_and_refresh_lose_and_double_nothing(write):
    count = 400
    path = write(HEADER)
    expected = [message(f"m{n}") for n in range(count)]
    with mmapstore.open(path, trust="append-only") as t:
        over = threading.Event()

        def refresh() -> None:
            while not over.is_set():
                t.refresh()

        def grow() -> None:
            data = b"".join(expected)
            with path.open("ab", buffering=0) as file:
                for start in range(0, len(data), 97):
                    file.write(data[start : start + 97])

        refreshers = [threading.Thread(target=refresh) for _ in range(2)]
        writer = threading.Thread(target=grow)
        threads = [*refreshers, writer]

        def wait() -> bool:
            # once more after the last byte was written
            alive = writing[0]
            writing[0] = writer.is_alive()
            return alive

        writing = [True]
        consumer = Consumer()
        following = t.follow(limit=50, wait=wait)
        for thread in threads:
            thread.start()
        try:
            for window in following:
                consumer.take(window)
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert consumer.lines == expected
    assert not any(consumer.resets)


# -- files that no line says the dialect of -----------------------------------------------


def test_an_empty_file_that_gets_messages_has_grown(write):
    path = write(b"")
    with mmapstore.open(path) as t:
        consumer = followed(t, lambda: append(path, HEADER + A), lambda: append(path, B))
        assert (consumer.lines, consumer.resets) == ([A, B], [False, False])
        assert t.dialect.name == "native"


def test_growth_of_a_file_of_no_known_dialect_is_growth(write):
    one, two, three = (b'{"n":%d}\n' % n for n in (1, 2, 3))
    path = write(one)
    with mmapstore.open(path) as t:
        assert t.dialect.name == "generic"
        consumer = followed(
            t, lambda: append(path, two + three[:3]), lambda: append(path, three[3:]), after=0
        )
        assert (consumer.lines, consumer.resets) == ([one, two, three], [False] * 3)
        consumer = followed(t, lambda: rewrite(path, three + two + one + one))
        assert (consumer.lines, consumer.resets) == ([three, two, one, one], [True])


def test_a_dialect_that_becomes_known_is_a_reset_if_messages_were_given(write):
    path = write(b'{"n":1}\n')
    with mmapstore.open(path) as t:
        consumer = followed(t, lambda: append(path, HEADER + A), after=0)
        assert t.dialect.name == "native"
        assert (consumer.lines, consumer.resets) == ([A], [False, True])


def test_a_lagging_cache_is_followed_on_from(write, tmp_path):
    path = write(HEADER + A + B)
    os.utime(path, (1, 1))
    with mmapstore.open(path, cache_dir=tmp_path / "cache"):
        pass
    append(path, C)
    with mmapstore.open(path, cache_dir=tmp_path / "cache", trust="append-only") as t:
        consumer = followed(t, lambda: append(path, D), after=0)
        assert (consumer.lines, consumer.resets) == ([A, B, C, D], [False, False])


def test_a_cache_that_turns_out_to_be_wrong_costs_no_message(write, tmp_path):
    long = message("long", "x" * 5000)
    path = write(HEADER + A + long)
    os.utime(path, (1, 1))
    with mmapstore.open(path, cache_dir=tmp_path / "cache"):
        pass
    other = b'{"type":"message","id":"z"}\n'
    # what the cache goes by is as it was, the end of the long line and the size before it
    other += b" " * (len(A) - len(other) - 1) + b"\n"
    path.write_bytes(HEADER + other + long + B)
    keywords = {"cache_dir": tmp_path / "cache", "trust": "append-only", "access": "pread"}
    with mmapstore.open(path, **keywords) as t:
        assert t.cache == "hit"
        consumer = followed(t, after=0)
        assert (consumer.lines, consumer.resets) == (messages_of(path.read_bytes()), [True])


# -- any history --------------------------------------------------------------------------

POOL = [A, B, C, message("a", "again"), REVIEW, COMPACTION, b"\n", b'{"type":"other"}\n']
contents = st.lists(st.sampled_from(POOL), max_size=4).map(b"".join)
cuts = st.integers(0, 60)
changes = st.one_of(
    st.tuples(st.just("append"), contents, cuts),
    st.tuples(st.just("rewrite"), contents, cuts),
    st.tuples(st.just("replace"), contents, cuts),
    st.tuples(st.just("truncate"), st.just(b""), st.integers(0, 400)),
    st.tuples(st.just("delete"), st.just(b""), st.just(0)),
)


class History:
    """A file, what is in it, and what somebody who looks now and then should hear of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: bytes | None = None
        self.rest = b""  # what completes a torn tail, so that every line is a parser's
        self.touched = 0
        self.identity = 0
        self.put(HEADER, b"")
        self.seen = self.state
        self.reset_due = False

    @property
    def state(self) -> tuple[int, int, bytes]:
        assert self.data is not None
        return self.identity, self.touched, self.data

    def put(self, before: bytes, new: bytes, cut: int = 0) -> None:
        # what is cut off is part of one line: it is written later, before anything else
        stop = max(len(new) - cut, new.rfind(b"\n", 0, max(len(new) - 1, 0)) + 1)
        self.data, self.rest = before + new[:stop], new[stop:]

    def change(self, kind: str, data: bytes, number: int) -> None:
        if kind == "delete":
            self.path.unlink(missing_ok=True)
            self.data = None
        elif kind == "replace" or self.data is None:
            self.put(b"", HEADER + data, number)
            replace(self.path, self.data)
            self.identity += 1
        elif kind == "append":
            before = self.data
            self.put(before, self.rest + data, number)
            append(self.path, self.data[len(before) :])
        elif kind == "rewrite":
            self.put(b"", HEADER + data, number)
            self.touch()
        else:
            whole = self.data + self.rest
            at = min(number, len(self.data))
            end = whole.find(b"\n", at) + 1
            self.data, self.rest = whole[:at], whole[at:end]
            if at and whole[at - 1 : at] == b"\n":
                self.rest = b""
            self.touch()

    def touch(self) -> None:
        rewrite(self.path, self.data)
        self.touched += 1

    def look(self) -> None:
        """Somebody looks at the file; note whether what is there is no growth of what was."""
        if self.data is None:
            return
        (identity, touched, old), new = self.seen, self.state
        complete = old[: old.rfind(b"\n") + 1]
        grown = len(new[2]) > len(old) and new[2].startswith(complete)
        if identity != new[0] or ((touched, old) != new[1:] and not grown):
            self.reset_due = True
        self.seen = new


@given(
    groups=st.lists(st.lists(changes, max_size=2), max_size=6),
    limit=st.integers(1, 3),
    dialect=st.sampled_from([None, "native"]),
    access=st.sampled_from(["mmap", "pread", "auto"]),
    busy=st.booleans(),
)
def test_after_any_history_a_consumer_has_what_is_in_the_file(groups, limit, dialect, access, busy):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(HEADER)
        history, consumer, rest = History(path), Consumer(), iter(groups)

        def step() -> bool:
            group = next(rest, None)
            for change in group or ():
                history.change(*change)
            return group is not None

        def wait() -> bool:
            history.look()
            # it would have been told before
            assert not history.reset_due
            return step()

        with mmapstore.open(path, dialect=dialect, access=access, cache_dir=None) as t:
            for window in t.follow(after=0, limit=limit, wait=wait):
                history.look()
                assert (window.reset, len(window) <= limit) == (history.reset_due, True)
                history.reset_due = False
                consumer.take(window)
                if busy:
                    step()
        assert consumer.lines == messages_of(history.seen[2])


# -- waiting ------------------------------------------------------------------------------


def test_importing_the_library_does_not_load_the_watcher():
    code = "import sys, mmapstore; print('watchfiles' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.fixture
def clock(monkeypatch):
    """Return the seconds slept for; time passes by sleeping alone."""
    slept: list[float] = []
    time = types.SimpleNamespace(sleep=slept.append, monotonic=lambda: sum(slept))
    monkeypatch.setattr(watch_module, "time", time)
    return slept


@pytest.mark.usefixtures("clock")
class TestWithoutTheLibrary:
    @pytest.fixture(autouse=True)
    def absent(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "watchfiles", None)

    def test_it_looks_ever_less_often_while_nothing_changes(self, write, clock):
        path = write(HEADER)
        waiter = Waiter(str(path))
        assert all(waiter() for _ in range(6))
        assert clock == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        for change in (lambda: append(path, A), path.unlink, lambda: path.write_bytes(A)):
            change()
            clock.clear()
            assert [waiter(), waiter(), waiter()] == [True] * 3
            assert clock[1:] == [0.1, 0.2]
        waiter.close()

    def test_a_follower_sees_what_comes(self, write, monkeypatch):
        path = write(HEADER + A)
        lines = iter([B, b"", C])
        monkeypatch.setattr(watch_module.time, "sleep", lambda _: append(path, next(lines)))
        with mmapstore.open(path) as t:
            following = t.follow()
            assert [bytes(next(following).lines[0]) for _ in range(2)] == [B, C]
            following.close()


class Told:
    """Stands for the library: tells what it is given, one set of names a turn."""

    def __init__(self, monkeypatch, *turns, clock=None):
        self.turns = iter(turns)
        self.begun = []
        self.ended = 0
        self._clock = clock
        stub = types.SimpleNamespace(watch=self.watch)
        monkeypatch.setitem(sys.modules, "watchfiles", stub)

    def watch(self, *directories, **options):
        assert options["yield_on_timeout"]
        assert not options["recursive"]
        self.begun.append(sorted(directories))
        try:
            yield set()
            for turn in self.turns:
                if isinstance(turn, BaseException):
                    raise turn
                if self._clock is not None:
                    self._clock.append(0.3)
                yield {(2, name) for name in turn}
        finally:
            self.ended += 1


def test_a_wait_ends_with_the_file_or_after_a_second(write, monkeypatch, clock):
    path = write(HEADER)
    beside = str(path.with_name("other.jsonl"))
    told = Told(monkeypatch, [], [beside], [str(path)], *[[beside]] * 9, clock=clock)
    waiter = Waiter(str(path))
    # what was written before the watch began would not be told of
    assert (waiter(), clock) == (True, [])
    assert (waiter(), len(clock)) == (True, 3)
    # a busy neighbour does not make it wait for longer
    assert (waiter(), len(clock)) == (True, 3 + 4)
    assert told.begun == [[str(path.parent)]]
    waiter.close()
    waiter.close()
    assert told.ended == 1


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "too many watches"), RuntimeError("internal"), None]
)
def test_a_watch_that_fails_is_replaced_by_looking(write, monkeypatch, clock, error):
    told = Told(monkeypatch, *([error] if error else []))
    waiter = Waiter(str(write(HEADER)))
    assert waiter()
    assert waiter()
    assert clock == ([0.1] if error else [])
    assert told.ended == 1
    assert waiter()
    assert len(told.begun) == 2
    waiter.close()


def test_an_interrupt_passes_and_the_next_wait_watches_again(write, monkeypatch, clock):
    told = Told(monkeypatch, KeyboardInterrupt(), [])
    waiter = Waiter(str(write(HEADER)))
    assert waiter()
    with pytest.raises(KeyboardInterrupt):
        waiter()
    assert [waiter(), waiter()] == [True, True]
    assert (len(told.begun), clock) == (2, [])
    waiter.close()


def test_a_directory_that_is_not_there_is_looked_for(tmp_path, monkeypatch, clock):
    told = Told(monkeypatch, [])
    directory = tmp_path / "d"
    waiter = Waiter(str(directory / "t.jsonl"))
    assert [waiter(), waiter()] == [True, True]
    assert (told.begun, clock) == ([], [0.1, 0.2])
    directory.mkdir()
    assert waiter()
    assert told.begun == [[str(directory)]]
    # another one, and not only another of the same inode number
    (tmp_path / "e").mkdir()
    directory.rmdir()
    (tmp_path / "e").rename(directory)
    assert waiter()
    assert len(told.begun) == 2
    waiter.close()


def test_a_directory_that_is_told_of_itself_is_watched_anew(write, monkeypatch):
    path = write(HEADER)
    told = Told(monkeypatch, [str(path.parent)], [str(path)])
    waiter = Waiter(str(path))
    assert [waiter(), waiter()] == [True, True]
    assert (told.ended, len(told.begun)) == (1, 1)
    assert [waiter(), waiter()] == [True, True]
    assert (told.ended, len(told.begun)) == (1, 2)
    waiter.close()


def test_a_link_is_watched_at_both_its_ends(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    target, link = tmp_path / "a" / "one.jsonl", tmp_path / "b" / "link.jsonl"
    target.write_bytes(HEADER)
    link.symlink_to(target)
    told = Told(monkeypatch, [str(target)], [str(link)])
    waiter = Waiter(str(link))
    assert waiter()
    assert told.begun == [[str(target.parent), str(link.parent)]]
    assert [waiter(), waiter()] == [True, True]
    assert next(told.turns, None) is None
    waiter.close()


class TestWithTheLibrary:
    @pytest.fixture(autouse=True)
    def present(self, monkeypatch):
        pytest.importorskip("watchfiles", reason="the watcher is an extra")
        # a change that is missed shows as a test that takes too long
        monkeypatch.setattr(watch_module, "LIMIT_S", 600.0)

    @pytest.mark.parametrize(
        "change",
        [
            lambda path: append(path, A),
            lambda path: replace(path, A),
            lambda path: os.truncate(path, 1),
            lambda path: path.unlink(),
            lambda path: path.rename(path.with_name("elsewhere")),
        ],
        ids=["append", "replace", "truncate", "unlink", "rename"],
    )
    def test_a_change_is_told_of(self, write, change):
        path = write(HEADER)
        with contextlib.closing(Waiter(str(path))) as waiter:
            assert waiter()
            change(path)
            assert waiter()

    def test_a_file_that_appears_is_told_of(self, tmp_path):
        path = tmp_path / "t.jsonl"
        with contextlib.closing(Waiter(str(path))) as waiter:
            assert waiter()
            path.write_bytes(A)
            assert waiter()

    def test_a_follower_gets_what_another_process_appends(self, write):
        path = write(HEADER + A)
        code = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read())"
        with mmapstore.open(path) as t:
            following = t.follow()
            for line in (B, C, D):
                command = [sys.executable, "-c", code, str(path)]
                with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
                    process.stdin.write(line)
                    process.stdin.close()
                    window = next(following)
                assert [bytes(found) for found in window.lines] == [line]
            following.close()


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_name_that_is_not_text_is_followed_by_looking(tmp_path, clock):
    pytest.importorskip("watchfiles", reason="the watcher is an extra")
    directory = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(directory)
    waiter = Waiter(os.fsdecode(directory + b"/t.jsonl"))
    assert (waiter(), clock) == (True, [0.1])
    waiter.close()
