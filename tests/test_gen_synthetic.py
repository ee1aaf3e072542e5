import base64
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.gen_synthetic import (
    DAMAGE_KINDS,
    MILLION,
    PRESETS,
    RECORDS_LARGE,
    RECORDS_SMALL,
    SHORT_LINES,
    Spec,
    generate,
    lines,
    write,
    write_to,
)
from tools.gen_synthetic.columns import EPOCH_MS, stamps
from tools.gen_synthetic.nbytes import parse_nbytes
from tools.gen_synthetic.spec import SHAPES, DamageKind

ROOT = Path(__file__).resolve().parent.parent
SMALL = Spec(messages=60, nbytes=120_000, seed=3)


def records(spec):
    """The objects of a transcript's lines that are JSON objects."""
    found = []
    for line in lines(spec):
        if not line.endswith(b"\n"):
            continue
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def is_message(shape, record):
    kind = record.get("type")
    if shape == "codex":
        return kind == "response_item" and record["payload"]["type"] == "message"
    if shape == "claude":
        return kind in ("user", "assistant") and not record.get("isCompactSummary")
    return kind == "message"


def messages(spec):
    return [record for record in records(spec) if is_message(spec.shape, record)]


def of_kind(spec, kind):
    return [record for record in records(spec) if record.get("type") == kind]


def identity(shape, message):
    match shape:
        case "claude":
            return message["uuid"]
        case "codex":
            return message["payload"]["id"]
    return message["id"]


# The bytes


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        pytest.param(
            SMALL, "a9547d1243c9dcecadef3d102af6563dc75718352189c83e7a3d3497f30813f0", id="plain"
        ),
        pytest.param(
            Spec(
                messages=300,
                nbytes=900_000,
                seed=2**64 - 1,
                key_order="last",
                tool_share=0.55,
                tool_factor=3.0,
                images=2,
                image_nbytes=4_000,
                compactions=4,
                reviews=9,
                repeats=11,
                non_ascii=0.3,
                escaped=0.3,
                lone_surrogates=5,
                nested=6,
                whitespace=True,
                crlf=True,
                torn_nbytes=33,
                damaged=14,
            ),
            "20f19afeef754d5e43e8aeef2e91f2eefeed0bdca874dccd9e0713f9e50b256a",
            id="everything",
        ),
        pytest.param(
            replace(SMALL, shape="claude"),
            "b2436708b94c3c3c23e204ceb3ca9a7f2881eafbe8358613314fc262be1c7908",
            id="claude",
        ),
        pytest.param(
            replace(SMALL, shape="codex"),
            "3dcb4aaea0bfb20506a12859e6efbfa57900b040b1fd042c93946d7f8d8a1153",
            id="codex",
        ),
        pytest.param(
            replace(SMALL, shape="pi"),
            "eb7a233eb3a65a8fcd698cff36c22e1892d3e9c2351ca02d097c27039b0830d0",
            id="pi",
        ),
    ],
)
def test_the_bytes_of_a_spec_never_change(spec, digest):
    assert hashlib.sha256(generate(spec)).hexdigest() == digest


def test_another_seed_gives_other_texts_and_other_ids():
    one, other = (messages(replace(SMALL, seed=seed)) for seed in (1, 2))
    assert not {m["id"] for m in one} & {m["id"] for m in other}
    assert all(a["blocks"] != b["blocks"] for a, b in zip(one, other, strict=True))


def test_a_stream_is_the_same_bytes_as_a_whole():
    assert b"".join(lines(SMALL)) == generate(SMALL)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nbytes", [60_000, 1_000_000])
def test_total_is_within_one_percent(shape, nbytes):
    spec = Spec(messages=30, nbytes=nbytes, shape=shape, compactions=2, damaged=8, torn_nbytes=99)
    assert len(generate(spec)) == pytest.approx(nbytes, rel=0.01)


@pytest.mark.parametrize("messages_", [1, 2, 3])
def test_total_is_met_by_a_handful_of_messages(messages_):
    assert len(generate(Spec(messages=messages_, nbytes=20_000))) == pytest.approx(20_000, rel=0.01)


def test_line_lengths_vary_around_the_mean():
    lengths = [len(line) for line in lines(Spec(messages=500, nbytes=5_000_000, header=False))]
    mean = sum(lengths) / len(lengths)
    assert min(lengths) > 0.35 * mean
    assert max(lengths) < 1.65 * mean
    assert min(lengths) < 0.6 * mean < 1.4 * mean < max(lengths)


