"""A line's kind is what a full parse says, wherever its discriminator stands and on every path."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mmapstore
from tests.oracle import COMPACTION, MESSAGE, OTHER, REVIEW, RULES, SUMMARY, Oracle, decoded
from tests.strategies import spelled, values

#: a line of no dialect's message or compaction, long enough that its neighbours are not near an end
PADDING = b'{"padding":"' + b"p" * 2500 + b'"}\n'
#: so that no line under test is the first of its file, where a mark may stand
FIRST = b'{"padding":1}\n'


def kinds_in(
    path: Path, dialect: str, access: str, data: bytes, cut: int | None = None
) -> list[str]:
    """Return the kind of each line of a file, opened whole or grown from its first `cut` bytes."""
    path.write_bytes(data if cut is None else data[:cut])
    with mmapstore.open(path, dialect=dialect, access=access, trust="append-only") as t:
        if cut is not None:
            with path.open("ab") as file:
                file.write(data[cut:])
            t.refresh()
        kinds = dict.fromkeys(t.layout.message_offsets.tolist(), MESSAGE)
        kinds |= dict.fromkeys(t.layout.compaction_offsets.tolist(), COMPACTION)
        kinds |= dict.fromkeys(t.layout.review_offsets.tolist(), REVIEW)
        found = []
        offset = 0
        for line in data.split(b"\n")[:-1]:
            found.append(kinds.get(offset, OTHER))
            offset += len(line) + 1
        return found


def kinds_on_all_paths(lines: list[bytes], dialect: str) -> list[str]:
    """Return the kinds of lines, having seen that no path to them says otherwise."""
    text = b"".join(lines)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        answers = {}
        for access in ("mmap", "pread"):
            for name, before, behind, cut in (
                ("bare", FIRST, b"", None),
                ("padded", PADDING, PADDING, None),
                ("grown", FIRST, b"", len(FIRST)),
                ("grown mid-line", PADDING, b"", len(PADDING) + len(text) // 2),
            ):
                data = before + text + behind
                kinds = kinds_in(path, dialect, access, data, cut)
                answers[access, name] = kinds[1 : 1 + len(lines)]
        verified = {}
        path.write_bytes(FIRST + text)
        with mmapstore.open(path, dialect=dialect) as t:
            verified = {finding.offset: finding for finding in t.verify()}
        answer = answers["mmap", "bare"]
        assert all(other == answer for other in answers.values()), answers
        offset = len(FIRST)
        for line, kind in zip(lines, answer, strict=True):
            if offset in verified:
                assert verified[offset].kind == kind
            offset += len(line)
        return answer


def repeats_its_type(line: bytes) -> bool:
    """Whether the top level of a valid line has two keys ``type``: no answer is asked for then."""
    seen: list[list[str]] = []
    json.loads(line, object_pairs_hook=lambda pairs: seen.append([key for key, _ in pairs]))
    return seen[-1].count("type") > 1


def check_kinds(lines: list[bytes], dialect: str = "native") -> None:
    oracle = Oracle(FIRST + b"".join(lines), dialect, lambda _: OTHER)
    answer = kinds_on_all_paths(lines, dialect)
    for line, kind in zip(oracle.lines[1:], answer, strict=True):
        if line.record is not None and not repeats_its_type(line.raw):
            expected = COMPACTION if line.kind == SUMMARY else line.kind
            assert kind == expected, line.raw


# -- the discriminator anywhere in the line ----------------------------------------------

#: lengths around those of the windows that a scan may look at first
sizes = st.one_of(
    st.integers(0, 40), st.sampled_from([90, 96, 100, 180, 191, 192, 193, 200, 380, 384, 390, 900])
)
_FILLERS = [
    '"pad":"{0}"',
    '"pad":["{0}"]',
    '"pad":{{"type":"{0}"}}',
    '"pad":{{"a":[{{"type":"compaction","b":"{0}"}}]}}',
    '"pad":{{"b":"{0}","type":"message"}}',
    '"pad":[1,{{"b":"{0}","type":"compaction"}}]',
    '"pad":"{0}\\"type\\":\\"compaction\\""',
    '"pad":"\\"type\\":\\"message\\",{0}"',
    '"pad":"{0}\\\\","q":"type"',
    '"pad":["type","{0}","type"]',
    '"pad":"}}]{0}{{["',
    '"type\\"":"{0}"',
    '"{0}\\"type":"compaction"',
    '"{0}\\"type":"message"',
    '"{0}\\\\\\"type":"session"',
    '"\\\\type":"{0}"',
    '"pad":"type","colon":":{0}"',
]


@st.composite
def members(draw: st.DrawFn) -> list[str]:
    return [
        draw(st.sampled_from(_FILLERS)).format("x" * draw(sizes))
        for _ in range(draw(st.integers(0, 3)))
    ]


@st.composite
def lines_with_type_anywhere(draw: st.DrawFn) -> bytes:
    value = draw(
        st.sampled_from(
            [
                '"message"',
                '"compaction"',
                '"tool_review_state"',
                '"session"',
                '"mess\\u0061ge"',
                '"' + "m" * draw(sizes) + '"',
                '"messages"',
                '"message\\n"',
                "null",
                '["message"]',
                '{"type":"message"}',
                "1",
            ]
        )
    )
    colon = draw(st.sampled_from([":", ":", ":", " : ", ":\t", "\r:"]))
    discriminator = draw(
        st.sampled_from([[f'"type"{colon}{value}'], []]) | st.just([f'"type":{value}'])
    )
    parts = [*draw(members()), *discriminator, *draw(members())]
    comma = draw(st.sampled_from([",", ",", " ,\t"]))
    lead, trail = draw(
        st.sampled_from([("", ""), ("", ""), (" ", ""), ("", " "), ("", "\r"), ("\t", "\r")])
    )
    return f"{lead}{{{comma.join(parts)}}}{trail}\n".encode()


@given(lines=st.lists(lines_with_type_anywhere(), min_size=1, max_size=12))
def test_the_discriminator_may_stand_anywhere(lines: list[bytes]) -> None:
    """A8.1: only the top-level type decides, first, last and after any payload."""
    check_kinds(lines)


#: each holds the bytes of another kind's discriminator right where a writer would put them
LOOK_ALIKES = [
    r'{"type":"session","a":{"b":1,"type":"message"}}',
    r'{"type":"session","a":[{"b":1,"type":"message"}]}',
    r'{"a":{"type":"message"},"type":"session"}',
    r'{"a":[{"type":"message"}],"b":1}',
    r'{"a":[[],{"type":"message"}]}',
    r'{"\"type":"message"}',
    r'{"\"type":"message","a":[]}',
    r'{"id":"a","x\"type":"message"}',
    r'{"a":[],"x\"type":"message"}',
    r'{"a":"\\","type":"message"}',
    r'{"a":"\\\"type","b":"message"}',
    r'{"a":"\\\",\"type\":\"message\"","type":"session"}',
    r'{"a":"}],","type":"message"}',
    r'{"a":"{[","type":"message"}',
    r'{"a":"\"}","b":["\\"],"type":"message"}',
    r'{"a":["\"","]"],"type":"message","b":{}}',
    r'{"a":"type","b":":","c":"message"}',
    r'{"a":["type"],"b":"message"}',
    r'{"type" :"message"}',
    r'{"type": "message"}',
    r'{ "type":"message"}',
    r'{"type":"message" }',
    r'{"type":"message","type2":"session"}',
    r'{"Type":"message"}',
    r'{"type ":"message"}',
    r'{"type":"messag\u0065"}',
    r'{"type":"\u006dessage","a":[]}',
    r'{"a":[],"type":"message\u0000"}',
    r'{"a":[],"type":"message\""}',
    r'{"a":[],"type":"message "}',
    r'{"a":[],"type":["message"]}',
    r'{"a":[],"type":null,"b":"message"}',
    r'{"":{"type":"message"}}',
    r'{"type":{"type":"message"}}',
    r'[{"type":"message"}]',
    r'"{\"type\":\"message\"}"',
]


@pytest.mark.parametrize("pad", ["", "x" * 100, "x" * 400, '\\"' * 300, "{[" * 200])
def test_what_only_looks_like_the_discriminator(pad: str) -> None:
    """A8.1: near either end of a line and far from it."""
    lines = []
    for text in LOOK_ALIKES:
        lines.append(text)
        if text.startswith("{"):
            lines += [f'{{"pad":"{pad}",{text[1:]}', f'{text[:-1]},"pad":"{pad}"}}']
    assert all(decoded(line.encode()) is not None for line in lines if line.startswith("{"))
    check_kinds([line.encode() + b"\n" for line in lines])


@given(lines=st.lists(lines_with_type_anywhere(), min_size=1, max_size=8), draw=st.data())
def test_one_kind_for_lines_no_parser_takes(lines: list[bytes], draw: st.DataObject) -> None:
    """A3.9: whatever the kind of a broken line is, every path gives the same."""
    broken = []
    for line in lines:
        start = draw.draw(st.integers(0, len(line) - 1))
        stop = draw.draw(st.integers(start, min(start + 30, len(line) - 1)))
        patch = draw.draw(
            st.sampled_from([b"", b"\0", b"\xff", b'"', b"\\", b"}", b"{", b"]", b"\xef\xbb\xbf"])
        )
        broken.append(line[:start] + patch + line[stop:])
    check_kinds(broken)


# -- other dialects ---------------------------------------------------------------------


def pool(*names: str) -> st.SearchStrategy[Any]:
    return st.sampled_from([*names, "other", "", None, 1, ["user"], {"type": "user"}])


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


message = optional(role=pool("user", "assistant"), content=values, type=pool("message", "user"))
extra = {"id": values, "uuid": values, "k": values, "timestamp": values}
RECORDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "claude": st.one_of(
        optional(
            type=pool("user"),
            message=message,
            isCompactSummary=st.booleans(),
            isSidechain=st.booleans(),
            **extra,
        ),
        optional(type=pool("assistant"), message=message, **extra),
        optional(type=pool("system"), subtype=pool("compact_boundary", "api_error"), **extra),
        optional(
            type=pool("progress"), data=optional(type=pool("user"), isCompactSummary=st.just(True))
        ),
    ),
    "codex": st.one_of(
        optional(
            type=pool("response_item", "event_msg"),
            payload=st.one_of(
                optional(
                    type=pool("message", "agent_message", "compaction", "context_compaction"),
                    role=values,
                    inner=optional(type=pool("message")),
                ),
                values,
            ),
            **extra,
        ),
        optional(type=pool("compacted"), payload=optional(message=values), **extra),
    ),
    "codex-2025": optional(
        type=pool("message"), record_type=pool("message", "state"), content=values, **extra
    ),
    "copilot": optional(
        type=pool(
            "user.message", "assistant.message", "system.message", "session.compaction_complete"
        ),
        data=st.one_of(
            optional(success=st.sampled_from([True, False, None, 1, "true"]), content=values),
            values,
        ),
        **extra,
    ),
    "gemini": st.fixed_dictionaries(
        {},
        optional={
            "type": pool("user", "gemini", "info"),
            "$set": st.one_of(optional(messages=values, lastUpdated=values), values),
            "$rewindTo": values,
            **extra,
        },
    ),
    "qwen": st.one_of(
        optional(type=pool("user", "assistant", "tool_result"), message=message, **extra),
        optional(type=pool("system"), subtype=pool("chat_compression", "ui_telemetry"), **extra),
    ),
    "kimi": st.one_of(
        optional(type=pool("context.append_message"), message=message, **extra),
        optional(
            type=pool("context.append_loop_event"),
            event=st.one_of(optional(type=pool("content.part", "tool.call"), part=values), values),
            **extra,
        ),
        optional(type=pool("context.apply_compaction"), summary=values, **extra),
    ),
    "pi": st.one_of(
        st.fixed_dictionaries(
            {"type": pool("message"), "message": st.fixed_dictionaries({"role": st.just("user")})},
            optional=extra,
        ),
        optional(type=pool("custom_message", "compaction", "branch_summary", "label"), **extra),
    ),
    "droid": optional(type=pool("message", "compaction_state"), message=message, **extra),
    "droid-stream": optional(type=pool("message", "system", "tool_call"), text=values, **extra),
    "cursor": optional(role=pool("user", "assistant"), message=message, type=values),
    "grok": optional(type=pool("system", "user", "assistant", "reasoning"), content=values),
    "antigravity": optional(type=pool("USER_INPUT", "PLANNER_RESPONSE"), step_index=values),
    "generic": optional(type=values, a=values),
}


def test_every_dialect_is_drawn() -> None:
    assert set(RECORDS) | {"native"} == set(RULES)


@pytest.mark.parametrize("dialect", sorted(RECORDS))
def test_kinds_of_other_dialects(dialect: str) -> None:
    def line(record: dict[str, Any], seed: int) -> bytes:
        # a key on the way to the discriminator that is spelled with an escape is exempt
        return spelled(record, seed, escape_keys=False) + b"\n"

    lines_of_dialect = st.builds(line, RECORDS[dialect], st.integers(0, 5))

    @settings(max_examples=settings().max_examples // 3)
    @given(lines=st.lists(lines_of_dialect, min_size=1, max_size=8))
    def check(lines: list[bytes]) -> None:
        check_kinds(lines, dialect)

    check()


@pytest.mark.parametrize("nbytes", [0, 300, 5000, 200_000])
def test_a_quoted_record_never_decides(nbytes: int) -> None:
    """A8.1: a message whose content is the text of a compaction, escaped and nested."""
    inner = {"type": "compaction", "id": "x", "summary": "s" * nbytes}
    quoted = json.dumps(inner)
    record = {"id": "m", "blocks": [inner, quoted, json.dumps(quoted), {"text": quoted}]}
    lines = []
    for kind in ("message", "compaction", "tool_review_state", "sleep"):
        first = {"type": kind, **record}
        lines += [
            json.dumps(first, separators=(",", ":")).encode() + b"\n",
            json.dumps({**record, "type": kind}, separators=(",", ":")).encode() + b"\n",
            json.dumps(
                {"id": "m", "blocks": [inner], "type": kind, "more": [quoted, inner]}
            ).encode()
            + b"\n",
        ]
    lines.append(json.dumps(record).encode() + b"\n")
    check_kinds(lines)


@pytest.mark.parametrize("depth", [1, 2, 63, 64, 65, 500, 900])
def test_brackets_at_any_depth(depth: int) -> None:
    nest = "[" * depth + "]" * depth
    objects = '{"type":' * depth + '"compaction"' + "}" * depth
    lines = [
        f'{{"a":{nest},"type":"message"}}\n',
        f'{{"a":{objects},"type":"message"}}\n',
        f'{{"type":"message","a":{objects}}}\n',
        f'{{"a":{objects}}}\n',
    ]
    assert all(decoded(line.encode()) is not None for line in lines)
    check_kinds([line.encode() for line in lines])
