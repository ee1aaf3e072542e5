"""What was found by trying to break the library: each kind stays mended."""

import gc
import os
import threading
from pathlib import Path

import pytest

import mmapstore
from mmapstore import detect
from mmapstore.dialect import DIALECTS

HEADER = b'{"type":"session","schema":2,"sessionId":"s"}\n'
MESSAGE = b'{"type":"message","id":"m1","role":"user","blocks":[]}\n'
CLAUDE = b'{"parentUuid":null,"type":"user","uuid":"u1","message":{"role":"user","content":"hi"}}\n'
QWEN = b'{"uuid":"q","sessionId":"s","type":"user","version":"1","message":{"parts":[]}}\n'
GROK = b'{"type":"user","content":"hi"}\n'
FIRST = [
    MESSAGE,
    CLAUDE,
    QWEN,
    GROK,
    HEADER + MESSAGE,
    b'{"type":"compaction","id":"c","throughMessageId":"m"}\n',
]


@pytest.mark.parametrize("then", [MESSAGE, CLAUDE, QWEN, GROK])
@pytest.mark.parametrize("first", FIRST)
def test_what_is_appended_never_changes_the_dialect(tmp_path: Path, first: bytes, then: bytes):
    path = tmp_path / "x.jsonl"
    path.write_bytes(first)
    with mmapstore.open(path, trust="append-only") as grown:
        name = grown.dialect.name
        assert name != "generic"
        for cut in (len(then) - 1, len(then)):  # torn, then whole
            path.write_bytes(first + then[:cut])
            grown.refresh()
            with mmapstore.open(path) as cold:
                assert cold.dialect.name == grown.dialect.name == name
                assert cold.layout.message_offsets.tolist() == grown.layout.message_offsets.tolist()


def test_a_relative_path_is_judged_by_where_it_was_opened(tmp_path: Path, monkeypatch):
    folder = tmp_path / ".claude" / "projects" / "x"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    Path("s.jsonl").write_bytes(b'{"type":"summary","x":1}\n{"type":"user","uuid":"u"}\n')
    with mmapstore.open("s.jsonl") as t:
        assert (t.dialect.name, len(t)) == ("claude", 1)
        monkeypatch.chdir("/")
        with (folder / "s.jsonl").open("ab") as file:
            file.write(b'{"type":"user","uuid":"u2"}\n')
        t.refresh()
        assert (t.dialect.name, len(t)) == ("claude", 2)


def test_verification_of_a_file_that_has_shrunk_says_so(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEADER + MESSAGE * 100)
    with mmapstore.open(path, access="pread") as t:
        os.truncate(path, 200)
        with pytest.raises(mmapstore.TranscriptChangedError):
            list(t.verify())


def test_a_file_that_shrinks_during_the_scan_is_seen_as_it_is(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEADER + MESSAGE * 100_000)

    def shrink(done: int, total: int) -> None:
        if path.stat().st_size > 200:
            os.truncate(path, 200)

    with mmapstore.open(path, access="pread", progress=shrink) as t:
        assert len(t) == (200 - len(HEADER)) // len(MESSAGE)
        assert t.torn_nbytes == len(t.torn_tail)


@pytest.mark.parametrize(
    "line", [b'{"id":"a","id":"b","type":"message"}\n', b'{"\\u0069d":"b","type":"message"}\n']
)
def test_the_id_that_a_window_shows_is_the_id_that_is_found(tmp_path: Path, line: bytes):
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEADER + line)
    with mmapstore.open(path) as t:
        assert t.window().message_ids == [t.message_id(0)] == ["b"]
        assert t.position("b") == 0
        assert t.position("a") is None


def test_a_tool_call_is_held_by_the_newest_tool_message_that_has_it(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    line = b'{"type":"message","id":"%s","role":"%s","blocks":[{"callId":"%s"}]}\n'
    path.write_bytes(
        HEADER
        + line % (b"m", b"tool", b"c1")
        + line % (b"m", b"tool", b"c2")
        + line % (b"t", b"tool", b"c3")
        + line % (b"q", b"assistant", b"c3")
    )
    with mmapstore.open(path) as t:
        assert t.tool_parent("c1")["blocks"] == [{"callId": "c1"}]
        assert t.tool_parent("c2")["blocks"] == [{"callId": "c2"}]
        assert t.tool_parent("c3")["id"] == "t"


def test_a_refresh_asked_for_within_a_refresh_returns(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEADER + MESSAGE)
    opened: list[mmapstore.Transcript] = []
    inner: list[mmapstore.Refresh] = []
    t = mmapstore.open(
        path, progress=lambda done, total: inner.extend(each.refresh() for each in opened)
    )
    opened.append(t)
    path.write_bytes(HEADER + MESSAGE * 2)
    thread = threading.Thread(target=t.refresh, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert inner == [mmapstore.Refresh.SAME]
    assert len(t) == 2


def test_errors_that_are_kept_keep_no_file_open(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"garbage\n")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    errors = []
    for _ in range(5):
        with pytest.raises(mmapstore.NotATranscriptError) as caught:
            mmapstore.open(path)
        errors.append(caught)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_a_file_without_a_size_is_not_an_empty_transcript():
    with pytest.raises(mmapstore.NotATranscriptError):
        mmapstore.open("/proc/self/status")


def test_detection_looks_at_a_bounded_number_of_lines(monkeypatch):
    looked_at = []
    judge = detect._line_matches
    monkeypatch.setattr(
        detect, "_line_matches", lambda *args: looked_at.append(args) or judge(*args)
    )
    detect.detect("/x.jsonl", b"{}\n" * (detect.DETECTION_NBYTES // 3))
    signatures = sum(len(dialect.signatures) for dialect in DIALECTS)
    assert len(looked_at) <= detect.DETECTION_COUNT * signatures


@pytest.mark.parametrize(
    "line", [b"\n", b"\r\n", b"x\n", b'{"a":1}\n', b'{"b":1,"type":"message"}\r\n']
)
def test_many_short_lines_are_not_walked_one_by_one(tmp_path: Path, line: bytes, monkeypatch):
    from mmapstore.classify import Classifier

    walked = []
    walk = Classifier._kind_by_walk
    monkeypatch.setattr(
        Classifier, "_kind_by_walk", lambda self, text: walked.append(text) or walk(self, text)
    )
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEADER + line * 5000)
    with mmapstore.open(path) as t:
        assert t.layout.line_count == 5001
    assert len(walked) < 10


def test_a_refresh_that_fails_after_closing_leaves_windows_readable(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(HEADER + MESSAGE * 3)
    opened: list[mmapstore.Transcript] = []

    def interrupt(done: int, total: int) -> None:
        for each in opened:
            each.close()
            raise KeyboardInterrupt

    t = mmapstore.open(path, access="pread", progress=interrupt)
    window = t.window()
    opened.append(t)
    with path.open("ab") as file:
        file.write(MESSAGE)
    with pytest.raises(KeyboardInterrupt):
        t.refresh()
    assert [bytes(line) for line in window.lines] == [MESSAGE] * 3


def test_a_refresh_that_fails_settles_nothing(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n\n")
    interrupted = [False]

    def interrupt(done: int, total: int) -> None:
        if interrupted == [True]:
            raise KeyboardInterrupt

    with mmapstore.open(path, trust="append-only", progress=interrupt) as t:
        with path.open("ab") as file:
            file.write(CLAUDE)
        interrupted[0] = True
        with pytest.raises(KeyboardInterrupt):
            t.refresh()
        interrupted[0] = False
        t.refresh()
        assert (t.dialect.name, len(t)) == ("claude", 1)
