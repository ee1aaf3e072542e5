"""Mappings, descriptors and threads: no signal, no leak and no mixture, whatever happens."""

from __future__ import annotations

import errno
import gc
import json
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mmapstore
from mmapstore import Refresh
from tests.agreement import check_all, native_oracle
from tests.strategies import HEADER, C, M, R

Write = Callable[..., Path]
OpenFds = Callable[[], int]

ROOT = Path(__file__).parent.parent


def in_child(code: str, *args: str) -> Any:
    """Run code that may be killed by a signal; return what it printed, as JSON."""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", code, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# -- A10.1: truncated while open -----------------------------------------------------------

CLAUDE = b"".join(
    b'{"parentUuid":null,"type":"user","message":{"role":"user","content":"%s"},'
    b'"uuid":"u%d","sessionId":"s"}\n' % (b"x" * 900, index)
    for index in range(40)
)
NATIVE = HEADER + b"".join(M(f"m{index}", "x" * 900) for index in range(40))

_UNDER_TRUNCATION = """
import json, os, sys
from pathlib import Path
import mmapstore

path, dialect, access, trust = sys.argv[1:]
bytes_at = lambda: Path(path).read_bytes()
whole = bytes_at()
answers = []
for size in [0, 1, 700, 4096, 5000, len(whole) // 2, len(whole) - 1]:
    for regrow in (False, True):
        with open(path, "wb") as file:
            file.write(whole)
        t = mmapstore.open(path, access=access, trust=trust, cache_dir=None)
        assert t.dialect.name == dialect and t.access == "pread", (t.dialect.name, t.access)
        offsets = t.layout.message_offsets.tolist()
        ends = t.layout.messages.ends.tolist()
        held, touched = t.window(limit=None), t.window(limit=None)
        kept = [bytes(line) for line in touched.lines]
        views = list(touched.lines)
        os.truncate(path, size)
        if regrow:
            os.truncate(path, len(whole) + 4096)
        right = wrong = refused = 0
        for window in (held, t.window(limit=None), t.window(limit=3)):
            for index in range(len(window)):
                position = window.start + index
                try:
                    line = bytes(window.lines[index])
                except mmapstore.TranscriptChangedError as error:
                    assert error.path == path and error.hint and error.offset is not None
                    refused += 1
                else:
                    if line == whole[offsets[position]:ends[position]]:
                        right += 1
                    else:
                        wrong += 1
        for call in (
            lambda: t.window(limit=None).messages, lambda: list(t.iter()), lambda: t[len(t) - 1],
            lambda: t.line(0), lambda: t.position("m0"), lambda: t.message("u0"),
            lambda: t.torn_tail, lambda: list(t.verify()), lambda: t.tool_parent("x"),
            lambda: list(t.window().compactions), lambda: t.window().damaged,
        ):
            try:
                call()
            except (mmapstore.TranscriptChangedError, mmapstore.MessageNotFoundError):
                pass
        # what was read before stays what it was
        assert [bytes(view) for view in views] == kept
        now = bytes_at()
        try:
            result = t.refresh()
        except mmapstore.NotATranscriptError:
            assert regrow and not size  # nothing but NULs is left
            answers.append([right, wrong, refused, None, t.access])
            continue
        survivors = [o for o, e in zip(offsets, ends) if now[o:e] == whole[o:e]]
        assert t.layout.message_offsets.tolist() == survivors, size
        assert [bytes(line) for line in t.window(limit=None).lines] == [
            whole[o:e] for o, e in zip(offsets, ends) if o in survivors
        ]
        answers.append([right, wrong, refused, int(result), t.access])
print(json.dumps(answers))
"""


@pytest.mark.parametrize("trust", ["none", "append-only"])
@pytest.mark.parametrize(
    ("data", "dialect", "access"),
    [(CLAUDE, "claude", "auto"), (CLAUDE, "claude", "pread"), (NATIVE, "native", "pread")],
    ids=["another program's, auto", "another program's, pread", "native, pread"],
)
def test_truncated_while_open(
    write: Write, data: bytes, dialect: str, access: str, trust: str
) -> None:
    """A10.1: an error that says so, or the right bytes; never a signal, never other bytes."""
    answers = in_child(_UNDER_TRUNCATION, str(write(data)), dialect, access, trust)
    assert len(answers) == 14
    for right, wrong, refused, result, access_then in answers:
        assert wrong == 0
        assert refused >= 1
        assert right + refused == 40 + 40 + 3
        assert result in (Refresh.REBUILT, None)
        assert access_then == "pread"
    assert [result for _, _, _, result, _ in answers].count(None) == 1


