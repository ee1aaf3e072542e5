"""What is not a transcript, and what is not an argument: refused by type, touching nothing."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmapstore
from tests.oracle import BOM
from tests.strategies import HEADER, C, M

Write = Callable[..., Path]
Unchanged = Callable[[Path], Any]

ROOT = Path(__file__).parent.parent


# -- paths ---------------------------------------------------------------------------------

NOT_TRANSCRIPTS = {
    "a plain log of 3 MiB": b"2026-01-01 12:00:00 INFO started worker\n" * 80_000,
    "one long line of text": b"x" * 300_000,
    "text without a newline": b"hello",
    "binary": bytes(range(256)) * 400,
    "binary without a newline": bytes(range(128, 256)) * 40,
    "an executable": b"\x7fELF\x02\x01\x01" + bytes(5000),
    "NULs": bytes(100_000),
    "one JSON array": b'[{"a":1}]',
    "JSON arrays": b'["a"]\n["b"]\n',
    "strings": b'"a"\n"b"\n',
    "numbers": b"1\n2\n",
    "UTF-16": "{}\n".encode("utf-16"),
    "a SQLite file": b"SQLite format 3\0" + bytes(2000),
    "gzip": b"\x1f\x8b\x08\0\0\0\0\0" + b"q" * 500,
    "a mark and text": BOM + b"text\n",
    "an object after 64 KiB": b"noise\n" * 11_000 + M("a"),
}


@pytest.mark.parametrize("data", NOT_TRANSCRIPTS.values(), ids=NOT_TRANSCRIPTS.keys())
def test_files_of_something_else(
    write: Write, access: str, unchanged: Unchanged, data: bytes
) -> None:
    """A3.3: refused, whatever its name, and left as it was."""
    path = write(data)
    for dialect in (None, "native", "claude"):
        with unchanged(path), pytest.raises(mmapstore.NotATranscriptError) as caught:
            mmapstore.open(path, access=access, dialect=dialect)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, mmapstore.MmapStoreError)
        assert caught.value.path == str(path)
        assert str(path) in str(caught.value)


TRANSCRIPTS_AFTER_ALL = {
    "one object behind noise": b"noise\n" * 10_000 + M("a"),
    "a lone brace": b"{",
    "an unclosed object of 64 KiB": b'{"a":"' + b"x" * 70_000,
    "an object behind blanks": b"\n \n\t\r\n" * 100 + M("a"),
    "an object behind binary": bytes(range(11, 256)) + b"\n" + M("a"),
    "an indented object": b"   " + M("a"),
}


@pytest.mark.parametrize("data", TRANSCRIPTS_AFTER_ALL.values(), ids=TRANSCRIPTS_AFTER_ALL.keys())
def test_files_that_are_transcripts_after_all(
    write: Write, access: str, unchanged: Unchanged, data: bytes
) -> None:
    """One line within the first 64 KiB that begins with a brace is enough."""
    path = write(data)
    with unchanged(path), mmapstore.open(path, access=access) as t:
        assert t.message_count == (1 if data.endswith(b"}\n") else 0)


@pytest.mark.parametrize("magic", [b"\x28\xb5\x2f\xfd"])
@pytest.mark.parametrize("tail", [b"z" * 500, b"z\n{\n", b""])
def test_compressed_files(write: Write, unchanged: Unchanged, magic: bytes, tail: bytes) -> None:
    """A .jsonl.zst is named for what it is, with the way to unpack it."""
    path = write(magic + tail, "rollout.jsonl.zst")
    with unchanged(path), pytest.raises(mmapstore.NotATranscriptError) as caught:
        mmapstore.open(path)
    assert "zstd" in str(caught.value)
    assert "zstd -d" in (caught.value.hint or "")


_OPENS_WITHOUT_WAITING = """
import sys, mmapstore
try:
    mmapstore.open(sys.argv[1])
except mmapstore.NotATranscriptError as error:
    print(error.path, error.hint, error)