def test_presets_have_their_sizes():
    sizes = {name: (spec.messages, spec.nbytes) for name, spec in PRESETS.items()}
    assert sizes == {
        "records-small": (3_000, 32_000_000),
        "records-large": (12_000, 129_000_000),
        "short-lines": (200_000, 280_000_000),
        "million": (1_000_000, 300_000_000),
    }
    assert list(PRESETS.values()) == [RECORDS_SMALL, RECORDS_LARGE, SHORT_LINES, MILLION]


def test_records_preset_is_plain_text_without_escapes():
    total = escapes = 0
    for line in lines(replace(RECORDS_SMALL, messages=300, nbytes=3_200_000)):
        total += len(line)
        escapes += line.count(b"\\")
        assert line.isascii()
    assert escapes == 0
    assert total == pytest.approx(3_200_000, rel=0.01)


def test_memory_does_not_grow_with_the_transcript():
    spec = replace(MILLION, messages=6_000, nbytes=60_000_000)
    for _ in lines(replace(spec, messages=10, nbytes=100_000)):
        pass  # the pools of text are made once for all
    tracemalloc.start()
    try:
        total = sum(map(len, lines(spec)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == pytest.approx(60_000_000, rel=0.01)
    assert peak < 4_000_000


def test_a_text_longer_than_the_pool_is_made_whole():
    spec = Spec(messages=2, nbytes=8_000_000, tool_share=0.0, header=False)
    texts = [message["blocks"][0]["text"] for message in messages(spec)]
    assert min(map(len, texts)) > 2_000_000
    assert sum(map(len, texts)) == pytest.approx(8_000_000, rel=0.01)


# Native lines


def test_header_is_the_first_line_and_can_be_left_out():
    first = records(SMALL)[0]
    assert first["type"] == "session"
    assert first["schema"] == 2
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,200}", first["sessionId"])
    assert not of_kind(replace(SMALL, header=False), "session")


@pytest.mark.parametrize("share", [0.0, 0.25, 0.4, 0.75, 1.0])
def test_tool_share_is_exact(share):
    roles = Counter(
        m["role"] for m in messages(Spec(messages=400, nbytes=400_000, tool_share=share))
    )
    assert roles["tool"] == 400 * share
    assert bool(roles["user"]) == bool(roles["assistant"]) == (share < 1)


def test_tool_factor_makes_tool_results_longer():
    nbytes = Counter()
    count = Counter()
    for message in messages(Spec(messages=400, nbytes=4_000_000, tool_factor=6.0)):
        is_tool = message["role"] == "tool"
        nbytes[is_tool] += len(json.dumps(message))
        count[is_tool] += 1
    ratio = (nbytes[True] / count[True]) / (nbytes[False] / count[False])
    assert 4.5 < ratio < 7


def test_tool_messages_hold_their_call_and_its_result():
    tools = [m for m in messages(SMALL) if m["role"] == "tool"]
    assert len({m["blocks"][0]["callId"] for m in tools}) == len(tools) > 10
    assert all(m["blocks"][0]["result"]["content"][0]["text"] for m in tools)
    assert {m["toolName"] for m in tools} == {"edit"}
    assert {m.get("isError") for m in tools} <= {None, True}


def test_key_order_first_is_the_writers():
    for line in lines(replace(SMALL, compactions=2, reviews=3)):
        keys = list(json.loads(line))
        assert keys[0] == "type"
        assert line.startswith((b'{"type":"message","id":"', b'{"type":"')), line[:40]
    for message in messages(SMALL):
        assert list(message)[:3] == ["type", "id", "role"]


def test_key_order_last_sorts_the_keys_of_every_line():
    seen = set()
    for line in lines(replace(SMALL, key_order="last", compactions=2, reviews=3)):
        record = json.loads(line)
        assert list(record) == sorted(record)
        assert list(record)[-1] == "type"
        assert line.endswith(b'"type":"%b"}\n' % record["type"].encode())
        seen.add(record["type"])
        if record.get("role") == "tool":
            assert isinstance(record["isError"], bool)
    assert seen == {"session", "message", "compaction", "tool_review_state"}


def test_key_order_middle_has_type_after_the_blocks():
    for message in messages(replace(SMALL, key_order="middle")):
        keys = list(message)
        assert keys.index("blocks") < keys.index("type") < len(keys) - 1


def test_replies_share_the_turn_of_their_user_message():
    turn = None
    for message in messages(SMALL):
        if message["role"] == "user":
            turn = f"turn-{message['id'][:8]}"
        else:
            assert message["turnId"] == turn


@pytest.mark.parametrize("count", [1, 5, 59])
def test_compactions_are_spread_and_name_the_message_before_them(count):
    spec = replace(SMALL, compactions=count)
    ids, places = [], []
    for record in records(spec):
        if record["type"] == "message":
            ids.append(record["id"])
        elif record["type"] == "compaction":
            assert record["throughMessageId"] == ids[-1]
            assert ids.index(record["firstKeptMessageId"]) <= len(ids) - 1
            if len(ids) > 1:
                assert record["firstKeptMessageId"] != ids[-1]
            assert record["summary"]
            assert record["tokensBefore"] > 0
            places.append(len(ids))
    assert len(places) == count
    gaps = [b - a for a, b in zip([0, *places], [*places, spec.messages], strict=True)]
    assert max(gaps) - min(gaps) <= 2


@pytest.mark.parametrize("count", [1, 7, 200])
def test_review_states_name_a_snapshot_of_an_earlier_tool_message(count):
    snapshots, states = {}, []
    for record in records(replace(SMALL, reviews=count)):
        if record.get("role") == "tool":
            review = record["blocks"][0]["result"]["details"]["review"]
            assert review["state"] == "active"
            snapshots[record["id"]] = review["snapshotId"]
        elif record["type"] == "tool_review_state":
            assert list(record) == ["type", "messageId", "snapshotId", "state"]
            assert snapshots[record["messageId"]] == record["snapshotId"]
            states.append(record["state"])
    assert states == [("rolledBack", "active")[n % 2] for n in range(count)]


def test_without_reviews_there_are_no_review_records():
    assert b"review" not in generate(SMALL)


# Options of every shape


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [1, 9, 30])
def test_repeats_carry_an_earlier_id_with_other_content(shape, count):
    seen = {}
    repeats = 0
    for message in messages(replace(SMALL, nbytes=150_000, shape=shape, repeats=count)):
        key = identity(shape, message)
        if key in seen:
            repeats += 1
            assert message != seen[key]
        seen[key] = message
    assert repeats == count
    assert len(seen) == SMALL.messages - count


