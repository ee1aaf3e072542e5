"""A transcript: what refresh finds, which way to the bytes is taken, and what is refused."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mmapstore
from mmapstore import detect, filemap, identity, layout, loader, transcript
from mmapstore.columns import Column
from mmapstore.layout import Extents, Layout
from mmapstore.paging import _cut
from mmapstore.transcript import Refresh
from tests.strategies import HEADER

SAME, APPENDED, REBUILT = Refresh


def message(message_id: str, nbytes: int = 0) -> bytes:
    record = {"type": "message", "id": message_id, "role": "user", "p": "x" * nbytes}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


DATA = HEADER + message("a") + message("b")


@pytest.fixture
def path(write: Callable[..., Path]) -> Path:
    made = write(DATA)
    # a time of its own, so that no clock's grain decides what a change looks like
    os.utime(made, ns=(10**9, 10**9))
    return made


def ids(t: mmapstore.Transcript) -> list[str]:
    return t.window(limit=None).message_ids


# -- refresh --------------------------------------------------------------------------


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(message("c"))


def grow_by_a_torn_tail(path: Path) -> None:
    with path.open("ab") as file:
        file.write(message("c")[:-1])


def leave_alone(path: Path) -> None:
    path.stat()


def touch(path: Path) -> None:
    os.utime(path, ns=(2 * 10**9, 2 * 10**9))


def shrink(path: Path) -> None:
    os.truncate(path, len(DATA) - 5)


def edit_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(DATA.index(b'"b"') + 1)
        file.write(b"B")


def edit_and_append(path: Path) -> None:
    edit_in_place(path)
    grow(path)


def replace(path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(HEADER + message("new"))
    os.replace(new, path)


def replace_by_the_same_bytes(path: Path) -> None:
    new = path.with_suffix(".new")
    shutil.copy2(path, new)
    os.replace(new, path)


def replace_by_more(path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(DATA + message("c"))
    os.replace(new, path)


def truncate_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


OUTCOMES = [
    # what is done, what refresh says without and with trust, the ids afterwards
    (leave_alone, SAME, SAME, "ab"),
    (grow, REBUILT, APPENDED, "abc"),
    (grow_by_a_torn_tail, REBUILT, APPENDED, "ab"),
    (touch, REBUILT, REBUILT, "ab"),
    (shrink, REBUILT, REBUILT, "a"),
    (edit_in_place, REBUILT, REBUILT, "aB"),
    (edit_and_append, REBUILT, REBUILT, "aBc"),
    (replace, REBUILT, REBUILT, ["new"]),
    (replace_by_the_same_bytes, REBUILT, REBUILT, "ab"),
    (replace_by_more, REBUILT, REBUILT, "abc"),
    (truncate_to_nothing, REBUILT, REBUILT, ""),
]


@pytest.mark.parametrize(("change", "untrusted", "trusted", "after"), OUTCOMES)
@pytest.mark.parametrize("trust", ["none", "append-only"])
def test_what_a_refresh_finds(
    path: Path, change: Any, untrusted: Refresh, trusted: Refresh, after: Any, trust: Any
) -> None:
    # by reading: a mapping of a file that shrinks is no subject for a test
    with mmapstore.open(path, access="pread", trust=trust) as t:
        assert t.refresh() is SAME
        generation = t.generation
        change(path)
        expected = trusted if trust == "append-only" else untrusted
        assert t.refresh() is expected
        assert bool(expected) == (t.generation > generation)
        assert ids(t) == list(after)
        assert t.nbytes == path.stat().st_size
        assert t.torn_tail == path.read_bytes()[t.layout.file_len :]
        assert t.refresh() is SAME


@pytest.mark.parametrize("change", [grow, replace, edit_in_place, touch])
def test_a_refresh_of_a_mapped_file(path: Path, change: Any) -> None:
    with mmapstore.open(path, access="mmap") as t:
        change(path)
        assert t.refresh() is REBUILT
        with mmapstore.open(path, access="pread") as other:
            assert ids(t) == ids(other)


def test_only_a_refresh_moves_what_is_served(path: Path) -> None:
    with mmapstore.open(path) as t:
        before = (t.layout, t.generation)
        grow(path)
        assert (t.message_count, ids(t)) == (2, ["a", "b"])
        assert (t.layout, t.generation) == before
        t.refresh()
        assert t.message_count == 3
        assert t.layout is not before[0]


@pytest.mark.parametrize("trust", ["none", "append-only"])
def test_growth_in_any_pieces(path: Path, access: str, trust: Any) -> None:
    with mmapstore.open(path, access=access, trust=trust) as t:
        data = DATA
        whole = message("c") + b"\n" + message("d") + b'{"x":1}\n' + message("e")[:-1]
        for at in range(0, len(whole), 7):
            with path.open("ab") as file:
                file.write(whole[at : at + 7])
            data += whole[at : at + 7]
            assert t.refresh() is (APPENDED if trust == "append-only" else REBUILT)
            complete = data[: data.rfind(b"\n") + 1]
            assert ids(t) == [name for name in "abcde" if f'"id":"{name}"'.encode() in complete]
            assert t.torn_nbytes == len(data) - len(complete)


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "told line by line"])
def test_trusted_growth_reads_the_tail_alone(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, scanned: bool
) -> None:
    """The tail, and what tells that it is one: the last bytes in front of it."""
    monkeypatch.setattr(loader, "_FEW_NBYTES", 0 if scanned else 1 << 14)
    monkeypatch.setattr(layout, "LAST_NBYTES", 16)
    data = HEADER + message("a") * 500
    progress: list[tuple[int, int]] = []
    reads: list[tuple[int, int]] = []
    pread = os.pread
    with mmapstore.open(
        path := write(data),
        access="pread",
        trust="append-only",
        cache_dir=None,
        progress=lambda *each: progress.append(each),
    ) as t:
        assert progress == [(len(data), len(data))]
        progress.clear()
        grow(path)
        monkeypatch.setattr(
            os, "pread", lambda fd, *where: reads.append(where) or pread(fd, *where)
        )
        assert t.refresh() is APPENDED
        assert (len(t), t.layout.line_count) == (501, 502)
        nbytes = len(data + message("c"))
        assert progress == ([(nbytes, nbytes)] if scanned else [])
        assert reads
        assert min(offset for _, offset in reads) == len(data) - 16


def test_a_failed_check_is_mended_by_the_next_refresh(
    path: Path, access: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the stamp says: the layout has been proven wrong."""
    with mmapstore.open(path, access=access, trust="append-only") as t:
        with path.open("r+b") as file:
            file.seek(len(HEADER))
            file.write(b"[")
        # an edit that the stamp did not notice
        known = t.layout.stamp
        monkeypatch.setattr(transcript, "stamp_of", lambda status, _generation: known)
        assert t.refresh() is SAME
        with pytest.raises(mmapstore.TranscriptChangedError) as caught:
            t.line(0)
        assert caught.value.path == t.path
        # what is not touched is still served
        assert t[1]["id"] == "b"
        assert t.refresh() is REBUILT
        assert ids(t) == ["b"]
        monkeypatch.undo()
        assert t.refresh() is SAME