"""


@pytest.mark.parametrize("special", ["directory", "FIFO", "socket", "/dev/null", "/dev/zero"])
def test_special_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, special: str) -> None:
    """A3.3: refused at once: no directory is read, no FIFO waited for, no device drained."""
    path = tmp_path / "t.jsonl"
    holder = None
    match special:
        case "directory":
            path.mkdir()
        case "FIFO":
            os.mkfifo(path)
        case "socket":
            holder = socket.socket(socket.AF_UNIX)
            monkeypatch.chdir(tmp_path)  # the name of a socket has to be short
            holder.bind(path.name)
        case _:
            path = Path(special)
    before = path.lstat()
    try:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", _OPENS_WITHOUT_WAITING, str(path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert str(path) in result.stdout
        assert ".jsonl" in result.stdout
    finally:
        if holder is not None:
            holder.close()
    after = path.lstat()
    assert (before.st_mode, before.st_mtime_ns, before.st_ino) == (
        after.st_mode,
        after.st_mtime_ns,
        after.st_ino,
    )


def test_a_special_file_in_place_of_the_transcript(write: Write, access: str) -> None:
    """A refresh meets the same guards as an open; what was served still is."""
    path = write(HEADER + M("a"))
    with mmapstore.open(path, access=access) as t:
        path.unlink()
        path.mkdir()
        with pytest.raises(mmapstore.NotATranscriptError):
            t.refresh()
        path.rmdir()
        os.mkfifo(path)
        with pytest.raises(mmapstore.NotATranscriptError):
            t.refresh()
        path.unlink()
        path.write_bytes(b"a log now\n")
        with pytest.raises(mmapstore.NotATranscriptError):
            t.refresh()
        assert t.window().message_ids == ["a"]
        path.write_bytes(HEADER + M("b"))
        assert t.refresh()
        assert t.window().message_ids == ["b"]


def test_paths_that_lead_nowhere(write: Write, tmp_path: Path) -> None:
    """The system's own errors pass unchanged."""
    path = write(HEADER)
    for target, kind, code in (
        (tmp_path / "missing.jsonl", FileNotFoundError, errno.ENOENT),
        (tmp_path / "no" / "such" / "t.jsonl", FileNotFoundError, errno.ENOENT),
        (path / "t.jsonl", NotADirectoryError, errno.ENOTDIR),
        (tmp_path / ("x" * 300), OSError, errno.ENAMETOOLONG),
        ("", FileNotFoundError, errno.ENOENT),
    ):
        with pytest.raises(kind) as caught:
            mmapstore.open(target)
        assert type(caught.value) is kind
        assert caught.value.errno == code
        assert caught.value.filename == os.fspath(target)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match="symbolic links") as looped:
        mmapstore.open(loop)
    assert looped.value.errno == errno.ELOOP
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["loop", "t.jsonl"]