def test_a_repeat_resembles_its_original():
    roles = {}
    for message in messages(Spec(messages=400, nbytes=400_000, repeats=40)):
        roles.setdefault(message["id"], set()).add(message["role"])
    assert sum(len(each) > 1 for each in roles.values()) == 0


def test_a_repeat_does_not_move_a_checkpoints_boundary():
    spec = Spec(messages=400, nbytes=400_000, repeats=50, compactions=6)
    last = {m["id"]: n for n, m in enumerate(messages(spec))}
    count = 0
    for record in records(spec):
        if record["type"] == "message":
            count += 1
        elif record["type"] == "compaction":
            assert last[record["throughMessageId"]] == count - 1
            assert last[record["firstKeptMessageId"]] < count


@pytest.mark.parametrize("shape", SHAPES)
def test_images_are_base64_of_the_size_asked_for(shape):
    spec = replace(SMALL, nbytes=150_000, shape=shape, images=3, image_nbytes=4_000)
    found = re.findall(
        rb'[":,]((?:iVBORw0KGgo)[A-Za-z0-9+/]+)"', generate(spec).replace(b"base64,", b",")
    )
    assert [len(image) for image in found] == [4_000] * 3
    assert all(
        base64.b64decode(image, validate=True).startswith(b"\x89PNG\r\n\x1a\n") for image in found
    )
    assert len(generate(spec)) == pytest.approx(150_000, rel=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_non_ascii_text_has_characters_of_all_widths(shape):
    text = generate(replace(SMALL, shape=shape, non_ascii=0.5)).decode()
    widths = {len(character.encode()) for character in text}
    assert widths == {1, 2, 3, 4}
    assert {"\u0085", "\u2028", "\u2029"} <= set(text)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_non_ascii_share_is_a_share_of_messages(share):
    spec = Spec(messages=1_000, nbytes=700_000, non_ascii=share)
    foreign = sum(not line.isascii() for line in lines(spec))
    assert foreign == pytest.approx(1_000 * share, abs=60)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_escaped_share_is_a_share_of_messages(share):
    spec = Spec(messages=1_000, nbytes=700_000, escaped=share)
    texts = list(lines(spec))
    assert sum(b"\\" in line for line in texts) == pytest.approx(1_000 * share, abs=60)
    if share:
        assert {rb"\n", rb"\"", rb"\\", rb"\u00e9"} <= set(
            re.findall(rb"\\(?:u00e9|.)", b"".join(texts))
        ) | {rb"\u00e9"}


@pytest.mark.parametrize("shape", SHAPES)
def test_lone_surrogates_are_escapes_without_a_partner(shape):
    spec = replace(SMALL, shape=shape, lone_surrogates=4)
    marked = [
        record
        for record in records(spec)
        if re.search("[\ud800-\udfff]", json.dumps(record, ensure_ascii=False))
        and record["type"] != "event_msg"  # the interface's copy of a message
    ]
    assert len(marked) == 4
    assert generate(spec).isascii()


@pytest.mark.parametrize("shape", SHAPES)
def test_nested_keys_stand_before_and_after_the_real_one(shape):
    spec = replace(SMALL, nbytes=200_000, shape=shape, nested=5)
    trapped = [line for line in lines(spec) if b'"brackets"' in line]
    assert len(trapped) == 5
    for line in trapped:
        pairs = json.loads(line, object_pairs_hook=lambda pairs: pairs)
        keys = [key for key, _ in pairs]
        real = keys.index("type")
        for side in (pairs[:real], pairs[real + 1 :]):
            text = json.dumps(side)
            assert '["type", "compaction"]' in text  # an object's member, as pairs
            assert '["type", ":", "compaction"]' in text  # an array's members
            assert r"{\"type\":\"compaction\"" in text  # a quoted line
        assert is_message(shape, json.loads(line))


def test_nested_keys_in_sorted_lines_stay_sorted():
    for message in messages(replace(SMALL, nbytes=200_000, key_order="last", nested=60)):
        assert list(message) == sorted(message)


@pytest.mark.parametrize("shape", SHAPES)
def test_white_space_changes_no_value(shape):
    spec = replace(SMALL, shape=shape, nbytes=150_000, compactions=2, nested=2)
    spaced = list(lines(replace(spec, whitespace=True)))
    plain = list(lines(spec))
    assert len(spaced) == len(plain)
    for with_space, without in zip(spaced, plain, strict=True):
        assert with_space[:1] == b" "
        assert b"\t" in with_space
        assert skeleton(json.loads(with_space)) == skeleton(json.loads(without))
    outside = re.sub(rb'"(?:[^"\\]|\\.)*"', b"", b"".join(plain))
    assert not re.search(rb"[ \t\r]", outside)


def skeleton(value):
    """A value without its generated text, which gives way to the white space."""
    if isinstance(value, dict):
        return {key: skeleton(member) for key, member in value.items()}
    if isinstance(value, list):
        return [skeleton(member) for member in value]
    return re.sub(r"[a-z]+[., ].*", "", value) if isinstance(value, str) else value


@pytest.mark.parametrize("shape", SHAPES)
def test_crlf_ends_every_complete_line(shape):
    spec = replace(SMALL, shape=shape, crlf=True, damaged=7, torn_nbytes=20, compactions=1)
    whole = generate(spec)
    assert whole.count(b"\n") == whole.count(b"\r\n") > SMALL.messages
    assert len(whole) == pytest.approx(SMALL.nbytes, rel=0.01)
    assert b"\r" not in generate(replace(SMALL, shape=shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nbytes", [1, 50, 5_000])
def test_torn_tail_is_a_part_of_one_further_message(shape, nbytes):
    spec = replace(SMALL, shape=shape, torn_nbytes=nbytes)
    whole = generate(spec)
    tail = whole[whole.rindex(b"\n") + 1 :]
    assert len(tail) == nbytes
    assert tail.startswith(b"{")
    with pytest.raises(ValueError):
        json.loads(tail)
    assert list(lines(spec))[-1] == tail
    assert len(messages(spec)) == SMALL.messages


def test_without_a_torn_tail_the_last_byte_is_a_newline():
    assert generate(SMALL).endswith(b"}\n")


# Damage

LOOKS = {
    "truncated": lambda line: line.startswith(b"{") and not line.endswith(b"}"),
    "nul_run": lambda line: set(line) == {0},
    "glued": lambda line: line.startswith(b"{") and b"}{" in line,
    "invalid_utf8": lambda line: b"\xff" in line and line.endswith(b"}"),
    "bare_word": lambda line: line == b"undefined",
    "not_object": lambda line: isinstance(json.loads(line), list),
    "blank": lambda line: line == b"",
}


def test_every_kind_of_damage_is_known():
    assert set(DAMAGE_KINDS) == set(LOOKS) == set(get_args(DamageKind))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", DAMAGE_KINDS)
def test_damaged_lines_are_of_their_kind_and_spread(shape, kind):
    spec = replace(SMALL, shape=shape, damaged=3, damage=(kind,))
    places, count = [], 0
    for line in lines(spec):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            count += is_message(shape, value)
        else:
            assert LOOKS[kind](line.removesuffix(b"\n"))
            places.append(count)
    assert len(places) == 3
    assert places == [pytest.approx(SMALL.messages * n / 4, abs=2) for n in (1, 2, 3)]
    assert count == SMALL.messages


def test_kinds_of_damage_take_turns():
    spec = replace(SMALL, damaged=9, damage=("bare_word", "blank"))
    counts = Counter(lines(spec))
    assert (counts[b"undefined\n"], counts[b"\n"]) == (5, 4)


def test_damage_of_a_message_keeps_the_key_that_says_so():
    for kind in ("truncated", "glued", "invalid_utf8"):
        spec = replace(SMALL, damaged=2, damage=(kind,))
        whole = generate(spec)
        assert whole.count(b'{"type":"message"') == SMALL.messages + 2 * (1 + (kind == "glued"))


# Times


@pytest.mark.parametrize("shape", SHAPES)
def test_times_are_rfc_3339_and_never_repeat_from_one_message_to_the_next(shape):
    spec = replace(SMALL, shape=shape, compactions=5, damaged=7)
    key = {"native": "createdAt"}.get(shape, "timestamp")
    stamps = [record[key] for record in records(spec) if is_message(shape, record)]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp) for stamp in stamps)
    times = [datetime.fromisoformat(stamp) for stamp in stamps]
    assert all(a < b for a, b in pairwise(times))
    assert times[0].isoformat().startswith("2026-01-01T00:00:00")


@pytest.mark.parametrize("shape", ["native", "claude", "codex", "pi"])
def test_times_of_all_lines_increase(shape):
    spec = replace(SMALL, shape=shape, nbytes=400_000, compactions=150)
    key = {"native": "createdAt"}.get(shape, "timestamp")
    stamps = [record[key] for record in records(spec) if key in record]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == len(stamps)


def test_times_pass_midnight_and_the_end_of_a_month():
    day = 86_400_000
    assert stamps(EPOCH_MS + np.array([0, 31 * day - 1, 59 * day])) == [
        b"2026-01-01T00:00:00.000Z",
        b"2026-01-31T23:59:59.999Z",
        b"2026-03-01T00:00:00.000Z",
    ]


# Other agents' shapes


def test_claude_has_type_after_the_message_on_assistant_lines_only():
    spec = Spec(messages=400, nbytes=800_000, shape="claude")
    kinds = Counter()
    for line in lines(spec):
        record = json.loads(line)
        keys = list(record)
        kinds[record["type"]] += 1
        if record["type"] in ("user", "assistant"):
            assert keys[0] == "parentUuid"
            after = keys.index("type") > keys.index("message")
            assert after == (record["type"] == "assistant")
            assert record["message"]["role"] == record["type"]
    assert kinds["user"] + kinds["assistant"] == spec.messages
    assert set(kinds) >= {"user", "assistant", "progress", "system", "file-history-snapshot"}


def test_claude_messages_form_a_chain_and_results_answer_calls():
    spec = Spec(messages=400, nbytes=800_000, shape="claude", compactions=2)
    parent, calls = None, set()
    for record in records(spec):
        if record.get("subtype") == "compact_boundary":
            assert (record["parentUuid"], record["logicalParentUuid"]) == (None, parent)
            parent = record["uuid"]
        elif record["type"] in ("user", "assistant"):
            assert record["parentUuid"] == parent
            parent = record["uuid"]
            for block in record["message"]["content"]:
                if isinstance(block, dict) and block["type"] == "tool_use":
                    calls.add(block["id"])
                elif isinstance(block, dict) and block["type"] == "tool_result":
                    assert block["tool_use_id"] in calls
                    assert record["toolUseResult"]["file"]["content"] == block["content"]


def test_claude_progress_lines_embed_whole_records():
    embedded = [
        record["data"]["message"]
        for record in of_kind(Spec(messages=300, nbytes=600_000, shape="claude"), "progress")
        if record["data"]["type"] == "agent_progress"
    ]
    assert embedded
    assert all({"type", "uuid", "timestamp", "message"} <= set(record) for record in embedded)


def test_claude_compactions_are_a_boundary_and_a_summary():
    found = records(replace(SMALL, shape="claude", compactions=3))
    at = [n for n, record in enumerate(found) if record.get("subtype") == "compact_boundary"]
    assert len(at) == 3
    for n in at:
        summary = found[n + 1]
        assert summary["isCompactSummary"] is True
        assert summary["type"] == "user"
        assert summary["parentUuid"] == found[n]["uuid"]
    assert sum(record.get("isCompactSummary", False) for record in found) == 3


def test_codex_lines_are_envelopes_and_the_first_is_session_meta():
    spec = Spec(messages=400, nbytes=800_000, shape="codex", compactions=2)
    found = records(spec)
    assert found[0]["type"] == "session_meta"
    assert all(list(record) == ["timestamp", "type", "payload"] for record in found)
    kinds = Counter((r["type"], r["payload"].get("type")) for r in found)
    assert kinds["response_item", "message"] == spec.messages
    assert kinds["compacted", None] == kinds["event_msg", "context_compacted"] == 2
    assert kinds["response_item", "function_call"] == 160
    assert kinds["response_item", "function_call_output"] == 160
    assert kinds["turn_context", None] and kinds["event_msg", "token_count"]
    assert kinds["event_msg", "user_message"] and kinds["event_msg", "agent_message"]


def test_codex_calls_have_their_outputs():
    payloads = [record["payload"] for record in records(replace(SMALL, shape="codex"))]
    calls = [p["call_id"] for p in payloads if p.get("type") == "function_call"]
    outputs = [p["call_id"] for p in payloads if p.get("type") == "function_call_output"]
    assert calls == outputs


def test_pi_has_type_first_short_unique_ids_and_a_chain():
    spec = Spec(messages=2_000, nbytes=1_000_000, shape="pi", compactions=3)
    found = records(spec)
    header, entries = found[0], found[1:]
    assert list(header) == ["type", "version", "id", "timestamp", "cwd"]
    assert header["version"] == 3
    assert all(next(iter(entry)) == "type" for entry in entries)
    ids = [entry["id"] for entry in entries]
    assert all(re.fullmatch("[0-9a-f]{8}", each) for each in ids)
    assert len(set(ids)) == len(ids)
    known = {None}
    for entry in entries:
        assert entry["parentId"] in known
        known.add(entry["id"])
        if entry["type"] == "compaction":
            assert entry["firstKeptEntryId"] in known
    kinds = Counter(entry["type"] for entry in entries)
    assert kinds["message"] == 2_000
    assert kinds["compaction"] == 3
    assert kinds["model_change"]
    roles = Counter(e["message"]["role"] for e in entries if e["type"] == "message")
    assert set(roles) == {"user", "assistant", "toolResult"}


# Any spec


@st.composite
def specs(draw):
    count = draw(st.integers(1, 80))
    shape = draw(st.sampled_from(SHAPES))
    native = shape == "native"
    share = draw(st.sampled_from([0.0, 0.4, 1.0]))
    small = st.integers(0, min(count, 6))
    return Spec(
        messages=count,
        nbytes=60_000 + count * draw(st.integers(2_500, 9_000)),
        seed=draw(st.integers(0, 2**64 - 1)),
        shape=shape,
        header=draw(st.booleans()),
        key_order=draw(st.sampled_from(["first", "last", "middle"])) if native else "first",
        tool_share=share,
        tool_factor=draw(st.sampled_from([0.1, 1.0, 8.0])),
        images=draw(small),
        image_nbytes=draw(st.sampled_from([12, 1_000])),
        compactions=draw(st.integers(0, 8)) if count > 1 else 0,
        reviews=draw(st.integers(0, 8)) if native and share and count >= 16 else 0,
        repeats=draw(st.integers(0, count // 2)),
        non_ascii=draw(st.sampled_from([0.0, 0.5, 1.0])),
        escaped=draw(st.sampled_from([0.0, 0.5, 1.0])),
        lone_surrogates=draw(small),
        nested=draw(small),
        whitespace=draw(st.booleans()),
        crlf=draw(st.booleans()),
        torn_nbytes=draw(st.integers(0, 3_000)),
        damaged=draw(st.integers(0, 10)),
        damage=draw(st.lists(st.sampled_from(DAMAGE_KINDS), min_size=1, max_size=4).map(tuple)),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs())
def test_any_spec_has_its_messages_and_no_damage_but_what_was_asked_for(spec):
    whole, torn, damaged = 0, 0, 0
    total = 0
    for line in lines(spec):
        total += len(line)
        if not line.endswith(b"\n"):
            torn += len(line)
            continue
        assert line.count(b"\n") == 1
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            whole += is_message(spec.shape, record)
        else:
            damaged += 1
    assert (whole, torn, damaged) == (spec.messages, spec.torn_nbytes, spec.damaged)
    assert total == pytest.approx(spec.nbytes, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"messages": 0}, "messages"),
        ({"nbytes": 0}, "nbytes"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"tool_share": 1.5}, "tool_share"),
        ({"tool_factor": 0}, "tool_factor"),
        ({"images": 61}, "images"),
        ({"image_nbytes": 1_001}, "multiple of four"),
        ({"repeats": 31}, "repeats"),
        ({"torn_nbytes": -1}, "torn_nbytes"),
        ({"damage": ()}, "damage"),
        ({"damage": ("rust",)}, "damage"),
        ({"shape": "emacs"}, "shape"),
        ({"key_order": "random"}, "key_order"),
        ({"shape": "pi", "reviews": 1}, "review"),
        ({"shape": "claude", "key_order": "last"}, "key order"),
    ],
)
def test_an_impossible_spec_is_refused_by_name(changes, says):
    with pytest.raises(ValueError, match=says):
        replace(SMALL, **changes)


