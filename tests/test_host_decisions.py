"""The decision records as tests: one for each sentence that says what must hold of a host."""

from __future__ import annotations

import cProfile
import errno
import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import ConflictError
from mmapstore.host.journal import Journal
from tests.host_support import (
    compaction,
    failing,
    ids,
    lines,
    message,
    revisions_file,
    root_meta,
    shown,
    states,
    tool,
    transcript,
    user,
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[mmapstore.Host]:
    with mmapstore.Host(tmp_path / "data") as made:
        yield made


@pytest.fixture
def session(host: mmapstore.Host) -> str:
    return host.create_session(title="T").id


def layout_of(host: mmapstore.Host, session: str) -> Any:
    window = host.get_session(session, limit=2)
    with mmapstore.open(transcript(host, session), cache_dir=None) as t:
        return window.start, window.stop, window.total, t.layout.message_offsets.tolist()


# -- 0060: archive under the state lock -------------------------------------------------


def test_a_message_appended_after_the_archives_read_survives(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1", meta=root_meta("u1", 1, 1)), message("a1")])
    snapshot = host.get_session(session).messages
    host.append_message(session, message("a2"))
    saved = host.save_active_revision(session)
    assert saved is not None
    assert saved.message_count == 3
    host.update_message(session, {**snapshot[0], "meta": root_meta("u1", 2, 1)})
    assert ids(host, session) == ["u1", "a1", "a2"]


def test_a_message_appended_while_the_stamp_is_decided_on_survives(
    host: mmapstore.Host, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.append_messages(session, [user("u1", meta={"revisionCount": 1}), message("a1")])
    real = Journal.rewrite
    threads = []

    def rewrite(self: Journal, pieces: Any) -> None:
        thread = threading.Thread(target=host.append_message, args=(session, message("late")))
        threads.append(thread)
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()  # it waits for the state lock
        real(self, pieces)

    monkeypatch.setattr(Journal, "rewrite", rewrite)
    assert host.save_active_revision(session) is not None
    monkeypatch.undo()
    for thread in threads:
        thread.join()
    assert len(threads) == 1
    assert ids(host, session) == ["u1", "a1", "late"]


def test_the_stamp_rewrites_exactly_one_line(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [message("a0"), user("u1"), message("a1")], turn_id="t")
    path = transcript(host, session)
    with path.open("ab") as file:
        file.write(b' {"type" : "sleep", "n": 1e2}\r\nnot json\n\n')
    before = path.read_bytes().split(b"\n")
    host.save_revision(session, "u1", [message("other")])
    after = path.read_bytes().split(b"\n")
    changed = [
        index for index, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]
    ]
    assert changed == [2]
    assert orjson.loads(after[2])["meta"] == {"revisionRootId": "u1", "revisionCount": 1}


def test_a_stamp_that_is_already_there_writes_nothing(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1", meta=root_meta("u1", 1, 1)), message("a1")])
    assert host.save_active_revision(session) is not None
    status = transcript(host, session).stat()
    archive = revisions_file(host, session).read_bytes()
    host.append_message(session, message("a2"))
    grown = transcript(host, session).read_bytes()
    assert host.save_active_revision(session) is not None
    assert transcript(host, session).stat().st_ino == status.st_ino
    assert transcript(host, session).read_bytes() == grown
    assert revisions_file(host, session).read_bytes() == archive


def test_save_active_is_none_without_a_family(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    assert host.save_active_revision(session) is None
    assert not revisions_file(host, session).exists()


def test_a_live_branch_is_referred_to_and_never_copied(host: mmapstore.Host, session: str) -> None:
    host.append_message(session, user("u1", meta=root_meta("u1", 1, 1)))
    for turn in range(10):
        host.append_message(session, message(f"a{turn}", text="x" * 20_000))
        host.save_active_revision(session)
    assert revisions_file(host, session).stat().st_size < 160


@pytest.mark.parametrize("how", ["truncate", "replace", "activate", "truncate later"])
def test_a_live_branch_is_stored_before_anything_drops_it(
    host: mmapstore.Host, session: str, how: str
) -> None:
    host.append_messages(session, [user("u1", meta=root_meta("u1", 1, 1)), tool("x1", "s1")])
    host.append_messages(session, [user("u9"), message("a9")])
    host.save_revision(session, "u1", [message("b1")])
    host.save_active_revision(session)
    host.set_review_state(session, "x1", "s1", "rolledBack")
    if how == "truncate":
        host.truncate_from(session, "u1")
    elif how == "truncate later":
        host.truncate_from(session, "a9")
    elif how == "replace":
        host.replace_messages(session, shown(host, session)[:1])
    else:
        host.activate_revision(session, "u1", 2)
    stored = [line for line in lines(revisions_file(host, session)) if line["type"] == "revision"]
    (branch,) = [line for line in stored if line["revisionIndex"] == 1]
    assert [record["id"] for record in branch["messages"]] == ["u1", "x1", "u9", "a9"]
    assert states(branch["messages"][1]) == ["rolledBack"]


def test_turn_ids_survive_rewrites_and_revision_switches(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1")], turn_id="t1")
    host.append_messages(session, [message("a2")], turn_id="t2")
    found = shown(host, session)
    for record in found:
        record.pop("turnId")
    found[1]["edited"] = True
    host.replace_messages(session, found)
    assert [record["turnId"] for record in shown(host, session)] == ["t1", "t1", "t2"]
    host.update_message(session, {**found[2], "edited": True})
    assert [m["id"] for m in host.turn_messages(session, "t2")] == ["a2"]
    # replies without a turn of their own, and messages of the transcript that have one
    host.save_revision(session, "u1", [message("b1"), found[1]])
    host.activate_revision(session, "u1", 1)
    assert [m["id"] for m in host.turn_messages(session, "t1")] == ["u1", "a1"]
    host.activate_revision(session, "u1", 2)
    assert [m["id"] for m in host.turn_messages(session, "t1")] == ["u1", "a1"]
    assert [m["id"] for m in host.turn_messages(session, "t2")] == ["a2"]


def test_turns_of_a_revision_line_come_back(host: mmapstore.Host, session: str) -> None:
    """A line as other writers have it: messages without a type, their turns aside."""
    host.append_message(session, user("u1", meta=root_meta("u1", 2, 2)))
    record = {
        "type": "revision",
        "rootUserId": "u1",
        "revisionIndex": 1,
        "createdAt": "2026-01-01T00:00:00Z",
        "messages": [user("u0", meta=root_meta("u1", 1, 1)), message("a0")],
        "turns": {"a0": "t0"},
    }
    revisions_file(host, session).write_bytes(orjson.dumps(record) + b"\n")
    host.activate_revision(session, "u1", 1)
    assert ids(host, session) == ["u0", "a0"]
    assert [m["id"] for m in host.turn_messages(session, "t0")] == ["a0"]
    assert [line["type"] for line in lines(transcript(host, session))][1:] == ["message"] * 2


# -- 0127: layout index and identity-based truncation -----------------------------------


def test_an_unindexed_line_on_disk_is_served(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    with transcript(host, session).open("ab") as file:
        file.write(orjson.dumps({"type": "message", **message("a2")}) + b"\n")
    window = host.get_session(session, limit=2)
    assert (window.total, window.stop) == (3, 3)
    assert [m["id"] for m in window.messages] == ["a1", "a2"]
    assert host.append_message(session, message("a3")) == 3


def test_regenerating_from_a_paged_back_window_replaces_the_turn_that_was_selected(
    host: mmapstore.Host, session: str
) -> None:
    for number in range(20):
        host.append_messages(session, [user(f"u{number}"), message(f"a{number}")])
    page = host.get_session(session, before=20, limit=6)
    selected = page.messages[2]
    assert selected["id"] == "u8"
    cut = host.truncate_from(session, selected["id"])
    assert (cut.kept, cut.discarded) == (16, 24)
    assert cut.revision is not None
    assert cut.revision.root_user_id == "u8"
    assert ids(host, session)[-1] == "a7"


def test_an_unknown_id_cuts_nothing(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    before = transcript(host, session).read_bytes()
    with pytest.raises(mmapstore.MessageNotFoundError):
        host.truncate_from(session, "nobody", before=0)
    assert transcript(host, session).read_bytes() == before
    assert not revisions_file(host, session).exists()


def test_a_superseded_fork_is_listed_and_opens(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    token = host.navigate(session)
    other = host.create_session().id
    host.navigate(other)
    child = host.fork_session(session, "u1", intent=token)
    assert host.active_session == other
    assert child.id in {s.id for s in host.list_sessions()}
    assert len(host.get_session(child.id)) == 1
    second = host.fork_session(session, "u1", intent=host.navigate(session))
    assert host.active_session == second.id
    host.delete_session(second.id)
    assert host.active_session is None


def test_checkpoints_survive_a_late_cut_and_not_an_early_one(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1"), user("u2"), message("a2")])
    host.append_compaction(session, compaction("c1", "a1"))
    host.append_compaction(session, compaction("c2", "u2", firstKeptMessageId="u1"))
    host.append_compaction(session, compaction("c3", "a1", firstKeptMessageId="u2"))
    host.truncate_from(session, "a2")
    assert [c["id"] for c in host.get_session(session).compactions] == ["c1", "c2"]
    host.truncate_from(session, "u2")
    assert [c["id"] for c in host.get_session(session).compactions] == ["c1"]
    host.truncate_from(session, "a1")
    assert list(host.get_session(session).compactions) == []


# -- append-only review state -----------------------------------------------------------


def test_positions_windows_and_offsets_are_the_same_before_and_after_a_review_state(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), tool("x1", "s1"), message("a1")])
    before = layout_of(host, session)
    size = transcript(host, session).stat().st_size
    assert host.set_review_state(session, "x1", "s1", "rolledBack")
    assert layout_of(host, session) == before
    line = transcript(host, session).read_bytes()[size:]
    assert orjson.loads(line) == {
        "type": "tool_review_state",
        "messageId": "x1",
        "snapshotId": "s1",
        "state": "rolledBack",
    }
    assert not host.set_review_state(session, "x1", "s1", "rolledBack")
    assert transcript(host, session).read_bytes()[size:] == line
    assert states(shown(host, session)[1]) == ["rolledBack"]
    with mmapstore.open(transcript(host, session), cache_dir=None) as t:
        assert states(t.tool_parent("call-x1")) == ["rolledBack"]


def test_a_review_state_writes_as_many_bytes_and_calls_whatever_the_history(
    host: mmapstore.Host, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.append_messages(session, [user("u1"), tool("x1", "s1"), message("a1")])
    grown = []
    for state in ("one", "two"):
        size = transcript(host, session).stat().st_size
        with failing(monkeypatch, -1, "error") as calls:
            host.set_review_state(session, "x1", "s1", state)
        assert calls == ["append", "sync_data"]
        grown.append(transcript(host, session).stat().st_size - size)
        host.append_messages(session, [message(f"{state}{i}") for i in range(3000)])
    assert grown[0] == grown[1]


def test_no_operation_that_appends_costs_more_with_more_history(
    host: mmapstore.Host, session: str
) -> None:
    """In calls of functions, which no clock and no load changes."""
    host.append_messages(session, [user("u1", meta=root_meta("u1", 1, 1)), tool("x1", "s1")])
    host.append_messages(session, [message(f"w{i}") for i in range(20)])
    host.save_active_revision(session)
    host.set_review_state(session, "x1", "s1", "zero")

    def work(name: str) -> int:
        profile = cProfile.Profile()
        profile.enable()
        for number in range(5):
            host.append_message(session, message(f"{name}{number}"), turn_id=name)
            host.append_compaction(session, compaction(f"{name}{number}", f"{name}{number}"))
            host.set_review_state(session, "x1", "s1", f"{name}{number}")
            host.save_active_revision(session)
            assert host.append_message(session, message("w3")) == 5
            host.turn_messages(session, name)
        profile.disable()
        return sum(entry.callcount for entry in profile.getstats())

    work("warm")
    before = work("a")
    for part in range(4):
        host.append_messages(session, [message(f"h{part}-{i}") for i in range(1000)])
    work("warm again")
    assert work("b") <= 1.1 * before


def test_a_review_state_touches_the_sessions_time_alone(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [tool("x1", "s1")], turn_id="t")
    before = host.list_sessions()[0]
    host.set_review_state(session, "x1", "s1", "rolledBack")
    after = host.list_sessions()[0]
    assert after.updated_at >= before.updated_at
    assert after == before._replace(updated_at=after.updated_at)
    assert states(host.turn_messages(session, "t")[0]) == ["rolledBack"]


def test_equal_length_state_appends_replay_in_file_order_across_cached_reads(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [tool("x1", "s1")])
    path = transcript(host, session)
    head = '{"type":"tool_review_state","messageId":"x1","snapshotId":"s1","state":'
    by_state = {"active": head + '"active"    }\n', "rolledBack": head + '"rolledBack"}\n'}
    assert len(by_state["active"]) == len(by_state["rolledBack"])
    sizes, offsets = [path.stat().st_size], set()
    for round_ in range(6):
        state = ("rolledBack", "active")[round_ % 2]
        with path.open("a") as file:
            file.write(by_state[state])
        sizes.append(path.stat().st_size)
        assert states(shown(host, session)[0]) == [state]  # warm
        with mmapstore.open(path, cache_dir=None) as t:  # cold
            assert states(t[0]) == [state]
            offsets.add(int(t.layout.review_offsets[-1]))
            assert len(t.layout.review_offsets) == round_ + 1
        for _ in range(2):  # a cache is made, and used
            with mmapstore.open(path, cache_dir=path.parent.parent / "cache") as t:
                assert states(t[0]) == [state]
    assert len(offsets) == 6
    assert all(later > earlier for earlier, later in pairwise(sizes))
    # the host's own appends, of equal length too
    for state in ("aaa", "bbb", "aaa"):
        size = path.stat().st_size
        assert host.set_review_state(session, "x1", "s1", state)
        assert path.stat().st_size > size
        assert states(shown(host, session)[0]) == [state]


def test_truncate_from_folds_review_state_into_the_retained_prefix(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [tool("x1", "s1"), user("u2"), tool("x2", "s2", "s3")])
    host.set_review_state(session, "x1", "s1", "rolledBack")
    host.set_review_state(session, "x2", "s3", "rolledBack")
    raw = transcript(host, session).read_bytes().split(b"\n")
    cut = host.truncate_from(session, "u2")
    assert transcript(host, session).read_bytes() == b"\n".join(
        [raw[0], raw[1].replace(b'"active"', b'"rolledBack"'), b""]
    )
    (archived,) = lines(revisions_file(host, session))
    assert states(archived["messages"][1]) == ["active", "rolledBack"]
    assert cut.revision is not None
    with mmapstore.open(transcript(host, session), cache_dir=None) as t:
        assert len(t.layout.review_offsets) == 0


def test_tool_review_state_survives_fork_revision_activation_and_deletion(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [tool("x0", "s0"), user("u1"), tool("x1", "s1"), message("a1")])
    host.set_review_state(session, "x0", "s0", "rolledBack")
    host.set_review_state(session, "x1", "s1", "rolledBack")
    child = host.fork_session(session, "x1").id
    assert [states(shown(host, child)[i]) for i in (0, 2)] == [["rolledBack"]] * 2
    with mmapstore.open(transcript(host, child), cache_dir=None) as t:
        assert len(t.layout.review_offsets) == 0
    host.save_revision(session, "u1", [message("b1")])
    host.activate_revision(session, "u1", 1)
    assert ids(host, session) == ["x0", "u1", "b1"]
    assert states(shown(host, session)[0]) == ["rolledBack"]
    host.activate_revision(session, "u1", 2)
    assert states(shown(host, session)[2]) == ["rolledBack"]
    host.delete_revision(session, "u1", 1)
    assert [states(shown(host, session)[i]) for i in (0, 2)] == [["rolledBack"]] * 2
    # a state that is set in the child stays there, and the parent's end is not the child's
    assert host.set_review_state(child, shown(host, child)[0]["id"], "s0", "active")
    assert states(shown(host, session)[0]) == ["rolledBack"]
    host.delete_session(session)
    assert states(shown(host, child)[0]) == ["active"]
    assert states(shown(host, child)[2]) == ["rolledBack"]


def test_states_whose_message_was_never_there_stay(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [tool("x1", "s1"), message("a1")])
    stray = b'{"type":"tool_review_state","messageId":"nobody","snapshotId":"s","state":"x"}\n'
    other = b'{"type":"tool_review_state","messageId":"x1","snapshotId":"not its","state":"x"}\n'
    with transcript(host, session).open("ab") as file:
        file.write(stray + other)
    host.set_review_state(session, "x1", "s1", "rolledBack")
    host.truncate_from(session, "a1")
    assert transcript(host, session).read_bytes().endswith(b"\n" + stray + other)


def test_update_message_folds_nothing_and_states_lie_over_it(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [tool("x1", "s1"), message("a1")])
    host.set_review_state(session, "x1", "s1", "rolledBack")
    with mmapstore.open(transcript(host, session), cache_dir=None) as t:
        tail = transcript(host, session).read_bytes()[int(t.layout.message_offsets[1]) :]
    assert host.update_message(session, tool("x1", "s1", state="active", extra=1))
    assert transcript(host, session).read_bytes().endswith(tail)
    assert states(shown(host, session)[0]) == ["rolledBack"]
    assert not host.update_message(session, tool("x1", "s1", state="rolledBack", extra=1))


# -- branches -----------------------------------------------------------------------------


def test_a_stamped_branch_that_was_never_stored_becomes_its_own_variant(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    host.truncate_from(session, "u1")
    host.append_messages(session, [user("u2", meta=root_meta("u1", 2, 2)), message("a2")])
    host.activate_revision(session, "u1", 1)
    assert ids(host, session) == ["u1", "a1"]
    listed = host.list_revisions(session, "u1")
    assert [(r.index, r.is_active, r.message_count) for r in listed] == [
        (1, True, 2),
        (2, False, 2),
    ]
    host.activate_revision(session, "u1", 2)
    assert ids(host, session) == ["u2", "a2"]
    with pytest.raises(mmapstore.ConflictError):
        host.delete_revision(session, "u1", 2)
    host.delete_revision(session, "u1", 1)
    saved = host.save_revision(session, "u1", [message("b")])
    assert saved.index == 3  # numbers are never given again
    assert [r.index for r in host.list_revisions(session, "u1")] == [2, 3]


def test_a_cut_can_be_taken_back(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [message("a0"), user("u1"), message("a1")])
    cut = host.truncate_from(session, "u1")
    assert cut.revision is not None
    host.activate_revision(session, cut.revision.root_user_id, cut.revision.index)
    assert ids(host, session) == ["a0", "u1", "a1"]


def test_a_cut_that_is_asked_for_twice_is_archived_once(
    host: mmapstore.Host, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    with (
        failing(monkeypatch, 0, "error", only="replace"),
        pytest.raises(mmapstore.WriteFailedError),
    ):
        # the archive is new: its own file is put in place first
        host.truncate_from(session, "u1")
    with (
        failing(monkeypatch, 1, "error", only="replace"),
        pytest.raises(mmapstore.WriteFailedError),
    ):
        host.truncate_from(session, "u1")
    assert ids(host, session) == ["u1", "a1"]
    assert host.truncate_from(session, "u1").revision is not None
    assert [r.index for r in host.list_revisions(session, "u1")] == [1]


@pytest.mark.parametrize("how", ["update", "save"])
def test_a_live_branch_is_stored_before_its_root_is_said_to_show_another(
    host: mmapstore.Host, session: str, how: str
) -> None:
    root = user("u1", meta=root_meta("u1", 1, 1))
    host.append_messages(session, [root, message("a1")])
    host.save_active_revision(session)
    if how == "update":
        host.update_message(session, {**root, "meta": root_meta("u1", 2, 2)})
    else:
        assert host.save_revision(session, "u1", [message("b1")], make_active=True).index == 2
    host.append_message(session, message("later"))
    (stored,) = [
        line
        for line in lines(revisions_file(host, session))
        if line["type"] == "revision" and line["revisionIndex"] == 1
    ]
    assert [record["id"] for record in stored["messages"]] == ["u1", "a1"]
    host.activate_revision(session, "u1", 1)
    assert ids(host, session) == ["u1", "a1"]
    host.activate_revision(session, "u1", 2)
    assert ids(host, session) == ["u1", "a1", "later"]


def test_a_branch_whose_root_was_cut_goes_back_to_where_it_stood(tmp_path: Path) -> None:
    """A question that was asked anew under another id: each is shown without the other."""
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        first = [user("m0"), message("m1"), user("m2"), message("m3")]
        host.append_messages(session, first)
        host.truncate_from(session, "m2")
        second = [user("n2"), message("n3")]
        host.append_messages(session, second)
        host.activate_revision(session, "m2", 1)
        assert ids(host, session) == ["m0", "m1", "m2", "m3"]
        host.activate_revision(session, "n2", 1)
        assert ids(host, session) == ["m0", "m1", "n2", "n3"]
        host.activate_revision(session, "m2", 1)
        assert ids(host, session) == ["m0", "m1", "m2", "m3"]


def test_a_branch_takes_no_place_from_messages_that_no_archive_has(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("m0"), message("m1"), user("m2"), message("m3")])
        host.truncate_from(session, "m2")
        host.append_message(session, message("extra"))
        before = transcript(host, session).read_bytes()
        with pytest.raises(ConflictError, match="from position 2 on"):
            host.activate_revision(session, "m2", 1)
        assert transcript(host, session).read_bytes() == before
        host.truncate_from(session, "extra")
        host.activate_revision(session, "m2", 1)
        assert ids(host, session) == ["m0", "m1", "m2", "m3"]


@pytest.mark.parametrize("follows", ["gone", 7, None])
def test_a_branch_whose_place_is_not_known_goes_to_the_end(tmp_path: Path, follows: Any) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("m0"), message("m1"), user("m2"), message("m3")])
        host.truncate_from(session, "m2")
        path = revisions_file(host, session)
        record = orjson.loads(path.read_bytes())
        assert record.pop("followsMessageId") == "m1"
        if follows is not None:
            record["followsMessageId"] = follows
        path.write_bytes(orjson.dumps(record) + b"\n")
        host.append_messages(session, [user("n2")])
        host.activate_revision(session, "m2", 1)
        assert ids(host, session) == ["m0", "m1", "n2", "m2", "m3"]


def test_a_checkpoint_goes_with_the_root_that_is_taken_away(tmp_path: Path) -> None:
    """The branch that is shown has a root of another id: nothing stands for the old one."""
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("u1"), message("a1")])
        host.truncate_from(session, "u1")
        host.append_messages(session, [user("u2", meta=root_meta("u1", 2, 2)), message("a2")])
        host.append_compaction(session, compaction("c", "u2"))
        host.activate_revision(session, "u1", 1)
        window = host.get_session(session)
        assert [m["id"] for m in window.messages] == ["u1", "a1"]
        assert len(window.compactions) == 0


def test_an_index_that_a_branch_knows_of_is_not_given_again(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("u1", meta=root_meta("u1", 3, 1)), message("a1")])
        host.truncate_from(session, "u1")
        host.append_messages(session, [user("u2", meta=root_meta("u1", 2, 2)), message("a2")])
        host.activate_revision(session, "u1", 1)
        assert host.save_revision(session, "u1", [message("x")]).index == 4


def test_a_session_that_could_not_be_read_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session(title="T").id
        host.append_message(session, message("a"))
        path = transcript(host, session)
    (tmp_path / "index.sqlite").unlink()
    real = os.open

    def refused(name: Any, *args: Any, **kwargs: Any) -> int:
        if name == str(path):
            raise OSError(errno.EMFILE, "too many open files")
        return real(name, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        host = mmapstore.Host(tmp_path)
        (listed,) = host.list_sessions()
        assert (listed.id, listed.title) == (session, None)
    (listed,) = host.list_sessions()
    assert (listed.id, listed.title) == (session, "T")
    host.close()
