"""A line's kind: a parser's answer for valid lines, and the same answer wherever the line stands."""

from __future__ import annotations

import json
import random
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmapstore import classify
from mmapstore.classify import Classifier, kind_of_record, string_token
from mmapstore.dialect import DIALECTS, Dialect, Kind, Look, dialect_named
from tests.strategies import damaged_lines, spelled, values, whole_lines

NAMES = [dialect.name for dialect in DIALECTS]
OTHER, MESSAGE, COMPACTION, REVIEW, SUMMARY = Kind


def kinds_of(dialect: Dialect, lines: list[bytes]) -> list[Kind]:
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    ends = np.cumsum(lengths)
    found = Classifier(dialect).kinds(b"".join(lines), ends - lengths, ends)
    return [Kind(kind) for kind in found.tolist()]


def kind_alone(dialect: Dialect, line: bytes) -> Kind:
    (kind,) = kinds_of(dialect, [line])
    return kind


#: what the lines of each dialect are: written down by hand, not derived from its table
EXPECTED: dict[str, list[tuple[dict[str, Any], Kind]]] = {
    "native": [
        ({"type": "message", "id": "a", "role": "user"}, MESSAGE),
        ({"type": "compaction", "id": "a", "summary": "s"}, COMPACTION),
        ({"type": "tool_review_state", "messageId": "a"}, REVIEW),
        ({"type": "session", "schema": 2}, OTHER),
        ({"type": "Message"}, OTHER),
        ({"type": "messages"}, OTHER),
        ({"type": ""}, OTHER),
        ({"type": None}, OTHER),
        ({"type": ["message"]}, OTHER),
        ({"type": {"type": "message"}}, OTHER),
        ({"id": "a", "role": "user"}, OTHER),
        ({"inner": {"type": "message"}}, OTHER),
        ({'a"type': "message"}, OTHER),
        ({"a": 1, 'b\\"type': "message", "c": 2}, OTHER),
        ({}, OTHER),
    ],
    "pi": [
        ({"type": "message", "message": {"role": "user"}}, MESSAGE),
        ({"type": "custom_message", "content": "x"}, MESSAGE),
        ({"type": "compaction", "summary": "s"}, COMPACTION),
        ({"type": "branch_summary", "summary": "s"}, COMPACTION),
        ({"type": "session", "id": "s", "cwd": "/"}, OTHER),
        ({"type": "custom"}, OTHER),
    ],
    "codex": [
        ({"type": "response_item", "payload": {"type": "message"}}, MESSAGE),
        ({"type": "response_item", "payload": {"type": "agent_message"}}, MESSAGE),
        ({"type": "response_item", "payload": {"type": "compaction"}}, COMPACTION),
        ({"type": "response_item", "payload": {"type": "context_compaction"}}, COMPACTION),
        ({"type": "response_item", "payload": {"id": "x", "type": "message"}}, MESSAGE),
        ({"type": "response_item", "payload": {"type": "function_call"}}, OTHER),
        ({"type": "response_item", "payload": {"type": ["message"]}}, OTHER),
        ({"type": "response_item", "payload": {"a": {"type": "message"}}}, OTHER),
        ({"type": "response_item", "payload": [{"type": "message"}]}, OTHER),
        ({"type": "response_item", "payload": "message"}, OTHER),
        ({"type": "response_item", "payload": {}}, OTHER),
        ({"type": "response_item"}, OTHER),
        ({"type": "compacted", "payload": {"message": "s"}}, COMPACTION),
        ({"type": "event_msg", "payload": {"type": "message"}}, OTHER),
        ({"type": "message"}, OTHER),
    ],
    "codex-2025": [
        ({"type": "message", "role": "user"}, MESSAGE),
        ({"type": "function_call"}, OTHER),
        ({"record_type": "message", "role": "user"}, MESSAGE),
        ({"record_type": "state"}, OTHER),
        ({"record_type": {"record_type": "message"}}, OTHER),
        ({"type": "other", "record_type": "message"}, OTHER),
        ({"id": "x", "timestamp": "t"}, OTHER),
    ],
    "copilot": [
        ({"type": "user.message", "data": {"content": "x"}}, MESSAGE),
        ({"type": "assistant.message", "data": {}}, MESSAGE),
        ({"type": "system.message"}, MESSAGE),
        ({"type": "session.compaction_complete", "data": {"success": True}}, COMPACTION),
        ({"type": "session.compaction_complete", "data": {"success": False}}, OTHER),
        ({"type": "session.compaction_complete", "data": {"success": "true"}}, OTHER),
        ({"type": "session.compaction_complete", "data": {"a": {"success": True}}}, OTHER),
        ({"type": "session.compaction_complete", "success": True}, OTHER),
        ({"type": "session.compaction_complete"}, OTHER),
        ({"type": "session.start", "data": {"success": True}}, OTHER),
    ],
    "gemini": [
        ({"type": "user", "content": "x"}, MESSAGE),
        ({"type": "gemini", "content": "x"}, MESSAGE),
        ({"type": "info"}, OTHER),
        ({"$set": {"messages": []}}, COMPACTION),
        ({"$set": {"messages": None}}, COMPACTION),
        ({"$set": {"summary": "messages"}}, OTHER),
        ({"$set": {"a": {"messages": 1}}}, OTHER),
        ({"type": "x", "$set": {"messages": []}}, OTHER),
        ({"sessionId": "s", "projectHash": "h"}, OTHER),
    ],
    "kimi": [
        ({"type": "context.append_message", "message": {"role": "user"}}, MESSAGE),
        ({"type": "context.append_loop_event", "event": {"type": "content.part"}}, MESSAGE),
        ({"type": "context.append_loop_event", "event": {"type": "tool.call"}}, OTHER),
        ({"type": "context.append_loop_event", "event": {"part": {"type": "content.part"}}}, OTHER),
        ({"type": "context.append_loop_event"}, OTHER),
        ({"type": "context.apply_compaction", "summary": "s"}, COMPACTION),
        ({"type": "metadata", "protocol_version": "1"}, OTHER),
    ],
    "droid": [
        ({"type": "message", "message": {"role": "user"}}, MESSAGE),
        ({"type": "compaction_state", "summaryText": "s"}, COMPACTION),
        ({"type": "session_start"}, OTHER),
    ],
    "droid-stream": [
        ({"type": "message", "role": "user"}, MESSAGE),
        ({"type": "tool_call"}, OTHER),
        ({"type": "compaction"}, OTHER),
    ],
    "antigravity": [
        ({"type": "USER_INPUT", "step_index": 0}, MESSAGE),
        ({"type": "PLANNER_RESPONSE", "step_index": 1}, MESSAGE),
        ({"type": "RUN_COMMAND"}, OTHER),
        ({"type": "user_input"}, OTHER),
    ],
    "cursor": [
        ({"role": "user", "message": {"content": []}}, MESSAGE),
        ({"role": "assistant", "message": {"content": []}}, MESSAGE),
        ({"role": "tool"}, OTHER),
        ({"type": "user", "message": {"role": "user"}}, OTHER),
    ],
    "qwen": [
        ({"type": "user", "message": {"parts": []}}, MESSAGE),
        ({"type": "user", "subtype": "chat_compression"}, MESSAGE),
        ({"type": "assistant"}, MESSAGE),
        ({"type": "tool_result"}, MESSAGE),
        ({"type": "system", "subtype": "chat_compression"}, COMPACTION),
        ({"type": "system", "subtype": "ui_telemetry"}, OTHER),
        ({"type": "system", "systemPayload": {"subtype": "chat_compression"}}, OTHER),
        ({"type": "system"}, OTHER),
    ],
    "claude": [
        ({"type": "user", "message": {"role": "user", "content": "x"}}, MESSAGE),
        ({"type": "assistant", "message": {"role": "assistant"}}, MESSAGE),
        ({"type": "assistant", "isCompactSummary": True}, MESSAGE),
        ({"type": "user", "isCompactSummary": True, "message": {"content": "x"}}, SUMMARY),
        ({"type": "user", "message": {"content": "x"}, "isCompactSummary": True}, SUMMARY),
        (
            {"type": "user", "message": {"content": [{"text": "x"}]}, "isCompactSummary": True},
            SUMMARY,
        ),
        ({"type": "user", "isCompactSummary": False, "message": {"content": "x"}}, MESSAGE),
        ({"type": "user", "isCompactSummary": "true"}, MESSAGE),
        ({"type": "user", "isCompactSummary": [True]}, MESSAGE),
        ({"type": "user", "message": {"isCompactSummary": True}}, MESSAGE),
        ({"type": "user", "toolUseResult": {"isCompactSummary": True}}, MESSAGE),
        ({"type": "user", "message": {"content": 'say "isCompactSummary":true'}}, MESSAGE),
        ({"type": "user", "message": {"content": [{"tool_use_id": "t"}]}}, MESSAGE),
        # what looks like a summary and holds a tool's result
        (
            {
                "type": "user",
                "message": {"content": [{"type": "tool_result", "tool_use_id": "t"}]},
                "isCompactSummary": True,
            },
            MESSAGE,
        ),
        ({"type": "system", "subtype": "compact_boundary"}, COMPACTION),
        ({"type": "system", "subtype": "compact_boundary", "compactMetadata": {}}, COMPACTION),
        ({"type": "system", "subtype": "turn_duration"}, OTHER),
        ({"type": "system", "subtype": ["compact_boundary"]}, OTHER),
        ({"type": "system", "content": "compact_boundary"}, OTHER),
        ({"type": "system", "data": {"subtype": "compact_boundary"}}, OTHER),
        ({"type": "system"}, OTHER),
        ({"type": "summary", "summary": "s"}, OTHER),
        ({"type": "progress", "data": {"type": "user"}}, OTHER),
    ],
    "grok": [
        ({"type": "system", "content": "x"}, MESSAGE),
        ({"type": "user", "content": "x"}, MESSAGE),
        ({"type": "assistant", "content": "x"}, MESSAGE),
        ({"type": "tool_result", "content": "x"}, OTHER),
    ],
    "generic": [({"type": "x"}, MESSAGE), ({"a": 1}, MESSAGE), ({}, MESSAGE)],
}
TABLE = [(name, record, kind) for name, rows in EXPECTED.items() for record, kind in rows]
#: everything that would mislead a search for text
NOISE = {
    "text": '"type":"message","type":"user" {"type":"compaction"} "subtype":"compact_boundary"',
    "deep": {"type": "message", "subtype": "compact_boundary", "role": "user", "payload": [{}]},
    "list": [{"type": "user", "isCompactSummary": True, "record_type": "message"}, "type"],
    "quote": 'ends in \\"',
}


