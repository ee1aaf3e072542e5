"""Review states: the last line of a message's snapshot wins, and nothing else is touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmapstore.review import ReviewStates, overlay, replay, reviews
from tests.strategies import IDS, message_records, review_records, values

ids = st.sampled_from(["a", "b", "c"])
#: what any test here calls a message
MESSAGE_IDS = [*IDS, "0", "m", "n", "z", "other", ""]
words = st.one_of(ids, st.sampled_from(["", 7, None, ["a"], {"a": 1}]))
state_records = st.one_of(
    st.fixed_dictionaries({"messageId": ids, "snapshotId": ids, "state": ids}),
    st.fixed_dictionaries({}, optional={"messageId": words, "snapshotId": words, "state": words}),
)


def naive_states(records: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Return what the last complete record of each pair says, searching from the end."""
    states = {}
    for record in records[::-1]:
        message_id, snapshot_id, state = (
            record.get(key) for key in ("messageId", "snapshotId", "state")
        )
        if all(isinstance(value, str) for value in (message_id, snapshot_id, state)) and state:
            states.setdefault((message_id, snapshot_id), state)
    return states


def flat(states: ReviewStates) -> dict[tuple[str, str], str]:
    """Return the state of each pair, of every message that any test names."""
    return {
        (message_id, snapshot_id): state
        for message_id in MESSAGE_IDS
        for snapshot_id, state in (states.get(message_id) or {}).items()
    }


def replayed(states: dict[str, dict[str, str]]) -> ReviewStates:
    """Return states that say this and no more."""
    return replay(
        {"messageId": message_id, "snapshotId": snapshot_id, "state": state}
        for message_id, of_message in states.items()
        for snapshot_id, state in of_message.items()
    )


@given(records=st.lists(st.one_of(state_records, review_records), max_size=20))
def test_the_last_record_of_a_message_and_snapshot_wins(records: list[dict[str, Any]]) -> None:
    assert flat(replay(records)) == naive_states(records)


def test_replay_reads_a_stream_once() -> None:
    records = ({"messageId": "m", "snapshotId": "s", "state": str(n)} for n in range(3))
    states = replay(records)
    assert (states.count, states.get("m"), states.get("s")) == (3, {"s": "2"}, None)
    assert (replay([]).count, replay([]).get("m")) == (0, None)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"messageId": "m", "snapshotId": "s"},
        {"messageId": "m", "state": "active"},
        {"snapshotId": "s", "state": "active"},
        {"messageId": 1, "snapshotId": "s", "state": "active"},
        {"messageId": "m", "snapshotId": None, "state": "active"},
        {"messageId": "m", "snapshotId": "s", "state": ""},
        {"messageId": "m", "snapshotId": "s", "state": True},
        {"messageId": "m", "snapshotId": "s", "state": ["active"]},
    ],
)
def test_an_incomplete_record_says_nothing(record: dict[str, Any]) -> None:
    before = {"messageId": "m", "snapshotId": "s", "state": "rolledBack"}
    assert flat(replay([record])) == {}
    assert flat(replay([before, record])) == {("m", "s"): "rolledBack"}


# -- growth ---------------------------------------------------------------------------

#: None stands for a line that does not decode
logs = st.lists(st.one_of(st.none(), state_records, state_records, review_records), max_size=24)


def naive_of(log: list[dict[str, Any] | None]) -> dict[tuple[str, str], str]:
    return naive_states([record for record in log if record is not None])


@given(log=logs, cuts=st.lists(st.integers(0, 24), max_size=5))
def test_states_that_grew_are_those_that_are_replayed_anew(
    log: list[dict[str, Any] | None], cuts: list[int]
) -> None:
    states = ReviewStates()
    seen = [(states, 0)]
    for cut in (*sorted(min(cut, len(log)) for cut in cuts), len(log)):
        # a stream, as a file's lines are
        states = states.grown(iter(log[states.count : cut]), cut)
        seen.append((states, cut))
    assert flat(states) == flat(replay(log)) == naive_of(log)
    # those that were there before are as they were, whatever later lines say
    for before, count in seen:
        assert before.count == count
        assert flat(before) == naive_of(log[:count])


@given(log=logs, branches=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 24)), max_size=8))
@example(
    log=[{"messageId": "a", "snapshotId": "a", "state": state} for state in "abc"],
    branches=[(0, 3), (0, 1), (2, 2)],
)
def test_two_that_grow_out_of_one_do_not_disturb_each_other(
    log: list[dict[str, Any] | None], branches: list[tuple[int, int]]
) -> None:
    """As when a window of an earlier state is looked at after a later one."""
    family = [ReviewStates()]
    for parent, more in branches:
        known = family[parent % len(family)]
        count = min(known.count + more, len(log))
        family.append(known.grown(log[known.count : count], count))
    for states in family:
        assert flat(states) == naive_of(log[: states.count])


