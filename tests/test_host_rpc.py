"""What a host says over JSON-RPC: every method, every code, every kind of message, in order."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmapstore
from mmapstore import (
    ConflictError,
    InvalidRecordError,
    LockedError,
    MessageNotFoundError,
    MmapStoreError,
    RevisionNotFoundError,
    SessionNotFoundError,
    WriteFailedError,
    fileio,
)
from mmapstore import rpc as rpc_client
from mmapstore.host import rpc as server_module
from mmapstore.host.jsonrpc import Conversation
from mmapstore.host.listening import Listener
from mmapstore.host.methods import METHODS
from mmapstore.host.rpc import Lines, Server
from mmapstore.rpc import MAX_LINE_NBYTES, Client, Code, RpcError
from tests.host_support import (
    AT,
    compaction,
    ids,
    message,
    root_meta,
    shown,
    states,
    tool,
    transcript,
    user,
)

HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "host.handshake",
    "params": {"protocolVersion": 9},
}


def never(error: BaseException) -> None:
    raise AssertionError from error


class Desk:
    """A host, one conversation with it, and what it holds."""

    def __init__(self, host: mmapstore.Host) -> None:
        self.host = host
        self.reported: list[BaseException] = []
        self.conversation = Conversation(host, self.reported.append)
        assert "result" in self.say(HANDSHAKE)

    def say(self, request: Any) -> Any:
        line = request if isinstance(request, bytes) else json.dumps(request).encode()
        answer = self.conversation.answer(line)
        if answer is None:
            return None
        assert answer.endswith(b"\n")
        assert answer.count(b"\n") == 1
        return orjson.loads(answer)

    def answer(self, method: str, params: Any) -> dict[str, Any]:
        answer = self.say({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
        assert answer.pop("jsonrpc") == "2.0"
        assert answer.pop("id") == 7
        assert len(answer) == 1
        return answer

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(method, params)["result"]

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        error = self.answer(method, params)["error"]
        assert error["data"]["kind"] == Code(error["code"]).name
        assert error["message"]
        return error


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with mmapstore.Host(tmp_path) as host:
        yield Desk(host)


@pytest.fixture
def session(desk: Desk) -> str:
    return desk.ask("session.create")["session"]["id"]


# -- every method -----------------------------------------------------------------------


def test_the_methods_are_those_of_the_protocol() -> None:
    of_session = (
        "create list delete get appendMessage appendMessages appendCompaction updateMessage replaceMessages "
        "truncateFrom fork saveRevision saveActiveRevision listRevisions activateRevision "
        "deleteRevision"
    )
    expected = {f"session.{name}" for name in of_session.split()} | {"review.setState"}
    assert set(METHODS) == expected


def test_sessions(desk: Desk) -> None:
    made = desk.ask("session.create", title="T")["session"]
    assert made["title"] == "T"
    assert set(made) == {"id", "title", "createdAt", "updatedAt"}
    other = desk.ask("session.create")["session"]
    assert other["title"] is None
    listed = desk.ask("session.list")["sessions"]
    assert {each["id"]: each for each in listed} == {made["id"]: made, other["id"]: other}
    assert desk.ask("session.delete", sessionId=made["id"]) == {"ok": True}
    assert desk.ask("session.list") == {"sessions": [other]}


def test_get(desk: Desk, session: str) -> None:
    host = desk.host
    host.append_messages(session, [message(f"m{number}") for number in range(10)])
    host.append_compaction(session, compaction("c", "m3"))
    with transcript(host, session).open("ab") as file:
        file.write(b'{"type":"message","id":"bad"\n')
    got = desk.ask("session.get", sessionId=session)
    assert set(got) == {
        "session", "messages", "messageStart", "messageEnd", "messageTotal",
        "hasMoreBefore", "hasMoreAfter", "compactions", "damaged",
    }  # fmt: skip
    assert got["session"]["id"] == session
    assert [each["id"] for each in got["messages"]] == [f"m{number}" for number in range(10)]
    assert (got["messageStart"], got["messageEnd"], got["messageTotal"]) == (0, 11, 11)
    assert (got["hasMoreBefore"], got["hasMoreAfter"]) == (False, False)
    assert [each["id"] for each in got["compactions"]] == ["c"]
    (damaged,) = got["damaged"]
    assert damaged["position"] == 10
    assert transcript(host, session).read_bytes()[damaged["offset"] :].startswith(b'{"type":"mess')
    assert damaged["reason"]

    def page(**params: Any) -> tuple[list[str], bool, bool]:
        got = desk.ask("session.get", sessionId=session, **params)
        names = [each["id"] for each in got["messages"]]
        assert got["messageEnd"] - got["messageStart"] >= len(names)
        return names, got["hasMoreBefore"], got["hasMoreAfter"]

    assert page(messageLimit=3) == (["m8", "m9"], True, False)
    assert page(messageLimit=2, messageBefore=4) == (["m2", "m3"], True, True)
    assert page(messageBefore=2) == (["m0", "m1"], False, True)
    assert page(messageBefore=0) == ([], False, True)
    assert page(messageLimit=2, messageAfter=4) == (["m4", "m5"], True, True)
    assert page(messageLimit=3, messageAround="m5") == (["m4", "m5", "m6"], True, True)
    assert page(messageLimit=1000)[0][0] == "m0"


def test_get_after_more_messages_than_a_page_may_have(desk: Desk, session: str) -> None:
    desk.host.append_messages(session, [message(f"m{number}") for number in range(1500)])
    assert len(desk.ask("session.get", sessionId=session)["messages"]) == 1500
    got = desk.ask("session.get", sessionId=session, messageLimit=1000)
    assert (len(got["messages"]), got["messageStart"]) == (1000, 500)


def test_appends_and_updates(desk: Desk, session: str) -> None:
    ask = desk.ask
    for position, turn in enumerate([{}, {"turnId": "t"}]):
        params = {"sessionId": session, "message": message(f"m{position}"), **turn}
        for _ in range(2):  # asked again, nothing is written
            assert ask("session.appendMessage", **params) == {"ok": True, "position": position}
    assert [each["id"] for each in desk.host.turn_messages(session, "t")] == ["m1"]
    assert ask("session.appendCompaction", sessionId=session, compaction=compaction("c", "m1")) == {
        "ok": True
    }
    assert [each["id"] for each in desk.host.get_session(session).compactions] == ["c"]
    edited = message("m0", text="new")
    answer = ask("session.updateMessage", sessionId=session, message=edited, turnId="u")
    assert answer["ok"] is True
    assert shown(desk.host, session)[0] == {**edited, "turnId": "u"}
    assert ask("session.replaceMessages", sessionId=session, messages=[message("z")]) == {
        "ok": True
    }
    assert ids(desk.host, session) == ["z"]


def test_cuts(desk: Desk, session: str) -> None:
    desk.host.append_messages(session, [user("u"), message("a"), message("b"), message("c")])
    cut = desk.ask("session.truncateFrom", sessionId=session, truncateBefore=3)
    assert cut == {"keptCount": 3, "discardedCount": 1, "revision": None}
    cut = desk.ask(
        "session.truncateFrom", sessionId=session, truncateFromMessageId="u", truncateBefore=2
    )
    assert cut == {
        "keptCount": 0,
        "discardedCount": 3,
        "revision": {"rootUserId": "u", "revisionIndex": 1},
    }


def test_forks(desk: Desk, session: str) -> None:
    desk.host.append_messages(session, [user("u"), message("a"), message("b")])
    child = desk.ask("session.fork", sessionId=session, throughMessageId="a", title="C")["session"]
    assert child["title"] == "C"
    assert len(ids(desk.host, child["id"])) == 2
    whole = desk.ask("session.fork", sessionId=session)["session"]
    assert len(ids(desk.host, whole["id"])) == 3


def test_branches(desk: Desk, session: str) -> None:
    ask = desk.ask
    of = {"sessionId": session, "rootUserId": "u"}
    assert ask("session.saveActiveRevision", sessionId=session) == {"saved": None}
    desk.host.append_messages(session, [user("u"), message("a")])
    saved = ask("session.saveRevision", **of, messages=[message("old")])["revision"]
    assert (saved["rootUserId"], saved["revisionIndex"], saved["isActive"]) == ("u", 1, False)
    assert set(saved) == {
        "rootUserId", "revisionIndex", "createdAt", "messageCount", "isActive",
    }  # fmt: skip
    active = ask("session.saveActiveRevision", sessionId=session)["saved"]
    assert (active["revisionIndex"], active["isActive"]) == (2, True)
    assert ask("session.listRevisions", **of) == {"revisions": [saved, active]}
    shown_now = ask("session.activateRevision", **of, revisionIndex=1)["messages"]
    assert [each["id"] for each in shown_now] == ["u", "old"]
    assert desk.error("session.deleteRevision", **of, revisionIndex=1)["code"] == Code.CONFLICT
    assert ask("session.deleteRevision", **of, revisionIndex=2) == {"ok": True}
    (left,) = ask("session.listRevisions", **of)["revisions"]
    assert (left["revisionIndex"], left["isActive"]) == (1, True)
    third = ask("session.saveRevision", **of, messages=[], makeActive=True)["revision"]
    assert third["isActive"] is True


def test_review_states(desk: Desk, session: str) -> None:
    desk.host.append_message(session, tool("x", "s"))
    params = {"sessionId": session, "messageId": "x", "snapshotId": "s", "state": "rolledBack"}
    assert desk.ask("review.setState", **params) == {"ok": True, "written": True}
    assert desk.ask("review.setState", **params) == {"ok": True, "written": False}
    (got,) = desk.ask("session.get", sessionId=session)["messages"]
    assert states(got) == ["rolledBack"]


# -- every code -------------------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any]]] = [
    ("session.create", {"title": 5}),
    ("session.create", {"title": None}),
    ("session.create", {"tilte": "T"}),
    ("session.list", {"sessionId": "s"}),
    ("session.delete", {}),
    ("session.delete", {"sessionId": "../x"}),
    ("session.delete", {"sessionId": ""}),
    ("session.delete", {"sessionId": 5}),
    ("session.get", {"messageLimit": 0}),
    ("session.get", {"messageLimit": 1001}),
    ("session.get", {"messageLimit": True}),
    ("session.get", {"messageLimit": 1.0}),
    ("session.get", {"messageLimit": None}),
    ("session.get", {"messageBefore": -1}),
    ("session.get", {"messageAfter": "1"}),
    ("session.get", {"messageAround": ""}),
    ("session.get", {"messageBefore": 1, "messageAfter": 1}),
    ("session.get", {"messageBefore": 1, "messageAround": "m"}),
    ("session.get", {"contentLimit": 5}),
    ("session.appendMessage", {"message": []}),
    ("session.appendMessage", {"message": {}}),
    ("session.appendMessage", {"message": message("m", "nobody")}),
    ("session.appendMessage", {"message": message("m"), "turnId": ""}),
    ("session.appendMessage", {"message": message("@0")}),
    ("session.appendCompaction", {"compaction": {"id": "c"}}),
    ("session.appendCompaction", {"compaction": compaction("c", "m", tokensBefore=-1)}),
    ("session.updateMessage", {"message": {"role": "user"}}),
    ("session.replaceMessages", {"messages": {}}),
    ("session.replaceMessages", {"messages": [message("m"), message("m")]}),
    ("session.replaceMessages", {"messages": [5]}),
    ("session.truncateFrom", {}),
    ("session.truncateFrom", {"truncateBefore": 5}),
    ("session.truncateFrom", {"truncateBefore": -1}),
    ("session.truncateFrom", {"truncateFromMessageId": None}),
    ("session.fork", {"throughMessageId": 5}),
    ("session.saveRevision", {"rootUserId": "u"}),
    ("session.saveRevision", {"rootUserId": "u", "messages": [], "makeActive": 1}),
    ("session.saveRevision", {"rootUserId": "u", "messages": [{"id": "x"}]}),
    ("session.listRevisions", {"rootUserId": ""}),
    ("session.activateRevision", {"rootUserId": "u", "revisionIndex": "1"}),
    ("session.deleteRevision", {"rootUserId": "u", "revisionIndex": -1}),
    ("review.setState", {"messageId": "x", "snapshotId": "nobody", "state": "active"}),
    ("review.setState", {"messageId": "x", "snapshotId": "s", "state": ""}),
]


@pytest.mark.parametrize(("method", "params"), WRONG)
def test_parameters_that_a_method_does_not_take(
    desk: Desk, session: str, method: str, params: dict[str, Any]
) -> None:
    desk.host.append_messages(session, [user("u"), tool("x", "s")])
    before = transcript(desk.host, session).read_bytes()
    if "sessionId" in METHODS[method].required and method != "session.delete":
        params = {"sessionId": session, **params}
    assert desk.error(method, **params)["code"] == Code.INVALID_PARAMS
    assert transcript(desk.host, session).read_bytes() == before


@pytest.mark.parametrize("params", [[], ["x"]])
def test_parameters_by_place(desk: Desk, params: list[Any]) -> None:
    assert desk.answer("session.list", params)["error"]["code"] == Code.INVALID_PARAMS


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"session.create", "session.list"}))
def test_nothing_is_found_of_what_is_not_there(desk: Desk, session: str, method: str) -> None:
    values: dict[str, Any] = {
        "message": message("nobody"), "compaction": compaction("c", "m"), "messages": [],
        "rootUserId": "nobody", "revisionIndex": 7, "messageId": "nobody", "snapshotId": "s",
        "state": "active", "truncateFromMessageId": "nobody", "throughMessageId": "nobody",
        "messageAround": "nobody",
    }  # fmt: skip
    names = (*METHODS[method].required, *METHODS[method].optional)
    params = {name: values[name] for name in names if name in values}
    error = desk.error(method, sessionId="nobody", **params)
    assert error["code"] == Code.NOT_FOUND
    assert error["data"]["error"] == "SessionNotFoundError"
    needs_nothing = {
        "session.delete", "session.appendMessage", "session.appendCompaction",
        "session.appendMessages", "session.replaceMessages", "session.saveActiveRevision",
    }  # fmt: skip
    if method in needs_nothing:
        desk.ask(method, sessionId=session, **params)
    else:
        assert desk.error(method, sessionId=session, **params)["code"] == Code.NOT_FOUND


def test_conflicts(desk: Desk, session: str) -> None:
    desk.host.append_message(session, message("m"))
    error = desk.error("session.appendMessage", sessionId=session, message=message("m", text="x"))
    assert error["code"] == Code.CONFLICT
    assert error["data"]["error"] == "ConflictError"
    assert error["data"]["path"] == str(transcript(desk.host, session))
    assert "update_message" in error["data"]["hint"]


def test_writes_that_fail(desk: Desk, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync_data(fd: int) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fileio, "sync_data", sync_data)
        error = desk.error("session.appendMessage", sessionId=session, message=message("m"))
    assert error["code"] == Code.WRITE_FAILED
    assert "no space" in error["message"]
    assert desk.ask("session.appendMessage", sessionId=session, message=message("m"))["ok"]
    assert ids(desk.host, session) == ["m"]


@pytest.mark.parametrize(
    ("raised", "code", "is_a_bug"),
    [
        (LockedError("there is another"), Code.LOCKED, False),
        (mmapstore.TranscriptChangedError("changed"), Code.CONFLICT, False),
        (MmapStoreError("a transcript of format 3"), Code.INTERNAL, False),
        (OSError(24, "too many open files"), Code.INTERNAL, False),
        (ZeroDivisionError(), Code.INTERNAL, True),
        (RecursionError("deep"), Code.INTERNAL, True),
        (ValueError("the host is closed"), Code.INTERNAL, True),
    ],
    ids=str,
)
def test_what_else_a_host_raises(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, raised: Exception, code: Code, is_a_bug: bool
) -> None:
    def list_sessions() -> None:
        raise raised

    monkeypatch.setattr(desk.host, "list_sessions", list_sessions)
    assert desk.error("session.list")["code"] == code
    assert desk.reported == ([raised] if is_a_bug else [])


def test_the_codes_are_those_of_the_protocol() -> None:
    assert {code.name: code.value for code in Code} == {
        "PARSE_ERROR": -32700, "INVALID_REQUEST": -32600, "METHOD_NOT_FOUND": -32601,
        "INTERNAL": 1000, "INVALID_PARAMS": 1002, "LOCKED": 1003, "WRITE_FAILED": 1004,
        "NOT_FOUND": 1007, "CONFLICT": 1008, "PROTOCOL_MISMATCH": 1011,
    }  # fmt: skip


# -- the standard -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [b"", b"\r", b"{", b'{"jsonrpc":"2.0","id":1', b"\xff", b'"\xff"', b"\0", b"nul", b"{}{}",
     b"[" * 2000],
)  # fmt: skip
def test_what_is_no_json(desk: Desk, line: bytes) -> None:
    answer = desk.say(line)
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)


@pytest.mark.parametrize(
    ("request_", "answered"),
    [
        (5, None),
        ("x", None),
        (None, None),
        ({}, None),
        ({"jsonrpc": "2.0"}, None),
        ({"jsonrpc": "2.0", "method": 1, "params": "bar"}, None),
        ({"jsonrpc": "2.0", "id": 3, "method": 1}, 3),
        ({"jsonrpc": "2.0", "id": 3, "method": "session.list", "params": "bar"}, 3),
        ({"jsonrpc": "2.0", "id": 3, "method": "session.list", "params": None}, 3),
        ({"jsonrpc": "1.0", "id": "x", "method": "session.list"}, "x"),
        ({"jsonrpc": 2.0, "id": 3, "method": "session.list"}, 3),
        ({"id": 3, "method": "session.list"}, 3),
        ({"jsonrpc": "2.0", "id": True, "method": "session.list"}, None),
        ({"jsonrpc": "2.0", "id": [], "method": "session.list"}, None),
        ({"jsonrpc": "2.0", "id": {}, "method": "session.list"}, None),
    ],
)
def test_what_is_no_request(desk: Desk, request_: Any, answered: Any) -> None:
    answer = desk.say(request_)
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert (answer["id"], answer["error"]["code"]) == (answered, -32600)
    assert answer["error"]["data"]["kind"] == "INVALID_REQUEST"


@pytest.mark.parametrize("request_id", [0, -1, 2**63, 1.5, "", "x\u2028\ud800", None])
def test_an_answer_has_the_id_of_its_request(desk: Desk, request_id: Any) -> None:
    request = {"jsonrpc": "2.0", "id": request_id, "method": "session.list"}
    line = desk.conversation.answer(json.dumps(request).encode())
    assert line is not None
    assert json.loads(line) == {"jsonrpc": "2.0", "id": request_id, "result": {"sessions": []}}


def test_a_notification_is_executed_and_not_answered(desk: Desk, session: str) -> None:
    for params in (
        {"sessionId": session, "message": message("m")},
        {"sessionId": session, "message": message("m", text="conflict")},
        {},
        [],
    ):
        request = {"jsonrpc": "2.0", "method": "session.appendMessage", "params": params}
        assert desk.say(request) is None
    assert desk.say({"jsonrpc": "2.0", "method": "nobody"}) is None
    assert ids(desk.host, session) == ["m"]


def test_a_method_that_is_not_there(desk: Desk) -> None:
    for name in ("session.rename", "", "rpc.discover", "host.handshake2"):
        assert desk.error(name)["code"] == Code.METHOD_NOT_FOUND


def test_batches(desk: Desk, session: str) -> None:
    def append(name: str, **more: Any) -> dict[str, Any]:
        params = {"sessionId": session, "message": message(name)}
        return {"jsonrpc": "2.0", "method": "session.appendMessage", "params": params, **more}

    answers = desk.say(
        [append("a", id=1), append("b"), 5, append("c", id="x"), {"jsonrpc": "2.0", "id": 9}]
    )
    assert [each["id"] for each in answers] == [1, None, "x", 9]
    assert [each.get("result", {}).get("position") for each in answers] == [0, None, 2, None]
    assert desk.say([append("d"), append("e")]) is None
    assert desk.say([])["error"]["code"] == -32600
    assert desk.say([[append("f", id=1)]])[0]["error"]["code"] == -32600
    assert ids(desk.host, session) == ["a", "b", "c", "d", "e"]


def test_odd_values_arrive(desk: Desk, session: str) -> None:
    odd = message("m", text="\ud800\u2028\x7f", big=2**64, deep=[[[[{}]]]])
    assert desk.ask("session.appendMessage", sessionId=session, message=odd)["ok"]
    assert shown(desk.host, session) == [odd]
    request = {"jsonrpc": "2.0", "id": 1, "method": "session.get", "params": {"sessionId": session}}
    line = desk.conversation.answer(json.dumps(request).encode())
    assert line is not None
    assert json.loads(line)["result"]["messages"] == [{"type": "message", **odd}]
    assert "\u2028" not in line.decode()  # for clients that take it for the end of a line


def test_a_number_that_json_has_no_word_for_is_null(desk: Desk, session: str) -> None:
    line = f'{{"type":"message","id":"m","role":"user","blocks":[NaN],"createdAt":"{AT}"}}\n'
    with transcript(desk.host, session).open("ab") as file:
        file.write(line.encode())
    (got,) = desk.ask("session.get", sessionId=session)["messages"]
    assert got["blocks"] == [None]


# -- the handshake ----------------------------------------------------------------------


def test_it_comes_first(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        conversation = Conversation(host, never)

        def say(method: str, params: Any, **more: Any) -> Any:
            request = {"jsonrpc": "2.0", "method": method, "params": params, **more}
            line = conversation.answer(json.dumps(request).encode())
            return None if line is None else json.loads(line)

        for method in ("session.create", "nobody"):
            error = say(method, {}, id=1)["error"]
            assert (error["code"], error["data"]["kind"]) == (1011, "PROTOCOL_MISMATCH")
        assert say("session.create", {}) is None
        assert host.list_sessions() == []
        for version in (8, 10, 9.0, "9", True, None, [9]):
            answer = say("host.handshake", {"protocolVersion": version}, id=1)
            assert answer["error"]["code"] == 1011
            assert answer["error"]["data"]["protocolVersion"] == 9
        for params in ({}, [9], []):
            assert say("host.handshake", params, id=1)["error"]["code"] == 1011
        assert say("session.list", {}, id=1)["error"]["code"] == 1011
        answer = say("host.handshake", {"protocolVersion": 9}, id=1)["result"]
        assert (answer["protocolVersion"], answer["name"]) == (9, "mmapstore")
        assert isinstance(answer["version"], str)
        assert say("session.list", {}, id=1)["result"] == {"sessions": []}


# -- lines ------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=12) | st.just(b"\n") | st.just(b"ab\n"), max_size=30))
def test_bytes_become_lines_however_they_come(parts: list[bytes]) -> None:
    lines = Lines(limit=8)
    found = [line for part in parts for line in lines.feed(part)]
    *whole, _torn = b"".join(parts).split(b"\n")
    assert found == [line if len(line) < 8 else None for line in whole]


def test_the_limit_of_a_line() -> None:
    lines = Lines()
    block = b"x" * (1 << 20)
    for _ in range(63):
        assert lines.feed(block) == []
    assert [len(line or b"") for line in lines.feed(block[:-1] + b"\n")] == [MAX_LINE_NBYTES - 1]
    for _ in range(70):
        assert lines.feed(block) == []
    assert len(lines._begun) == 0
    assert lines.feed(b"x\nnext\n") == [None, b"next"]


# -- the server, over pipes that were written before ------------------------------------


class Notes:
    """A host that only notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.factor = 1
        self.during: Callable[[], None] = lambda: None

    def create_session(self, title: str | None = None) -> mmapstore.host.Session:
        from mmapstore.host import Session

        self.asked.append(title)
        self.during()
        return Session(f"s{len(self.asked)}", title and title * self.factor, AT, AT)


