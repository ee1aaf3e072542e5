"""Real processes beside a host: readers of their own, and a session that grows under them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import mmapstore
from tests.host_support import message, shown, tool, transcript

READER = """
import sys, mmapstore
seen = set()
print("ready", flush=True)
with mmapstore.open(sys.argv[1], cache_dir=None) as t:
    kept = []
    while len(seen) < 2 or max(seen) < int(sys.argv[2]):
        t.refresh()
        window = t.window(limit=None)
        rounds = {m["round"] for m in window.messages}
        assert len(rounds) == 1 and len(window.messages) == 20, rounds
        assert not window.damaged
        if not rounds <= seen and len(kept) < 50:
            kept.append((rounds, window, list(window.lines)))
        seen |= rounds
    for rounds, window, lines in kept:
        assert {m["round"] for m in map(__import__("orjson").loads, lines)} == rounds
"""


def test_readers_while_the_host_rewrites(tmp_path: Path) -> None:
    """No window mixes two states, and what was read stays what it was."""
    last = 150
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [message(f"m{i}", round=0) for i in range(20)])
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, str(transcript(host, session)), str(last)],
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"ready\n"
        for number in range(1, last + 1):
            host.replace_messages(session, [message(f"m{i}", round=number) for i in range(20)])
        for reader in readers:
            assert reader.wait(timeout=60) == 0
            assert reader.stdout is not None
            reader.stdout.close()


def test_threads_that_read_while_one_writes(tmp_path: Path) -> None:
    failures: list[BaseException] = []
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, tool("x", "s1"))
        done = threading.Event()

        def read() -> None:
            try:
                least = 0
                while not done.is_set():
                    window = host.get_session(session, limit=None)
                    found = [m["id"] for m in window.messages]
                    assert found == ["x", *(f"m{i}" for i in range(len(found) - 1))]
                    assert len(found) >= least
                    least = len(found)
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(60):
            host.append_message(session, message(f"m{number}"))
            host.set_review_state(session, "x", "s1", f"state {number}")
            host.update_message(session, message(f"m{number}", edited=True))
        done.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert len(shown(host, session)) == 61