@pytest.mark.parametrize("shape", SHAPES)
def test_too_few_bytes_are_refused_with_the_number_that_would_do(shape):
    tight = replace(SMALL, nbytes=1_000, shape=shape, compactions=2, damaged=3)
    with pytest.raises(ValueError, match="nbytes=1000 is too small") as caught:
        lines(tight)
    least = int(re.search(r"at least (\d+)", str(caught.value))[1])
    assert len(generate(replace(tight, nbytes=least))) == pytest.approx(least, rel=0.01)
    with pytest.raises(ValueError):
        lines(replace(tight, nbytes=least - 1))


def test_reviews_without_tool_messages_are_refused():
    with pytest.raises(ValueError, match="tool messages"):
        lines(replace(SMALL, tool_share=0.0, reviews=1))


# Files


def test_write_returns_the_bytes_written_and_reports_them(tmp_path):
    path = tmp_path / "t.jsonl"
    steps = []
    spec = Spec(messages=400, nbytes=4_000_000)
    nbytes = write(spec, path, progress=lambda done, total: steps.append((done, total)))
    assert nbytes == path.stat().st_size == 4_000_000
    assert path.read_bytes() == generate(spec)
    assert steps[-1] == (nbytes, spec.nbytes)
    assert len(steps) > 2
    assert steps == sorted(steps)