def create(title: str, request_id: Any = None) -> bytes:
    request: dict[str, Any] = {"jsonrpc": "2.0", "method": "session.create"}
    request["params"] = {"title": title}
    if request_id is not None:
        request["id"] = request_id
    return orjson.dumps(request) + b"\n"


HELLO = orjson.dumps(HANDSHAKE) + b"\n"


@contextmanager
def piped(notes: Notes, *inputs: bytes) -> Iterator[tuple[Server, list[int]]]:
    """Return a server with clients that have said what they say and gone, and where answers come."""
    server = Server(notes, never)  # type: ignore[arg-type]
    fds: list[int] = []
    outputs = []
    try:
        for data in inputs:
            reader, end = os.pipe()
            output, writer = os.pipe()
            fds += [reader, output, writer]
            outputs.append(output)
            os.set_blocking(output, False)
            assert os.write(end, data) == len(data)
            os.close(end)
            server.converse(reader, writer)
        yield server, outputs
    finally:
        server.close()
        for fd in fds:
            os.close(fd)


def answers(output: int) -> list[Any]:
    data = b""
    try:
        while part := os.read(output, 1 << 20):
            data += part
    except BlockingIOError:
        pass
    assert data == b"" or data.endswith(b"\n")
    return [orjson.loads(line) for line in data.splitlines()]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_every_client_is_answered_in_its_order_and_all_is_executed_once(
    requests: list[tuple[int, bool]],
) -> None:
    """Against a list for each client."""
    notes = Notes()
    inputs = [HELLO] * 4
    for number, (client, is_answered) in enumerate(requests):
        inputs[client] += create(f"{client}-{number}", number if is_answered else None)
    with piped(notes, *inputs) as (server, outputs):
        server.serve()
        for client, output in enumerate(outputs):
            mine = [(number, each[1]) for number, each in enumerate(requests) if each[0] == client]
            found = answers(output)
            assert [each["id"] for each in found] == [
                0,
                *(n for n, is_answered in mine if is_answered),
            ]
            titles = [title for title in notes.asked if title and title.startswith(f"{client}-")]
            assert titles == [f"{client}-{number}" for number, _ in mine]