def test_growth_that_was_interrupted_is_begun_again() -> None:
    log = [{"messageId": "m", "snapshotId": s, "state": f"{n}"} for n, s in enumerate("abab")]

    def interrupted() -> Any:
        yield from log[1:3]
        raise KeyboardInterrupt

    states = ReviewStates().grown(log[:1], 1)
    with pytest.raises(KeyboardInterrupt):
        states.grown(interrupted(), 4)
    assert (states.count, flat(states)) == (1, {("m", "a"): "0"})
    assert flat(states.grown(log[1:2], 2)) == {("m", "a"): "0", ("m", "b"): "1"}
    assert flat(states.grown(log[1:], 4)) == {("m", "a"): "2", ("m", "b"): "3"}


def test_a_message_that_only_later_lines_name_has_no_states() -> None:
    before = ReviewStates()
    after = before.grown([{"messageId": "m", "snapshotId": "s", "state": "x"}], 1)
    assert after.get("m") == {"s": "x"}
    assert before.get("m") is None


def test_states_that_are_handed_out_are_the_callers_own() -> None:
    states = replayed({"m": {"s": "x"}})
    states.get("m")["s"] = "y"  # type: ignore[index]
    assert states.get("m") == {"s": "x"}


# -- overlays -------------------------------------------------------------------------


def tool_message(*details: Any) -> dict[str, Any]:
    blocks = [{"type": "tool_call", "result": {"details": each}} for each in details]
    return {"type": "message", "id": "m", "role": "tool", "blocks": blocks}


def test_one_review_and_many_in_every_block_are_overlaid() -> None:
    message = tool_message(
        {"review": {"snapshotId": "s1", "state": "active", "path": "p"}},
        {"reviews": [{"snapshotId": "s2"}, {"snapshotId": "s3", "state": "active"}]},
        {"review": {"snapshotId": "s3"}, "reviews": [{"snapshotId": "s1", "state": "x"}]},
    )
    overlay(message, replayed({"m": {"s1": "rolledBack", "s2": "active"}, "other": {"s3": "no"}}))
    assert message == tool_message(
        {"review": {"snapshotId": "s1", "state": "rolledBack", "path": "p"}},
        {
            "reviews": [
                {"snapshotId": "s2", "state": "active"},
                {"snapshotId": "s3", "state": "active"},
            ]
        },
        {"review": {"snapshotId": "s3"}, "reviews": [{"snapshotId": "s1", "state": "rolledBack"}]},
    )


@pytest.mark.parametrize("change", [{"role": "user"}, {"role": None}, {"id": 7}, {"id": "n"}])
def test_only_tool_messages_with_that_id_are_overlaid(change: dict[str, Any]) -> None:
    message = tool_message({"review": {"snapshotId": "s", "state": "active"}}) | change
    before = copy.deepcopy(message)
    overlay(message, replayed({"m": {"s": "rolledBack"}}))
    assert message == before


STATES = {"m": {"s1": "new", "s2": "0", "": "empty"}, "a": {"s1": "new a"}, "b": {"s1": "new b"}}


def naive_overlay(message: dict[str, Any], states: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return the message anew, walking all of it and changing only what stands at the two places."""
    of_message = states.get(message["id"], {}) if isinstance(message.get("id"), str) else {}
    if message.get("role") != "tool":
        of_message = {}

    def changed(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [changed(part, (*path, "[]")) for part in value]
        if not isinstance(value, dict):
            return value
        found = {key: changed(part, (*path, key)) for key, part in value.items()}
        prefix = ("blocks", "[]", "result", "details")
        at_place = path in ((*prefix, "review"), (*prefix, "reviews", "[]"))
        snapshot_id = value.get("snapshotId")
        if at_place and isinstance(snapshot_id, str) and snapshot_id in of_message:
            found["state"] = of_message[snapshot_id]
        return found

    return changed(message, ())


@given(message=message_records(), id_=st.sampled_from(["m", "a", "b", "z"]))
def test_any_message(message: dict[str, Any], id_: str) -> None:
    message["id"] = id_
    expected = naive_overlay(message, STATES)
    overlay(message, replayed(STATES))
    assert message == expected


@given(
    message=st.dictionaries(
        st.sampled_from(["id", "role", "blocks", "k"]),
        st.one_of(values, st.sampled_from(["m", "tool"])),
    )
)
def test_no_shape_of_a_message_is_too_odd(message: dict[str, Any]) -> None:
    expected = naive_overlay(message, STATES)
    overlay(message, replayed(STATES))
    assert message == expected


@pytest.mark.parametrize(
    "blocks",
    [
        None,
        "text",
        {},
        {"result": {"details": {"review": {"snapshotId": "s"}}}},
        [None, 1, "x", [], [{"result": {"details": {"review": {}}}}]],
        [{"result": None}, {"result": []}, {"result": {"details": None}}],
        [{"result": {"details": [{"review": {}}]}}],
        [{"result": {"details": {"review": [{}], "reviews": {"snapshotId": "s"}}}}],
        [{"result": {"details": {"reviews": [None, 1, []]}}}],
        [{"details": {"review": {}}}],
    ],
)
def test_no_review_is_found_anywhere_else(blocks: Any) -> None:
    assert list(reviews({"blocks": blocks})) == []
    assert list(reviews({})) == []