def test_an_interrupted_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"before\n")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(SMALL, path, progress=interrupt)
    assert path.read_bytes() == b"before\n"
    assert os.listdir(tmp_path) == ["t.jsonl"]


def test_an_impossible_spec_leaves_nothing(tmp_path):
    with pytest.raises(ValueError):
        write(replace(SMALL, nbytes=10), tmp_path / "t.jsonl")
    assert os.listdir(tmp_path) == []


def test_a_file_that_takes_little_at_a_time_gets_everything():
    class Slow(io.BytesIO):
        def write(self, content):
            return super().write(bytes(content[:1_000]))

    file = Slow()
    assert write_to(SMALL, file) == SMALL.nbytes
    assert file.getvalue() == generate(SMALL)


# The command


def command():
    """The command, where its extra is installed: the other tests do without."""
    pytest.importorskip("click")
    from tools.gen_synthetic.command import main

    return main


def run(*args):
    main = command()
    from click.testing import CliRunner

    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_command_options_reach_the_spec(tmp_path):
    out = tmp_path / "t.jsonl"
    result = run(
        out,
        *("--messages", 100, "--nbytes", "1M", "--seed", 9, "--no-header", "--key-order", "last"),
        *("--tool-share", 0.5, "--tool-factor", 2, "--images", 1, "--image-nbytes", "4k"),
        *(
            "--compactions",
            3,
            "--reviews",
            4,
            "--repeats",
            5,
            "--non-ascii",
            0.5,
            "--escaped",
            0.25,
        ),
        *("--lone-surrogates", 2, "--nested", 2, "--whitespace", "--crlf", "--torn-nbytes", 10),
        *("--damaged", 2, "--damage", "blank", "--damage", "glued"),
    )
    assert result.exit_code == 0, result.output
    assert result.output == ""
    spec = Spec(
        messages=100,
        nbytes=1_000_000,
        seed=9,
        header=False,
        key_order="last",
        tool_share=0.5,
        tool_factor=2.0,
        images=1,
        image_nbytes=4_000,
        compactions=3,
        reviews=4,
        repeats=5,
        non_ascii=0.5,
        escaped=0.25,
        lone_surrogates=2,
        nested=2,
        whitespace=True,
        crlf=True,
        torn_nbytes=10,
        damaged=2,
        damage=("blank", "glued"),
    )
    assert out.read_bytes() == generate(spec)