def test_what_arrived_first_is_executed_first() -> None:
    notes = Notes()
    server = Server(notes, never)  # type: ignore[arg-type]
    pairs = [socket.socketpair() for _ in range(3)]
    order = [2, 0, 1, 0, 2, 1, 1, 0]
    sent = iter(order)
    try:
        for ours, theirs in pairs:
            server.converse(theirs.fileno(), theirs.fileno())
            ours.send(HELLO)

        def send() -> None:
            # the next request arrives while this one is executed
            client = next(sent, None)
            if client is None:
                for ours, _ in pairs:
                    ours.shutdown(socket.SHUT_WR)
            else:
                pairs[client][0].send(create(str(client)))

        notes.during = send
        send()
        server.serve()
    finally:
        server.close()
        for pair in pairs:
            for end in pair:
                end.close()
    assert notes.asked == [str(client) for client in order]


def test_a_line_without_its_newline_is_no_request() -> None:
    notes = Notes()
    with piped(notes, HELLO + create("a") + create("b", 5)[:-1]) as (server, (output,)):
        server.serve()
        assert len(answers(output)) == 1
    assert notes.asked == ["a"]


def test_a_line_that_is_too_long_is_answered_and_the_next_is_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module.Lines.__init__, "__defaults__", (200,))
    notes = Notes()
    data = HELLO + create("x" * 300, 1) + create("a", 2)
    with piped(notes, data) as (server, (output,)):
        server.serve()
        _, long, short = answers(output)
    assert (long["id"], long["error"]["code"]) == (None, -32600)
    assert long["error"]["data"]["limit"] == MAX_LINE_NBYTES
    assert short["id"] == 2
    assert notes.asked == ["a"]