_MAPPED_THEN_SHRUNK = """
import json, os, sys
import mmapstore

path = sys.argv[1]
t = mmapstore.open(path)
first = t.access
before = t.message_count
keep = int(t.layout.message_offsets[7])
os.truncate(path, keep)
result = int(t.refresh())
second = t.access
lines = b"".join(t.window(limit=None).lines)
with open(path, "ab") as file:
    file.write(lines)
t.refresh()
print(json.dumps([first, before, result, second, lines.count(b"\\n"), t.access, t.message_count]))
"""


def test_after_a_shrink_nothing_is_mapped(write: Write) -> None:
    """A10.1: who truncates once may do it again: from then on the file is read, not mapped."""
    assert in_child(_MAPPED_THEN_SHRUNK, str(write(NATIVE))) == [
        "mmap",
        40,
        Refresh.REBUILT,
        "pread",
        7,
        "pread",
        14,
    ]


_SHRUNK_UNDER_A_SCAN = """
import json, os, sys
from pathlib import Path
import mmapstore

path = sys.argv[1]
whole = Path(path).read_bytes()
calls = []

def shrink(done, total):
    # in the middle of the scan, between one read and the next
    if not calls:
        os.truncate(path, 5000)
    calls.append(done)

t = mmapstore.open(path, access="pread", progress=shrink)
opened = [t.message_count, t.nbytes]
served = []
for position in range(len(t)):
    try:
        served.append(bytes(t.line(position)) in whole)
    except mmapstore.TranscriptChangedError:
        served.append(None)
t.refresh()
print(json.dumps([len(calls), served.count(False), opened, [t.message_count, t.nbytes]]))
"""


def test_truncated_during_the_scan(write: Write) -> None:
    """A10.1: a file that shrinks while it is being read."""
    data = HEADER + b"".join(M(f"m{index}", "x" * 9000) for index in range(2000))
    path = write(data)
    calls, false, opened, refreshed = in_child(_SHRUNK_UNDER_A_SCAN, str(path))
    assert calls >= 2
    assert false == 0
    assert opened == refreshed == [0, 5000]  # never a mixture of two states


@pytest.mark.parametrize("how", ["inside a line", "a newline more", "no object", "moved by one"])
def test_edited_in_place_under_a_layout(write: Write, access: str, how: str) -> None:
    """Each line is checked when it is touched: what was changed is not served as a line."""
    data = HEADER + M("a") + M("b", "x" * 60) + M("c")
    path = write(data)
    start = data.index(M("b", "x" * 60))
    with mmapstore.open(path, access=access) as t:
        w = t.window()
        changed = bytearray(data)
        match how:
            case "inside a line":
                changed[start + 55] = 0x0A
            case "a newline more":
                changed[start + len(M("b", "x" * 60)) - 1] = 0x20
            case "no object":
                changed[start] = 0x5B
            case "moved by one":
                changed = bytearray(data[:start] + b" " + data[start:-1])
        with path.open("r+b") as file:
            file.write(changed)
        # a line whose own bytes are intact, and that no longer begins at a line start
        touched = 2 if how == "a newline more" else 1
        with pytest.raises(mmapstore.TranscriptChangedError) as caught:
            bytes(w.lines[touched])
        assert isinstance(caught.value, RuntimeError)
        assert caught.value.path == t.path
        for look in (
            lambda: t[touched],
            lambda: t.line(touched),
            lambda: t.window(after=touched).messages,
            lambda: t.window(after=touched).lines[0],
            lambda: t.window().messages,
            lambda: list(t.iter()),
        ):
            with pytest.raises(mmapstore.TranscriptChangedError):
                look()
        assert t.refresh() is Refresh.REBUILT
        check_all(t, native_oracle(bytes(changed)))


def test_a_failed_check_makes_the_next_refresh_read_anew(write: Write) -> None:
    """Whatever the stamp says: a layout that was caught once is not trusted again."""
    data = HEADER + M("a") + M("b")
    path = write(data)
    with mmapstore.open(path, access="mmap") as t:
        generation = t.generation
        start = data.index(M("b"))
        # a store through a shared mapping, which need not move the stamp
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            mapped[start] = 0x5B
            with pytest.raises(mmapstore.TranscriptChangedError):
                t.line(1)
            mapped[start] = 0x7B
        assert t.refresh() is Refresh.REBUILT
        assert t.generation > generation
        check_all(t, native_oracle(data))


# -- A10.2: nothing to map -------------------------------------------------------------


