"""``mmapstore tail --follow``: the newest messages, then those that come, as they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

import mmapstore
from mmapstore.cli import following, main
from mmapstore.cli import tail as tail_module

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-W", "error", "-m", "mmapstore", "tail", "--follow"]
HEADER = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-02T03:04:05Z"}\n'


def message(message_id, text="x"):
    record = {"type": "message", "id": message_id, "role": "user", "createdAt": "2026"}
    record["blocks"] = [{"type": "text", "text": text}]
    return json.dumps(record).encode() + b"\n"


A, B, C, D = map(message, "abcd")


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def replace(path, data):
    beside = path.with_name("new")
    beside.write_bytes(data)
    beside.replace(path)


class Follower:
    """A command that follows a file: what it did between one step and the next."""

    def __init__(self, monkeypatch, capsysbinary):
        self._monkeypatch = monkeypatch
        self._streams = capsysbinary

    def __call__(self, path, *arguments, steps=()):
        """Return (output, notes) before the first step, and after each."""
        seen = []
        rest = iter(steps)

        def wait(_):
            out, err = self._streams.readouterr()
            seen.append((out.decode(), err.decode().replace(f"mmapstore: {path}: ", "")))
            step = next(rest, None)
            if step is not None:
                step()
            return step is not None

        with self._monkeypatch.context() as patch:
            patch.setattr(following.Waiter, "__call__", wait)
            self._streams.readouterr()
            code = main(["tail", "-f", str(path), *map(str, arguments)])
        assert code == 0
        assert self._streams.readouterr() == (b"", b"")
        return seen


@pytest.fixture
def follow(monkeypatch, capsysbinary):
    return Follower(monkeypatch, capsysbinary)


def shown(*parts):
    """Return what is printed of messages: (position, id), and of an update the mark."""
    return "".join(
        f"{position}  user  2026  {message_id}{'  (update)' if update else ''}\n  x\n\n"
        for position, message_id, *update in parts
    )


def ids(text):
    return [json.loads(line)["id"] for line in text.splitlines()]


# -- what is shown ------------------------------------------------------------------------


def test_it_shows_the_newest_and_then_what_comes(follow, write):
    path = write(HEADER + A + B)
    seen = follow(
        path,
        "-n",
        1,
        steps=[lambda: append(path, C[:9]), lambda: append(path, C[9:] + D), lambda: None],
    )
    assert seen == [
        (shown((1, "b")), ""),
        ("", ""),
        (shown((2, "c"), (3, "d")), ""),
        ("", ""),
    ]


def test_json_is_a_row_a_message(follow, write):
    path = write(HEADER + A)
    (first, _), (second, _) = follow(path, "--json", steps=[lambda: append(path, B + C)])
    rows = [json.loads(line) for line in (first + second).splitlines()]
    assert [(row["position"], row["id"], row["text"]) for row in rows] == [
        (0, "a", "x"),
        (1, "b", "x"),
        (2, "c", "x"),
    ]
    assert rows[1]["message"] == json.loads(B)


def test_an_update_is_marked(follow, write):
    path = write(HEADER + A + B + C)
    steps = [lambda: append(path, A + D), lambda: append(path, message("d") + message("e"))]
    _, (one, _), (two, _) = follow(path, "-n", 1, steps=steps)
    # also of a message that was there and not shown
    assert one == shown((3, "a", True), (4, "d"))
    assert two == shown((5, "d", True), (6, "e"))
    rows = follow(path, "--json", steps=[lambda: append(path, A + message("f"))])[1][0]
    marks = [(row["id"], row.get("update")) for row in map(json.loads, rows.splitlines())]
    assert marks == [("a", True), ("f", None)]


def test_damage_is_mentioned_as_it_comes(follow, write):
    path = write(HEADER + A)
    damaged = b'{"type":"message","id":"bad","blocks":[\n'
    seen = follow(path, steps=[lambda: append(path, damaged + B)])
    assert seen[1][0] == shown((2, "b"))
    assert seen[1][1].startswith("position 1 is damaged: ")


def test_what_is_unterminated_at_the_start_is_mentioned(follow, write):
    path = write(HEADER + A + B[:-1])
    (out, err), (completed, told) = follow(path, steps=[lambda: append(path, b"\n")])
    assert out == shown((0, "a"))
    assert err.startswith("the last line is unterminated and not data yet: ")
    assert (completed, told) == (shown((1, "b")), "")


def test_an_empty_file_is_followed(follow, write):
    path = write(b"")
    seen = follow(path, steps=[lambda: append(path, HEADER), lambda: append(path, A)])
    assert seen == [("", "no messages: the file is empty\n"), ("", ""), (shown((0, "a")), "")]


# -- anything but growth ------------------------------------------------------------------

REWRITTEN = "the file was rewritten; this is what it is now\n"


@pytest.mark.parametrize("how", [Path.write_bytes, replace])
def test_a_rewritten_file_is_shown_anew_its_newest_only(follow, write, how):
    path = write(HEADER + A)
    seen = follow(
        path,
        "-n",
        2,
        steps=[lambda: how(path, HEADER + D + C + B), lambda: append(path, A)],
    )
    assert seen[1:] == [(shown((1, "c"), (2, "b")), REWRITTEN), (shown((3, "a")), "")]


@pytest.mark.parametrize("how", [Path.write_bytes, replace])
def test_in_json_the_first_row_after_a_rewrite_says_so(follow, write, how):
    path = write(HEADER + A)
    damaged = b'{"type":"message","id":"bad","blocks":[\n'
    steps = [
        lambda: how(path, HEADER + D + C),
        lambda: append(path, A),
        lambda: how(path, HEADER),
        lambda: append(path, A),
        lambda: how(path, HEADER + damaged),
    ]
    seen = follow(path, "--json", steps=steps)
    rows = [[json.loads(line) for line in out.splitlines()] for out, _ in seen]
    assert [[(row["id"], row.get("reset")) for row in batch] for batch in rows] == [
        [("a", None)],
        [("d", True), ("c", None)],
        [("a", None)],
        # a line of its own: nothing is left to carry it
        [(None, True)],
        [("a", None)],
        [(None, True)],
    ]
    assert rows[3] == [dict.fromkeys(rows[0][0]) | {"reset": True}]


def test_in_pages_only_the_first_row_says_so(follow, write, monkeypatch):
    monkeypatch.setattr(tail_module, "_PAGE_COUNT", 1)
    path = write(HEADER + A)
    seen = follow(path, "--json", steps=[lambda: replace(path, HEADER + D + C + B)])
    marks = [json.loads(row).get("reset") for row in seen[1][0].splitlines()]
    assert marks == [True, None, None]


def test_a_file_that_was_cut_short_is_shown_anew(follow, write):
    path = write(HEADER + A + B)
    steps = [lambda: os.truncate(path, len(HEADER + A)), lambda: os.truncate(path, 0)]
    seen = follow(path, steps=steps)
    assert seen[1] == (shown((0, "a")), REWRITTEN)
    assert seen[2] == ("", REWRITTEN + "no messages: the file is empty\n")


def test_a_replacement_may_be_in_another_dialect(follow, write):
    path = write(HEADER + A)
    claude = (
        b'{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"hi"}}\n'
    )
    seen = follow(path, steps=[lambda: replace(path, claude)])
    assert seen[1] == ("0  user  -  u\n  hi\n\n", REWRITTEN)


def test_a_deleted_file_is_said_once_and_waited_for(follow, write):
    path = write(HEADER + A)
    steps = [path.unlink, lambda: None, lambda: path.write_bytes(HEADER + B), path.unlink]
    seen = follow(path, steps=steps)
    gone = "the file is gone; waiting for a transcript to be there\n"
    assert seen[1:] == [("", gone), ("", ""), (shown((0, "b")), REWRITTEN), ("", gone)]


def test_what_else_is_there_is_said(follow, write):
    path = write(HEADER + A)
    seen = follow(path, steps=[lambda: (path.unlink(), path.mkdir())])
    assert seen[1] == ("", "a directory, not a transcript; waiting for a transcript to be there\n")
    path.rmdir()
    path.write_bytes(HEADER)
    seen = follow(path, steps=[lambda: (path.unlink(), path.symlink_to(path))])
    assert seen[1][1].endswith("symbolic links; waiting for a transcript to be there\n")


def test_a_file_that_changes_under_the_printing_is_shown_anew(follow, write, monkeypatch):
    path = write(HEADER + A)
    updates = mmapstore.Window.updates
    changed = iter([True])

    def spoiled(window):
        if next(changed, False):
            with path.open("r+b") as file:
                file.seek(len(HEADER))
                file.write(b" " * (len(A) - 1))
            for line in window.lines:
                bytes(line)
            window._generation.line(window._generation.layout.messages, 0)
        return updates.__get__(window)

    monkeypatch.setattr(mmapstore.Window, "updates", property(spoiled))
    seen = follow(path, "--access", "pread", steps=[lambda: append(path, B)])
    assert seen[1] == (shown((0, "b")), REWRITTEN)


# -- usage --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-"], "- cannot be followed"),
        (["FILE", "--before", "3"], "--follow and --before exclude each other"),
        (["FILE", "--unterminated"], "--follow and --unterminated exclude each other"),
    ],
)
def test_what_cannot_be_followed_is_a_usage_error(write, capsys, arguments, told):
    path = str(write(HEADER))
    assert main(["tail", "-f", *(path if name == "FILE" else name for name in arguments)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), told in err) == ("", 1, True)


def test_a_file_that_is_not_there_at_the_start_is_not_found(tmp_path, capsys):
    assert main(["tail", "-f", str(tmp_path / "absent")]) == 4
    assert "No such file" in capsys.readouterr().err


def test_its_writer_is_taken_to_append_and_the_cache_is_as_asked(write, monkeypatch, capsys):
    path = str(write(HEADER + A))
    opened, asked = mmapstore.open, []
    monkeypatch.setattr(following.Waiter, "__call__", lambda _: False)
    monkeypatch.setattr(
        following.mmapstore,
        "open",
        lambda *names, **options: (asked.append(options), opened(*names, **options))[1],
    )
    assert main(["tail", "-f", path]) == main(["tail", "-f", "--no-cache", path]) == 0
    assert capsys.readouterr().out == shown((0, "a")) * 2
    assert [options["trust"] for options in asked] == ["append-only"] * 2
    assert [options["cache_dir"] for options in asked] == [mmapstore.CacheDir.USER, None]


# -- as a process -------------------------------------------------------------------------


def _environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@pytest.fixture(params=["watching", "looking"])
def process(request, write, tmp_path):
    """A command that follows a file of one message, with the watcher and without it."""
    environment = _environment()
    if request.param == "watching":
        pytest.importorskip("watchfiles", reason="the watcher is an extra")
    else:
        without = tmp_path / "without"
        without.mkdir()
        (without / "watchfiles.py").write_text("raise ImportError\n")
        environment["PYTHONPATH"] = os.pathsep.join([str(without), str(ROOT)])
    path = write(HEADER + A)
    with subprocess.Popen(
        [*COMMAND, "--json", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as child:
        child.path = path
        try:
            assert json.loads(child.stdout.readline())["id"] == "a"
            yield child
        finally:
            child.kill()


def test_a_growing_file_is_followed_and_an_interrupt_ends_it(process):
    for message_id in "bcdef":
        append(process.path, message(message_id))
        assert json.loads(process.stdout.readline())["id"] == message_id
    replace(process.path, HEADER + D)
    assert json.loads(process.stdout.readline())["id"] == "d"
    assert process.stderr.readline().decode().endswith(REWRITTEN)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"mmapstore: interrupted\n")


def test_a_reader_that_goes_away_ends_it_though_nothing_comes(process):
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141