def test_it_stops_after_the_request_it_executes() -> None:
    notes = Notes()
    data = HELLO + create("a", 1) + create("b", 2)
    with piped(notes, data, HELLO) as (server, (output, _)):
        notes.during = server.stop
        server.serve()
        assert [each["id"] for each in answers(output)] == [0, 1]
    assert notes.asked == ["a"]
    server.stop()  # it may be told again


@pytest.mark.parametrize(("title", "factor"), [("x" * 300_000, 1), ("y", 300_000)])
def test_a_client_that_does_not_read_waits_alone(
    monkeypatch: pytest.MonkeyPatch, title: str, factor: int
) -> None:
    """What is held for it is bounded; when it reads, it goes on."""
    monkeypatch.setattr(server_module, "CLOGGED_NBYTES", 1000)
    notes = Notes()
    notes.factor = factor
    lazy, eager = socket.socketpair(), socket.socketpair()
    server = Server(notes, never)  # type: ignore[arg-type]
    held: list[tuple[int, int]] = []
    notes.during = lambda: held.append(
        (len(server._requests), max(len(client.out) for client in server._clients))
    )
    thread = threading.Thread(target=server.serve)
    try:
        for ours, theirs in (lazy, eager):
            server.converse(theirs.fileno(), theirs.fileno())
            ours.settimeout(60)
        thread.start()
        data = HELLO + b"".join(create(title, number + 1) for number in range(20))
        writing = threading.Thread(target=lazy[0].sendall, args=(data,))
        writing.start()
        with eager[0].makefile("rb") as answers_:
            eager[0].sendall(HELLO)
            assert answers_.readline()
            number = 0
            # until the lazy one has been executed as often as it will be, and then some
            while number < 40 or notes.asked.count(title) == 0:
                number += 1
                eager[0].sendall(create("e", number))
                assert answers_.readline()
        with lazy[0].makefile("rb") as answers_:
            for answered in range(21):
                assert orjson.loads(answers_.readline())["id"] == answered
        writing.join()
    finally:
        server.stop()
        thread.join()
        for pair in (lazy, eager):
            for end in pair:
                end.close()
    assert notes.asked.count("e") == number
    assert notes.asked.count(title) == 20
    if factor == 1:
        assert max(requests for requests, _ in held) <= 1
    assert max(nbytes for _, nbytes in held) < 400_000


