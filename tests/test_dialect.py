"""The dialect table is whole, and its words for id, role, time, text and calls are right."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmapstore.dialect import DIALECTS, GENERIC, NATIVE, Dialect, Kind, Look, dialect_named
from mmapstore.grammar import REASONING_TYPES
from tests.strategies import values

CONTRACT = [
    "native",
    "claude",
    "codex",
    "codex-2025",
    "pi",
    "copilot",
    "gemini",
    "kimi",
    "droid",
    "droid-stream",
    "qwen",
    "cursor",
    "grok",
    "antigravity",
    "generic",
]


def test_the_table_holds_the_names_of_the_contract() -> None:
    assert sorted(dialect.name for dialect in DIALECTS) == sorted(CONTRACT)
    # the first is the project's own, the last claims what nothing else does
    assert (DIALECTS[0], DIALECTS[-1]) == (NATIVE, GENERIC)


@pytest.mark.parametrize("name", CONTRACT)
def test_a_dialect_is_found_by_its_name(name: str) -> None:
    assert dialect_named(name).name == name


@pytest.mark.parametrize("name", ["", "Native", "openclaw ", "none", "codex-2026"])
def test_an_unknown_name_is_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(name))) as caught:
        dialect_named(name)
    assert all(known in str(caught.value) for known in CONTRACT)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_entry_holds_together(dialect: Dialect) -> None:
    re.compile(dialect.path_hint)
    assert bool(dialect.kinds) == bool(dialect.key)
    assert dialect.signatures or dialect is GENERIC
    assert len(set(dialect.probes)) == len(dialect.probes)
    outcomes = [*dialect.kinds.values(), dialect.keyless]
    settled = {kind for kind in outcomes if isinstance(kind, Kind)}
    for look in outcomes:
        if isinstance(look, Look):
            settled |= {*look.kinds.values(), look.present, look.absent}
            assert look.path and all(look.path)
            # scalars as JSON spells them
            assert all(token[:1] == b'"' or token == b"true" for token in look.kinds)
            assert bool(look.unless) == bool(look.unless_text)
    assert Kind.MESSAGE in settled
    # only a host's own files hold review states, and only they are safe to map
    assert (Kind.REVIEW in settled) == dialect.safe_to_map == (dialect is NATIVE)
    # values are compared as bytes: none may need an escape
    assert all(re.fullmatch(rb"[\w.]+", value) for value in dialect.kinds)


def message(name: str) -> dict[str, Any]:
    """Return a message as the agent writes it."""
    blocks = [{"type": "text", "text": "one"}, {"type": "x"}, {"type": "text", "text": "two"}]
    calls = [{"type": "text", "text": "one"}, {"type": "tool_use", "id": "call"}, {"text": "two"}]
    return {
        "native": {
            "type": "message",
            "id": "i",
            "role": "tool",
            "blocks": [{"text": "one"}, {"callId": "call", "text": "two"}],
            "createdAt": "t",
        },
        "pi": {
            "type": "message",
            "id": "i",
            "message": {"role": "assistant", "content": calls},
            "timestamp": "t",
        },
        "claude": {
            "type": "assistant",
            "uuid": "i",
            "message": {"role": "assistant", "content": calls},
            "timestamp": "t",
        },
        "codex": {
            "type": "response_item",
            "timestamp": "t",
            "payload": {"type": "message", "id": "i", "role": "user", "content": blocks},
        },
        "codex-2025": {
            "type": "message",
            "id": "i",
            "role": "user",
            "content": blocks,
            "timestamp": "t",
        },
        "copilot": {
            "type": "user.message",
            "id": "i",
            "data": {"content": "one\ntwo"},
            "timestamp": "t",
        },
        "gemini": {"type": "user", "id": "i", "content": blocks, "timestamp": "t"},
        "kimi": {
            "type": "context.append_message",
            "message": {"id": "i", "role": "user", "content": blocks},
            "time": "t",
        },
        "droid": {
            "type": "message",
            "id": "i",
            "message": {"role": "user", "content": calls},
            "timestamp": "t",
        },
        "droid-stream": {
            "type": "message",
            "id": "i",
            "role": "user",
            "text": "one\ntwo",
            "timestamp": "t",
        },
        "qwen": {"type": "user", "uuid": "i", "message": {"parts": blocks}, "timestamp": "t"},
        "cursor": {"role": "user", "message": {"content": blocks}},
        "grok": {"type": "user", "id": "i", "content": blocks},
        "antigravity": {
            "type": "USER_INPUT",
            "step_index": 7,
            "source": "user",
            "content": "one\ntwo",
            "created_at": "t",
        },
        "generic": {"id": "i", "role": "user", "timestamp": "t", "text": "one"},
    }[name]


ANSWERS = {
    # id, role, time, calls; the text is the same in all but one
    "native": ("i", "tool", "t", ["call"]),
    "pi": ("i", "assistant", "t", ["call"]),
    "claude": ("i", "assistant", "t", ["call"]),
    "codex": ("i", "user", "t", []),
    "codex-2025": ("i", "user", "t", []),
    "copilot": ("i", "user", "t", []),
    "gemini": ("i", "user", "t", []),
    "kimi": ("i", "user", "t", []),
    "droid": ("i", "user", "t", ["call"]),
    "droid-stream": ("i", "user", "t", []),
    "qwen": ("i", "user", "t", []),
    "cursor": (None, "user", None, []),
    "grok": ("i", "user", None, []),
    "antigravity": ("7", "user", "t", []),
    "generic": (None, "user", "t", []),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_the_five_words_of_every_dialect(name: str) -> None:
    dialect, record = dialect_named(name), message(name)
    found = (dialect.id(record), dialect.role(record), dialect.time(record), dialect.calls(record))
    assert found == ANSWERS[name]
    assert dialect.text(record) == ("" if name == "generic" else "one\ntwo")


HIDDEN = "hidden"
#: of each dialect that has any: a message that only holds what a model thought
THOUGHT = {
    "native": {"type": "message", "blocks": [{"type": "thinking", "text": HIDDEN}]},
    "claude": {
        "type": "assistant",
        "message": {"content": [{"type": "thinking", "thinking": HIDDEN, "signature": "s"}]},
    },
    "pi": {"type": "message", "message": {"content": [{"type": "thinking", "thinking": HIDDEN}]}},
    "droid": {
        "type": "message",
        "message": {"content": [{"type": "thinking", "thinking": HIDDEN}]},
    },
    "kimi": {
        "type": "context.append_loop_event",
        "event": {"type": "content.part", "part": {"type": "think", "think": HIDDEN}},
    },
    "qwen": {"type": "assistant", "message": {"parts": [{"text": HIDDEN, "thought": True}]}},
    "gemini": {"type": "gemini", "content": [{"text": HIDDEN, "thought": True}]},
    "cursor": {
        "role": "assistant",
        "message": {"content": [{"type": "reasoning", "text": HIDDEN}]},
    },
    "codex": {
        "type": "response_item",
        "payload": {"type": "message", "content": [{"type": "reasoning_text", "text": HIDDEN}]},
    },
}


@pytest.mark.parametrize("name", THOUGHT)
def test_what_a_model_thought_is_no_text(name: str) -> None:
    dialect = dialect_named(name)
    assert (dialect.text(THOUGHT[name]), dialect.said(THOUGHT[name])) == ("", "")


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("kind", sorted(REASONING_TYPES))
@given(data=st.data())
def test_nor_is_it_wherever_it_stands(dialect: Dialect, kind: str, data: st.DataObject) -> None:
    """Of each message that an agent writes, some objects are made thoughts of."""
    odd = message(dialect.name)
    todo: list[Any] = [odd]
    thoughts = []
    while todo:
        each = todo.pop()
        todo += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        if isinstance(each, dict) and each is not odd and data.draw(st.booleans()):
            each |= {"text": HIDDEN, "content": HIDDEN, "type": kind}
            thoughts.append(each)
    assert HIDDEN not in dialect.text(odd)
    for thought in thoughts:
        thought.update(type="text", thought=True)
    assert HIDDEN not in dialect.text(odd)


def result(name: str, content: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "content": content}
    if name == "native":
        return {"type": "message", "blocks": [{"type": "tool_call", "result": content}]}
    return {"type": "user", "message": {"content": [block]}}


@pytest.mark.parametrize("name", ["native", "claude", "pi", "droid"])
def test_where_nothing_is_said_what_a_tool_gave_back_is_the_text(name: str) -> None:
    dialect = dialect_named(name)
    contents = ["given back", [{"type": "text", "text": "given back"}]]
    if name == "native":
        contents[1] = {"content": contents[1]}
    for content in contents:
        record = result(name, content)
        assert (dialect.text(record), dialect.said(record)) == ("given back", "")
        parts = record["blocks"] if name == "native" else record["message"]["content"]
        parts.append({"type": "text", "text": "said"})
        assert dialect.text(record) == dialect.said(record) == "said"


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@settings(max_examples=settings.default.max_examples // 4)
@given(record=st.dictionaries(st.text(max_size=4), values, max_size=4), data=st.data())
def test_no_record_is_too_odd(
    dialect: Dialect, record: dict[str, Any], data: st.DataObject
) -> None:
    odd = message(dialect.name)
    for key in list(odd):
        if data.draw(st.booleans()):
            odd[key] = data.draw(values)
    for each in (record, odd, {}):
        assert isinstance(dialect.id(each), str | None)
        assert isinstance(dialect.role(each), str | None)
        assert isinstance(dialect.time(each), str | None)
        assert isinstance(dialect.text(each), str)
        assert all(isinstance(call, str) for call in dialect.calls(each))


@pytest.mark.parametrize(
    ("value", "message_id"),
    [
        ("a", "a"),
        (0, "0"),
        (-7, "-7"),
        (2**63, str(2**63)),
        (10**30, None),
        (True, None),
        (1.0, None),
        (None, None),
        ([], None),
        ({"id": "a"}, None),
        ("\ud800", "\ud800"),
    ],
)
def test_strings_and_integers_are_ids(value: Any, message_id: str | None) -> None:
    assert NATIVE.id({"id": value}) == message_id


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("not a time", "not a time"),
        (0, "1970-01-01T00:00:00.000Z"),
        (1767323045678, "2026-01-02T03:04:05.678Z"),
        (1767323045678.25, "2026-01-02T03:04:05.678Z"),
        (-1000, "1969-12-31T23:59:59.000Z"),
        (10**30, None),
        (-(10**400), None),
        (float("nan"), None),
        (float("inf"), None),
        (None, None),
        ([0], None),
    ],
)
def test_a_number_is_milliseconds_since_the_epoch(value: Any, time: str | None) -> None:
    assert NATIVE.time({"createdAt": value}) == time


def test_a_boolean_is_no_time() -> None:
    assert NATIVE.time({"createdAt": True}) is None


def test_a_missing_time_does_not_hide_the_other_place() -> None:
    kimi = dialect_named("kimi")
    assert kimi.time({"created_at": "t"}) == "t"
    assert kimi.time({"time": None, "created_at": "t"}) == "t"
    assert kimi.time({"time": 0, "created_at": "t"}) == "1970-01-01T00:00:00.000Z"


def test_roles_that_are_part_of_a_word_or_fixed() -> None:
    copilot, pi, kimi = map(dialect_named, ("copilot", "pi", "kimi"))
    assert copilot.role({"type": "assistant.message"}) == "assistant"
    assert copilot.role({"type": "assistant"}) == "assistant"
    assert pi.role({"type": "custom_message"}) == "custom"
    assert kimi.role({"type": "context.append_loop_event"}) == "assistant"
