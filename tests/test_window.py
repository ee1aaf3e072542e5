"""A window: a slice of lines, their messages, and the chain of checkpoints, each decoded late."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mmapstore
from mmapstore.fileio import Descriptor
from mmapstore.filemap import ReadFile
from mmapstore.generation import Generation
from mmapstore.window import Lines, Window
from tests.strategies import HEADER

Open = Callable[..., mmapstore.Transcript]


@pytest.fixture
def opened(write: Callable[..., Path], access: str) -> Open:
    """Return a function that opens bytes as a transcript, by each of both ways."""
    return lambda data, **kwargs: mmapstore.open(write(data), access=access, **kwargs)


def spelled(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def message(message_id: Any = None, **more: Any) -> bytes:
    own = {} if message_id is None else {"id": message_id}
    return spelled({"type": "message", **own, "role": "user", **more})


def compaction(summary: str) -> bytes:
    return spelled({"type": "compaction", "id": summary, "summary": summary})


DAMAGED = b'{"type":"message","id":"bad",\n'
DAMAGED_COMPACTION = b'{"type":"compaction","id":\n'


# -- a window as a range --------------------------------------------------------------


def test_the_range_and_what_is_around_it(opened: Open) -> None:
    with opened(HEADER + b"".join(message(str(n)) for n in range(10))) as t:
        for kwargs, start, stop in (
            ({"limit": None}, 0, 10),
            ({"limit": 4}, 6, 10),
            ({"before": 6, "limit": 4}, 2, 6),
            ({"before": 2, "limit": 4}, 0, 2),
            ({"before": 0}, 0, 0),
            ({"after": 10}, 10, 10),
            ({"after": 3, "limit": 2}, 3, 5),
        ):
            w = t.window(**kwargs)
            assert (w.start, w.stop, w.total, len(w)) == (start, stop, 10, stop - start)
            assert (w.has_before, w.has_after) == (start > 0, stop < 10)
            assert w.message_positions == list(range(start, stop))
            assert w.message_ids == [str(n) for n in range(start, stop)]
            assert repr(w) == f"<Window [{start}, {stop}) of 10>"


def test_making_a_window_does_not_look_at_the_file(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(HEADER + message("a") * 3) as t:
        for name in ("line", "texts", "records", "read_run"):
            monkeypatch.setattr(Generation, name, None)
        monkeypatch.setattr(Descriptor, "read", None)
        w = t.window()
        assert (len(w), len(w.lines), w.has_before) == (3, 3, False)


# -- lines ----------------------------------------------------------------------------


def test_lines_are_those_of_the_file_newline_included(opened: Open) -> None:
    parts = [message("a"), b"\n", message("b", pad="x" * 3000), b'{"x":1}\n', DAMAGED, message("a")]
    expected = [part for part in parts if b'"message"' in part]
    with opened(HEADER + b"".join(parts) + b"torn") as t:
        lines = t.window().lines
        assert [bytes(line) for line in lines] == expected
        assert [bytes(line) for line in lines[1:]] == expected[1:]
        assert [bytes(line) for line in lines[::-2]] == expected[::-2]
        assert lines[7:] == []
        for index in range(-4, 4):
            assert bytes(lines[index]) == expected[index]
        assert [bytes(line) for line in reversed(lines)] == expected[::-1]
        assert lines[0] in lines
        assert all(line.readonly for line in lines)
        inner = t.window(before=3, limit=2).lines
        assert [bytes(line) for line in inner] == expected[1:3]
        assert bytes(inner[-1]) == expected[2]


@pytest.mark.parametrize("index", [3, -4, 10**20, -(10**20)])
def test_a_line_outside_the_window(opened: Open, index: int) -> None:
    with opened(HEADER + message("a") * 5) as t, pytest.raises(IndexError):
        t.window(before=4, limit=3).lines[index]


@pytest.mark.parametrize("index", ["0", 0.0, None])
def test_an_index_is_an_integer(opened: Open, index: Any) -> None:
    with opened(HEADER + message("a") * 5) as t, pytest.raises(TypeError):
        t.window().lines[index]


def test_lines_of_a_mapping_are_not_copied(write: Callable[..., Path]) -> None:
    path = write(HEADER + message("a") + message("b"))
    with mmapstore.open(path, access="mmap") as t:
        one, other = t.window().lines[0], t.window(limit=2).lines[0]
        assert one.obj is other.obj is t.line(0).obj


def test_views_outlive_window_and_transcript(opened: Open, write: Callable[..., Path]) -> None:
    t = opened(HEADER + message("a") + message("b"))
    touched, untouched = t.window(), t.window()
    view = touched.lines[1]
    new = write(b"another file", "new")
    os.replace(new, t.path)
    t.close()
    del touched
    gc.collect()
    assert bytes(view) == message("b")
    assert [bytes(line) for line in untouched.lines] == [message("a"), message("b")]
    assert untouched.message_ids == ["a", "b"]


class Reads:
    """Notes what is read of a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[int, int]] = []
        read = Descriptor.read

        def noted(descriptor: Descriptor, start: int, stop: int) -> bytes:
            self.ranges.append((start, stop))
            return read(descriptor, start, stop)

        monkeypatch.setattr(Descriptor, "read", noted)

    @property
    def nbytes(self) -> int:
        return sum(stop - start for start, stop in self.ranges)


