"""Damage inside a file: one bad line never costs another, and reading changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from tests.agreement import check_all, layout_facts, native_oracle
from tests.oracle import BOM
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]
Unchanged = Callable[[Path], Any]


def check_file(path: Path, data: bytes, access: str, unchanged: Unchanged) -> None:
    """Read a file in every way and compare; then see that it was left alone."""
    with unchanged(path), mmapstore.open(path, access=access) as t:
        assert t.dialect.name == "native"
        check_all(t, native_oracle(data))


# -- A2: NULs and zero fill ----------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True], ids=["unterminated", "newline-ended"])
@pytest.mark.parametrize("count", [1, 511, 512, 4096, 100_000])
def test_a_run_of_nuls_at_the_end(
    write: Write, access: str, unchanged: Unchanged, count: int, sealed: bool
) -> None:
    """A2.1: NULs behind the last newline are a torn tail; with a newline, a damaged line."""
    whole = HEADER + M("a") + M("b")
    data = whole + b"\0" * count + (b"\n" if sealed else b"")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert [m["id"] for m in t.iter()] == ["a", "b"]
        assert t.torn_nbytes == (0 if sealed else count)
        assert t.layout.line_count == 3 + sealed
        reports = [(f.offset, f.line_number, f.kind) for f in t.verify()]
        assert reports == ([(len(whole), 4, "other")] if sealed else [])
        with path.open("ab") as file:
            file.write((b"" if sealed else b"\n") + M("c"))
        assert t.refresh()
        assert [m["id"] for m in t.iter()] == ["a", "b", "c"]


@pytest.mark.parametrize("type_first", [True, False])
def test_a_zero_hole_inside_the_last_record(
    write: Write, access: str, unchanged: Unchanged, type_first: bool
) -> None:
    """A2.3: a sector that was never written damages its line and no other."""
    hurt = bytearray(M("z", "x" * 3000))
    if not type_first:
        hurt = bytearray(b'{"blocks":["' + b"x" * 3000 + b'"],"id":"z","type":"message"}\n')
    hurt[512:1024] = bytes(512)
    data = HEADER + M("a") + C("x") + bytes(hurt)
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        # the discriminator is intact, so the line keeps its position and its bytes can be seen
        assert t.message_count == 2
        assert bytes(t.line(1)) == bytes(hurt)
        w = t.window()
        assert w.message_ids == ["a"]
        assert [(d.position, d.offset) for d in w.damaged] == [(1, len(data) - len(hurt))]
        with pytest.raises(mmapstore.LineDecodeError) as caught:
            t[1]
        assert caught.value.offset == len(data) - len(hurt)
        assert caught.value.line_number == 4
        with path.open("ab") as file:
            file.write(M("c"))
        t.refresh()
        assert t.window(limit=1).message_ids == ["c"]


def test_an_escaped_nul_is_no_damage(write: Write, access: str, unchanged: Unchanged) -> None:
    """A2.4: the escape is valid JSON and comes back byte for byte."""
    line = b'{"type":"message","id":"n\\u0000","role":"user","blocks":["a\\u0000b"]}\n'
    data = HEADER + line + M("b")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert bytes(t.line(0)) == line
        assert t[0]["blocks"] == ["a\0b"]
        assert t.position("n\0") == 0
        assert list(t.verify()) == []


# -- A3: damage elsewhere ------------------------------------------------------------

BAD_LINES = {
    "garbage": b"garbage",
    "half an object": b'{"type":"message","id":"c","blo',
    "half an object, type lost": b'{"id":"c","blocks":[{"text":"',
    "end of an object": b'cks":[]}',
    "glued": M("c").strip() + M("d").strip(),
    "half glued": M("c")[:20] + M("d").strip(),
    "bad UTF-8": M("c").strip().replace(b'"t"', b'"\xe9"'),
    "cut character": M("c", "行").strip().replace("行".encode(), b"\xe8\xa1"),
    "surrogate in UTF-8": M("c").strip().replace(b'"t"', b'"\xed\xa0\xbd"'),
    "overlong": M("c").strip().replace(b'"t"', b'"\xc0\x80"'),
    "NULs": b"\0" * 600,
    "a NUL behind": M("c").strip() + b"\0",
    "control character": M("c").strip().replace(b'"t"', b'"\x01"'),
    "mark in the middle": BOM + M("c").strip(),
    "comma behind": M("c").strip() + b",",
    "brace behind": M("c").strip() + b"}",
    "bracket before": b"[" + M("c").strip(),
    "single quotes": b"{'type':'message'}",
    "trailing comma": b'{"type":"message","id":"c",}',
    "array": b'["type","message"]',
    "array of a message": b"[" + M("c").strip() + b"]",
    "string": b'"message"',
    "number": b"12",
    "null": b"null",
    "true": b"true",
    "word": b"undefined",
    "long garbage": b"g" * 10_000,
    "long broken": b'{"type":"message","id":"c","blocks":["' + b"x" * 70_000,
}
bad_lines = pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES.keys())


@bad_lines
def test_a_bad_line_in_the_middle(
    write: Write, access: str, unchanged: Unchanged, bad: bytes
) -> None:
    """A3.1: everything behind it is served; it is reported with line number and offset."""
    before = HEADER + M("a")
    data = before + bad + b"\n" + M("b") + C("x") + M("c2")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        w = t.window()
        assert w.message_ids == ["a", "b", "c2"]
        assert [c["id"] for c in w.compactions] == ["x"]
        (finding,) = t.verify()
        assert (finding.offset, finding.line_number) == (len(before), 3)
        assert [d.offset for d in w.damaged] == ([len(before)] if finding.kind == "message" else [])


@pytest.mark.parametrize(
    "bad",
    [bad for name, bad in BAD_LINES.items() if name != "mark in the middle"],
    ids=[name for name in BAD_LINES if name != "mark in the middle"],
)
def test_a_bad_first_line(write: Write, access: str, unchanged: Unchanged, bad: bytes) -> None:
    """A3.2: the file is what it was, and the lines behind the bad one are served."""
    data = bad + b"\n" + M("a") + M("b") + C("x") + R("a", "s", "active")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert t.window().message_ids == ["a", "b"]
        assert next(iter(t.verify())).line_number == 1


@bad_lines
def test_one_verdict_on_every_path(
    write: Write, access: str, unchanged: Unchanged, bad: bytes
) -> None:
    """A3.9: cold, grown, single, iterated, verified: the same line is damaged, the others not."""
    parts = [HEADER, M("a"), bad + b"\n", M("b"), R("a", "s", "x"), bad + b"\n", C("y"), M("c2")]
    data = b"".join(parts)
    path = write(data)
    with unchanged(path), mmapstore.open(path, access=access) as t:
        cold = layout_facts(t)
        reported = list(t.verify())
        offsets = [len(b"".join(parts[:2])), len(b"".join(parts[:5]))]
        assert [f.offset for f in reported] == offsets
        assert len({f.kind for f in reported}) == 1
        assert [d.offset for d in t.window().damaged if d.position is not None] == [
            f.offset for f in reported if f.position is not None
        ]
        for finding in reported:
            if finding.position is not None:
                with pytest.raises(mmapstore.LineDecodeError) as caught:
                    t[finding.position]
                assert caught.value.reason == finding.reason
    for cut in range(0, len(data), max(1, len(data) // 12)):
        path.write_bytes(data[:cut])
        with mmapstore.open(path, access=access, trust="append-only", dialect="native") as t:
            path.write_bytes(data)
            t.refresh()
            assert layout_facts(t) == cold


def test_lines_that_parse_but_are_no_records(
    write: Write, access: str, unchanged: Unchanged
) -> None:
    """A3.6: neither counted as messages nor an exception; a message of odd keys is a message."""
    odd = b'{"type":"message","0":"h","1":"i"}\n'
    others = [
        b"[]\n",
        b'"text"\n',
        b"7\n",
        b"null\n",
        b"{}\n",
        b'{"0":"h","1":"i"}\n',
        b'{"type":1}\n',
    ]
    data = HEADER + M("a") + b"".join(others) + odd + M("b")
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert t.message_count == 3
        assert t.layout.line_count == 4 + len(others)
        assert t[1] == {"type": "message", "0": "h", "1": "i"}
        assert t.window().message_ids[1] == f"@{len(data) - len(odd) - len(M('b'))}"
        assert t.dialect.text(t[1]) == ""
        assert t.dialect.role(t[1]) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"   ", b" \n", b"\t\r\n\n \n", BOM, BOM + b"\n", b"\r", b"\n\n\n\n"],
    ids=repr,
)
def test_files_of_nothing(write: Write, access: str, unchanged: Unchanged, data: bytes) -> None:
    """A3.7: an empty transcript, that is no failure, and that grows."""
    path = write(data)
    with unchanged(path), mmapstore.open(path, access=access) as t:
        assert t.message_count == len(t) == 0
        assert t.dialect.name == "generic"
        for w in (t.window(), t.window(limit=None), t.window(before=0), t.window(after=0)):
            assert (w.start, w.stop, w.total, len(w.lines)) == (0, 0, 0, 0)
            assert not w.has_before
            assert not w.has_after
            assert list(w.messages) == list(w.damaged) == list(w.compactions) == []
        assert list(t.iter()) == []
        assert list(t.verify()) == []
        assert t.position("a") is None
        with pytest.raises(mmapstore.PositionError):
            t[0]
        with pytest.raises(mmapstore.MessageNotFoundError):
            t.message("a")
        with pytest.raises(mmapstore.MessageNotFoundError):
            t.tool_parent("a")
        assert t.torn_tail == data.rpartition(b"\n")[2]
        assert t.layout.line_count == data.count(b"\n")
    with mmapstore.open(path, access=access) as t:
        with path.open("ab") as file:
            file.write(b"\n" + HEADER + M("a"))
        assert t.refresh()
        assert t.dialect.name == "native"
        assert t.window().message_ids == ["a"]


@pytest.mark.parametrize(
    ("data", "compactions", "reviews"),
    [(C("x"), 1, 0), (R("a", "s", "active"), 0, 1), (HEADER, 0, 0), (HEADER + C("x"), 1, 0)],
    ids=["only C", "only R", "only a header", "header and C"],
)
def test_files_without_a_message(
    write: Write, access: str, unchanged: Unchanged, data: bytes, compactions: int, reviews: int
) -> None:
    """A3.7: no message, and yet a transcript."""
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert t.message_count == 0
        assert len(t.window().compactions) == compactions
        assert t.window().compaction_positions == [0] * compactions
        assert len(t.layout.review_offsets) == reviews


def test_blank_lines(write: Write, access: str, unchanged: Unchanged) -> None:
    """A3.8: blank lines shift no offset and no line number, and are no records."""
    blanks = b"\n  \n\t\t\r\n"
    data = blanks + HEADER + blanks + M("a") + blanks + b"bad\n" + blanks + M("b") + C("x") + blanks
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        assert t.message_count == 2
        assert [data[offset : offset + 1] for offset in t.layout.message_offsets.tolist()] == [
            b"{"
        ] * 2
        (finding,) = t.verify()
        assert finding.line_number == 3 + 1 + 3 + 1 + 3 + 1
        assert finding.offset == data.index(b"bad")


# -- A6: identity and checkpoints, as far as reading goes -------------------------------


def test_records_without_ids(write: Write, access: str, unchanged: Unchanged) -> None:
    """A6.2: ten messages without an id are ten; each is addressed by its offset."""
    lines = [M(None, str(index)) for index in range(10)]
    data = HEADER + b"".join(lines)
    path = write(data)
    check_file(path, data, access, unchanged)
    with mmapstore.open(path, access=access) as t:
        w = t.window()
        assert len(w.messages) == 10
        offsets = t.layout.message_offsets.tolist()
        assert list(w.message_ids) == [f"@{offset}" for offset in offsets]
        for position, address in enumerate(w.message_ids):
            assert t.position(address) == position
            assert t.message(address) == t[position]
            assert t.window(around=address, limit=1).start == position
        for address in ("@0", f"@{offsets[0] + 1}", f"@0{offsets[0]}", f"@{len(data)}", "@"):
            assert t.position(address) is None


def test_a_message_with_an_id_is_not_addressed_by_its_offset(write: Write, access: str) -> None:
    with mmapstore.open(write(HEADER + M("a")), access=access) as t:
        assert t.position(f"@{len(HEADER)}") is None


@pytest.mark.parametrize(
    "chain",
    [
        [C("x", summary="")],
        [b'{"type":"compaction"}\n'],
        [b'{"type":"compaction","id":"x","summary":null}\n'],
        [C("x"), C("y")],
        [C("x"), C("x")],
        [b'{"type":"compaction","id":"x","summ\n'],
        [C("x"), b'{"type":"compaction","id":"y","summ\n', C("z")],
    ],
    ids=[
        "empty",
        "missing",
        "null",
        "two in a row",
        "the same twice",
        "damaged",
        "damaged between",
    ],
)
def test_checkpoints_hide_nothing(
    write: Write, access: str, unchanged: Unchanged, chain: list[bytes]
) -> None:
    """A6.10: a checkpoint without a summary drops nothing; the chain holds the complete ones."""
    links = b"".join(chain)
    for data in (
        HEADER + M("a") + links + M("b"),
        HEADER + links + M("a") + M("b"),
        links + M("a") + M("b"),
        HEADER + M("a") + M("b") + links,
    ):
        path = write(data)
        check_file(path, data, access, unchanged)
        with mmapstore.open(path, access=access) as t:
            w = t.window()
            assert w.message_ids == ["a", "b"]
            assert len(t.layout.compaction_offsets) == len(chain)
            intact = [line for line in chain if line.endswith(b"}\n")]
            assert len(w.compactions) == len(w.compaction_positions) == len(intact)
            assert [d.position for d in w.damaged] == [None] * (len(chain) - len(intact))


def test_a_torn_checkpoint_is_none(write: Write, access: str) -> None:
    """A6.10: the last COMPLETE checkpoint counts, not the one being written."""
    torn = C("y")
    for k in range(1, len(torn)):
        data = HEADER + M("a") + C("x") + M("b") + torn[:k]
        with mmapstore.open(write(data), access=access) as t:
            w = t.window()
            assert [c["id"] for c in w.compactions] == ["x"]
            assert w.compactions[-1]["id"] == "x"
            assert w.compaction_positions == [1]


# -- ids of damaged lines ----------------------------------------------------------------


def test_a_damaged_last_line_yields_to_the_last_that_decodes(write: Write, access: str) -> None:
    """One id on several lines: the last that decodes counts; if none does, it is an error."""
    broken = b'{"type":"message","id":"%s","blocks":[}\n'
    data = HEADER + M("a", "1") + M("a", "2") + broken % b"a" + broken % b"only" + M("b")
    with mmapstore.open(write(data), access=access) as t:
        assert t.message_count == 5
        assert t.position("a") == 1
        assert t.message("a")["blocks"] == [{"text": "2"}]
        assert t.window(around="a", limit=1).start == 1
        for look_up in (t.position, t.message, lambda i: t.window(around=i)):
            with pytest.raises(mmapstore.LineDecodeError) as caught:
                look_up("only")
            assert caught.value.offset == data.index(broken % b"only")
            assert caught.value.line_number == 5


def test_the_hint_names_damaged_lines(write: Write, access: str) -> None:
    """Where no id resolves, the error says at which positions the reader cannot tell."""
    data = HEADER + M("a") + b'{"type":"message","blocks":[}\n' + M("b")
    with mmapstore.open(write(data), access=access) as t:
        with pytest.raises(mmapstore.MessageNotFoundError) as caught:
            t.message("missing")
        assert "1" in (caught.value.hint or "")
        assert isinstance(caught.value, KeyError)
        assert caught.value.path == t.path
    with mmapstore.open(write(HEADER + M("a")), access=access) as t:
        with pytest.raises(mmapstore.MessageNotFoundError) as caught:
            t.message("missing")
        assert caught.value.hint is None