def test_growth_of_a_doubted_file_is_read_from_the_start(path: Path, access: Any) -> None:
    """A writer that was vouched for, and that has been caught changing what it wrote."""
    with mmapstore.open(path, access=access, trust="append-only") as t:
        with path.open("r+b") as file:
            file.seek(len(HEADER))
            file.write(b"[")
        grow(path)
        with pytest.raises(mmapstore.TranscriptChangedError):
            t.line(0)
        assert t.refresh() is REBUILT
        assert ids(t) == ["b", "c"]
        # from then on it is trusted again
        grow(path)
        assert t.refresh() is APPENDED


def test_a_path_that_is_gone_leaves_what_was_served(path: Path, access: str) -> None:
    with mmapstore.open(path, access=access) as t:
        path.unlink()
        with pytest.raises(FileNotFoundError):
            t.refresh()
        assert ids(t) == ["a", "b"]
        path.mkdir()
        with pytest.raises(mmapstore.NotATranscriptError):
            t.refresh()
        assert ids(t) == ["a", "b"]
        path.rmdir()
        path.write_bytes(b"no transcript\n")
        with pytest.raises(mmapstore.NotATranscriptError):
            t.refresh()
        assert ids(t) == ["a", "b"]
        path.write_bytes(DATA)
        assert t.refresh() is REBUILT