def compact(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def escaped(line: bytes, dialect: Dialect) -> bytes:
    """Spell every value that the dialect lists with an escape, and no key."""
    listed = [value for value in dialect.kinds if value]
    looks = [kind for kind in (*dialect.kinds.values(), dialect.keyless) if isinstance(kind, Look)]
    listed += [
        json.loads(token).encode() for look in looks if look.wants_strings for token in look.kinds
    ]
    for value in listed:
        line = line.replace(b':"%s"' % value, b':"\\u%04x%s"' % (value[0], value[1:]))
    return line


def test_every_dialect_is_in_the_table() -> None:
    assert set(EXPECTED) == set(NAMES)
    for name, rows in EXPECTED.items():
        listed = {kind for kind in dialect_named(name).kinds.values() if isinstance(kind, Kind)}
        assert listed <= {kind for _, kind in rows}


@pytest.mark.parametrize(("name", "record", "kind"), TABLE)
def test_what_the_lines_of_a_dialect_are(name: str, record: dict[str, Any], kind: Kind) -> None:
    dialect = dialect_named(name)
    assert kind_of_record(dialect, record) is kind
    items = list(record.items())
    long = {"long": "x" * 700}
    spellings = {
        "as it stands": compact(record),
        "last": compact(dict(items[::-1])),
        "after noise": compact(NOISE | record),
        "before noise": compact(record | NOISE),
        "after length": compact(long | record),
        "before length": compact(record | long),
        "between": compact(NOISE | long | record | {"e": NOISE} | {"l": "y" * 700}),
        "default separators": json.dumps(record | NOISE).encode(),
        "loose": json.dumps(NOISE | record, separators=(" ,\t", " :  ")).encode(),
        "white space around": b" \t" + compact(record) + b"  ",
        "carriage return": compact(NOISE | record) + b"\r",
        "escaped values": escaped(compact(NOISE | record), dialect),
        "escaped values, first": escaped(compact(record | long), dialect),
    }
    lines = [line + b"\n" for line in spellings.values()]
    found = dict(zip(spellings, kinds_of(dialect, lines), strict=True))
    assert found == dict.fromkeys(spellings, kind)
    assert [kind_alone(dialect, line) for line in lines] == [kind] * len(lines)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"\t\r",
        b"[]",
        b'"message"',
        b"1",
        b"null",
        b"\0" * 9,
        b'"type":"message"',
        b'x{"a":1,"type":"message"}',
        b'["a","type":"message"}',
        b'"a":{},"type":"user","role":"user"}',
        b'\xef\xbb\xbf{"type":"message"}',
    ],
)
def test_what_does_not_begin_an_object_is_other(name: str, line: bytes) -> None:
    assert kind_alone(dialect_named(name), line + b"\n") is OTHER


