"""A look-up by id or by tool call ends at the line that a parser finds, of several at the last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmapstore import identity, layout, lookup
from mmapstore.errors import LineDecodeError, MessageNotFoundError, TranscriptChangedError
from mmapstore.filemap import ReadFile
from mmapstore.generation import Generation
from tests.strategies import HEADER
from tests.test_generation import generation_of, message

# -- looking up -----------------------------------------------------------------------


def lookups(tmp_path: Path, access: str, data: bytes) -> Generation:
    path = tmp_path / "t.jsonl"
    path.write_bytes(data)
    return generation_of(path, access)


def test_the_last_line_that_decodes_wins(tmp_path: Path, access: str) -> None:
    of = lookups(
        tmp_path,
        access,
        message("a") + message("a") + b'{"type":"message","id":"a",\n' + message("b"),
    )
    assert lookup.position(of, "a") == 1
    assert lookup.position(of, "b") == 3
    assert lookup.position(of, "c") is None


def test_where_no_line_of_an_id_decodes_the_last_one_is_the_error(
    tmp_path: Path, access: str
) -> None:
    bad = b'{"type":"message","id":"a",\n'
    of = lookups(tmp_path, access, bad + message("b") + bad)
    with pytest.raises(LineDecodeError) as caught:
        lookup.position(of, "a")
    assert (caught.value.offset, caught.value.line_number) == (len(bad + message("b")), 3)


def test_ids_of_equal_checksum_are_told_apart(tmp_path: Path, access: str) -> None:
    of = lookups(tmp_path, access, message("plumless") + message("buckeroo") + message("plumless"))
    assert lookup.position(of, "plumless") == 2
    assert lookup.position(of, "buckeroo") == 1
    # a text of that checksum that no message has
    other = lookups(tmp_path, access, message("plumless"))
    assert lookup.position(other, "buckeroo") is None


def test_messages_without_an_id_are_found_by_their_offset(tmp_path: Path, access: str) -> None:
    none = b'{"type":"message"}\n'
    empty = b'{"type":"message","id":""}\n'
    of = lookups(tmp_path, access, HEADER + none + message("a") + empty)
    offsets = of.layout.message_offsets.tolist()
    assert [lookup.message_id(of, position) for position in range(3)] == [
        f"@{offsets[0]}",
        "a",
        f"@{offsets[2]}",
    ]
    assert lookup.position(of, f"@{offsets[0]}") == 0
    assert lookup.position(of, f"@{offsets[2]}") == 2
    # not a line's start, not without an id, behind the end, the header
    assert lookup.position(of, f"@{offsets[0] + 1}") is None
    assert lookup.position(of, f"@{offsets[1]}") is None
    assert lookup.position(of, f"@{of.layout.file_len}") is None
    assert lookup.position(of, f"@{10**30}") is None
    assert lookup.position(of, f"@{10**20 - 1}") is None
    assert lookup.position(of, "@0") is None
    assert lookup.position(of, "") is None


def test_an_id_that_looks_like_an_address_is_an_id(tmp_path: Path, access: str) -> None:
    of = lookups(tmp_path, access, b'{"type":"message"}\n' + message("@0"))
    assert lookup.position(of, "@0") == 1
    assert lookup.message_id(of, 0) == "@0"


def test_a_hint_names_damaged_lines_whose_id_cannot_be_read(tmp_path: Path, access: str) -> None:
    bad = b'{"type":"message","role":\n'
    of = lookups(tmp_path, access, message("a") + bad + b'{"type":"message"}\n' + bad)
    assert "position 1, 3" in (lookup.not_found(of, "x").hint or "")
    whole = lookups(tmp_path, access, message("a") + b'{"type":"message"}\n')
    assert lookup.not_found(whole, "x").hint is None
    for count, end in ((10, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"), (11, "7, 8, 9 and more")):
        many = lookups(tmp_path, access, bad * count)
        assert (lookup.not_found(many, "x").hint or "").endswith(end)


def counted(of: Generation, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note every time that the lines of the file are counted."""
    counts: list[int] = []
    count = of.line_number
    monkeypatch.setattr(of, "line_number", lambda offset: counts.append(offset) or count(offset))
    return counts


