"""A file that grew or was replaced reads, after refresh, as a file opened cold."""

from __future__ import annotations

import json
import os
import tempfile
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import Refresh
from tests.agreement import check_all, check_chain, check_layout, layout_facts, native_oracle
from tests.oracle import BOM, COMPACTION, MESSAGE, REVIEW, Oracle
from tests.strategies import HEADER, R, transcripts

TRUSTS = ("none", "append-only")


def sixty_lines() -> bytes:
    """Return a transcript of every kind of line, damaged too, short enough to cut anywhere."""
    lines = [HEADER.rstrip()]
    for index in range(28):
        message = {"type": "message", "id": f"m{index % 23}"}
        if index % 3 == 2:
            message |= {"role": "tool", "blocks": "é行"}
        if index % 4 == 1:  # the previous order of keys
            message = dict(sorted(message.items()))
        text = json.dumps(message, ensure_ascii=index % 2 == 0, separators=(",", ":"))
        lines.append(text.encode())
        if index % 5 == 2:
            lines.append(R(f"m{index}", "s", "x").rstrip())
        if index % 9 == 4:
            lines.append(b'{"type":"compaction","id":"c%d"}' % index)
        if index % 4 == 0:
            lines.append(b"{}")
    lines += [
        b"",
        b' \t{ "id" : "w" , "type" : "message" }\r',
        b'{"blocks":[{"type":"compaction"},"\\"type\\":"],"type":"message"}',
        b'{"type":"mess\\u0061ge","id":"\xe2\x80\xa8"}',
        b'{"type":"message","id":"cut","blocks":[{"te',
        b'{"type":"message","id":"bad","k":"\xe9"}',
        b"\0\0\0\0",
        b"[]",
        b'{"type":"sleep"}',
        b'{"type":"message"}{"type":"compaction"}',
        b'{"type":"compaction","id":"last"}',
        b'{"type":"message","id":"m1"}',
    ]
    return b"\n".join(lines) + b'\n{"type":"message","id":"torn"}'


SIXTY = sixty_lines()


def check_prefix(t: mmapstore.Transcript, whole: Oracle, nbytes: int) -> None:
    """See that of the first `nbytes` bytes the complete lines are served, the torn one never."""
    complete = [line for line in whole.lines if line.end <= nbytes]
    file_len = complete[-1].end if complete else 0
    assert t.layout.line_count == len(complete)
    assert t.layout.file_len == file_len
    assert t.torn_tail == whole.data[file_len:nbytes]
    assert b"".join(t.window(limit=None).lines) == b"".join(
        line.raw for line in complete if line.kind == MESSAGE
    )
    for kind, offsets in (
        (MESSAGE, t.layout.message_offsets),
        (COMPACTION, t.layout.compaction_offsets),
        (REVIEW, t.layout.review_offsets),
    ):
        assert offsets.tolist() == [line.offset for line in complete if line.kind == kind]


@pytest.mark.parametrize(
    ("access", "trust", "step"),
    [
        ("mmap", "append-only", 1),
        ("pread", "none", 3),
        ("mmap", "none", 29),
        ("pread", "append-only", 29),
    ],
)
def test_every_prefix_and_what_it_grows_to(
    tmp_path: Path, access: str, trust: str, step: int
) -> None:
    """A1.1, A1.3: cut at any byte, opened cold; then the rest comes, once and whole."""
    whole = native_oracle(SIXTY)
    path = tmp_path / "t.jsonl"
    path.write_bytes(SIXTY)
    with mmapstore.open(path) as t:
        check_all(t, whole)
        cold = layout_facts(t)
    with path.open("r+b", buffering=0) as file:
        for cut in range(0, len(SIXTY), step):
            file.truncate(cut)
            with mmapstore.open(path, access=access, trust=trust) as t:
                check_prefix(t, whole, cut)
                generation = t.generation
                file.seek(cut)
                file.write(SIXTY[cut:])
                result = t.refresh()
                assert result
                assert result is not Refresh.SAME
                assert layout_facts(t) == cold
                assert t.generation > generation
                assert t.refresh() is Refresh.SAME
    assert path.read_bytes() == SIXTY


