"""Eight clients append through one socket while another is killed in the middle of requests.

What a client was told is there once, at the position that it was told, and the messages of
each client are in its own order. Of the killed client's requests each is executed whole or
not at all.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

import mmapstore
from mmapstore import rpc

from . import disk
from .children import Child, Tell, spin
from .operations import message
from .oracle import check_closed, look, require
from .report import Report

#: messages of each client
CYCLES = 500
CLIENTS = 8
_SESSIONS = 3


def run(directory: Path, cycles: int, seed: int, report: Report) -> None:
    """Let each client append so many messages."""
    report.total = cycles * CLIENTS
    data, path = directory / "data", str(directory / "socket")
    with mmapstore.Host(data) as host:
        sessions = [host.create_session(f"session {n}").id for n in range(_SESSIONS)]
    command = [sys.executable, "-m", "mmapstore", "rpc", "--data-dir", str(data), "--socket", path]
    server = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        require(b"listening" in said, "the server did not begin", said)
        told = _appended(path, sessions, cycles, seed, report)
        baseline = _descriptors(server.pid, path)
    finally:
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=60)
    require(server.returncode in (0, -signal.SIGTERM), "the server failed", said)
    require(not said, "the server had to say something", said)
    report.add("descriptors of the server at the end", baseline)
    _check(data, told, report)


def _descriptors(pid: int, path: str) -> int:
    # what the killed clients have left is let go of before another is served
    with rpc.Client.connect(path) as client:
        client.call("session.list")
        count = len(os.listdir(f"/proc/{pid}/fd"))
    require(count < 40, "the server keeps descriptors of clients that are gone", count)
    return count


# -- clients ------------------------------------------------------------------------------

#: of each session: the client's name, the message's number, and the position that was told
Told = dict[str, list[tuple[str, int, int]]]


def _appended(path: str, sessions: list[str], cycles: int, seed: int, report: Report) -> Told:
    children = [
        Child(_client(path, f"c{number}", sessions[number % len(sessions)], cycles))
        for number in range(CLIENTS)
    ]
    told: Told = {session: [] for session in sessions}
    victims = _Victims(path, sessions, random.Random(seed), told, report)
    for child in children:
        for session, name, number, position in child.told():
            told[session].append((name, number, position))
            report.step("messages acknowledged")
            # as long as the first of them works, the others do
            if child is children[0]:
                victims.another()
        child.wait()
        require(child.failure is None, f"a client failed: {child.failure}")
    return told


def _client(path: str, name: str, session: str, cycles: int) -> Callable[[Tell], None]:
    def work(tell: Tell) -> None:
        with rpc.Client.connect(path) as client:
            for number in range(cycles):
                text = "é" * (number * 37 % 2000)
                (position,) = client.append_messages(
                    session, [message(f"{name}-{number}", "user", text)]
                )
                tell([session, name, number, position])

    return work


class _Victims:
    """Clients that are killed in the middle of requests, one after the other."""

    def __init__(
        self, path: str, sessions: list[str], rng: random.Random, told: Told, report: Report
    ) -> None:
        self._path = path
        self._sessions = sessions
        self._rng = rng
        self._told = told
        self._report = report
        self._count = 0

    def another(self) -> None:
        """Start one, and kill it."""
        name = f"v{self._count}"
        self._count += 1
        session = self._rng.choice(self._sessions)
        child = Child(_victim(self._path, name, session, self._rng.randrange(1, 3000)))
        told = child.told()
        for _ in range(self._rng.randrange(3)):
            self._note(session, name, next(told, None))
        spin(self._rng.uniform(0, 0.003))
        child.kill()
        for value in told:
            self._note(session, name, value)
        child.wait()
        require(child.failure is None, f"a client failed: {child.failure}")
        self._report.add("clients killed")

    def _note(self, session: str, name: str, value: Any) -> None:
        if value is not None:
            self._told[session].append((name, value[0], value[1]))


def _victim(path: str, name: str, session: str, piece: int) -> Callable[[Tell], None]:
    """Return a client that sends its requests in pieces, and does not wait for answers."""

    def work(tell: Tell) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            hello = {"protocolVersion": rpc.PROTOCOL_VERSION}
            data = _request(-1, "host.handshake", hello)
            for number in range(12):
                record = message(f"{name}-{number}", "assistant", "x" * (number * 700))
                params = {"sessionId": session, "message": record}
                data += _request(number, "session.appendMessage", params)
            answers = connection.makefile("rb")
            for at in range(0, len(data), piece):
                connection.sendall(data[at : at + piece])
            for line in answers:
                answer = orjson.loads(line)
                if answer["id"] >= 0:
                    tell([answer["id"], answer["result"]["position"]])

    return work


def _request(number: int, method: str, params: dict[str, Any]) -> bytes:
    return (
        orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"
    )


# -- afterwards ---------------------------------------------------------------------------


def _check(data: Path, told: Told, report: Report) -> None:
    with mmapstore.Host(data) as host:
        world = look(host)
    check_closed(data)
    for session, model in world.items():
        remains = disk.read(data, session)
        require(not remains.torn and not remains.damaged, "a line is not whole")
        ids = [m["id"] for m in model.messages]
        require(len(set(ids)) == len(ids), "a message is there twice", session)
        for name, number, position in told[session]:
            found = ids[position] if position < len(ids) else None
            require(found == f"{name}-{number}", "not where it was told", name, number, found)
        order: dict[str, int] = {}
        for each in ids:
            name, _, number = each.partition("-")
            require(int(number) == order.get(name, -1) + 1, "not in the client's order", each)
            order[name] = int(number)
        report.add("messages there", len(ids))
