"""The command line as a process: pipes, signals, locales, terminals, what it imports."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-W", "error", "-m", "mmapstore"]
HEADER = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-02T03:04:05Z"}\n'


def _environment(**more):
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "TERM") and not name.startswith("PYTHON")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **more}


def _line(number, text):
    record = {"type": "message", "id": f"m{number}", "role": "user", "createdAt": "2026"}
    record["blocks"] = [{"type": "text", "text": text}]
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _run(*arguments, code=0, **options):
    done = subprocess.run(
        [*COMMAND, *map(os.fsencode, arguments)],
        capture_output=True,
        env=_environment(**options.pop("env", {})),
        check=False,
        timeout=60,
        **options,
    )
    assert done.returncode == code, done.stderr
    return done


def test_a_reader_that_goes_away_ends_it_quietly(write):
    path = write(HEADER + b"".join(_line(n, "x" * 1000) for n in range(2000)))
    with subprocess.Popen(
        [*COMMAND, "tail", "-n", "all", "--json", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    ) as process:
        assert json.loads(process.stdout.readline())["position"] == 0
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("arguments", [["info"], ["--help"]])
def test_so_does_a_reader_that_never_came(write, arguments):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments, write(HEADER)],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=_environment(),
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["info"], ["tail"], ["tail", "--json"], ["ls"]])
def test_output_that_cannot_be_written_is_an_error_of_the_output(write, arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments, write(HEADER + _line(0, "x"))],
            stdout=full,
            stderr=subprocess.PIPE,
            env=_environment(),
            check=False,
        )
    assert done.returncode == 3
    told = f"mmapstore: error: standard output: {os.strerror(errno.ENOSPC)}\n"
    assert done.stderr == told.encode()


def test_an_interrupt_ends_it_with_130():
    with subprocess.Popen(
        [*COMMAND, "tail", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    ) as process:
        # more than a pipe holds: that it was taken shows that the command is reading
        process.stdin.write(HEADER + _line(0, "x" * (1 << 20)))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err == b"mmapstore: interrupted\n"


@pytest.mark.parametrize(
    "environment", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_no_locale_changes_a_byte(write, environment):
    text = "é 行 😀 \\ud83d \x9b"
    name = "tränscript.jsonl"
    path = write(HEADER + _line("é", text), name)
    for arguments in (
        ["tail", path, "--json"],
        ["show", path, "mé"],
        ["verify", path],
    ):
        usual, odd = _run(*arguments), _run(*arguments, env=environment)
        assert (odd.stdout, odd.stderr) == (usual.stdout, usual.stderr)
        shown = name if arguments[0] == "verify" else "é 行 😀"
        assert shown.encode() in usual.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux")
def test_a_file_name_that_is_not_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\x1b.jsonl"
    with open(path, "wb") as file:
        file.write(HEADER + b'{"torn')
    assert b"\\udcff\\x1b.jsonl" in _run("info", path).stdout
    facts = json.loads(_run("info", path, "--json").stdout)
    assert facts["path"].endswith("/\udcff\x1b.jsonl")
    done = _run("tail", path)
    assert b"\\udcff\\x1b.jsonl" in done.stderr
    assert b"\x1b" not in done.stderr


def _on_terminal(*arguments, **env):
    """Return all that a command writes when both its streams are one terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=_environment(**env)
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:
            pass  # how Linux says that the other side is closed
        finally:
            os.close(ours)
    assert process.returncode == 0, shown
    return shown


def test_a_terminal_gets_colour_unless_somebody_objects(write):
    path = write(HEADER + b"".join(_line(n, f"{n}\x1b[31m") for n in range(3)))
    coloured = _on_terminal("tail", "-n", "2", path)
    assert b"\x1b[" in coloured
    assert b"\x1b[31m" not in coloured
    assert b"--before 1" in coloured
    for objection in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = _on_terminal("tail", "-n", "2", path, **objection)
        assert b"\x1b" not in plain
        assert b"--before 1" in plain
    done = _run("tail", "-n", "2", path)
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


def test_a_terminal_gets_json_as_it_is(write):
    path = write(HEADER + _line(0, "x\x9b"))
    shown = _on_terminal("tail", "--json", path)
    assert json.loads(shown)["text"] == "x\x9b"
    assert b"\x1b" not in shown


def test_help_and_json_do_not_import_rich(write):
    path = str(write(HEADER + _line(0, "x")))
    code = (
        "import sys\n"
        "from mmapstore.cli import main\n"
        "for line in sys.argv[1:]:\n"
        "    assert main(line.split('|')) == 0\n"
        "sys.stderr.write(str([name for name in sys.modules if name.startswith('rich')]))"
    )
    commands = [
        "--help",
        "tail|--help",
        f"tail|--json|{path}",
        f"info|--json|{path}",
        f"verify|{path}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        capture_output=True,
        env=_environment(),
        check=True,
    )
    assert done.stderr == b"[]"