@pytest.mark.parametrize("call", ["not_found", "position", "tool_parent"])
def test_damaged_lines_are_passed_over_without_counting_the_file(
    tmp_path: Path, access: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = (
        b'{"type":"message","role":"x"\n'
        if call == "not_found"
        else b'{"type":"message","id":"a"\n'
    )
    of = lookups(tmp_path, access, message("a") + bad * 50)
    counts = counted(of, monkeypatch)
    if call == "not_found":
        lookup.not_found(of, "x")
    elif call == "position":
        assert lookup.position(of, "a") == 0
    else:
        with pytest.raises(KeyError):
            lookup.tool_parent(of, "a")
    assert len(counts) <= 1


# -- any file -------------------------------------------------------------------------

NAMES = ["a", "b", "plumless", "buckeroo", "@0", "é"]
LINES: list[tuple[str | None, bool, bytes]] = [
    *((name, True, message(name)) for name in NAMES),
    *((name, False, message(name)[:-2] + b"\n") for name in NAMES),
    ("a", True, b'{"\\u0069d":"a","type":"message"}\n'),
    (None, True, b'{"type":"message"}\n'),
    (None, True, b'{"type":"message","id":""}\n'),
    (None, False, b'{"type":"message","id":"half\n'),
]


def check_look_ups(of: Generation, lines: list[tuple[str | None, bool, bytes]]) -> None:
    """Compare with a walk over all lines from the last on."""
    offsets = of.layout.message_offsets.tolist()
    addresses = [name or f"@{offset}" for offset, (name, _, _) in zip(offsets, lines, strict=True)]
    assert [lookup.message_id(of, at) for at in range(len(lines))] == addresses
    for wanted in {*NAMES, *addresses, "none", "", "@1", f"@{of.layout.file_len}"}:
        named = [at for at in reversed(range(len(lines))) if lines[at][0] == wanted]
        whole = [at for at in named if lines[at][1]]
        if whole:
            assert lookup.position(of, wanted) == whole[0]
        elif named:
            with pytest.raises(LineDecodeError) as caught:
                lookup.position(of, wanted)
            assert caught.value.offset == offsets[named[0]]
        else:
            at = addresses.index(wanted) if wanted in addresses else None
            assert lookup.position(of, wanted) == at
    unreadable = [at for at, (name, whole, _) in enumerate(lines) if name is None and not whole]
    shown = lookup.not_found(of, "none").hint
    assert shown == (
        None
        if not unreadable
        else "damaged message lines without a readable id are at position "
        + ", ".join(map(str, unreadable[:10]))
        + " and more" * (len(unreadable) > 10)
    )


@given(
    lines=st.lists(st.sampled_from(LINES), max_size=16),
    cuts=st.lists(st.integers(0, 16), max_size=3),
    recent=st.sampled_from([0, 2, 100]),
)
@example(lines=[LINES[2], LINES[9]], cuts=[], recent=0).via("a damaged line of equal checksum")
@example(lines=[LINES[4], LINES[13]], cuts=[1], recent=9).via("an id that is another's address")
def test_a_look_up_is_a_walk_from_the_last_line_on(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str | None, bool, bytes]],
    cuts: list[int],
    recent: int,
) -> None:
    """In a file that is looked at as it grows, and in one that is opened when it is whole."""
    path = tmp_path_factory.getbasetemp() / "walk.jsonl"
    path.write_bytes(b"")
    of = generation_of(path, "pread")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(identity, "RECENT_COUNT", recent)
        for cut in (*sorted(min(cut, len(lines)) for cut in cuts), len(lines)):
            path.write_bytes(b"".join(line for _, _, line in lines[:cut]))
            of = grown(of, path)
            check_look_ups(of, lines[:cut])
        check_look_ups(generation_of(path, "pread"), lines)


def grown(of: Generation, path: Path) -> Generation:
    """Return the generation that an append to the file makes of another one."""
    source = ReadFile(of.descriptor, path.stat().st_size)
    longer = layout.extend(of.layout, source, of.descriptor.stamp())
    return Generation(of.number + 1, str(path), longer, lambda: source, of.descriptor, before=of)


def test_a_line_of_another_id_and_equal_checksum_is_no_error(tmp_path: Path, access: str) -> None:
    damaged = b'{"type":"message","id":"buckeroo",\n'
    of = lookups(tmp_path, access, damaged)
    assert lookup.position(of, "plumless") is None
    of = lookups(tmp_path, access, message("plumless") + damaged)
    assert lookup.position(of, "plumless") == 0