def test_a_relative_path_keeps_its_meaning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with mmapstore.open(path.name) as t:
        assert t.path == path.name
        monkeypatch.chdir("/")
        grow(path)
        assert t.refresh() is REBUILT
        assert t.message_count == 3


def test_an_absolute_path_needs_no_working_directory(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ids(mmapstore.open(path)) == ["a", "b"]


# -- judged again ---------------------------------------------------------------------

CODEX_2025 = (
    b'{"id":"s","timestamp":"t","instructions":null}\n'
    b'{"type":"message","id":"m","role":"user","content":[]}\n'
)
STREAM = b'{"type":"message","id":"m1","role":"user","text":"x","timestamp":1,"session_id":"s"}\n'


@pytest.mark.parametrize("trust", ["none", "append-only"])
@pytest.mark.parametrize("before", [b"", b"\n \n", b'{"unknown":1}\n'])
def test_an_unclaimed_file_is_judged_at_each_refresh(
    write: Callable[..., Path], before: bytes, trust: Any
) -> None:
    path = write(before)
    with mmapstore.open(path, trust=trust) as t:
        assert t.dialect.name == "generic"
        with path.open("ab") as file:
            file.write(message("a"))
        assert t.refresh() is REBUILT
        assert (t.dialect.name, ids(t)) == ("native", ["a"])


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (".codex/sessions/x.jsonl", b"", CODEX_2025),
        (".codex/sessions/x.jsonl", b"\n\n", CODEX_2025),
        ("x.jsonl", STREAM[:40], STREAM[40:]),
    ],
)
def test_a_file_without_a_line_is_judged_again_wherever_it_lies(
    tmp_path: Path, name: str, before: bytes, after: bytes
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(before)
    with mmapstore.open(path, trust="append-only") as t:
        with path.open("ab") as file:
            file.write(after)
        assert t.refresh()
        with mmapstore.open(path) as cold:
            assert (t.dialect.name, ids(t)) == (cold.dialect.name, ids(cold))


def test_a_dialect_that_was_asked_for_is_obeyed(write: Callable[..., Path]) -> None:
    path = write(b'{"unknown":1}\n')
    with mmapstore.open(path, dialect="claude", trust="append-only") as t:
        with path.open("ab") as file:
            file.write(DATA)
        assert t.refresh() is APPENDED
        assert (t.dialect.name, t.message_count) == ("claude", 0)


# -- access ---------------------------------------------------------------------------

CLAUDE = b'{"parentUuid":null,"type":"user","uuid":"u","message":{"role":"user","content":"x"}}\n'


def test_native_files_are_mapped_and_others_are_read(write: Callable[..., Path]) -> None:
    assert mmapstore.open(write(DATA)).access == "mmap"
    for data in (CLAUDE, b'{"a":1}\n', b""):
        assert mmapstore.open(write(data)).access == "pread"
    assert mmapstore.open(write(CLAUDE), dialect="native").access == "mmap"
    assert mmapstore.open(write(DATA), dialect="claude").access == "pread"


def test_what_is_asked_for_is_done(write: Callable[..., Path], access: Any) -> None:
    for data in (DATA, CLAUDE, b""):
        assert mmapstore.open(write(data), access=access).access == access


def test_files_of_a_network_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "on_remote_filesystem", lambda device: True)
    assert mmapstore.open(path).access == "pread"
    assert mmapstore.open(path, access="mmap").access == "mmap"


