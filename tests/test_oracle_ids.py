"""An id leads to its message wherever the id stands in the line, in every dialect that has ids."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mmapstore
from tests.agreement import kind_alone
from tests.oracle import Oracle, same_json
from tests.strategies import spelled, values
from tests.test_oracle_kinds import FIRST, PADDING, members


def check_ids(lines: list[bytes], dialect: str) -> None:
    """Look every message up by its id or address, bare and between long neighbours."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        for before, behind in ((FIRST, b""), (PADDING, PADDING)):
            data = before + b"".join(lines) + behind
            path.write_bytes(data)
            oracle = Oracle(data, dialect, kind_alone)
            for access in ("mmap", "pread"):
                with mmapstore.open(path, dialect=dialect, access=access) as t:
                    check_look_ups(t, oracle)


def check_look_ups(t: mmapstore.Transcript, oracle: Oracle) -> None:
    assert list(t.window(limit=None).message_ids) == [
        address for _, address, _ in oracle.shown(0, oracle.total)
    ]
    for position, line in enumerate(oracle.messages):
        if line.record is None:
            continue
        address = oracle.address_of(line)
        assert t.message_id(position) == address
        assert (t.dialect.id(line.record) or None) == oracle.id_of(line)
        last = oracle.positions_of(address)[-1]
        assert t.position(address) == last
        assert same_json(t.message(address), oracle.effective(oracle.messages[last]))
        w = t.window(around=address, limit=1)
        assert (w.start, w.stop) == (last, last + 1)
        for other in (f"@{line.offset}", address[:-1], address + "x", address.upper()):
            if not oracle.positions_of(other):
                assert t.position(other) is None


ids = st.one_of(
    st.sampled_from(
        [
            '"a"',
            '"b"',
            '"é"',
            '"\\u00e9"',
            '"e\\u0301"',
            '"a\\"b"',
            '"a\\\\"',
            '"\\ud83d"',
            '"\\/"',
            '"/"',
        ]
    ),
    st.builds(lambda n: '"' + "i" * n + '"', st.sampled_from([1, 36, 90, 95, 96, 97, 200, 400])),
    st.builds(lambda n: '"' + "i" * n + '\\n"', st.sampled_from([90, 93, 94, 95, 96, 97])),
    st.sampled_from(
        [
            "1",
            "0",
            "-1",
            "-0",
            '"1"',
            "1.0",
            "1e2",
            "null",
            "true",
            '""',
            "[]",
            '["a"]',
            '{"id":"a"}',
        ]
    ),
)


@st.composite
def native_lines(draw: st.DrawFn) -> bytes:
    own = draw(st.one_of(ids, ids, ids, st.none()))
    colon = draw(st.sampled_from([":", ":", ": ", " :\t"]))
    pairs = ['"type":"message"', *([] if own is None else [f'"id"{colon}{own}'])]
    nested = draw(
        st.sampled_from(
            ['"meta":{"id":"a"}', '"ids":["id","a"]', '"q":"\\"id\\":\\"a\\""', '"k":1']
        )
    )
    parts = [*pairs, nested, *draw(members())]
    parts = draw(st.permutations(parts))
    return ("{" + ",".join(parts) + "}\n").encode()


@given(lines=st.lists(native_lines(), min_size=1, max_size=8))
def test_an_id_may_stand_anywhere(lines: list[bytes]) -> None:
    check_ids(lines, "native")


own_ids = st.sampled_from(
    ["a", "b", "é", "x" * 120, 'q"', 7, 0, None, True, 1.5, [], {"id": "a"}, ""]
)


def maybe(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


MESSAGES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "claude": st.builds(
        lambda record, own: {"parentUuid": None, **record, "type": "user", **own},
        maybe(message=values, toolUseResult=values, data=maybe(uuid=own_ids)),
        maybe(uuid=own_ids),
    ),
    "codex": st.builds(
        lambda payload, rest: {
            "timestamp": "t",
            "type": "response_item",
            "payload": payload,
            **rest,
        },
        st.builds(
            lambda fields: {"type": "message", **fields},
            maybe(id=own_ids, call_id=own_ids, content=values, inner=maybe(id=own_ids)),
        ),
        maybe(ordinal=own_ids, id=own_ids),
    ),
    "codex-2025": st.builds(
        lambda fields: {"type": "message", **fields},
        maybe(id=own_ids, call_id=own_ids, content=values),
    ),
    "kimi": st.one_of(
        st.builds(
            lambda event: {"type": "context.append_loop_event", "event": event},
            st.builds(
                lambda fields: {"type": "content.part", **fields},
                maybe(uuid=own_ids, toolCallId=own_ids, part=values),
            ),
        ),
        st.builds(
            lambda message: {"type": "context.append_message", "message": message},
            maybe(id=own_ids, content=values),
        ),
    ),
    "qwen": st.builds(
        lambda own, rest: {**own, "type": "assistant", **rest},
        maybe(uuid=own_ids),
        maybe(message=values),
    ),
    "pi": st.builds(
        lambda own, rest: {"type": "message", **own, "message": {"role": "user", **rest}},
        maybe(id=own_ids),
        maybe(id=own_ids, content=values),
    ),
    "grok": st.builds(
        lambda own: {"type": "user", "content": "c", **own}, maybe(id=own_ids, tool_call_id=own_ids)
    ),
    "antigravity": st.builds(
        lambda own: {"type": "USER_INPUT", "source": "s", **own}, maybe(step_index=own_ids)
    ),
    "droid-stream": st.builds(
        lambda own: {"type": "message", **own}, maybe(id=own_ids, toolCallId=own_ids)
    ),
    "cursor": st.builds(lambda own: {"role": "user", "message": {}, **own}, maybe(id=own_ids)),
    "generic": maybe(id=own_ids, uuid=own_ids),
}


