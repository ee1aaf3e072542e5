"""Detection: the file's own lines decide, a path only says who is asked first."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmapstore.detect import DETECTION_NBYTES, check_is_transcript, detect
from mmapstore.dialect import DIALECTS
from mmapstore.errors import NotATranscriptError
from tests.strategies import transcripts

ELSEWHERE = "/somewhere/t.jsonl"

#: a first line by which each dialect is known
FIRST: dict[str, dict[str, Any]] = {
    "native": {"type": "session", "schema": 2, "sessionId": "s", "createdAt": "t"},
    "pi": {"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/"},
    "codex": {"timestamp": "t", "type": "session_meta", "payload": {"id": "s"}},
    "codex-2025": {"id": "s", "timestamp": "t", "instructions": None},
    "copilot": {"type": "session.start", "data": {"sessionId": "s"}, "id": "i", "timestamp": "t"},
    "gemini": {"sessionId": "s", "projectHash": "h", "startTime": "t"},
    "kimi": {"type": "metadata", "protocol_version": "1.0"},
    "droid": {"type": "session_start", "id": "s", "title": "t"},
    "droid-stream": {"type": "system", "subtype": "init", "session_id": "s"},
    "antigravity": {"step_index": 0, "source": "USER", "type": "USER_INPUT"},
    "cursor": {"role": "user", "message": {"content": []}},
    "qwen": {"uuid": "u", "parentUuid": None, "sessionId": "s", "type": "user", "version": "1"},
    "claude": {
        "parentUuid": None,
        "isSidechain": False,
        "type": "user",
        "message": {"role": "user"},
    },
    "grok": {"type": "user", "content": "x"},
}
PLACES = {
    "pi": "/home/u/.pi/agent/sessions/--home--/x.jsonl",
    "codex": "/home/u/.codex/sessions/2026/01/02/rollout-x.jsonl",
    "copilot": "/home/u/.copilot/session-state/x/events.jsonl",
    "gemini": "/home/u/.gemini/tmp/h/chats/x.jsonl",
    "kimi": "/home/u/.kimi-code/sessions/x/wire.jsonl",
    "droid": "/home/u/.factory/sessions/x.jsonl",
    "antigravity": "/home/u/.gemini/antigravity-cli/x.jsonl",
    "cursor": "/home/u/.cursor/projects/p/agent-transcripts/x.jsonl",
    "qwen": "/home/u/.qwen/projects/p/chats/x.jsonl",
    "claude": "/home/u/.claude/projects/p/x.jsonl",
    "grok": "/home/u/.grok/sessions/x.jsonl",
}


def spelled(record: Any) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def name_of(head: bytes, path: str = ELSEWHERE) -> str:
    check_is_transcript(path, head)
    return detect(path, head).name


def test_every_dialect_has_a_line_here() -> None:
    assert {*FIRST, "generic"} == {dialect.name for dialect in DIALECTS}
    assert set(PLACES) <= {dialect.name for dialect in DIALECTS if dialect.path_hint}


@pytest.mark.parametrize("name", FIRST)
def test_a_first_line_tells_the_dialect(name: str) -> None:
    record = FIRST[name]
    line = spelled(record)
    assert name_of(line + b"\n") == name
    assert name_of(line) == name  # not yet complete, but told
    assert name_of(b"\xef\xbb\xbf" + line + b"\r\n") == name
    assert name_of(b"\n  \n" + line + b"\n") == name
    assert name_of(line + b"\n" + spelled({"type": "x"}) + b"\n") == name
    assert name_of(json.dumps(record).encode() + b"\n") == name
    assert name_of(b" \t" + json.dumps(record, separators=(" , ", " : ")).encode() + b"\n") == name


@pytest.mark.parametrize("name", FIRST)
def test_a_line_that_is_cut_off_can_still_tell(name: str) -> None:
    line = spelled(FIRST[name] | {"pad": "x" * DETECTION_NBYTES})
    assert name_of(line[:DETECTION_NBYTES]) == name


@pytest.mark.parametrize("name", PLACES)
def test_lines_win_over_the_path(name: str) -> None:
    for other, record in FIRST.items():
        # two agents' files that look alike are told apart by where they lie, and by that alone
        found = name_of(spelled(record) + b"\n", PLACES[name])
        assert found in (other, name)
        if name not in ("grok", "claude", "cursor"):
            assert found == other


@pytest.mark.parametrize("name", PLACES)
def test_the_path_decides_where_the_lines_tell_nothing(name: str) -> None:
    assert name_of(b"", PLACES[name]) == name
    assert name_of(b'{"unknown":1}\n', PLACES[name]) == name
    assert name_of(b'{"unknown":1}\n', PLACES[name].replace("/", "\\")) in (name, "generic")
    assert name_of(spelled(FIRST[name]) + b"\n", PLACES[name]) == name


def test_both_codex_dialects_in_the_same_place() -> None:
    assert name_of(spelled(FIRST["codex-2025"]) + b"\n", PLACES["codex"]) == "codex-2025"
    assert name_of(spelled(FIRST["codex"]) + b"\n", PLACES["codex"]) == "codex"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\n \n\t\r\n",
        b'{"a":1}\n',
        b"{}\n",
        b"{broken\n",
        b'{"type":"message"}\n',
        b'{"type":"user","message":"x"}\n',
        b'{"payload":{"type":"session","schema":2,"sessionId":"s"}}\n',
        b'{"a":"\\"type\\":\\"session\\",\\"schema\\":2,\\"sessionId\\":1"}\n',
        b'[1]\n{"a":1}\n',
    ],
)
def test_what_nothing_claims_is_generic(head: bytes) -> None:
    assert name_of(head) == "generic"


@pytest.mark.parametrize(
    "record",
    [
        {"type": "message", "id": "a", "role": "user", "blocks": []},
        {"type": "compaction", "id": "a", "throughMessageId": "b"},
        {"type": "tool_review_state", "messageId": "a", "snapshotId": "s", "state": "active"},
    ],
)
def test_a_native_file_without_its_header(record: dict[str, Any]) -> None:
    assert name_of(spelled(record) + b"\n") == "native"
    assert name_of(b'{"type":"session","sch\n' + spelled(record) + b"\n") == "native"
    assert name_of(b"\0\0\0\n" + spelled(record) + b"\n") == "native"


def test_a_damaged_first_line_is_no_other_dialects() -> None:
    """What has to stand in the first line does not count in the second."""
    for name in ("pi", "codex", "copilot", "gemini", "kimi", "droid", "cursor"):
        line = spelled(FIRST[name]) + b"\n"
        assert name_of(b"garbage\n" + line) != name
        assert name_of(b'{"a":1}\n' + line) != name


def test_a_header_with_escaped_values() -> None:
    line = b'{"type":"\\u0073ession","schema":2,"sessionId":"s"}\n'
    assert name_of(line) == "native"


def test_a_type_that_is_not_utf8_is_no_known_type() -> None:
    assert name_of(b'{"type":"\xff"}\n') == "generic"


def test_inside_a_hosts_directory_every_transcript_is_native(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    path = str(sessions / "s.jsonl")
    line = spelled(FIRST["claude"]) + b"\n"
    assert name_of(line, path) == "claude"
    (tmp_path / "host.lock").touch()
    for head in (line, b"", b"{}\n"):
        assert name_of(head, path) == "native"
    assert name_of(line, str(tmp_path / "s.jsonl")) == "claude"
    assert name_of(line, str(sessions / "deeper" / "s.jsonl")) == "claude"


def test_a_relative_path_is_hinted_by_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ".qwen" / "projects" / "p" / "chats"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    assert name_of(b'{"a":1}\n', "x.jsonl") == "qwen"


# -- what is no transcript ------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        b"# Title\n\ntext\n",
        b"[]\n[1]\n",
        b'"a"\n',
        b"torn",
        b"\x89PNG\r\n\x1a\n",
        b"\x1f\x8b",
        b"BZhello\n",
        b"PK\n",
        b"\0" * 4096,
        b"\x0b\n",
        '\ufeff{"a":1}\n'.encode("utf-16-le"),
        b"x" * DETECTION_NBYTES,
        b'\n\n x{"a":1}\n',
        b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}\n',
    ],
)
def test_a_file_without_one_line_that_begins_an_object(head: bytes) -> None:
    with pytest.raises(NotATranscriptError) as caught:
        check_is_transcript("p", head)
    assert caught.value.path == "p"
    assert caught.value.offset == 0


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\n",
        b" \t\r\n\n",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf\n",
        b"{",
        b"garbage\n{",
        b'\xef\xbb\xbf{"a":1}\n',
        b"\0\0\n \t{}\n",
    ],
)
def test_a_blank_file_and_one_line_that_begins_an_object_pass(head: bytes) -> None:
    check_is_transcript("p", head)


def zipped(data: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("t.jsonl", data)
    return held.getvalue()


@pytest.mark.parametrize(
    ("compress", "name", "command"),
    [
        (lambda data: b"\x28\xb5\x2f\xfd" + data, "zstd", "zstdcat"),
        (gzip.compress, "gzip", "zcat"),
        (lzma.compress, "xz", "xzcat"),
        (bz2.compress, "bzip2", "bzcat"),
        (zipped, "zip", "unzip -p"),
        (lambda data: b"\x04\x22\x4d\x18" + data, "lz4", "lz4cat"),
    ],
)
@pytest.mark.parametrize("data", [b"", b'{"type":"message"}\n', b"\n{\n" * 9])
def test_a_compressed_transcript_says_how_to_read_it(
    compress: Callable[[bytes], bytes], name: str, command: str, data: bytes
) -> None:
    # whatever stands in it: compressed bytes may look like a line that begins an object
    for head in (compress(data), compress(data) + b"\n{\n"):
        with pytest.raises(NotATranscriptError, match=f"compressed with {name}") as caught:
            check_is_transcript("p", head)
        hint = caught.value.hint or ""
        assert hint.startswith(f"to read it: {command} FILE | mmapstore tail -")
        assert ("zstd -d" in hint) == (name == "zstd")


@pytest.mark.parametrize("line", [b"BZh9 is no bzip2", b"PK", b"\xfd7zXZ", b"\x1f\x8b"])
def test_a_first_line_that_only_resembles_one_is_no_more_than_damage(line: bytes) -> None:
    check_is_transcript("p", line + b'\n{"a":1}\n')


@given(
    head=st.one_of(
        transcripts(max_lines=4),
        st.binary(max_size=60),
        st.lists(st.sampled_from([b"{", b'"type":', b'"user"', b"}", b",", b"\n", b":", b"["])).map(
            b"".join
        ),
    )
)
def test_any_bytes_are_judged_without_another_error(head: bytes) -> None:
    text = head.removeprefix(b"\xef\xbb\xbf")
    pieces = [piece.strip(b" \t\r") for piece in text.split(b"\n")]
    refused = any(pieces) and not any(piece.startswith(b"{") for piece in pieces)
    refused |= head.startswith(b"\x28\xb5\x2f\xfd")
    try:
        name = name_of(head)
    except NotATranscriptError:
        assert refused
    else:
        assert not refused
        assert name in {dialect.name for dialect in DIALECTS}
        assert name_of(head, os.fspath(Path("relative.jsonl"))) == name