@pytest.mark.parametrize("code", [12, 19, 24])
def test_where_mapping_fails_the_file_is_read(
    path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(filemap.mmap, "mmap", refuse)
    with mmapstore.open(path) as t:
        assert (t.access, ids(t)) == ("pread", ["a", "b"])
    with pytest.raises(OSError, match=os.strerror(code)):
        mmapstore.open(path, access="mmap")


def test_a_file_that_was_seen_to_shrink_is_read_from_then_on(path: Path) -> None:
    with mmapstore.open(path) as t, mmapstore.open(path, access="mmap") as mapped:
        assert t.access == "mmap"
        shrink(path)
        assert t.refresh() is mapped.refresh() is REBUILT
        assert (t.access, mapped.access) == ("pread", "mmap")
        assert ids(t) == ids(mapped) == ["a"]
        replace(path)
        assert t.refresh() is REBUILT
        assert t.access == "pread"


def test_a_file_that_shrinks_while_it_is_opened_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = detect.detect

    def shrink_after(*args: Any) -> Any:
        found = judge(*args)
        os.truncate(path, len(HEADER))
        return found

    monkeypatch.setattr(detect, "detect", shrink_after)
    with mmapstore.open(path) as t:
        assert t.access == "pread"
        assert t.message_count == 0


# -- opening and closing --------------------------------------------------------------


def test_a_path_may_be_of_any_sort(path: Path) -> None:
    for each in (path, str(path), os.fsencode(path)):
        with mmapstore.open(each) as t:
            assert t.path == str(path)
            assert ids(t) == ["a", "b"]
            assert str(path) in repr(t)


@pytest.mark.parametrize(
    ("kwargs", "named"),
    [
        ({"dialect": "none"}, "dialect"),
        ({"dialect": ""}, "dialect"),
        ({"access": "read"}, "access"),
        ({"access": None}, "access"),
        ({"trust": "all"}, "trust"),
        ({"trust": True}, "trust"),
    ],
)
def test_unknown_words_are_refused(path: Path, kwargs: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"unknown {named}"):
        mmapstore.open(path, **kwargs)


def test_what_cannot_be_opened(tmp_path: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(FileNotFoundError):
        mmapstore.open(tmp_path / "none")
    with pytest.raises(mmapstore.NotATranscriptError):
        mmapstore.open(tmp_path)
    with pytest.raises(mmapstore.NotATranscriptError, match="zstd"):
        mmapstore.open(write(b"\x28\xb5\x2f\xfd\0\0"))
    with pytest.raises(mmapstore.NotATranscriptError):
        mmapstore.open(write(b"words\n"), dialect="native")
    for wrong in (None, 5.0, ["x"]):
        with pytest.raises(TypeError):
            mmapstore.open(wrong)  # type: ignore[arg-type]


CALLS: dict[str, Callable[[mmapstore.Transcript], Any]] = {
    "layout": lambda t: t.layout,
    "generation": lambda t: t.generation,
    "dialect": lambda t: t.dialect,
    "access": lambda t: t.access,
    "message_count": lambda t: t.message_count,
    "len": len,
    "nbytes": lambda t: t.nbytes,
    "torn_nbytes": lambda t: t.torn_nbytes,
    "torn_tail": lambda t: t.torn_tail,
    "window": lambda t: t.window(),
    "iter": lambda t: t.iter(),
    "__iter__": lambda t: iter(t),
    "item": lambda t: t[0],
    "line": lambda t: t.line(0),
    "message_id": lambda t: t.message_id(0),
    "position": lambda t: t.position("a"),
    "message": lambda t: t.message("a"),
    "tool_parent": lambda t: t.tool_parent("a"),
    "verify": lambda t: t.verify(),
    "refresh": lambda t: t.refresh(),
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_served_after_close(path: Path, access: Any, name: str) -> None:
    t = mmapstore.open(path, access=access)
    t.close()
    with pytest.raises(ValueError, match="closed"):
        CALLS[name](t)
    t.close()
    assert "closed" in repr(t)


def test_what_was_begun_before_close_goes_on(path: Path, access: Any) -> None:
    with mmapstore.open(path, access=access) as t:
        w, messages, line = t.window(), t.iter(), t.line(0)
    assert w.message_ids == ["a", "b"]
    assert [each["id"] for each in messages] == ["a", "b"]
    assert bytes(line) == message("a")


def test_no_descriptor_is_left_behind(path: Path, access: Any, open_fds: Callable[[], int]) -> None:
    gc.collect()
    before = open_fds()
    for change in (grow, replace, replace_by_more, grow):
        with mmapstore.open(path, access=access) as t:
            change(path)
            t.refresh()
            assert t.window().messages
        del t
    with pytest.raises(mmapstore.NotATranscriptError):
        mmapstore.open(path.parent)
    gc.collect()
    assert open_fds() == before


def test_a_generation_that_nothing_holds_lets_go_of_its_file(
    path: Path, access: Any, open_fds: Callable[[], int]
) -> None:
    with mmapstore.open(path, access=access) as t:
        gc.collect()
        before = open_fds()
        held = t.window()
        replace_by_more(path)
        t.refresh()
        assert open_fds() > before
        assert held.message_ids == ["a", "b"]
        del held
        gc.collect()
        assert open_fds() == before


def use_damaged(t: mmapstore.Transcript) -> None:
    for reach in (lambda: t[1], lambda: t.message("none"), lambda: t.tool_parent("none")):
        with pytest.raises((mmapstore.LineDecodeError, mmapstore.MessageNotFoundError)):
            reach()


USES: dict[str, Callable[[mmapstore.Transcript], Any]] = {
    "nothing": lambda t: None,
    "window": lambda t: (t.window().messages, t.window().damaged, t.window().message_ids),
    "lines": lambda t: [bytes(line) for line in t.window().lines],
    "compactions": lambda t: list(t.window().compactions),
    "iter": lambda t: list(t.iter()),
    "verify": lambda t: list(t.verify()),
    "errors": use_damaged,
    "position": lambda t: t.position("a"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name) for name in USES],
)
def test_nothing_waits_for_the_garbage_collector(
    write: Callable[..., Path], access: Any, name: str, open_fds: Callable[[], int]
) -> None:
    """Where few descriptors are allowed, one that is done with must be closed at once."""
    bad = b'{"type":"message","id":"a",\n'
    path = write(HEADER + message("a") + bad + b'{"type":"compaction","id":"k"\n')
    gc.collect()
    gc.disable()
    try:
        before = open_fds()
        t = mmapstore.open(path, access=access)
        assert open_fds() > before
        USES[name](t)
        t.close()
        del t
        assert open_fds() == before
    finally:
        gc.enable()
        gc.collect()


def test_closing_during_a_refresh_closes(path: Path) -> None:
    def close(done: int, total: int) -> None:
        if opened:
            opened[0].close()

    opened: list[mmapstore.Transcript] = []
    t = mmapstore.open(path, progress=close, cache_dir=None)
    opened.append(t)
    grow(path)
    t.refresh()
    with pytest.raises(ValueError, match="closed"):
        t.window()


def test_an_interrupted_scan_leaves_nothing_behind(
    path: Path, access: Any, open_fds: Callable[[], int]
) -> None:
    interrupt = False

    def progress(done: int, total: int) -> None:
        if interrupt:
            raise KeyboardInterrupt

    gc.collect()
    before = open_fds()
    t = mmapstore.open(path, access=access, progress=progress, cache_dir=None)
    interrupt = True
    with pytest.raises(KeyboardInterrupt):
        mmapstore.open(path, access=access, progress=progress, cache_dir=None)
    grow(path)
    with pytest.raises(KeyboardInterrupt):
        t.refresh()
    assert ids(t) == ["a", "b"]
    interrupt = False
    assert t.refresh() is REBUILT
    assert ids(t) == ["a", "b", "c"]
    del t
    gc.collect()
    assert open_fds() == before


# -- places ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {"limit": 0},
        {"limit": -1},
        {"before": -1},
        {"after": -1},
        {"max_nbytes": 0},
        {"before": 1, "after": 1},
        {"before": 1, "around": "a"},
        {"after": 0, "around": "a"},
        {"before": 1, "after": 1, "around": "a"},
    ],
)
def test_windows_that_make_no_sense(path: Path, write: Any, kwargs: dict[str, Any]) -> None:
    for each in (path, write(b"", "empty")):
        with mmapstore.open(each) as t, pytest.raises(ValueError):
            t.window(**kwargs)