def test_every_field_of_the_spec_has_an_option():
    options = {parameter.name for parameter in command().params}
    assert options - set(Spec.__dataclass_fields__) == {"out", "preset", "force"}
    assert set(Spec.__dataclass_fields__) <= options


@pytest.mark.parametrize("shape", SHAPES)
def test_command_writes_every_shape_to_standard_output(shape):
    result = run("-", "--messages", 20, "--nbytes", "60k", "--shape", shape)
    assert result.exit_code == 0
    assert result.stdout_bytes == generate(Spec(messages=20, nbytes=60_000, shape=shape))


def test_command_takes_a_preset_and_options_over_it(tmp_path):
    out = tmp_path / "t.jsonl"
    assert run(out, "--preset", "million", "--messages", 50, "--nbytes", "30k").exit_code == 0
    assert out.stat().st_size == 30_000


def test_command_replaces_a_file_only_by_force(tmp_path):
    out = tmp_path / "t.jsonl"
    out.write_text("mine")
    refused = run(out, "--messages", 20, "--nbytes", "60k")
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert out.read_text() == "mine"
    assert run(out, "--messages", 20, "--nbytes", "60k", "--force").exit_code == 0
    assert out.stat().st_size == 60_000


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--messages", 20], "--nbytes"),
        (["--messages", 20, "--nbytes", "many"], "not a number of bytes"),
        (["--messages", 20, "--nbytes", "10"], "too small"),
        (["--messages", -1, "--nbytes", "10k"], "messages"),
        (["--messages", 20, "--nbytes", "60k", "--shape", "emacs"], "emacs"),
    ],
)
def test_command_says_what_is_impossible_and_exits_2(tmp_path, args, says):
    result = run(tmp_path / "t.jsonl", *args)
    assert result.exit_code == 2
    assert says in result.output
    assert os.listdir(tmp_path) == []