@pytest.mark.parametrize("name", NAMES)
def test_damage_behind_the_discriminator_does_not_change_the_kind(name: str) -> None:
    """A damaged message keeps its position: whatever does not reach its discriminator."""
    dialect = dialect_named(name)
    for record, kind in EXPECTED[name]:
        if kind is OTHER or "isCompactSummary" in record:
            continue
        line = compact(record | {"z": "cut"})
        for damaged in (
            line[:-3],
            line[:-1] + b"]",
            line + b"x",
            line[:-2] + b"\xff",
            line + b"\0",
        ):
            assert kind_alone(dialect, damaged + b"\n") is kind


# -- against a parser -----------------------------------------------------------------


def put(record: dict[str, Any], path: tuple[bytes, ...], value: Any) -> None:
    """Make a value stand at a path; an empty key is the first element of a list."""
    at: Any = record
    for key, following in zip(path, (*path[1:], None), strict=True):
        inner: Any = value if following is None else {} if following else [None]
        if not key:
            at[0] = inner
            at = at[0]
            continue
        kept = at.get(key.decode()) if following is not None else None
        usable = isinstance(kept, dict if following else list) and bool(kept)
        if not usable:
            at[key.decode()] = inner
        at = at[key.decode()]


@st.composite
def lines_of(draw: st.DrawFn, dialect: Dialect) -> bytes:
    """Return a valid line that has to do with a dialect's discriminators."""
    record: dict[str, Any] = draw(
        st.dictionaries(st.sampled_from(["id", "k", "é", "message"]), values, max_size=3)
    )
    looks = [kind for kind in (*dialect.kinds.values(), dialect.keyless) if isinstance(kind, Look)]
    for look in looks:
        tokens = [json.loads(token) for token in look.kinds]
        if draw(st.booleans()):
            put(record, look.path, draw(st.one_of(st.sampled_from([*tokens, True, "x"]), values)))
        if look.unless and not draw(st.integers(0, 3)):
            put(record, look.unless, draw(values))
    if dialect.key and draw(st.integers(0, 5)):
        listed = [value.decode() for value in dialect.kinds]
        value = draw(st.one_of(st.sampled_from(listed), st.sampled_from(listed), values))
        record[dialect.key.decode()] = value
    rng = random.Random(draw(st.integers(0, 999)))
    items = list(record.items())
    rng.shuffle(items)
    pad = {"pad": "x" * rng.choice([0, 0, 90, 200, 400])}
    record = {**dict(items), **pad} if rng.random() < 0.5 else {**pad, **dict(items)}
    separators = rng.choice([(",", ":"), (",", ":"), (", ", ": "), (" , ", " : ")])
    line = json.dumps(record, separators=separators, ensure_ascii=rng.random() < 0.5)
    # what UTF-8 cannot spell can only be written as an escape
    encoded = line.encode("utf-8", "surrogatepass")
    try:
        encoded.decode()
    except UnicodeDecodeError:
        encoded = json.dumps(record, separators=separators).encode()
    if rng.random() < 0.25:
        encoded = escaped(encoded, dialect)
    return encoded + rng.choice([b"\n", b"\n", b"\r\n", b" \n"])