@pytest.mark.parametrize("value", ["1", 1.0, b"one", [1]])
@pytest.mark.parametrize("name", ["before", "after", "limit", "max_nbytes", "around"])
def test_windows_of_the_wrong_type(path: Path, name: str, value: Any) -> None:
    if (name, value) == ("around", "1"):
        value = 1
    with mmapstore.open(path) as t, pytest.raises(TypeError):
        t.window(**{name: value})


def test_positions_outside(path: Path, access: Any) -> None:
    with mmapstore.open(path, access=access) as t:
        for reach in (t.__getitem__, t.line, t.message_id):
            for position in (-1, 2, 10**30, -(10**30)):
                with pytest.raises(mmapstore.PositionError) as caught:
                    reach(position)
                assert caught.value.path == t.path
            for wrong in ("0", 0.0, None):
                with pytest.raises(TypeError):
                    reach(wrong)


def test_ids_are_strings(path: Path) -> None:
    with mmapstore.open(path) as t:
        for reach in (t.position, t.message, t.tool_parent):
            for wrong in (1, b"a", None):
                with pytest.raises(TypeError):
                    reach(wrong)
        for unknown in ("c", "", "@0", "\ud800", "a\0"):
            assert t.position(unknown) is None
            for reach in (t.message, t.tool_parent, lambda each: t.window(around=each)):
                with pytest.raises(mmapstore.MessageNotFoundError):
                    reach(unknown)


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    edges=st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)),
    max_nbytes=st.integers(1, 300),
)
def test_a_page_cut_to_a_number_of_bytes(
    sizes: list[int], edges: tuple[int, int, int], max_nbytes: int
) -> None:
    # lines with gaps between them: only the lines' own bytes count
    starts, at = [], 0
    for nbytes in sizes:
        starts.append(at)
        at += nbytes + 7
    columns = Extents(
        *(
            Column(np.array(each, "<u8"))
            for each in (starts, [a + n for a, n in zip(starts, sizes, strict=True)])
        )
    )
    known = Layout(at, None, 0, columns, columns, columns, Column(np.zeros(0)), None, False)  # type: ignore[arg-type]
    start, anchor, stop = sorted(min(edge, len(sizes)) for edge in edges)
    if start == stop:
        return
    anchor = min(anchor, stop - 1)
    low, high = _cut(known.messages, start, stop, anchor, max_nbytes)
    assert start <= low <= anchor < high <= stop
    assert high - low == 1 or sum(sizes[low:high]) <= max_nbytes
    if sum(sizes[start:stop]) <= max_nbytes:
        assert (low, high) == (start, stop)
    # at an end of the page nothing more would have fitted
    if anchor == start and high < stop:
        assert sum(sizes[low : high + 1]) > max_nbytes
    if anchor == stop - 1 and low > start:
        assert sum(sizes[low - 1 : high]) > max_nbytes