@pytest.mark.parametrize("trust", ["none", "append-only"])
def test_empty_then_grown_then_empty(write: Write, access: str, trust: str) -> None:
    """A10.2: an empty file is an empty transcript, sees its growth, and may become empty again."""
    path = write(b"")
    with mmapstore.open(path, access=access, trust=trust) as t:
        assert (t.nbytes, t.message_count, t.torn_tail) == (0, 0, b"")
        assert t.refresh() is Refresh.SAME
        path.write_bytes(HEADER + M("a"))
        assert t.refresh() is Refresh.REBUILT
        assert t.window().message_ids == ["a"]
        empty = path.with_suffix(".new")
        empty.write_bytes(b"")
        os.replace(empty, path)
        assert t.refresh() is Refresh.REBUILT
        assert (t.nbytes, t.message_count) == (0, 0)
        assert len(t.window().lines) == 0
        with path.open("ab") as file:
            file.write(HEADER + M("b"))
        assert t.refresh() is Refresh.REBUILT
        assert t.window().message_ids == ["b"]


# -- A10.3: views outlive everything ----------------------------------------------------------

OLD = HEADER + M("a", "old") + M("b", "old") + C("x") + R("a", "s", "y")


def happenings(path: Path, t: mmapstore.Transcript) -> dict[str, Callable[[], object]]:
    def append() -> None:
        with path.open("ab") as file:
            file.write(M("c"))

    def replace(data: bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(data)
        os.replace(new, path)

    return {
        "append": append,
        "append and refresh": lambda: (append(), t.refresh()),
        "replace": lambda: replace(HEADER + M("z", "new")),
        "replace and refresh": lambda: (replace(HEADER + M("z", "new")), t.refresh()),
        "replace by nothing": lambda: (replace(b""), t.refresh()),
        "replace by the same length": lambda: (replace(OLD.replace(b"old", b"new")), t.refresh()),
        "unlink": path.unlink,
        "close": lambda: t.close(),
        "close twice": lambda: (t.close(), t.close()),
        "replace and close": lambda: (replace(b""), t.refresh(), t.close()),
    }


@pytest.mark.parametrize("what", list(happenings(Path(), None)))  # type: ignore[arg-type]
def test_views_and_windows_keep_their_content(write: Write, access: str, what: str) -> None:
    """A10.3: what was handed out stays as it was, touched before or not."""
    path = write(OLD)
    t = mmapstore.open(path, access=access)
    touched, untouched, undecoded = t.window(), t.window(), t.window()
    views = [*touched.lines, t.line(0)]
    texts = [bytes(view) for view in views]
    messages = list(touched.messages)
    iterator = t.iter()
    next(iterator)
    happenings(path, t)[what]()
    del t
    gc.collect()
    assert [bytes(view) for view in views] == texts
    assert [bytes(line) for line in touched.lines] == texts[:2]
    assert [bytes(line) for line in untouched.lines] == texts[:2]
    assert list(undecoded.messages) == messages
    assert [c["id"] for c in undecoded.compactions] == ["x"]
    assert [m["id"] for m in iterator] == ["b"]
    assert (untouched.start, untouched.stop, untouched.total) == (0, 2, 2)


def test_what_is_closed_says_so(write: Write, access: str) -> None:
    """Use after close is a ValueError; a window from before is not."""
    t = mmapstore.open(write(OLD), access=access)
    w = t.window()
    with t as same:
        assert same is t
    t.close()
    uses: list[Callable[[], object]] = [
        lambda: t.window(),
        lambda: t.message_count,
        lambda: len(t),
        lambda: t.layout,
        lambda: t.generation,
        lambda: t.dialect,
        lambda: t.access,
        lambda: t.nbytes,
        lambda: t.torn_nbytes,
        lambda: t.torn_tail,
        lambda: t[0],
        lambda: t.line(0),
        lambda: t.iter(),
        lambda: t.position("a"),
        lambda: t.message("a"),
        lambda: t.message_id(0),
        lambda: t.tool_parent("a"),
        lambda: t.refresh(),
        lambda: list(t.verify()),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="closed"):
            use()
    assert t.path in repr(t)
    assert w.message_ids == ["a", "b"]


# -- descriptors and mappings ----------------------------------------------------------------


def test_descriptors_return_to_the_baseline(write: Write, access: str, open_fds: OpenFds) -> None:
    """Opening, growing, replacing, closing: nothing stays open but what a view needs."""
    path = write(OLD)
    gc.collect()
    baseline = open_fds()
    for _ in range(20):
        with mmapstore.open(path, access=access) as t:
            t.window().messages  # noqa: B018
            with path.open("ab") as file:
                file.write(M("c"))
            t.refresh()
            new = path.with_suffix(".new")
            new.write_bytes(OLD)
            os.replace(new, path)
            t.refresh()
            assert t.position("a") == 0
    gc.collect()
    assert open_fds() == baseline
    t = mmapstore.open(path, access=access)
    w = t.window()
    view = t.line(0)
    t.close()
    assert bytes(view) == bytes(w.lines[0])
    del t, w, view
    gc.collect()
    assert open_fds() == baseline


@pytest.mark.parametrize("data", [b"garbage\n" * 10, b"\x28\xb5\x2f\xfd" + b"z" * 90])
def test_refusals_leave_nothing_open(write: Write, open_fds: OpenFds, data: bytes) -> None:
    path = write(data)
    baseline = open_fds()
    for target in (path, path.parent, path / "x", path.with_name("missing")):
        with pytest.raises((mmapstore.NotATranscriptError, OSError)):
            mmapstore.open(target)
        with pytest.raises(ValueError, match="unknown"):
            mmapstore.open(target, access="fast")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="unknown"):
            mmapstore.open(target, dialect="klingon")
    gc.collect()
    assert open_fds() == baseline


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_scan_leaves_nothing_behind(
    write: Write, access: str, open_fds: OpenFds, interruption: type[BaseException]
) -> None:
    """Ctrl-C while opening, and while refreshing: the old generation is served, nothing is open."""
    path = write(OLD)
    baseline = open_fds()
    armed = [True]

    def progress(done: int, total: int) -> None:
        assert 0 < done <= total
        if armed[0]:
            raise interruption

    with pytest.raises(interruption):
        mmapstore.open(path, access=access, progress=progress)
    gc.collect()
    assert open_fds() == baseline
    armed[0] = False
    with mmapstore.open(path, access=access, progress=progress) as t:
        generation = t.generation
        new = path.with_suffix(".new")
        new.write_bytes(HEADER + M("n"))
        os.replace(new, path)
        armed[0] = True
        with pytest.raises(interruption):
            t.refresh()
        assert t.generation == generation
        assert t.window().message_ids == ["a", "b"]
        armed[0] = False
        assert t.refresh() is Refresh.REBUILT
        assert t.window().message_ids == ["n"]
    gc.collect()
    assert open_fds() == baseline