def test_requests_of_one_read_are_all_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_READ_NBYTES", 1000)
    notes = Notes()
    waiting: list[int] = []
    data = HELLO + b"".join(create(str(number)) for number in range(300))
    with piped(notes, data) as (server, _):
        notes.during = lambda: waiting.append(len(server._requests))
        server.serve()
    assert notes.asked == [str(number) for number in range(300)]
    assert max(waiting) <= 1000 // len(create("0"))


def test_an_answer_that_nobody_reads_keeps_nobody_else_waiting(desk: Desk, path: Path) -> None:
    session = desk.host.create_session().id
    desk.host.append_message(session, message("m", text="x" * 5_000_000))
    get = {"jsonrpc": "2.0", "id": 1, "method": "session.get", "params": {"sessionId": session}}
    with serving(desk.host, path), socket.socket(socket.AF_UNIX) as lazy:
        lazy.settimeout(60)
        lazy.connect(str(path))
        lazy.sendall(HELLO + orjson.dumps(get) + b"\n")
        with lazy.makefile("rb") as answers_:
            assert answers_.readline()
            assert answers_.peek(1)  # the large one has begun
            with Client.connect(path) as client:
                assert len(client.call("session.list")["sessions"]) == 1
            assert len(answers_.readline()) > 5_000_000