def test_a_file_that_may_not_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission errors and errors of the disk pass unchanged; nothing is guessed from them."""
    path = write(HEADER + M("a"))
    for code, kind in (
        (errno.EACCES, PermissionError),
        (errno.EIO, OSError),
        (errno.ESTALE, OSError),
    ):

        def refuse(*args: object, code: int = code, **kwargs: object) -> int:
            raise OSError(code, os.strerror(code), str(path))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(kind) as caught:
                mmapstore.open(path)
            assert caught.value.errno == code
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", refuse)
            patch.setattr(os, "preadv", refuse)
            with pytest.raises(kind) as caught:
                mmapstore.open(path, access="pread")
            assert caught.value.errno == code


@pytest.mark.parametrize("target", [None, 1.5, ["t.jsonl"], object()])
def test_what_is_no_path(target: Any) -> None:
    with pytest.raises(TypeError):
        mmapstore.open(target)


def test_a_path_with_a_nul() -> None:
    with pytest.raises(ValueError, match="null"):
        mmapstore.open("a\0b")


def test_every_way_to_spell_a_path(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(HEADER + M("a"), "é 行\u2028.jsonl")
    monkeypatch.chdir(path.parent)
    link = path.with_name("link.jsonl")
    link.symlink_to(path)
    for spelled in (path, str(path), os.fsencode(path), path.name, Path(path.name), link):
        with mmapstore.open(spelled) as t:
            assert t.path == os.fsdecode(spelled)
            assert t.window().message_ids == ["a"]
    undecodable = os.fsencode(path.parent) + b"/\xff.jsonl"
    os.link(path, undecodable)
    with mmapstore.open(undecodable) as t:
        assert t.window().message_ids == ["a"]
        with pytest.raises(mmapstore.MessageNotFoundError) as caught:
            t.message("x")
        assert str(caught.value)


# -- keywords -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("dialect", "klingon"),
        ("dialect", ""),
        ("dialect", "Native"),
        ("dialect", "native "),
        ("access", "fast"),
        ("access", ""),
        ("access", None),
        ("trust", "all"),
        ("trust", None),
        ("trust", True),
    ],
)
def test_unknown_choices(write: Write, unchanged: Unchanged, keyword: str, value: Any) -> None:
    """A ValueError that names what is known, raised before the path is looked at."""
    path = write(HEADER + M("a"))
    with unchanged(path):
        for target in (path, path.with_name("missing")):
            with pytest.raises(ValueError, match="unknown") as caught:
                mmapstore.open(target, **{keyword: value})
            assert repr(value) in str(caught.value)
            assert any(name in str(caught.value) for name in ("native", "mmap", "append-only"))


def test_keywords_are_keywords(write: Write) -> None:
    path = write(HEADER + M("a"))
    with pytest.raises(TypeError):
        mmapstore.open(path, "native")  # type: ignore[misc]
    with pytest.raises(TypeError):
        mmapstore.open(path, dialekt="native")  # type: ignore[call-arg]
    with mmapstore.open(path) as t, pytest.raises(TypeError):
        t.window(1)  # type: ignore[misc]


@pytest.mark.parametrize(
    "name",
    [
        "native",
        "claude",
        "codex",
        "codex-2025",
        "pi",
        "copilot",
        "gemini",
        "kimi",
        "droid",
        "droid-stream",
        "qwen",
        "cursor",
        "grok",
        "antigravity",
        "generic",
    ],
)
def test_a_known_dialect_is_obeyed(write: Write, name: str) -> None:
    """Whatever the file looks like."""
    with mmapstore.open(write(HEADER + M("a") + C("x")), dialect=name) as t:
        assert t.dialect.name == name
        assert t.layout.line_count == 3


# -- arguments ------------------------------------------------------------------------------


@pytest.fixture
def three(write: Write, access: str, unchanged: Unchanged) -> Any:
    path = write(HEADER + M("a") + M("b") + M("c"))
    with unchanged(path), mmapstore.open(path, access=access) as t:
        yield t


@pytest.mark.parametrize(
    "kwargs",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": -(10**30)},
        {"before": -1},
        {"after": -1},
        {"before": 2, "limit": 0},
        {"after": 0, "limit": -5},
        {"around": "a", "limit": 0},
        {"max_nbytes": 0},
        {"max_nbytes": -1},
        {"before": 1, "after": 1},
        {"before": 0, "after": 0},
        {"before": 1, "around": "a"},
        {"after": 1, "around": "a"},
        {"before": 1, "after": 1, "around": "a"},
        {"before": -1, "around": "no such"},
    ],
    ids=repr,
)
def test_windows_that_make_no_sense(three: mmapstore.Transcript, kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        three.window(**kwargs)
    assert not isinstance(caught.value, mmapstore.MmapStoreError)


@pytest.mark.parametrize(
    "kwargs",
    [
        {key: value}
        for key in ("limit", "before", "after", "max_nbytes")
        for value in (1.0, 0.5, "1", b"1", [1], {}, float("nan"), 1j)
    ]
    + [{"around": value} for value in (1, 1.5, b"a", ["a"], {})]
    + [{"before": None, "limit": "1"}],
    ids=repr,
)
def test_windows_of_no_integers(three: mmapstore.Transcript, kwargs: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        three.window(**kwargs)


@pytest.mark.parametrize("kind", [int, np.int8, np.int64, np.uint64])
def test_integers_of_any_make(three: mmapstore.Transcript, kind: type) -> None:
    """What an offset array or another library counts with is an integer."""
    w = three.window(before=kind(2), limit=kind(1), max_nbytes=kind(100))
    assert (w.start, w.stop) == (1, 2)
    assert type(w.start) is type(w.stop) is int
    assert three[kind(1)]["id"] == "b"
    assert bytes(three.line(kind(1))) == M("b")
    assert bytes(w.lines[kind(0)]) == M("b")
    assert [m["id"] for m in three.iter(kind(1), kind(2))] == ["b"]


def test_positions_past_the_end_are_clamped(three: mmapstore.Transcript) -> None:
    huge = 10**30
    for kwargs, expected in (
        ({"before": huge}, (0, 3)),
        ({"before": huge, "limit": 2}, (1, 3)),
        ({"after": huge}, (3, 3)),
        ({"after": 3}, (3, 3)),
        ({"after": 2, "limit": huge}, (2, 3)),
        ({"before": 0}, (0, 0)),
        ({"before": 0, "limit": None}, (0, 0)),
        ({"limit": huge, "max_nbytes": huge}, (0, 3)),
        ({"before": 2, "limit": None}, (0, 2)),
        ({"after": 1, "limit": None}, (1, 3)),
        ({"around": "b", "limit": None}, (0, 3)),
        ({"around": "b", "limit": huge}, (0, 3)),
        ({"around": "b", "limit": 1}, (1, 2)),
    ):
        w = three.window(**kwargs)
        assert (w.start, w.stop) == expected, kwargs
        assert (w.has_before, w.has_after) == (expected[0] > 0, expected[1] < 3)


def test_where_around_puts_its_message(write: Write) -> None:
    """At limit // 2; near an end the window is as full as the transcript allows."""
    total = 9
    path = write(HEADER + b"".join(M(str(position)) for position in range(total)))
    with mmapstore.open(path) as t:
        for position in range(total):
            for limit in range(1, total + 3):
                w = t.window(around=str(position), limit=limit)
                assert len(w) == min(limit, total)
                assert w.start <= position < w.stop
                if position - w.start != limit // 2:
                    assert w.start == 0 or w.stop == total