def test_a_page_is_cut_at_the_end_far_from_what_was_asked_for(write: Callable[..., Path]) -> None:
    line = message("00")
    with mmapstore.open(write(HEADER + b"".join(message(f"{n:02}") for n in range(20)))) as t:
        for kwargs, start, stop in (
            ({}, 17, 20),
            ({"before": 10}, 7, 10),
            ({"after": 5}, 5, 8),
            ({"around": "10", "limit": 9}, 9, 12),
            ({"around": "00", "limit": 9}, 0, 3),
            ({"around": "19", "limit": 9}, 17, 20),
        ):
            w = t.window(max_nbytes=3 * len(line) + 2, **kwargs)
            assert (w.start, w.stop) == (start, stop)
        for kwargs, position in (
            ({}, 19),
            ({"before": 10}, 9),
            ({"after": 5}, 5),
            ({"around": "10"}, 10),
        ):
            w = t.window(max_nbytes=1, **kwargs)
            assert (w.start, w.stop) == (position, position + 1)


# -- iteration ------------------------------------------------------------------------


@pytest.mark.parametrize("span", [1, 150, 4 << 20])
def test_iteration_goes_both_ways_over_any_range(
    write: Callable[..., Path], access: Any, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_SPAN_NBYTES", span)
    bad = b'{"type":"message","id":\n'
    data = HEADER + message("a") + message("a") + bad + b'{"x":1}\n' + message("b") + message("c")
    shown = ["a", "a", None, "b", "c"]
    with mmapstore.open(write(data), access=access) as t:
        assert [each["id"] for each in t] == ["a", "a", "b", "c"]
        for start in range(7):
            for stop in (None, *range(7)):
                expected = [each for each in shown[start:stop] if each]
                assert [each["id"] for each in t.iter(start, stop)] == expected
                backwards = t.iter(start, stop, reverse=True)
                assert [each["id"] for each in backwards] == expected[::-1]
        for wrong in ({"start": -1}, {"stop": -1}):
            with pytest.raises(ValueError):
                t.iter(**wrong)
        for wrong in ({"start": "0"}, {"stop": 1.0}):
            with pytest.raises(TypeError):
                t.iter(**wrong)


@pytest.mark.parametrize("reverse", [False, True])
def test_iteration_holds_a_part_of_the_messages_at_a_time(
    write: Callable[..., Path], access: Any, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_SPAN_NBYTES", 100_000)
    path = write(HEADER + message("a", 2000) * 2500)
    with mmapstore.open(path, access=access) as t:
        tracemalloc.start()
        count = sum(1 for _ in t.iter(reverse=reverse))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 2500
    assert peak < 1_000_000 < path.stat().st_size / 4


# -- threads --------------------------------------------------------------------------


def test_readers_never_see_two_generations_at_once(path: Path, access: Any) -> None:
    """Any thread may read while one refreshes."""
    rounds, failures, done = 30, [], threading.Event()

    def read(t: mmapstore.Transcript) -> None:
        try:
            while not done.is_set():
                w = t.window(limit=None)
                numbers = [int(each) for each in w.message_ids]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
                assert len(w.lines) == w.total == len(numbers)
                assert json.loads(bytes(w.lines[-1]))["id"] == str(numbers[-1])
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            failures.append(error)

    def rewrite(number: int) -> None:
        new = path.with_suffix(".new")
        count = 5 + number % 7
        new.write_bytes(HEADER + b"".join(message(str(number + n), 50) for n in range(count)))
        os.replace(new, path)

    rewrite(0)
    with mmapstore.open(path, access=access) as t:
        readers = [threading.Thread(target=read, args=(t,)) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(1, rounds):
            rewrite(number * 100)
            assert t.refresh() is REBUILT
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []


def test_two_threads_that_refresh_agree(path: Path) -> None:
    with mmapstore.open(path) as t:
        barrier = threading.Barrier(4)
        outcomes: list[Refresh] = []

        def refresh() -> None:
            barrier.wait()
            outcomes.append(t.refresh())

        grow(path)
        threads = [threading.Thread(target=refresh) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(outcomes) == 4
        assert REBUILT in outcomes
        assert set(outcomes) <= {SAME, REBUILT}
        assert t.generation == 1
        assert ids(t) == ["a", "b", "c"]


@settings(max_examples=settings.default.max_examples // 4)
@given(names=st.lists(st.sampled_from("abc"), min_size=1, max_size=8), limit=st.integers(1, 9))
def test_around_is_in_the_middle_as_far_as_there_is_room(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], limit: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "around.jsonl"
    path.write_bytes(HEADER + b"".join(map(message, names)))
    with mmapstore.open(path) as t:
        for name in set(names):
            last = len(names) - 1 - names[::-1].index(name)
            assert t.position(name) == last
            w = t.window(around=name, limit=limit)
            assert w.start <= last < w.stop
            assert len(w) == min(limit, len(names))
            if w.start > 0 and w.stop < len(names):
                assert last - w.start == limit // 2