def test_the_last_answer_is_written_whole() -> None:
    notes = Notes()
    title = "x" * 50_000
    with piped(notes, HELLO + create(title, 1) + create("b", 2)) as (server, (output,)):
        notes.during = server.stop
        server.serve()
        assert [each["id"] for each in answers(output)] == [0, 1]
    assert notes.asked == [title]


def test_a_client_that_went_away_while_it_was_answered() -> None:
    notes = Notes()
    other = socket.socketpair()
    gone = socket.socketpair()
    server = Server(notes, never)  # type: ignore[arg-type]
    try:
        for _, theirs in (other, gone):
            server.converse(theirs.fileno(), theirs.fileno())
        gone[0].sendall(HELLO + create("a", 1) + create("b", 2))
        notes.during = gone[0].close
        other[0].sendall(HELLO + create("c", 1))
        other[0].shutdown(socket.SHUT_WR)
        server.serve()
        other[1].close()
        with other[0].makefile("rb") as answers_:
            assert len(answers_.read().splitlines()) == 2
    finally:
        server.close()
        for end in (*other, gone[1]):
            end.close()
    assert sorted(map(str, notes.asked)) == ["a", "b", "c"]


# -- the socket -------------------------------------------------------------------------


@contextmanager
def serving(host: mmapstore.Host, at: Path | Listener) -> Iterator[Server]:
    server = Server(host, never)
    server.listen(at)
    path = Path(at.path) if isinstance(at, Listener) else at
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        assert not path.exists()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