@pytest.mark.parametrize("dialect", sorted(MESSAGES))
def test_ids_of_other_dialects(dialect: str) -> None:
    def line(record: dict[str, Any], seed: int) -> bytes:
        return spelled(record, seed, escape_keys=False) + b"\n"

    @settings(max_examples=settings().max_examples // 3)
    @given(
        lines=st.lists(
            st.builds(line, MESSAGES[dialect], st.integers(0, 4)), min_size=1, max_size=8
        )
    )
    def check(lines: list[bytes]) -> None:
        check_ids(lines, dialect)

    check()


CALLS = [
    "c1",
    "c2",
    "c10",
    'c"1',
    "c\\1",
    "é",
    "\u2028",
    "\ud83d",
    "c 1",
    "</c>",
    "0" * 200,
    "c",
    "",
]
calls = st.sampled_from([*CALLS[:-2], 7, None])


@st.composite
def callers(draw: st.DrawFn) -> bytes:
    blocks = [
        {"type": "tool_call", "callId": call, "name": "x"}
        for call in draw(st.lists(calls, max_size=3))
    ]
    record = {
        "type": "message",
        "id": draw(st.sampled_from("abc")),
        "role": "tool",
        "blocks": blocks,
    }
    if not draw(st.integers(0, 3)):
        record["blocks"] = [
            {"callid": "c1", "text": "c1"},
            ["c1"],
            {"inner": {"callId": "c1"}},
            "c1",
        ]
    if not draw(st.integers(0, 5)):
        return spelled(record, 0)[:-2] + b"\n"
    return spelled(record, draw(st.integers(0, 4))) + b"\n"


@given(lines=st.lists(callers(), max_size=8))
def test_the_message_that_holds_a_call(lines: list[bytes]) -> None:
    data = FIRST + b"".join(lines)
    oracle = Oracle(data, "native", kind_alone)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data)
        for access in ("mmap", "pread"):
            with mmapstore.open(path, dialect="native", access=access) as t:
                for call in CALLS:
                    holders = [
                        line
                        for line in oracle.messages
                        if line.record is not None
                        and any(
                            isinstance(block, dict) and block.get("callId") == call
                            for block in line.record["blocks"]
                        )
                    ]
                    if holders:
                        assert same_json(t.tool_parent(call), oracle.effective(holders[-1]))
                    else:
                        with pytest.raises(mmapstore.MessageNotFoundError):
                            t.tool_parent(call)


def test_two_ids_of_one_checksum(tmp_path: Path) -> None:
    """A checksum may bring a look-up near its message; it never decides."""
    pair = "plumless", "buckeroo"
    assert zlib.crc32(pair[0].encode()) == zlib.crc32(pair[1].encode())
    path = tmp_path / "t.jsonl"
    lines = [
        json.dumps({"type": "message", "id": own}).encode() + b"\n" for own in (*pair, pair[0])
    ]
    path.write_bytes(b"".join(lines))
    with mmapstore.open(path) as t:
        assert t.position(pair[0]) == 2
        assert t.position(pair[1]) == 1
        path.write_bytes(lines[0])
        t.refresh()
        assert t.position(pair[0]) == 0
        assert t.position(pair[1]) is None


def test_ids_spelled_as_no_writer_does() -> None:
    """A key with an escape, a key that comes twice below: the id is the parser's, in every look-up.

    A top-level id key that comes twice on both sides of a container is read as one of the two.
    """
    plain = b'{"type":"message","id":"a","n":%d}\n'
    escaped = b'{"type":"message","\\u0069d":"a","n":%d}\n'
    nested_twice = b'{"type":"message","id":"a","k":{"id":"b","id":"c"},"n":%d}\n'
    for lines in permutations([plain, escaped, nested_twice, b'{"type":"message","n":%d}\n'], 3):
        check_ids([line % number for number, line in enumerate(lines)], "native")


def test_look_ups_do_not_read_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no message has an id, an address still leads to one line, not through all of them."""
    path = tmp_path / "t.jsonl"
    count = 300
    path.write_bytes(FIRST + b'{"type":"message","role":"user"}\n' * count)
    with mmapstore.open(path, dialect="native", access="pread") as t:
        addresses = list(t.window(limit=None).message_ids)
        assert t.position(addresses[0]) == 0  # what is worked out once is worked out now
        reads = []
        pread = os.pread

        def counted(fd: int, nbytes: int, offset: int) -> bytes:
            reads.append(nbytes)
            return pread(fd, nbytes, offset)

        monkeypatch.setattr(os, "pread", counted)
        for position, address in enumerate(addresses):
            assert t.position(address) == position
        assert t.position("no such id") is None
        assert sum(reads) < 20 * path.stat().st_size