@pytest.mark.parametrize("position", [-1, -3, 3, 4, 10**30, -(10**30)])
def test_positions_outside(three: mmapstore.Transcript, position: int) -> None:
    for look in (three.__getitem__, three.line, three.message_id):
        with pytest.raises(mmapstore.PositionError) as caught:
            look(position)
        assert isinstance(caught.value, IndexError)
        assert caught.value.path == three.path


@pytest.mark.parametrize("position", [1.0, "1", None, slice(0, 1), [1], b"\x01"])
def test_positions_of_another_type(three: mmapstore.Transcript, position: Any) -> None:
    for look in (three.__getitem__, three.line, three.message_id):
        with pytest.raises(TypeError):
            look(position)


@pytest.mark.parametrize("value", [None, 1, 1.5, b"a", ["a"], {"id": "a"}])
def test_ids_of_another_type(three: mmapstore.Transcript, value: Any) -> None:
    for look in (three.position, three.message, three.tool_parent):
        with pytest.raises(TypeError):
            look(value)


@pytest.mark.parametrize(
    "value", ["", "A", "a ", "a\0", "@", "@-1", "@0", "\ud800", "é", "x" * 10_000]
)
def test_ids_of_nobody(three: mmapstore.Transcript, value: str) -> None:
    assert three.position(value) is None
    for look in (three.message, three.tool_parent, lambda i: three.window(around=i)):
        with pytest.raises(mmapstore.MessageNotFoundError) as caught:
            look(value)
        assert isinstance(caught.value, KeyError)
        assert caught.value.path == three.path
        assert three.path in str(caught.value)


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((-1,), ValueError),
        ((0, -1), ValueError),
        ((1.0,), TypeError),
        ((0, "1"), TypeError),
        ((None,), TypeError),
    ],
)
def test_iteration_over_no_range(
    three: mmapstore.Transcript, args: tuple[Any, ...], error: type[Exception]
) -> None:
    """Said by the call, not by the first step."""
    with pytest.raises(error):
        three.iter(*args)


def test_lines_are_a_sequence(three: mmapstore.Transcript) -> None:
    lines = three.window().lines
    assert bytes(lines[-1]) == M("c")
    assert [bytes(line) for line in lines[1:]] == [M("b"), M("c")]
    assert [bytes(line) for line in lines[::-2]] == [M("c"), M("a")]
    assert [bytes(line) for line in reversed(lines)] == [M("c"), M("b"), M("a")]
    assert M("b") in [bytes(line) for line in lines]
    for index in (3, -4, 10**30):
        with pytest.raises(IndexError):
            lines[index]
    for index in ("0", 1.0, None):
        with pytest.raises(TypeError):
            lines[index]  # type: ignore[index]
    with pytest.raises(TypeError):
        lines[0][0] = 0
    with pytest.raises((IndexError, TypeError)):
        three.window().compactions[0]


def test_layouts_cannot_be_written(three: mmapstore.Transcript) -> None:
    layout = three.layout
    for array in (
        layout.message_offsets,
        layout.compaction_offsets,
        layout.review_offsets,
        layout.messages.starts,
        layout.messages.ends,
        layout.compactions.ends,
        layout.reviews.starts,
    ):
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        layout.message_offsets[0] = 1
    with pytest.raises((AttributeError, TypeError)):
        layout.file_len = 0  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        layout.message_offsets = layout.review_offsets  # type: ignore[misc]


def test_errors_say_what_where_and_what_to_do(write: Write) -> None:
    path = write(HEADER + M("a") + b'{"type":"message","id":"b",}\n')
    with mmapstore.open(path) as t:
        with pytest.raises(mmapstore.LineDecodeError) as caught:
            t[1]
        error = caught.value
        assert (error.path, error.offset, error.line_number) == (str(path), len(HEADER + M("a")), 3)
        assert all(part in str(error) for part in (str(path), str(error.offset), "3", error.reason))
        assert isinstance(error, ValueError)
    for error_type in (
        mmapstore.LineDecodeError,
        mmapstore.MessageNotFoundError,
        mmapstore.NotATranscriptError,
        mmapstore.PositionError,
        mmapstore.TranscriptChangedError,
    ):
        assert issubclass(error_type, mmapstore.MmapStoreError)
    assert not issubclass(mmapstore.MmapStoreError, OSError | ValueError)