def test_a_listener_may_be_there_before_the_server(desk: Desk, path: Path) -> None:
    """Who connects in the meantime is served then; closing it again is nothing."""
    with Listener(path) as listener, socket.socket(socket.AF_UNIX) as early:
        early.connect(str(path))
        with serving(desk.host, listener), Client.connect(path) as client:
            assert client.call("session.list") == {"sessions": []}
            early.sendall(HELLO)
            assert b"protocolVersion" in early.recv(1 << 16)
        assert not path.exists()


def test_the_socket_is_its_owners_and_goes_with_the_server(desk: Desk, path: Path) -> None:
    before = os.umask(0)
    try:
        with serving(desk.host, path):
            assert stat.S_IMODE(path.lstat().st_mode) == 0o600
            assert stat.S_ISSOCK(path.lstat().st_mode)
    finally:
        os.umask(before)


def test_a_live_server_is_left_alone_and_a_dead_one_replaced(desk: Desk, path: Path) -> None:
    with serving(desk.host, path):
        with pytest.raises(LockedError) as caught:
            Listener(path)
        assert caught.value.path == str(path)
        with Client.connect(path) as client:
            assert client.call("session.list") == {"sessions": []}
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    with serving(desk.host, path), Client.connect(path) as client:
        assert client.call("session.list") == {"sessions": []}


def test_a_server_with_too_many_waiting_lives(path: Path) -> None:
    waiting = []
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        try:
            while True:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(path))
        except BlockingIOError:
            pass
        with pytest.raises(LockedError):
            Listener(path)
        for each in waiting:
            each.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling"])
def test_what_is_no_socket_is_left_alone(path: Path, kind: str) -> None:
    if kind == "file":
        path.write_bytes(b"x")
    elif kind == "directory":
        path.mkdir()
    else:
        target = path.with_name("target")
        if kind == "link":
            target.write_bytes(b"x")
        path.symlink_to(target)
    with pytest.raises(MmapStoreError, match="no socket"):
        Listener(path)
    assert path.is_symlink() or path.exists()


def test_another_ones_file_is_not_removed_at_the_end(path: Path) -> None:
    listener = Listener(path)
    path.unlink()
    path.write_bytes(b"another")
    listener.close()
    listener.close()
    assert path.read_bytes() == b"another"


def test_a_path_that_is_too_long_or_leads_nowhere(tmp_path: Path) -> None:
    for bad in (tmp_path / ("x" * 200), tmp_path / "no" / "s"):
        with pytest.raises(OSError):
            Listener(bad)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted there")
def test_without_a_descriptor_a_client_is_turned_away(path: Path) -> None:
    import resource

    with Listener(path) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        try:
            assert listener.accept() is None
            assert client.recv(1) == b""
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in taken:
                os.close(fd)
        with socket.socket(socket.AF_UNIX) as second:
            second.connect(str(path))
            connection = listener.accept()
            assert connection is not None
            connection.close()


# -- the client -------------------------------------------------------------------------


def test_a_client_raises_what_the_host_raised(desk: Desk, session: str, path: Path) -> None:
    desk.host.append_message(session, user("m"))
    with serving(desk.host, path), Client.connect(path) as client:
        assert client.server["name"] == "mmapstore"
        with pytest.raises(SessionNotFoundError):
            client.call("session.get", sessionId="nobody")
        with pytest.raises(MessageNotFoundError):
            client.call("session.truncateFrom", sessionId=session, truncateFromMessageId="no")
        with pytest.raises(ConflictError, match="other content") as caught:
            client.append_messages(session, [user("m", text="x")])
        assert caught.value.path == str(transcript(desk.host, session))
        cause = caught.value.__cause__
        assert isinstance(cause, RpcError)
        assert cause.code == Code.CONFLICT
        with pytest.raises(InvalidRecordError):
            client.call("session.get")
        with pytest.raises(RpcError) as unknown:
            client.call("nobody")
        assert unknown.value.code == Code.METHOD_NOT_FOUND
        with pytest.raises(RevisionNotFoundError) as missing:
            client.call(
                "session.deleteRevision", sessionId=session, rootUserId="m", revisionIndex=1
            )
        cause = missing.value.__cause__
        assert isinstance(cause, RpcError)
        assert cause.code == Code.NOT_FOUND


@pytest.mark.parametrize("value", [float("nan"), (1,), {1: 2}, object(), b"x", 2**64 + 1])
def test_a_client_sends_nothing_that_would_arrive_as_another(
    desk: Desk, session: str, path: Path, value: Any
) -> None:
    with serving(desk.host, path), Client.connect(path) as client:
        with pytest.raises(InvalidRecordError):
            client.append_messages(session, [message("a"), message("b", value=value)])
        assert ids(desk.host, session) == []
        assert client.append_messages(session, [message("c", text="\ud800")]) == [0]


