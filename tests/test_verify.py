"""Verification reads every line in full: what is damaged, and where scan and parser differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mmapstore
from mmapstore.dialect import DIALECTS, Kind
from mmapstore.verify import KIND_NAMES, Finding
from tests.file_support import shrink_steps
from tests.strategies import HEADER, blank_lines, damaged_lines, whole_lines

GOOD = b'{"type":"message","id":"a"}\n'


@pytest.fixture
def found(write: Callable[..., Path], access: str) -> Callable[..., list[Finding]]:
    def verify(data: bytes, **kwargs: str) -> list[Finding]:
        with mmapstore.open(write(data), access=access, **kwargs) as t:
            return list(t.verify())

    return verify


def naive_damage(data: bytes) -> list[tuple[int, int]]:
    """Return (offset, line number) of the complete lines that are no JSON object, nor blank."""
    damage, at = [], 0
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if at == 0 else line
        try:
            whole = isinstance(json.loads(text.decode("utf-8", "strict")), dict)
        except (ValueError, RecursionError):
            whole = False
        if not whole and text.strip(b" \t\r"):
            damage.append((at, number))
        at += len(line) + 1
    return damage


@settings(max_examples=settings.default.max_examples // 2)
@given(
    lines=st.lists(st.one_of(whole_lines, whole_lines, blank_lines, damaged_lines()), max_size=10),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    step=st.sampled_from([64, 1 << 18]),
)
def test_every_damaged_line_is_found_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], mark: bytes, step: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "verify.jsonl"
    data = mark + HEADER + b"".join(line.replace(b"\n", b" ") + b"\n" for line in lines) + b"torn"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        shrink_steps(patch, step, step)
        for access in ("mmap", "pread"):
            with mmapstore.open(path, dialect="native", access=access) as t:
                findings = list(t.verify())
                offsets = t.layout.message_offsets.tolist()
            assert [(each.offset, each.line_number) for each in findings] == naive_damage(data)
            for each in findings:
                assert each.reason
                if each.kind == "message":
                    assert offsets[each.position] == each.offset
                else:
                    assert each.position is None
                    assert each.offset not in offsets


def test_what_is_said_of_a_damaged_line(found: Callable[..., list[Finding]]) -> None:
    lines = [
        HEADER,
        GOOD,
        b'{"type":"message","id":\n',
        b"\n",
        b'{"type":"compaction"\n',
        b'{"type":"tool_review_state"]\n',
        b"garbage\n",
        b'{"type":"message","a":"\0"}\n',
        b'["type","message"]\n',
    ]
    at = [sum(map(len, lines[:index])) for index in range(len(lines))]
    findings = found(b"".join(lines))
    assert [each[:4] for each in findings] == [
        (at[2], 3, "message", 1),
        (at[4], 5, "compaction", None),
        (at[5], 6, "tool_review_state", None),
        (at[6], 7, "other", None),
        (at[7], 8, "message", 2),
        (at[8], 9, "other", None),
    ]
    assert "NUL" in findings[4].reason
    assert "array" in findings[5].reason


@pytest.mark.parametrize(
    ("line", "scanned", "parsed"),
    [
        (b'{"type":"message","type":"other"}', "message", "other"),
        (b'{"a":{},"type":"message","type":"compaction"}', "compaction", None),
        (b'{"\\u0074ype":"message"}', "other", "message"),
        (b'{"type":"x","\\u0074ype":"compaction"}', "other", "compaction"),
    ],
)
def test_a_line_that_scan_and_parser_read_differently_is_doubtful(
    found: Callable[..., list[Finding]], line: bytes, scanned: str, parsed: str | None
) -> None:
    findings = found(HEADER + GOOD + line + b"\n" + GOOD, dialect="native")
    if parsed is None:  # both take the last
        assert findings == []
        return
    (only,) = findings
    assert (only.offset, only.line_number, only.kind) == (len(HEADER + GOOD), 3, scanned)
    assert only.position == (1 if scanned == "message" else None)
    assert f"as {scanned}, a parser as {parsed}" in only.reason


@pytest.mark.parametrize("name", [dialect.name for dialect in DIALECTS])
def test_lines_of_no_kind_are_neither(found: Callable[..., list[Finding]], name: str) -> None:
    data = b'{}\n{"a":1}\n\n \t\r\n{"type":null}\n{"type":["message"]}\n{"role":{}}\n'
    assert found(data, dialect=name) == []


@pytest.mark.parametrize("data", [b"", b"\n", HEADER, HEADER + b"torn {", b"\xef\xbb\xbf" + HEADER])
def test_nothing_is_wrong_with_empty_files_and_torn_tails(
    found: Callable[..., list[Finding]], data: bytes
) -> None:
    assert found(data) == []


def test_a_damaged_first_line_behind_a_mark_is_at_zero(
    found: Callable[..., list[Finding]],
) -> None:
    (only,) = found(b"\xef\xbb\xbf" + b'{"type":"message"\n' + GOOD, dialect="native")
    assert (only.offset, only.line_number, only.position) == (0, 1, 0)


def test_a_mark_elsewhere_is_damage(found: Callable[..., list[Finding]]) -> None:
    (only,) = found(GOOD + b"\xef\xbb\xbf" + GOOD, dialect="native")
    assert (only.offset, only.kind) == (len(GOOD), "other")


def test_findings_come_while_the_file_is_read(
    write: Callable[..., Path], access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_steps(monkeypatch, 256, 256)
    path = write(HEADER + b"bad\n" + GOOD * 100)
    calls: list[tuple[int, int]] = []
    with mmapstore.open(path, access=access) as t:
        findings = t.verify(progress=lambda done, total: calls.append((done, total)))
        assert calls == []
        assert next(findings).offset == len(HEADER)
        assert len(calls) == 1
        findings.close()
        # one that was begun outlives the transcript
        findings = t.verify()
        assert next(findings).line_number == 2
    assert list(findings) == []


def test_every_kind_has_a_name() -> None:
    assert set(KIND_NAMES) == set(Kind)