def test_a_damaged_line_is_addressed_as_far_as_its_id_reads(tmp_path: Path, access: str) -> None:
    of = lookups(
        tmp_path,
        access,
        HEADER + b'{"type":"message","id":"a",\n{"type":"message","id":\n' + message("b"),
    )
    offset = of.layout.message_offsets.tolist()[1]
    assert [lookup.message_id(of, at) for at in range(3)] == ["a", f"@{offset}", "b"]
    assert lookup.position(of, f"@{offset}") == 1


def test_an_error_looks_at_so_many_lines_and_no_more(
    tmp_path: Path, access: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_UNRESOLVED_LOOKED_AT", 3)
    bad, none = b'{"type":"message","role":\n', b'{"type":"message"}\n'
    of = lookups(tmp_path, access, bad + none + none + bad)
    assert (lookup.not_found(of, "x").hint or "").endswith("at position 0")
    error = lookup.not_found(of, "x")
    assert isinstance(error, MessageNotFoundError)
    assert error.path == str(tmp_path / "t.jsonl")
    assert "'x'" in str(error)
    monkeypatch.setattr(lookup, "_UNRESOLVED_LOOKED_AT", 4)
    assert (lookup.not_found(of, "x").hint or "").endswith("at position 0, 3")


def test_a_look_up_reads_the_lines_it_may_mean_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = lookups(tmp_path, "pread", HEADER + b"".join(message(f"m{n}", 50) for n in range(500)))
    assert lookup.position(of, "m0") == 0  # what is worked out once is worked out now
    reads: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, *where: reads.append(where[0]) or pread(fd, *where))
    assert lookup.position(of, "m250") == 250
    assert lookup.position(of, "none") is None
    assert sum(reads) < 3 * len(message("m250", 50))


# -- tool calls -----------------------------------------------------------------------


def tool(message_id: str, *calls: Any) -> bytes:
    blocks = b",".join(b'{"callId":%s}' % call for call in calls)
    return b'{"type":"message","id":"%s","role":"tool","blocks":[%s]}\n' % (
        message_id.encode(),
        blocks,
    )


@pytest.mark.parametrize("span", [150, 4 << 20])
def test_the_newest_message_that_holds_a_call(
    tmp_path: Path, access: str, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_SPAN_NBYTES", span)
    data = HEADER + tool("a", b'"one"') + tool("b", b'"two"', b'"three"') + message("one", 300)
    data += tool("c", b'"one"') + b'{"type":"message","x":"two"\n' + message("two") * 20
    of = lookups(tmp_path, access, data)
    assert lookup.tool_parent(of, "one")["id"] == "c"
    assert lookup.tool_parent(of, "two")["id"] == "b"
    assert lookup.tool_parent(of, "three")["id"] == "b"
    for missing in ("four", "", "tw", "b", "callId"):
        with pytest.raises(KeyError):
            lookup.tool_parent(of, missing)


def test_a_call_in_a_part_that_was_cut_off(tmp_path: Path) -> None:
    of = lookups(tmp_path, "pread", HEADER + tool("a", b'"one"') * 2)
    os.truncate(tmp_path / "t.jsonl", len(HEADER) + 10)
    with pytest.raises(TranscriptChangedError):
        lookup.tool_parent(of, "one")


@pytest.mark.parametrize(
    ("spelling", "call_id"),
    [
        (b'"a\\"b"', 'a"b'),
        (b'"a\\\\b"', "a\\b"),
        ("'é'".encode().replace(b"'", b'"'), "é"),
        (b'"\\u00e9"', "é"),
        (b'"a\\nb"', "a\nb"),
        pytest.param(b'"a\\/b"', "a/b"),
        pytest.param(b'"a\\u002bb"', "a+b"),
    ],
)
def test_calls_of_every_spelling(
    tmp_path: Path, access: str, spelling: bytes, call_id: str
) -> None:
    of = lookups(tmp_path, access, tool("m", spelling) + message("n"))
    assert lookup.tool_parent(of, call_id)["id"] == "m"


def test_the_message_that_holds_a_call_is_the_effective_one(tmp_path: Path, access: str) -> None:
    reviewed = (
        b'{"type":"message","id":"m","role":"tool","blocks":[{"callId":"c",'
        b'"result":{"details":{"reviews":[{"snapshotId":"s","state":"active"}]}}}]}\n'
    )
    state = b'{"type":"tool_review_state","messageId":"m","snapshotId":"s","state":"rolledBack"}\n'
    of = lookups(tmp_path, access, reviewed + state)
    (review,) = lookup.tool_parent(of, "c")["blocks"][0]["result"]["details"]["reviews"]
    assert review["state"] == "rolledBack"