def test_an_outbox_before_a_client(desk: Desk, session: str, path: Path) -> None:
    desk.host.append_message(session, user("u", meta=root_meta("u", 1, 1)))
    with (
        serving(desk.host, path),
        Client.connect(path) as client,
        mmapstore.Outbox(client) as outbox,
    ):
        for number in range(100):
            outbox.append_message(session, message(f"m{number}"), "t")
        outbox.append_message("nobody", message("x"))
        assert outbox.drain()
        assert [type(each.error) for each in outbox.refused] == [SessionNotFoundError]
        saved = outbox.save_active_revision(session)
        assert saved["messageCount"] == 101
    assert ids(desk.host, session) == ["u", *(f"m{number}" for number in range(100))]
    assert len(desk.host.turn_messages(session, "t")) == 100


def test_an_outbox_holds_what_a_server_failed_to_write(
    desk: Desk, session: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Exception] = [WriteFailedError("full"), OSError(24, "too many open files")]
    real = desk.host.append_messages

    def append_messages(*args: Any) -> list[int]:
        if raised:
            raise raised.pop(0)
        return real(*args)

    monkeypatch.setattr(desk.host, "append_messages", append_messages)
    with (
        serving(desk.host, path),
        Client.connect(path) as client,
        mmapstore.Outbox(client) as outbox,
    ):
        outbox.append_message(session, message("m"))
        with pytest.raises(WriteFailedError):
            outbox.drain()
        with pytest.raises(RpcError, match="too many open files"):
            outbox.drain()
        assert outbox.drain() is True
        assert outbox.refused == []
    assert ids(desk.host, session) == ["m"]


def test_nothing_overtakes_a_message_that_a_server_failed_to_write(
    desk: Desk, session: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for a moment, in the middle of what waits in an outbox."""
    real = fileio.append
    failures = [OSError(28, "no space left on device")]

    def append(fd: int, data: bytes) -> None:
        if b'"b"' in data and failures:
            raise failures.pop()
        real(fd, data)

    monkeypatch.setattr(fileio, "append", append)
    with (
        serving(desk.host, path),
        Client.connect(path) as client,
        mmapstore.Outbox(client) as outbox,
    ):
        with suppress(WriteFailedError):
            for name in "abcde":
                outbox.append_message(session, message(name))
                outbox.drain()
        for name in "abcde":
            outbox.append_message(session, message(name))
        while not outbox.drain():
            pass
    assert ids(desk.host, session) == list("abcde")


def test_messages_that_are_much_together_go_in_parts(
    desk: Desk, session: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_client, "_PART_NBYTES", 1000)
    messages = [message(f"m{number}", text="x" * (number * 97 % 1500)) for number in range(50)]
    with serving(desk.host, path), Client.connect(path) as client:
        assert client.append_messages(session, messages) == list(range(50))
        assert client.append_messages(session, messages[::-1]) == list(range(50))[::-1]
        assert client.append_messages(session, []) == []
        with pytest.raises(SessionNotFoundError):
            client.append_messages("nobody", [])
    assert ids(desk.host, session) == [f"m{number}" for number in range(50)]


@contextmanager
def scripted(*answers_: bytes) -> Iterator[Client]:
    """Return a client of something that says what a test says."""
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("wb") as out:
        out.write(b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":9}}\n' + b"".join(answers_))
        out.close()
        theirs.shutdown(socket.SHUT_WR)
        client = Client(ours.makefile("rb"), ours.makefile("wb"))
        try:
            yield client
        finally:
            client.close()


def test_a_server_without_the_method_has_skipped_the_archive() -> None:
    error = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}\n'
    with scripted(error) as client:
        with pytest.warns(RuntimeWarning, match="not archived.*no such method"):
            assert client.save_active_revision("s") is Client.SKIPPED
        assert Client.SKIPPED is mmapstore.Outbox.SKIPPED
    other = b'{"jsonrpc":"2.0","id":1,"error":{"code":1000,"message":"a bug"}}\n'
    with scripted(other) as client, pytest.raises(RpcError, match="a bug"):
        client.save_active_revision("s")


@pytest.mark.parametrize(
    "answer", [b"", b'{"jsonrpc"', b"no json\n", b"5\n", b'{"jsonrpc":"2.0","id":9,"result":1}\n']
)
def test_a_connection_that_is_lost_stays_lost(answer: bytes) -> None:
    with scripted(answer) as client:
        with pytest.raises(ConnectionError):
            client.call("session.list")
        with pytest.raises(ConnectionError, match="lost in an earlier call"):
            client.call("session.list")
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client.call("session.list")


def test_a_server_of_another_version_is_refused() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(
            b'{"jsonrpc":"2.0","id":0,"error":{"code":1011,"message":"11","data":{"kind":"X"}}}\n'
        )
        with pytest.raises(RpcError) as caught:
            Client(ours.makefile("rb"), ours.makefile("wb"))
    assert caught.value.code == Code.PROTOCOL_MISMATCH


def test_nobody_listens(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Client.connect(path)


def test_the_page_about_it_has_every_method_parameter_and_code() -> None:
    page = (Path(__file__).parent.parent / "docs" / "rpc.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]*)\|", page, flags=re.MULTILINE)
    assert [name for name, _ in rows] == ["host.handshake", *METHODS]
    for name, told in rows[1:]:
        optional = set(re.findall(r"(\w+)\?", told))
        required = set(re.findall(r"\b([a-z]+[A-Z]\w+|title|message|messages|compaction|state)\b(?!\?)",
                                  re.sub(r"\([^)]*\)", "", told)))  # fmt: skip
        assert optional == set(METHODS[name].optional)
        assert required == set(METHODS[name].required)
    codes = re.findall(r"^\| (-?\d+) \| (\w+) \|", page, flags=re.MULTILINE)
    assert {(int(code), kind) for code, kind in codes} == {(code.value, code.name) for code in Code}