def test_grown_one_byte_at_a_time(tmp_path: Path, access: str) -> None:
    """A1.3: a reader that looks after every byte sees each line once, when its newline is there."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"")
    whole = native_oracle(SIXTY)
    with (
        mmapstore.open(path, access=access, trust="append-only") as t,
        path.open("ab", buffering=0) as file,
    ):
        for nbytes in range(1, len(SIXTY) + 1):
            file.write(SIXTY[nbytes - 1 : nbytes])
            assert t.refresh()
            if SIXTY[nbytes - 1] == 0x0A:
                messages = [line for line in whole.messages if line.end <= nbytes]
                assert t.message_count == len(messages)
                if messages:
                    assert bytes(t.line(len(messages) - 1)) == messages[-1].raw
        check_all(t, whole)


@given(data=transcripts(), draw=st.data())
def test_growth_in_steps(data: bytes, draw: st.DataObject) -> None:
    data = HEADER + data.removeprefix(BOM)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=3)))
    trust = draw.draw(st.sampled_from(TRUSTS))
    access = draw.draw(st.sampled_from(["mmap", "pread", "auto"]))
    look_between = draw.draw(st.booleans())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(data[: cuts[0]] if cuts else b"")
        with mmapstore.open(path, dialect="native", access=access, trust=trust) as t:
            for start, stop in pairwise([*cuts, len(data)] if cuts else [0, len(data)]):
                old = t.layout.message_offsets
                held = t.window(limit=None)
                lines = [bytes(line) for line in held.lines] if look_between else None
                with path.open("ab") as file:
                    file.write(data[start:stop])
                result = t.refresh()
                if start == stop:
                    assert result is Refresh.SAME
                elif trust == "append-only":
                    assert result is Refresh.APPENDED
                else:
                    assert result is Refresh.REBUILT
                oracle = native_oracle(data[:stop])
                if look_between:
                    check_all(t, oracle)
                else:
                    check_layout(t, oracle)
                assert t.layout.message_offsets[: len(old)].tolist() == old.tolist()
                after = [bytes(line) for line in held.lines]
                assert after == [line.raw for line in oracle.messages[: len(old)]]
                if lines is not None:
                    assert lines == after
            check_all(t, native_oracle(data))


def install(path: Path, data: bytes, how: str, moment: int) -> None:
    """Put new content at a path; with a time of its own, so that no clock decides a test."""
    match how:
        case "replace":
            new = path.with_suffix(".new")
            new.write_bytes(data)
            os.replace(new, path)
        case "create anew":
            path.unlink()
            path.write_bytes(data)
        case _:
            with path.open("r+b") as file:
                file.write(data)
                file.truncate()
    os.utime(path, ns=(moment, moment))


@given(
    contents=st.lists(transcripts(max_lines=6), min_size=2, max_size=4),
    draw=st.data(),
)
def test_rewrites_of_any_sort(contents: list[bytes], draw: st.DataObject) -> None:
    """A9.3, A9.4, A9.5: what is read is what is there, whatever was there before."""
    contents = [HEADER + data.removeprefix(BOM) for data in contents]
    trust = draw.draw(st.sampled_from(TRUSTS))
    access = draw.draw(st.sampled_from(["mmap", "pread", "auto"]))
    ways = (
        ["replace", "create anew"] if access == "mmap" else ["replace", "create anew", "in place"]
    )
    if trust == "append-only":
        ways = ways[:2]  # a caller who vouches for its writer excludes the third
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.jsonl")
        path.write_bytes(contents[0])
        with mmapstore.open(
            path, access="pread" if "in place" in ways else access, trust=trust
        ) as t:
            held = []
            for moment, data in enumerate(contents[1:], 1):
                touched, untouched = t.window(limit=None), t.window(limit=None)
                held.append(
                    (touched, untouched, list(touched.lines), [bytes(x) for x in touched.lines])
                )
                generation = t.generation
                how = draw.draw(st.sampled_from(ways))
                if how == "in place":
                    held.clear()  # bytes not read yet are gone
                install(path, data, how, moment * 10**9)
                assert t.refresh() is Refresh.REBUILT
                assert t.generation > generation
                check_all(t, native_oracle(data))
                assert t.refresh() is Refresh.SAME
                for touched, untouched, lines, texts in held:
                    assert [bytes(line) for line in lines] == texts
                    assert [bytes(line) for line in touched.lines] == texts
                    assert [bytes(line) for line in untouched.lines] == texts


@pytest.mark.parametrize("trust", TRUSTS)
def test_shrunk_in_place_then_grown(tmp_path: Path, trust: str) -> None:
    """A9.4: old offsets are never used on a file that was cut, whatever the caller vouched for."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(SIXTY)
    with mmapstore.open(path, access="pread", trust=trust) as t:
        cut = SIXTY.index(b"\n", len(SIXTY) // 2) + 1
        os.truncate(path, cut)
        assert t.refresh() is Refresh.REBUILT
        check_all(t, native_oracle(SIXTY[:cut]))
        with path.open("ab") as file:
            file.write(SIXTY[cut:])
        assert t.refresh()
        check_all(t, native_oracle(SIXTY))


def test_edit_followed_by_append_is_no_growth(tmp_path: Path, access: str) -> None:
    """Without a caller's word growth is no proof: the old bytes may have changed as well."""
    path = tmp_path / "t.jsonl"
    lines = [HEADER, b'{"type":"message","id":"a"}\n', b'{"type":"message","id":"b"}\n']
    path.write_bytes(b"".join(lines))
    with mmapstore.open(path, access=access) as t:
        assert t.message_count == 2
        changed = [
            HEADER,
            b'{"type":"massage","id":"a"}\n',
            lines[2],
            b'{"type":"message","id":"c"}\n',
        ]
        install(path, b"".join(changed), "in place", 10**9)
        assert t.refresh() is Refresh.REBUILT
        check_all(t, native_oracle(b"".join(changed)))


def test_same_size_edit_with_the_old_mtime(tmp_path: Path, access: str) -> None:
    """A9.1: setting mtime back fools nothing, ctime has moved."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(HEADER + b'{"type":"message","id":"a"}\n')
    status = path.stat()
    with mmapstore.open(path, access=access) as t:
        changed = HEADER + b'{"type":"message","id":"b"}\n'
        with path.open("r+b") as file:
            file.write(changed)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert path.stat().st_mtime_ns == status.st_mtime_ns
        assert t.refresh() is Refresh.REBUILT
        check_all(t, native_oracle(changed))


def test_same_content_under_another_inode(tmp_path: Path, access: str) -> None:
    """A9.3: another inode is another file, whatever it holds."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(SIXTY)
    status = path.stat()
    with mmapstore.open(path, access=access) as t:
        new = tmp_path / "new"
        new.write_bytes(SIXTY)
        os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.replace(new, path)
        assert t.refresh() is Refresh.REBUILT
        check_all(t, native_oracle(SIXTY))


def test_refresh_of_a_path_that_vanished(tmp_path: Path, access: str) -> None:
    """A3.4: the old generation stays readable, the refresh says what happened."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(SIXTY)
    with mmapstore.open(path, access=access) as t:
        path.unlink()
        with pytest.raises(FileNotFoundError):
            t.refresh()
        check_all(t, native_oracle(SIXTY))
        path.write_bytes(SIXTY)
        assert t.refresh() is Refresh.REBUILT
        check_all(t, native_oracle(SIXTY))


def test_an_unclaimed_file_is_judged_again(tmp_path: Path, access: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"")
    with mmapstore.open(path, access=access) as t:
        assert t.dialect.name == "generic"
        path.write_bytes(b'{"a":1}\n')
        assert t.refresh()
        assert (t.dialect.name, t.message_count) == ("generic", 1)
        path.write_bytes(SIXTY)
        assert t.refresh() is Refresh.REBUILT
        assert t.dialect.name == "native"
        check_all(t, native_oracle(SIXTY))


CLAUDE_LINES = {
    "message": b'{"parentUuid":null,"type":"user","message":{"role":"user"},"uuid":"u"}\n',
    "boundary": b'{"parentUuid":null,"type":"system","subtype":"compact_boundary","uuid":"b"}\n',
    "summary": b'{"parentUuid":null,"type":"user","message":{"role":"user"},"isCompactSummary":true}\n',
    "other": b'{"type":"progress","data":{"type":"user"}}\n',
    "broken": b'{"parentUuid":null,"type":"system","subtype":"compact_boundary","uuid":\n',
}


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("first", list(CLAUDE_LINES))
def test_checkpoints_of_two_lines(tmp_path: Path, first: str, trust: str) -> None:
    """A boundary and its summary are one checkpoint, also where a refresh comes between them."""
    path = tmp_path / "t.jsonl"
    for rest in product(CLAUDE_LINES, repeat=2):
        lines = [CLAUDE_LINES[name] for name in (first, *rest, "summary")]
        for cut in (1, 2, 3, 4):
            path.write_bytes(b"".join(lines[:cut]))
            with mmapstore.open(path, dialect="claude", trust=trust) as t:
                path.write_bytes(b"".join(lines))
                t.refresh()
                oracle = Oracle(b"".join(lines), "claude", lambda _: COMPACTION)
                check_layout(t, oracle)
                check_chain(t.window(), oracle)


def test_dialects_are_not_guessed_from_half_a_line(tmp_path: Path) -> None:
    """What a cut line does not show yet decides nothing, even for a caller that vouches."""
    first_lines = {
        "pi": b'{"type":"session","version":3,"id":"i","timestamp":"t","cwd":"/c"}\n'
        b'{"type":"message","id":"a","parentId":null,"timestamp":"t","message":{"role":"user"}}\n',
        "droid": b'{"type":"session_start","id":"i","title":"t"}\n'
        b'{"type":"message","id":"a","timestamp":"t","message":{"role":"user","content":[]}}\n',
        "claude": b'{"type":"system","content":"c","level":"info","uuid":"u"}\n'
        b'{"parentUuid":null,"type":"user","message":{"role":"user"},"uuid":"v"}\n',
        "native": HEADER + b'{"type":"message","id":"a","role":"user","blocks":[]}\n',
    }
    path = tmp_path / "t.jsonl"
    for name, data in first_lines.items():
        for cut in range(0, len(data), 2):
            path.write_bytes(data[:cut])
            with mmapstore.open(path, trust="append-only") as t:
                path.write_bytes(data)
                assert t.refresh()
                assert t.dialect.name == name, data[:cut]