def test_command_exits_3_where_it_cannot_write(tmp_path):
    result = run(tmp_path / "absent" / "t.jsonl", "--messages", 20, "--nbytes", "60k")
    assert result.exit_code == 3
    assert "No such file" in result.output


def module(*args, **keywords):
    command()
    return subprocess.Popen(
        [sys.executable, "-m", "tools.gen_synthetic", *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **keywords,
    )


def test_a_terminated_run_leaves_nothing(tmp_path):
    # The run cannot end before the signal: it has a terabyte to write, and is stopped at its first bytes.
    with module(tmp_path / "t.jsonl", "--messages", 100_000_000, "--nbytes", "1000G") as process:
        while process.poll() is None and not any(
            path.stat().st_size for path in tmp_path.iterdir()
        ):
            pass
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert os.listdir(tmp_path) == []


def test_a_reader_that_goes_away_is_no_traceback():
    with module("-", "--messages", 10_000, "--nbytes", "100M") as process:
        assert process.stdout.read(20) == b'{"type":"session","s'
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""
    assert process.returncode == 128 + signal.SIGPIPE


def test_without_click_the_command_says_how_to_get_it():
    program = (
        "import sys, runpy; sys.modules['click'] = None; runpy.run_module('tools.gen_synthetic')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "the command needs click: python -m pip install click rich\n"


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("700", 700),
        ("129M", 129_000_000),
        ("1.5k", 1_500),
        ("2G", 2 * 10**9),
        ("64Ki", 65_536),
        ("1 MiB", None),
    ],
)
def test_sizes_take_suffixes(text, nbytes):
    if nbytes is None:
        with pytest.raises(ValueError, match="not a number of bytes"):
            parse_nbytes(text)
    else:
        assert parse_nbytes(text) == nbytes