def test_each_run_of_adjacent_lines_is_read_once(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = b"".join(message(str(n)) for n in range(20))
    path = write(HEADER + run + b'{"x":1}\n' + run)
    with mmapstore.open(path, access="pread") as t:
        reads = Reads(monkeypatch)
        lines = t.window().lines
        assert reads.ranges == []
        assert len(list(lines)) == 40
        assert len(reads.ranges) == 2
        # the window alone, whatever the file
        reads.ranges.clear()
        assert len(list(t.window(limit=3).lines)) == 3
        assert len(reads.ranges) == 1
        assert reads.nbytes == 3 * len(message("19")) + 1


def test_lines_from_last_to_first_are_not_read_again_and_again(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(HEADER + b"".join(message(str(n)) for n in range(100)))
    with mmapstore.open(path, access="pread") as t:
        reads = Reads(monkeypatch)
        assert len(list(reversed(t.window().lines))) == 100
        assert reads.nbytes < 3 * t.nbytes


def test_lines_that_stand_apart_are_found_in_one_pass(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(HEADER + b"".join(message(str(n)) + b'{"x":1}\n' for n in range(100)))
    looked_at = []
    edges = Generation.edges

    def noted(self: Generation, extents: Any, start: int, stop: int) -> list[int]:
        looked_at.append(stop - start)
        return edges(self, extents, start, stop)

    monkeypatch.setattr(Generation, "edges", noted)
    with mmapstore.open(path, access="pread") as t:
        w = t.window()
        assert len(list(w.lines)) == 100
        assert sum(looked_at) <= 200


def test_two_threads_may_read_the_lines_of_one_window(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread reads a line between the two steps in which another reads its own."""
    path = write(HEADER + message("a") + b'{"x":1}\n' + message("b") + b'{"x":1}\n' + message("c"))
    with mmapstore.open(path, access="pread") as t:
        lines = t.window().lines
        find_run = Lines._find_run
        others = [2, 0]

        def interrupted(self: Lines, at: int, *args: Any) -> Any:
            result = find_run(self, at, *args)
            if others:
                assert len(lines[others.pop()]) == len(message("a"))
            return result

        monkeypatch.setattr(Lines, "_find_run", interrupted)
        assert bytes(lines[1]) == message("b")


# -- messages -------------------------------------------------------------------------


def naive_shown(records: list[dict[str, Any]], offsets: list[int], start: int) -> list[Any]:
    """Return (position, id, record): for each id its first place and its last content."""
    addresses = [
        str(record["id"]) if record.get("id") not in (None, "") else f"@{offset}"
        for record, offset in zip(records, offsets, strict=True)
    ]
    return [
        (
            start + index,
            address,
            [r for r, a in zip(records, addresses, strict=True) if a == address][-1],
        )
        for index, address in enumerate(addresses)
        if address not in addresses[:index]
    ]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    ids=st.lists(st.sampled_from(["a", "b", "c", 1, "1", "", None, "é"]), max_size=12),
    edges=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_a_repeated_id_is_shown_once_in_its_first_place_with_its_last_content(
    tmp_path_factory: pytest.TempPathFactory, ids: list[Any], edges: tuple[int, int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "window.jsonl"
    lines = [message(each, n=number) for number, each in enumerate(ids)]
    path.write_bytes(HEADER + b"".join(lines))
    start, stop = sorted(min(edge, len(ids)) for edge in edges)
    with mmapstore.open(path) as t:
        w = t.window(before=stop, limit=stop - start or 1)
        records = [json.loads(line) for line in lines[w.start : w.stop]]
        offsets = t.layout.message_offsets[w.start : w.stop].tolist()
    shown = naive_shown(records, offsets, w.start)
    assert w.message_positions == [position for position, _, _ in shown]
    assert w.message_ids == [address for _, address, _ in shown]
    assert w.messages == [record for _, _, record in shown]
    assert len(w.lines) == len(w) == w.stop - w.start


def test_every_address_shown_can_be_looked_up(opened: Open) -> None:
    ids = ["a", None, 7, "", "é", "a", None, "\ud800", "x" * 200]
    with opened(HEADER + b"".join(message(each, n=n) for n, each in enumerate(ids))) as t:
        w = t.window()
        for message_id, shown in zip(w.message_ids, w.messages, strict=True):
            assert t.message(message_id) == shown
            assert t.window(around=message_id, limit=1).message_ids == [message_id]
        assert len(w.message_ids) == len(ids) - 1


def test_an_id_that_looks_like_an_address_is_another_message(opened: Open) -> None:
    offset = len(HEADER)
    with opened(HEADER + message(None, n=1) + message(f"@{offset}", n=2)) as t:
        assert [shown["n"] for shown in t.window().messages] == [1, 2]


def test_messages_are_decoded_once_and_belong_to_their_window(opened: Open) -> None:
    with opened(HEADER + message("a") + message("b")) as t:
        one, other = t.window(), t.window()
        assert all(a is b for a, b in zip(one.messages, one.messages, strict=True))
        one.messages[0]["role"] = "changed"
        assert other.messages[0]["role"] == "user"
        assert t.message("a")["role"] == "user"


def test_the_list_of_messages_is_the_callers(opened: Open) -> None:
    with opened(HEADER + message("a") + message("b")) as t:
        w = t.window()
        w.messages.clear()
        assert [shown["id"] for shown in w.messages] == ["a", "b"]


def test_a_window_is_iterated_over_its_messages_and_asked_for_their_ids(opened: Open) -> None:
    data = HEADER + message("a", n=1) + DAMAGED + message("a", n=2) + message("b") + message()
    with opened(data) as t:
        w = t.window()
        assert list(w) == w.messages
        assert [shown.get("n") for shown in w] == [2, None, None]
        assert (len(w), len(w.messages)) == (5, 3)
        address = w.message_ids[-1]
        assert [asked in w for asked in ("a", "b", address, "c", "")] == [True] * 3 + [False] * 2
        assert ["a" in t.window(limit=2), "b" in t.window(limit=2)] == [False, True]
        for asked in (w.messages[0], 0, None):
            with pytest.raises(TypeError, match="an id, a string"):
                _ = asked in w


def test_a_window_knows_its_dialect(opened: Open) -> None:
    with opened(HEADER + message("a")) as t:
        w = t.window()
        assert w.dialect is t.dialect
    # also once it is all that is left
    assert w.dialect.id(w.messages[0]) == "a"


def test_damaged_lines_are_left_out_and_listed(opened: Open) -> None:
    data = HEADER + message("a") + DAMAGED + message("a", n=1) + DAMAGED_COMPACTION + DAMAGED
    data += b'{"type":"tool_review_state","messageId"\n' + compaction("whole")
    with opened(data) as t:
        w = t.window()
        assert (w.message_positions, w.message_ids) == ([0], ["a"])
        assert w.messages == [json.loads(message("a", n=1))]
        at = [data.index(DAMAGED), data.rindex(DAMAGED)]
        aside = [data.index(DAMAGED_COMPACTION), data.index(b'{"type":"tool_review_state"')]
        assert [(each.position, each.offset) for each in w.damaged] == [
            (1, at[0]),
            (3, at[1]),
            (None, aside[0]),
            (None, aside[1]),
        ]
        assert all(each.reason for each in w.damaged)
        # a window lists its own lines, and always the checkpoints and states
        assert [each.position for each in t.window(limit=1).damaged] == [3, None, None]
        assert [each.position for each in t.window(before=0).damaged] == [None, None]
        assert bytes(w.lines[1]) == DAMAGED


def reviewed(message_id: str, *states: str) -> bytes:
    reviews = [{"snapshotId": f"s{n}", "state": state} for n, state in enumerate(states)]
    details = {"review": reviews[0], "reviews": reviews[1:]}
    blocks = [{"type": "tool_call", "result": {"details": details}}]
    return spelled({"type": "message", "id": message_id, "role": "tool", "blocks": blocks})


def state(message_id: str, snapshot_id: str, value: str) -> bytes:
    record = {"messageId": message_id, "snapshotId": snapshot_id, "state": value}
    return spelled({"type": "tool_review_state", **record})


def states_of(message: dict[str, Any]) -> list[str]:
    details = message["blocks"][0]["result"]["details"]
    return [review["state"] for review in (details["review"], *details["reviews"])]


def test_the_last_state_of_each_snapshot_is_laid_over(opened: Open) -> None:
    data = HEADER + reviewed("m", "active", "active", "active") + state("m", "s1", "rolledBack")
    data += reviewed("n", "active") + state("m", "s0", "x") + state("m", "s0", "rolledBack")
    data += state("m", "unknown", "y") + state("nobody", "s0", "z")
    with opened(data) as t:
        w = t.window()
        assert [states_of(each) for each in w.messages] == [
            ["rolledBack", "rolledBack", "active"],
            ["active"],
        ]
        # states that stand behind a window, and a message that has its states far behind
        assert states_of(t.window(before=1).messages[0])[0] == "rolledBack"
        assert states_of(t[0])[0] == states_of(t.message("m"))[0] == "rolledBack"
        assert [states_of(each)[0] for each in t.iter()] == ["rolledBack", "active"]
        # the lines are what they are
        assert bytes(w.lines[0]) == reviewed("m", "active", "active", "active")


def test_states_cover_the_last_content_of_a_repeated_id(opened: Open) -> None:
    data = HEADER + reviewed("m", "active") + state("m", "s0", "rolledBack")
    with opened(data + reviewed("m", "active", "active")) as t:
        assert [states_of(each) for each in t.window().messages] == [["rolledBack", "active"]]


# -- checkpoints ----------------------------------------------------------------------


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note which compaction lines are decoded."""
    found: list[tuple[int, int]] = []
    records = Generation.records

    def noted(self: Generation, extents: Any, start: int, stop: int) -> Any:
        if extents is self.layout.compactions:
            found.append((start, stop))
        return records(self, extents, start, stop)

    monkeypatch.setattr(Generation, "records", noted)
    return found


CHAIN = (
    HEADER + compaction("0") + message("a") + compaction("1") + message("b") * 2 + compaction("2")
)


def test_the_chain_of_checkpoints(opened: Open) -> None:
    with opened(CHAIN + message("c")) as t:
        for w in (t.window(), t.window(limit=1), t.window(before=0)):
            assert [each["summary"] for each in w.compactions] == ["0", "1", "2"]
            assert w.compaction_positions == [0, 1, 3]
            assert len(w.compactions) == 3
            assert w.compactions[-2]["summary"] == w.compactions[1]["summary"] == "1"
            assert [each["summary"] for each in w.compactions[1:]] == ["1", "2"]
            assert [each["summary"] for each in reversed(w.compactions)] == ["2", "1", "0"]
            for outside in (3, -4):
                with pytest.raises(IndexError):
                    w.compactions[outside]


def test_the_newest_checkpoint_is_decoded_alone(
    opened: Open, decodes: list[tuple[int, int]]
) -> None:
    with opened(CHAIN) as t:
        w = t.window()
        assert w.messages
        assert decodes == []
        newest = w.compactions[-1]
        assert newest["summary"] == "2"
        assert decodes == [(2, 3)]
        # and once
        assert w.compactions[-1] is newest
        assert w.compactions[2] is newest
        assert len(decodes) == 3


def test_damaged_checkpoints_are_left_out(opened: Open, decodes: list[tuple[int, int]]) -> None:
    with opened(CHAIN + DAMAGED_COMPACTION * 2) as t:
        w = t.window()
        assert w.compactions[-1]["summary"] == "2"
        assert decodes == [(4, 5), (3, 4), (2, 3)]
        assert [each["summary"] for each in w.compactions] == ["0", "1", "2"]
        assert w.compaction_positions == [0, 1, 3]


@pytest.mark.parametrize("data", [HEADER + message("a"), HEADER + DAMAGED_COMPACTION, b""])
def test_no_checkpoints(opened: Open, data: bytes) -> None:
    with opened(data) as t:
        w = t.window()
        assert (list(w.compactions), w.compaction_positions, len(w.compactions)) == ([], [], 0)
        for index in (0, -1):
            with pytest.raises(IndexError):
                w.compactions[index]


def test_a_boundary_and_its_summary_are_one_checkpoint(opened: Open) -> None:
    boundary = spelled({"type": "system", "subtype": "compact_boundary", "uuid": "b"})
    summary = spelled(
        {"type": "user", "isCompactSummary": True, "uuid": "s", "message": {"content": ""}}
    )
    user = spelled({"type": "user", "uuid": "u", "message": {"role": "user", "content": ""}})
    other = spelled({"type": "progress"})
    data = user + boundary + other + summary + user + summary + user + boundary + user
    with opened(data, dialect="claude") as t:
        w = t.window()
        assert [each["uuid"] for each in w.compactions] == ["s", "s", "b"]
        assert w.compaction_positions == [1, 2, 3]
        assert len(t.layout.compaction_offsets) == 4
        assert w.total == 4


# -- generations ----------------------------------------------------------------------


def test_a_window_keeps_its_generation(opened: Open) -> None:
    with opened(HEADER + message("a") + compaction("0")) as t:
        touched, untouched = t.window(), t.window()
        assert touched.message_ids == ["a"]
        with open(t.path, "ab") as file:
            file.write(message("a", n=1) + message("b") + compaction("1"))
        assert t.refresh()
        for w in (touched, untouched):
            assert (w.start, w.stop, w.total) == (0, 1, 1)
            assert w.messages == [json.loads(message("a"))]
            assert [each["summary"] for each in w.compactions] == ["0"]
        assert t.window().message_ids == ["a", "b"]


def test_an_empty_transcript_has_empty_windows(opened: Open) -> None:
    with opened(b"") as t:
        for kwargs in ({}, {"before": 3}, {"after": 3}, {"limit": None}, {"max_nbytes": 5}):
            w: Window = t.window(**kwargs)
            assert (w.start, w.stop, w.total, len(w.lines)) == (0, 0, 0, 0)
            assert (w.messages, w.message_ids, w.message_positions, w.damaged) == ([], [], [], [])
            assert not w.has_before
            assert not w.has_after


def test_a_file_cut_in_place_is_said_to_have_changed(write: Callable[..., Path]) -> None:
    path = write(HEADER + message("a") + message("b"))
    with mmapstore.open(path, access="pread") as t:
        w = t.window()
        assert isinstance(w._generation.source, ReadFile)
        os.truncate(path, len(HEADER) + 5)
        for touch in (lambda: w.lines[0], lambda: w.messages, lambda: w.message_ids):
            with pytest.raises(mmapstore.TranscriptChangedError):
                touch()
        assert t.refresh() is mmapstore.Refresh.REBUILT
        assert t.window().total == 0
