"""A JSON text changed in one value keeps every other byte."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore.decode import decode_object, decode_value
from mmapstore.host.jsonvalue import same_value
from mmapstore.host.splice import (
    elements,
    fold,
    members,
    replaced,
    values,
    with_first_member,
    with_last_member,
)
from mmapstore.review import overlay, replay
from tests import strategies
from tests.host_support import states, tool


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


objects = st.dictionaries(strategies.keys, strategies.values, max_size=4)


@given(record=objects, seed=strategies.seeds)
def test_every_value_is_told_with_its_place(record: dict[str, Any], seed: int) -> None:
    text = strategies.spelled(record, seed)
    decoded = decode_object(text)
    found = list(values(text))
    for path, start, stop in found:
        assert same_value(decode_value(text[start:stop]), at(decoded, path))
    assert found[-1].path == ()

    def count(value: Any) -> int:
        if isinstance(value, dict):
            return 1 + sum(map(count, value.values()))
        return 1 + sum(map(count, value)) if isinstance(value, list) else 1

    assert len(found) == count(decoded)
    assert [key for key, _, _ in members(text)] == list(decoded)


@given(items=st.lists(strategies.values, max_size=5), seed=strategies.seeds)
def test_elements_of_an_array_by_their_bytes(items: list[Any], seed: int) -> None:
    text = strategies.spelled({"a": [1, [2]], "messages": items, "b": {"messages": [3]}}, seed)
    found = elements(text, "messages")
    assert same_value([decode_value(part) for part in found], decode_object(text)["messages"])


@given(record=objects, seed=strategies.seeds)
def test_a_member_more_and_nothing_else(record: dict[str, Any], seed: int) -> None:
    text = strategies.spelled(record, seed)
    expected = {**decode_object(text), "new": [1]}
    assert same_value(decode_object(with_last_member(text, "new", [1])), expected)
    assert same_value(decode_object(with_first_member(text, "new", [1])), expected)


tools = st.builds(
    lambda names, state, extra: tool("x", *names, state=state, extra=extra),
    st.lists(st.sampled_from(strategies.SNAPSHOTS), unique=True, max_size=3),
    strategies.texts,
    strategies.values,
)
said = st.dictionaries(st.sampled_from(strategies.SNAPSHOTS), strategies.texts.filter(bool))


@given(message=tools, wanted=said, seed=strategies.seeds)
def test_folding_is_what_the_overlay_shows(
    message: dict[str, Any], wanted: dict[str, str], seed: int
) -> None:
    text = strategies.spelled({"type": "message", **message}, seed)
    record = decode_object(text)
    owned = {name for name in wanted if _owns(record, name)}
    folded, snapshots = fold(text, wanted)
    assert snapshots == owned
    lines = [{"messageId": "x", "snapshotId": k, "state": v} for k, v in wanted.items()]
    shown = copy.deepcopy(record)
    overlay(shown, replay(lines))
    assert same_value(decode_object(folded), shown)
    if not owned or same_value(shown, record):
        assert decode_object(folded) == record
    # whatever is not a state is there byte for byte
    kept = [text[a:b] for path, a, b in values(text) if path[:1] != ("blocks",) and path]
    assert kept == [
        folded[a:b] for path, a, b in values(folded) if path[:1] != ("blocks",) and path
    ]


def _owns(record: dict[str, Any], name: str) -> bool:
    details = record["blocks"][0]["result"]["details"]
    reviews = [details["review"]] if "review" in details else details.get("reviews", [])
    return any(review["snapshotId"] == name for review in reviews)


def test_folding_changes_the_bytes_of_the_state_alone() -> None:
    text = (
        b'{ "type":"message","id":"x","n":123456789012345678901,"role":"tool", "blocks":[1e400,'
        b'{"result":{"details":{"review":{"state" :"active" ,"snapshotId":"s1","z":NaN}}}},'
        b'{"result":{"details":{"reviews":[{"snapshotId":"s2"},7,{"snapshotId":"s1"}]}}}]}\r'
    )
    folded, snapshots = fold(text, {"s1": "rolledBack", "s2": "é"})
    assert snapshots == {"s1", "s2"}
    assert folded == (
        text.replace(b'"active"', b'"rolledBack"')
        .replace(b'{"snapshotId":"s2"}', '{"state":"é","snapshotId":"s2"}'.encode())
        .replace(b'{"snapshotId":"s1"}', b'{"state":"rolledBack","snapshotId":"s1"}')
    )


@pytest.mark.parametrize("role", ["user", "assistant", None])
def test_only_a_tool_message_owns_a_snapshot(role: str | None) -> None:
    text = orjson.dumps({**tool("x", "s1"), "role": role})
    assert fold(text, {"s1": "new"}) == (text, set())


def test_a_repeated_key_is_folded_as_a_parser_reads_it() -> None:
    part = b'"blocks":[{"result":{"details":{"review":{"snapshotId":"s1","state":"%s"}}}}]'
    text = b'{"id":"x","role":"tool",' + part % b"one" + b"," + part % b"two" + b"}"
    folded, snapshots = fold(text, {"s1": "new"})
    assert snapshots == {"s1"}
    assert states(decode_object(folded)) == ["new"]


def test_edits_may_touch_each_other() -> None:
    assert replaced(b"abcdef", [(4, 6, b"X"), (0, 2, b""), (2, 4, b"YY")]) == b"YYX"
