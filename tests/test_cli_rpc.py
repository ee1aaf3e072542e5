"""``mmapstore rpc`` as a process, and processes that are its clients, some of which are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import LockedError
from mmapstore.rpc import Client, Code
from tests.host_support import ids, lines, message, user

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

ROOT = Path(__file__).parent.parent
COMMAND = [sys.executable, "-W", "error", "-m", "mmapstore"]
LONG = 60.0

HELLO = (
    b'{"jsonrpc":"2.0","id":0,"method":"host.handshake","params":{"protocolVersion":9}}\n'
)  # fmt: skip


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let children find the package whatever the directory, and nothing of the locale in them."""
    for name in [name for name in os.environ if name.startswith(("PYTHON", "LC_", "LANG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def start(data_dir: Path, *arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [*COMMAND, "rpc", "--data-dir", data_dir, *arguments], **{**pipes, **options}
    )


@contextmanager
def listening(
    data_dir: Path, path: Path, how: signal.Signals = signal.SIGTERM, code: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server on a socket; end it by a signal, and see that it leaves nothing."""
    with start(data_dir, "--socket", path, stdin=subprocess.DEVNULL) as server:
        assert server.stderr is not None
        assert server.stdout is not None
        try:
            assert server.stderr.readline() == f"mmapstore: listening on {path}\n".encode()
            yield server
        finally:
            server.send_signal(how)
            assert server.stdout.read() == b""
            told = server.stderr.read()
    assert told == (b"mmapstore: interrupted\n" if how is signal.SIGINT else b"")
    assert server.returncode == code
    assert path.exists() == (how is signal.SIGKILL)


def ended(server: subprocess.Popen[bytes], data: bytes | None = None) -> tuple[int, bytes, bytes]:
    with server:
        out, err = server.communicate(data, timeout=LONG)
    return server.returncode, out, err


# -- over standard input and output -----------------------------------------------------


def test_a_conversation_over_pipes(tmp_path: Path) -> None:
    request = (
        b'{"jsonrpc":"2.0","id":"x","method":"session.create","params":{"title":"T\xc3\xa9"}}\n'
    )
    code, out, err = ended(start(tmp_path), HELLO + request + b"no json\n")
    assert (code, err) == (0, b"")
    hello, made, wrong = map(json.loads, out.splitlines())
    assert hello["result"]["protocolVersion"] == 9
    assert (made["id"], made["result"]["session"]["title"]) == ("x", "Té")
    assert (wrong["id"], wrong["error"]["code"]) == (None, Code.PARSE_ERROR)
    with mmapstore.Host(tmp_path) as host:
        assert [each.title for each in host.list_sessions()] == ["Té"]


def test_files_in_the_place_of_pipes(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(HELLO * 3)
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        assert ended(start(tmp_path / "d", stdin=stdin, stdout=stdout))[0] == 0
    assert len(lines(tmp_path / "out")) == 3


def test_a_large_answer_and_a_reader_that_goes_away(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [message(f"m{n}", text="x" * 1000) for n in range(2000)])
    with Client.spawn(tmp_path) as client:
        got = client.call("session.get", sessionId=session)
        assert len(got["messages"]) == 2000
    server = start(tmp_path)
    assert server.stdin is not None
    assert server.stdout is not None
    params = f'{{"sessionId":"{session}"}}'.encode()
    server.stdin.write(
        HELLO + b'{"jsonrpc":"2.0","id":1,"method":"session.get","params":' + params + b"}\n"
    )
    server.stdin.flush()
    server.stdout.readline()
    server.stdout.close()
    server.stdin.close()
    with server:
        assert server.stderr is not None
        assert server.stderr.read() == b""
    assert server.returncode == 0


def test_without_standard_input(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", '"$@" <&-', "sh", *COMMAND, "rpc", "--data-dir", tmp_path / "d"],
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stderr is not None
        assert b"closed" in server.stderr.read()
    assert server.returncode == 3
    assert not (tmp_path / "d").exists()


def test_a_line_beyond_the_limit_is_not_held(tmp_path: Path) -> None:
    """Nor one that never ends."""
    with start(tmp_path) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        block = b"x" * (1 << 20)
        server.stdin.write(HELLO)
        for _ in range(300):
            server.stdin.write(block)
        server.stdin.write(b"\n" + HELLO)
        server.stdin.flush()
        first, long, last = (json.loads(server.stdout.readline()) for _ in range(3))
        status = Path(f"/proc/{server.pid}/status")
        if status.exists():
            (peak,) = [line for line in status.read_text().splitlines() if "VmHWM" in line]
            assert int(peak.split()[1]) < 190_000  # kB: one line that may be, and the interpreter
        server.stdin.close()
        assert server.stderr.read() == b""
    assert (first["id"], last["id"]) == (0, 0)
    assert "result" in last
    assert (long["id"], long["error"]["code"]) == (None, Code.INVALID_REQUEST)


def test_usage(tmp_path: Path) -> None:
    with subprocess.Popen([*COMMAND, "rpc"], stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        assert b"--data-dir" in server.stderr.read()
    assert server.returncode == 2
    (tmp_path / "file").write_bytes(b"")
    code, _, err = ended(start(tmp_path / "file"))
    assert (code, err.count(b"\n")) == (4, 1)


# -- one host ---------------------------------------------------------------------------


def test_a_second_host_is_refused_and_the_owner_named(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(tmp_path / "d", path) as server:
        code, out, err = ended(start(tmp_path / "d"))
        assert (code, out) == (5, b"")
        assert f"process {server.pid} on {socket.gethostname()}".encode() in err
        assert err.count(b"\n") == 1
        with pytest.raises(LockedError):
            mmapstore.Host(tmp_path / "d")
        with pytest.raises(LockedError):
            Client.spawn(tmp_path / "d")
        # nor does another directory's server get the socket
        code, _, err = ended(start(tmp_path / "other", "--socket", path))
        assert (code, str(path).encode() in err) == (5, True)
        with Client.connect(path) as client:
            assert client.call("session.list") == {"sessions": []}
    with mmapstore.Host(tmp_path / "d"), pytest.raises(LockedError):
        Client.spawn(tmp_path / "d")


@pytest.mark.parametrize("taken", ["a server", "a file", "a folder that is not there", "a name"])
def test_a_socket_that_is_refused_leaves_no_directory(tmp_path: Path, taken: str) -> None:
    with ExitStack() as stack:
        path, code = tmp_path / "s", 3
        if taken == "a server":
            stack.enter_context(listening(tmp_path / "d", path))
            code = 5
        elif taken == "a file":
            path.write_bytes(b"mine")
        elif taken == "a folder that is not there":
            path, code = tmp_path / "none" / "s", 4
        else:
            path = tmp_path / "new" / ("s" * 200)  # longer than a socket's may be
        before = sorted(tmp_path.iterdir())
        got, out, err = ended(start(tmp_path / "new", "--socket", path))
        assert (got, out, err.count(b"\n")) == (code, b"", 1)
        assert sorted(tmp_path.iterdir()) == before
    assert taken != "a file" or path.read_bytes() == b"mine"


def test_a_host_that_is_refused_leaves_no_socket(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path / "d"):
        code, out, _ = ended(start(tmp_path / "d", "--socket", tmp_path / "s"))
    assert (code, out) == (5, b"")
    assert not os.path.lexists(tmp_path / "s")


def test_the_socket_may_lie_in_the_directory_that_is_made(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "d"
    with listening(data_dir, data_dir / "s"), Client.connect(data_dir / "s") as client:
        assert client.call("session.list") == {"sessions": []}


def test_a_server_that_cannot_start_is_told_to_the_client(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="exit code 2"):
        Client.spawn(tmp_path, [sys.executable, "-c", "raise SystemExit(2)"])
    with pytest.raises(ConnectionError):
        Client.spawn(tmp_path, [sys.executable, "-c", "pass"])


# -- the end ----------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_and_the_socket(tmp_path: Path, how: signal.Signals, code: int) -> None:
    path = tmp_path / "s"
    with listening(tmp_path / "d", path, how, code), Client.connect(path) as client:
        session = client.call("session.create")["session"]["id"]
        client.append_messages(session, [message("m")])
    with mmapstore.Host(tmp_path / "d") as host:
        assert ids(host, session) == ["m"]


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_on_pipes(tmp_path: Path, how: signal.Signals, code: int) -> None:
    with start(tmp_path) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(HELLO)
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(how)
        assert server.wait(LONG) == code


SIGNALLED = """
import os, sys
from mmapstore import fileio
from mmapstore.cli import main

real = fileio.sync_data
def sync_data(fd):
    os.kill(os.getpid(), int(sys.argv[2]))
    real(fd)
fileio.sync_data = sync_data
sys.exit(main(["rpc", "--data-dir", sys.argv[1]]))
"""


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_waits_for_the_request_that_is_executed(
    tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """The request is done and answered; the one behind it is not begun."""
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, message("m0"))
    requests = [
        {"jsonrpc": "2.0", "id": number, "method": "session.appendMessage",
         "params": {"sessionId": session, "message": message(f"m{number}")}}
        for number in (1, 2)
    ]  # fmt: skip
    data = HELLO + b"".join(orjson.dumps(request) + b"\n" for request in requests)
    command = [sys.executable, "-W", "error", "-c", SIGNALLED, tmp_path, str(int(how))]
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=LONG)
    assert done.returncode == code
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]
    with mmapstore.Host(tmp_path) as host:
        assert ids(host, session) == ["m0", "m1"]


def test_a_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with (
        listening(tmp_path / "d", path, signal.SIGKILL, -signal.SIGKILL),
        Client.connect(path) as client,
    ):
        session = client.call("session.create")["session"]["id"]
        assert client.append_messages(session, [message("a"), message("b")]) == [0, 1]
    assert stat.S_ISSOCK(path.lstat().st_mode)
    with listening(tmp_path / "d", path), Client.connect(path) as client:
        got = client.call("session.get", sessionId=session)
        assert [each["id"] for each in got["messages"]] == ["a", "b"]


def test_a_server_that_dies_is_told_to_its_client(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(tmp_path / "d", path, signal.SIGKILL, -signal.SIGKILL) as server:
        client = Client.connect(path)
        server.kill()
        server.wait(LONG)
        with pytest.raises(ConnectionError):
            client.call("session.list")
        client.close()


# -- many clients -----------------------------------------------------------------------

WRITER = """
import os, sys
from mmapstore.rpc import Client

path, session, name, count = sys.argv[1:]
with Client.connect(path) as client:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(count)):
        blocks = [{"type": "text", "text": f"{name} " * (number * 7 % 400)}]
        message = {"id": f"{name}-{number}", "role": "user", "blocks": blocks}
        client.append_messages(session, [message])
        print(number, flush=True)
"""


def writer(path: Path, session: str, name: str, count: int) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITER, path, session, name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="ascii",
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_eight_processes_append_through_one_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"
    count = 40
    with listening(tmp_path / "d", path), Client.connect(path) as client:
        session = client.call("session.create")["session"]["id"]
        children = [writer(path, session, str(number), count) for number in range(8)]
        for child in children:
            go(child)
        for child in children:
            out, _ = child.communicate(timeout=LONG)
            assert child.returncode == 0
            assert out.split() == [str(number) for number in range(count)]
    file = tmp_path / "d" / "sessions" / f"{session}.jsonl"
    assert file.read_bytes().endswith(b"\n")
    found = [line["id"] for line in lines(file)[1:]]
    assert len(found) == 8 * count
    for number in range(8):
        mine = [name for name in found if name.startswith(f"{number}-")]
        assert mine == [f"{number}-{index}" for index in range(count)]


def test_clients_that_are_killed_cost_the_others_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listening(tmp_path / "d", path), Client.connect(path) as client:
        session = client.call("session.create")["session"]["id"]
        steady, doomed = (writer(path, session, name, 60) for name in ("steady", "doomed"))
        go(doomed)
        go(steady)
        assert doomed.stdout is not None
        acknowledged = [doomed.stdout.readline() for _ in range(10)]
        doomed.kill()
        with doomed:
            acknowledged += doomed.stdout.readlines()
        # and some that are killed with half a request out, or with answers that nobody reads
        for data in (
            HELLO + b'{"jsonrpc":"2.0","id":1,"method":"session.cre',
            HELLO * 50,
            b"x" * 100_000,
            b"",
        ):
            code = (
                "import os, signal, socket, sys\n"
                "s = socket.socket(socket.AF_UNIX)\n"
                "s.connect(sys.argv[1])\n"
                "s.sendall(sys.stdin.buffer.read())\n"
                "os.kill(os.getpid(), signal.SIGKILL)"
            )
            done = subprocess.run([sys.executable, "-c", code, path], input=data, check=False)
            assert done.returncode == -signal.SIGKILL
        steady.communicate(timeout=LONG)
        assert steady.returncode == 0
        assert len(client.call("session.list")["sessions"]) == 1
    file = tmp_path / "d" / "sessions" / f"{session}.jsonl"
    found = [line["id"] for line in map(orjson.loads, file.read_bytes().splitlines()[1:])]
    assert [name for name in found if name.startswith("steady")] == [
        f"steady-{number}" for number in range(60)
    ]
    survived = [name for name in found if name.startswith("doomed")]
    assert survived == [f"doomed-{number}" for number in range(len(survived))]
    # what was acknowledged is there, and at most the one that was under way besides
    assert 0 <= len(survived) - len(acknowledged) <= 1


def test_an_archive_through_an_outbox_and_a_server(tmp_path: Path) -> None:
    with Client.spawn(tmp_path) as client:
        session = client.call("session.create")["session"]["id"]
        with mmapstore.Outbox(client) as outbox:
            outbox.append_message(session, user("u"))
            outbox.append_message(session, message("a"))
            assert outbox.save_active_revision(session) is None
            client.call(
                "session.saveRevision", sessionId=session, rootUserId="u", messages=[message("o")]
            )
            outbox.append_message(session, message("b"))
            saved = outbox.save_active_revision(session)
            assert (saved["revisionIndex"], saved["messageCount"]) == (2, 3)