def test_progress_counts_all_bytes(write: Write, access: str) -> None:
    calls: list[tuple[int, int]] = []
    data = HEADER + M("a", "x" * (20 << 20)) + M("b") + b"torn"
    path = write(data)
    with mmapstore.open(
        path, access=access, progress=lambda *call: calls.append(call), cache_dir=None
    ) as t:
        assert t.message_count == 2
    assert len(calls) >= 2
    assert calls == sorted(calls)
    assert {total for _, total in calls} == {len(data)}
    assert calls[-1][0] == len(data)


_FEW_DESCRIPTORS = """
import gc, json, os, resource, sys
import mmapstore

path = sys.argv[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
count = lambda: len(os.listdir("/proc/self/fd"))
baseline = count()
accesses, answers, failures = [], set(), set()
for spare in (0, 1):
    # of an odd number of descriptors the last is enough to open and not to map
    spares = [os.dup(0) for _ in range(spare)]
    held = []
    try:
        while len(held) < 100:
            held.append(mmapstore.open(path, cache_dir=None))
    except OSError as error:
        failures.add(error.errno)
    accesses += [t.access for t in held]
    answers |= {tuple(t.window().message_ids) for t in held}
    answers |= {bytes(t.line(0)).decode() for t in held}
    for fd in spares:
        os.close(fd)
    del held
    gc.collect()
after = count()
for _ in range(300):
    with mmapstore.open(path) as t:
        t.window().messages
        t.refresh()
del t
gc.collect()
print(json.dumps([accesses.count("mmap"), accesses.count("pread"), len(answers), list(failures),
                  after - baseline, count() - baseline]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="lists its descriptors in /proc")
def test_sixty_four_descriptors(write: Write) -> None:
    """Each mapping takes a descriptor of its own: when they run out, files are read instead."""
    mapped, read, answers, failures, left, left_later = in_child(_FEW_DESCRIPTORS, str(write(OLD)))
    assert mapped > 40
    assert read >= 1
    assert answers == 2
    assert failures == [errno.EMFILE]
    assert (left, left_later) == (0, 0)


@pytest.mark.parametrize(
    "code", [errno.ENODEV, errno.ENOMEM, errno.EMFILE, errno.EINVAL, errno.EACCES]
)
def test_mapping_refused(
    write: Write, monkeypatch: pytest.MonkeyPatch, open_fds: OpenFds, code: int
) -> None:
    """A10.5: under auto the file is read, with the same answers; mmap asked for is an error."""
    path = write(OLD)
    baseline = open_fds()

    def refuse(*args: object, **kwargs: object) -> mmap.mmap:
        raise OSError(code, os.strerror(code))

    with mmapstore.open(path) as t:
        assert t.access == "mmap"
        monkeypatch.setattr(mmap, "mmap", refuse)
        path.write_bytes(OLD + M("c"))
        assert t.refresh() is Refresh.REBUILT
        assert t.access == "pread"
        check_all(t, native_oracle(OLD + M("c")))
    with mmapstore.open(path) as t:
        assert t.access == "pread"
        check_all(t, native_oracle(OLD + M("c")))
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        mmapstore.open(path, access="mmap")
    assert caught.value.errno == code
    del caught
    gc.collect()
    assert open_fds() == baseline


def test_who_is_mapped(write: Write) -> None:
    """auto maps native transcripts alone; what is asked for by name is obeyed."""
    native, other = write(OLD, "n.jsonl"), write(CLAUDE, "c.jsonl")
    generic, empty = write(b'{"a":1}\n', "g.jsonl"), write(b"", "e.jsonl")
    assert mmapstore.open(native).access == "mmap"
    for path in (other, generic, empty):
        assert mmapstore.open(path).access == "pread"
        assert mmapstore.open(path, access="mmap").access == "mmap"
        assert mmapstore.open(path, access="pread").access == "pread"
    assert mmapstore.open(native, access="pread").access == "pread"
    assert mmapstore.open(other, dialect="native").access == "mmap"
    assert mmapstore.open(native, dialect="claude").access == "pread"


# -- threads -----------------------------------------------------------------------------


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads take turns so often that they meet in the middle of things."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_threads")
def test_a_window_never_mixes_generations(write: Write, access: str) -> None:
    """Readers while one thread refreshes: each window is of one version of the file, whole."""
    versions = 60

    def version(number: int) -> bytes:
        text = f"v{number:03}" * (1 + number % 5)
        count = 20 + number % 7
        lines = [M(f"m{index}", text) for index in range(count)]
        return HEADER + b"".join(lines) + C(text)

    path = write(version(0))
    t = mmapstore.open(path, access=access)
    done = threading.Event()
    started = threading.Barrier(4)
    failures: list[object] = []
    seen: set[str] = set()

    def read() -> None:
        started.wait(30)
        try:
            while not done.is_set():
                look()
            look()
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    def look() -> None:
        w = t.window(limit=None)
        lines = [bytes(line) for line in w.lines]
        texts = {m["blocks"][0]["text"] for m in w.messages}
        (text,) = texts
        number = int(text[1:4])
        assert lines == version(number).split(b"\n", 1)[1].splitlines(keepends=True)[: w.total]
        assert w.total == 20 + number % 7
        assert [c["id"] for c in w.compactions] == [text]
        assert t.message("m3")["id"] == "m3"
        seen.add(text)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    started.wait(30)
    new = path.with_suffix(".new")
    try:
        for number in range(1, versions):
            new.write_bytes(version(number))
            os.replace(new, path)
            assert t.refresh() is Refresh.REBUILT
    finally:
        done.set()
        for reader in readers:
            reader.join(60)
    assert failures == []
    assert not any(reader.is_alive() for reader in readers)
    assert t.window().messages[0]["blocks"][0]["text"].startswith(f"v{versions - 1:03}")
    assert seen
    t.close()


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_ask_at_once(write: Write, access: str) -> None:
    """What a generation works out once may be asked for by many threads at the same time."""
    lines = [M(f"m{index}", role="tool") for index in range(500)]
    path = write(HEADER + b"".join(lines) + b"".join(R(f"m{i}", "s", "x") for i in range(500)))
    for _ in range(5):
        with mmapstore.open(path, access=access) as t:
            barrier = threading.Barrier(4)
            answers: list[object] = []

            def ask(
                t: mmapstore.Transcript = t,
                barrier: threading.Barrier = barrier,
                answers: list[object] = answers,
            ) -> None:
                barrier.wait(30)
                w = t.window(around="m250", limit=9)
                answers.append(
                    (t.position("m499"), w.start, len(w.messages), t.message("m7")["id"])
                )

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert answers == [(499, 246, 9, "m7")] * 4