FEWER = settings(max_examples=settings.default.max_examples // 4)
#: one of each: keys first, deep or flat looks, keys absent, no key at all
DIFFERENT = ["native", "codex", "claude", "gemini", "generic"]


@pytest.mark.parametrize("name", NAMES)
@FEWER
@given(data=st.data())
def test_the_scan_and_a_parser_agree_on_valid_lines(name: str, data: st.DataObject) -> None:
    dialect = dialect_named(name)
    lines = data.draw(st.lists(lines_of(dialect), min_size=1, max_size=10))
    parsed = [kind_of_record(dialect, json.loads(line)) for line in lines]
    assert kinds_of(dialect, lines) == parsed
    assert [kind_alone(dialect, line) for line in lines] == parsed


@given(line=whole_lines)
def test_native_lines_of_every_spelling(line: bytes) -> None:
    native = dialect_named("native")
    assert kind_alone(native, line + b"\n") is kind_of_record(native, json.loads(line))


# -- the same everywhere --------------------------------------------------------------


def in_places(dialect: Dialect, line: bytes, company: list[bytes]) -> set[Kind]:
    """Return the kinds that a line gets alone, first, last and inside, near and far from edges."""
    far = b'{"k":"' + b"x" * 700 + b'"}\n'
    found = {kind_alone(dialect, line)}
    for around in (company, [far], [far, *company], [*company, far]):
        for lines, at in (([line, *around], 0), ([*around, line], -1)):
            found.add(kinds_of(dialect, lines)[at])
        found.add(kinds_of(dialect, [*around, line, *around])[len(around)])
    return found


@pytest.mark.parametrize("name", DIFFERENT)
@FEWER
@given(data=st.data())
def test_a_valid_line_has_one_kind_in_any_company(name: str, data: st.DataObject) -> None:
    dialect = dialect_named(name)
    any_line = st.one_of(lines_of(dialect), st.sampled_from(TEMPTING), damaged_lines().map(ended))
    line = data.draw(lines_of(dialect))
    company = data.draw(st.lists(any_line, max_size=6))
    assert len(in_places(dialect, line, company)) == 1


def ended(line: bytes) -> bytes:
    return line.replace(b"\n", b" ") + b"\n"


TEMPTING = [
    b'"type":"message","x":1}\n',
    b',"type":"user"\n',
    b'type":"message"}\n',
    b'message","x":"y"}\n',
    b'"\n',
    b"\n",
    b"}\n",
    b'{"type":"message"}\n',
    b'{"type":"user","isCompactSummary":true}\n',
]
#: each of them has been given two kinds, by what stood behind it
MISLED = [
    ("native", b'{"a":1}"type":"message"\n', [b'"type":"x\n']),
    ("native", b'{"a":1,"type":"message","type":"abc\n', [b'{"type":"message"}\n']),
    ("claude", b'{"type":"assistant","type":"abc\n', [b'{"type":"user"}\n']),
]


@pytest.mark.parametrize(("name", "line", "company"), MISLED)
def test_what_stands_behind_a_damaged_line_is_not_looked_at(
    name: str, line: bytes, company: list[bytes]
) -> None:
    assert len(in_places(dialect_named(name), line, company)) == 1


@given(
    line=damaged_lines().map(ended),
    company=st.lists(
        st.one_of(whole_lines.map(ended), damaged_lines().map(ended), st.sampled_from(TEMPTING)),
        max_size=5,
    ),
)
@example(line=MISLED[0][1], company=MISLED[0][2])
@example(line=MISLED[1][1], company=MISLED[1][2])
def test_a_damaged_line_has_one_kind_in_any_company(line: bytes, company: list[bytes]) -> None:
    assert len(in_places(dialect_named("native"), line, company)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_kind_does_not_depend_on_the_offset(name: str) -> None:
    """Nor on whether the line is looked at in place or copied from the end of its buffer."""
    dialect = dialect_named(name)
    lines = [compact(record | NOISE) + b"\n" for record, _ in EXPECTED[name]]
    kinds = [kind for _, kind in EXPECTED[name]]
    for nbytes in (0, 1, 7, 100, 190, 191, 192, 193, 383, 384, 385, 479, 480, 481, 1000):
        pad = b"x" * nbytes + b"\n"
        assert kinds_of(dialect, [pad, *lines])[1:] == kinds
        assert kinds_of(dialect, [*lines, pad])[:-1] == kinds


@pytest.mark.parametrize("kind_of_memory", [bytes, bytearray, memoryview])
def test_a_part_of_a_buffer(kind_of_memory: Any) -> None:
    """Bytes that a reader has kept or not yet overwritten are no part of any line."""
    native = dialect_named("native")
    lines = [compact(record) + b"\n" for record, _ in EXPECTED["native"]] * 40
    expected = [kind for _, kind in EXPECTED["native"]] * 40
    lengths = np.array([len(line) for line in lines])
    ends = np.cumsum(lengths)
    starts = ends - lengths
    data = b"".join(lines)
    buffer = data if kind_of_memory is memoryview else kind_of_memory(data)
    for part in (slice(0, 1), slice(3, 9), slice(100, 300), slice(519, 520), slice(0, 0)):
        found = Classifier(native).kinds(buffer, starts[part], ends[part])
        assert found.tolist() == expected[part]


# -- values ---------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [*range(80, 110), 200, 5000])
def test_values_longer_than_what_is_compared(nbytes: int) -> None:
    native = dialect_named("native")
    for value in (b"message" + b"x" * nbytes, b"x" * nbytes, b"x" * nbytes + b"\\n"):
        for line in (
            b'{"type":"' + value + b'"}\n',
            b'{"a":1,"type":"' + value + b'","b":[]}\n',
            b'{"a":[],"type":"' + value + b'"}\n',
        ):
            assert kind_alone(native, line) is OTHER
            assert kinds_of(native, [line] * 3) == [OTHER] * 3
    # an escape spells a listed value behind as many white bytes as there may be
    line = b'{"a":1,"type":' + b" " * nbytes + b'"mess\\u0061ge"}\n'
    assert kind_alone(native, line) is MESSAGE


@pytest.mark.parametrize(
    "spelling",
    [
        "message",
        "mess\\u0061ge",
        "\\u006Dessage",
        "\\u006d\\u0065\\u0073\\u0073\\u0061\\u0067\\u0065",
    ],
)
@pytest.mark.parametrize(
    "shape", ['{"type":"%s"}', '{"a":{},"type":"%s"}', '{"a":1,"type":"%s","b":[1]}']
)
def test_a_value_spelled_with_escapes_is_that_value(spelling: str, shape: str) -> None:
    line = (shape % spelling).encode() + b"\n"
    assert kind_alone(dialect_named("native"), line) is MESSAGE


@pytest.mark.parametrize(
    ("token", "spelled_as"),
    [
        (b'"message"', b"message"),
        (b'""', b""),
        (b'"a\\"b"', b'a"b'),
        (b'"\\u00e9"', "é".encode()),
        (b'"\\ud83d\\ude00"', "😀".encode()),
        (b'"\\ud83d"', b""),
        (b'"\\x"', b""),
        (b"true", b""),
        (b"12", b""),
        (b"{", b""),
        (b"", b""),
    ],
)
def test_what_a_string_token_spells(token: bytes, spelled_as: bytes) -> None:
    assert string_token(token) == spelled_as


def test_megabytes_before_and_behind_the_discriminator() -> None:
    big = {"a": "x" * 1_000_000, "b": [{"type": "compaction"}] * 4000}
    for record in ({"type": "message"} | big, big | {"type": "message"}):
        for line in (compact(record), json.dumps(record).encode(), spelled(record, 0)):
            assert kind_alone(dialect_named("native"), line + b"\n") is MESSAGE


def test_no_lines() -> None:
    for name in NAMES:
        assert kinds_of(dialect_named(name), []) == []


AS_WRITTEN = [
    ("native", {"type": "message", "id": "a", "blocks": [{"type": "text"}]}, MESSAGE),
    ("native", {"id": "a", "blocks": [{"type": "text"}], "type": "message"}, MESSAGE),
    ("codex", {"timestamp": "t", "type": "response_item", "payload": {"type": "message"}}, MESSAGE),
    ("kimi", EXPECTED["kimi"][1][0], MESSAGE),
    ("claude", {"parentUuid": None, "type": "user", "message": {"content": [1]}}, MESSAGE),
    ("claude", {"parentUuid": None, "type": "system", "subtype": "compact_boundary"}, COMPACTION),
]


@pytest.mark.parametrize(
    ("name", "record", "kind"),
    [pytest.param(*row) for row in AS_WRITTEN],
)
def test_lines_as_writers_write_them_are_not_walked(
    name: str, record: dict[str, Any], kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []
    for function in ("find_value", "find_path"):
        monkeypatch.setattr(classify, function, lambda *args: walked.append(args) or -1)
    found = kinds_of(dialect_named(name), [compact(record) + b"\n"] * 20)
    assert (found, walked) == ([kind] * 20, [])


@pytest.mark.parametrize("line", [b"{}\n", b"\n", b'{"a":1}\n'])
def test_memory_does_not_grow_with_the_number_of_short_lines(line: bytes) -> None:
    lines = [line] * 25_000
    lengths = np.array([len(line) for line in lines])
    ends = np.cumsum(lengths)
    buffer = b"".join(lines)
    tracemalloc.start()
    Classifier(dialect_named("claude")).kinds(buffer, ends - lengths, ends)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
