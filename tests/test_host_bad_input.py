"""Bad input on every operation: a typed error, nothing changed, nothing lost."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import (
    ConflictError,
    InvalidRecordError,
    MessageNotFoundError,
    MmapStoreError,
    PositionError,
    SessionNotFoundError,
)
from mmapstore.host import revisions
from tests.host_support import (
    compaction,
    ids,
    message,
    revisions_file,
    root_meta,
    tool,
    transcript,
    user,
)
from tests.strategies import C, M

Call = Callable[[mmapstore.Host, str], Any]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[mmapstore.Host]:
    with mmapstore.Host(tmp_path / "data") as made:
        yield made


@pytest.fixture
def session(host: mmapstore.Host) -> str:
    session = host.create_session(title="T").id
    host.append_messages(session, [user("u1", meta=root_meta("u1", 1, 1)), tool("x1", "s1")])
    host.append_message(session, message("a1"))
    host.save_active_revision(session)
    return session


def files(host: mmapstore.Host) -> dict[str, tuple[bytes, int]]:
    found = Path(host.data_dir, "sessions").iterdir()
    return {
        path.name: (path.read_bytes(), path.stat().st_ino)
        for path in found
        if path.suffix != ".layout"
    }


class Colour(enum.Enum):
    RED = "red"


def deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def looped() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


BAD_VALUES = {
    "nan": float("nan"),
    "infinity": float("-inf"),
    "an integer that would be rounded": 2**64 + 1,
    "an integer of 5000 digits": 10**5000,
    "a tuple": (1, 2),
    "a set": {1},
    "bytes": b"x",
    "a date": datetime.datetime(2026, 1, 1),
    "a uuid": uuid.UUID(int=1),
    "an enum": Colour.RED,
    "an object": object(),
    "keys that are no strings": {1: 2},
    "too deep": deep(2000),
    "a loop": looped(),
}

BAD_MESSAGES: dict[str, Any] = {
    "no object": ["id"],
    "none": None,
    "text": "m",
    "no id": {"role": "user", "blocks": []},
    "an empty id": message(""),
    "an id that is no string": {**message("n"), "id": 7},
    "an address": message("@17"),
    "no role": {"id": "n", "blocks": []},
    "an unknown role": message("n", "robot"),
    "a role that is no string": {**message("n"), "role": ["user"]},
    "no blocks": {"id": "n", "role": "user"},
    "another type": {**message("n"), "type": "compaction"},
    "a tool name that is no string": message("n", toolName=1),
    "an isError that is no truth value": message("n", isError=1),
    "a meta that is no object": message("n", meta=[]),
    "an empty turn": message("n", turnId=""),
    "a turn that is no string": message("n", turnId=1),
    "a time that is none": {**message("n"), "createdAt": "yesterday"},
    "a time that is a number": {**message("n"), "createdAt": 1},
    "a time without a zone": {**message("n"), "createdAt": "2026-01-01T00:00:00"},
    **{name: {**message("n"), "blocks": [value]} for name, value in BAD_VALUES.items()},
}

OF_A_MESSAGE: dict[str, Callable[[mmapstore.Host, str, Any], Any]] = {
    "append": lambda host, s, bad: host.append_message(s, bad),
    "append several": lambda host, s, bad: host.append_messages(s, [message("n0"), bad]),
    "update": lambda host, s, bad: host.update_message(
        s,
        {**bad, "id": bad.get("id") and (bad["id"] if bad["id"] != "n" else "a1")}
        if isinstance(bad, dict) and "id" in bad
        else bad,
    ),
    "replace": lambda host, s, bad: host.replace_messages(s, [message("n0"), bad]),
    "save": lambda host, s, bad: host.save_revision(s, "u1", [message("n0"), bad]),
}


@pytest.mark.parametrize("bad", BAD_MESSAGES)
@pytest.mark.parametrize("operation", OF_A_MESSAGE)
def test_a_bad_message_is_refused(
    host: mmapstore.Host, session: str, operation: str, bad: str
) -> None:
    before = files(host)
    with pytest.raises((InvalidRecordError, MessageNotFoundError)):
        OF_A_MESSAGE[operation](host, session, BAD_MESSAGES[bad])
    assert files(host) == before
    assert host.append_message(session, message("n")) == 3


BAD_CALLS: dict[str, tuple[type[Exception], Call]] = {
    "unknown session, append": (
        SessionNotFoundError,
        lambda host, s: host.append_message("nobody", message("a")),
    ),
    "unknown session, read": (SessionNotFoundError, lambda host, s: host.get_session("nobody")),
    "unknown session, cut": (
        SessionNotFoundError,
        lambda host, s: host.truncate_from("nobody", "a"),
    ),
    "unknown session, fork": (SessionNotFoundError, lambda host, s: host.fork_session("nobody")),
    "unknown session, navigate": (SessionNotFoundError, lambda host, s: host.navigate("nobody")),
    "unknown session, delete": (
        SessionNotFoundError,
        lambda host, s: host.delete_session("nobody"),
    ),
    "unknown session, turns": (
        SessionNotFoundError,
        lambda host, s: host.turn_messages("nobody", "t"),
    ),
    "unknown session, revisions": (
        SessionNotFoundError,
        lambda host, s: host.list_revisions("nobody", "u1"),
    ),
    "title": (InvalidRecordError, lambda host, s: host.create_session(title=7)),
    "fork title": (InvalidRecordError, lambda host, s: host.fork_session(s, title=7)),
    "messages that are no list": (
        InvalidRecordError,
        lambda host, s: host.append_messages(s, message("n")),
    ),
    "replace with no list": (InvalidRecordError, lambda host, s: host.replace_messages(s, None)),
    "replace with an id twice": (
        InvalidRecordError,
        lambda host, s: host.replace_messages(s, [message("n"), message("n", text="x")]),
    ),
    "replace with an unhashable id": (
        InvalidRecordError,
        lambda host, s: host.replace_messages(s, [{**message("n"), "id": []}]),
    ),
    "an empty turn": (
        InvalidRecordError,
        lambda host, s: host.append_message(s, message("n"), turn_id=""),
    ),
    "a turn that is no string": (
        InvalidRecordError,
        lambda host, s: host.append_message(s, message("n"), turn_id=7),
    ),
    "an id with other content": (
        ConflictError,
        lambda host, s: host.append_message(s, message("a1", text="other")),
    ),
    "an id with another time": (
        ConflictError,
        lambda host, s: host.append_message(
            s, {**message("a1"), "createdAt": "2027-01-01T00:00:00Z"}
        ),
    ),
    "true is not 1": (
        ConflictError,
        lambda host, s: host.append_messages(s, [message("n", extra=True), message("n", extra=1)]),
    ),
    "a conflict in a batch": (
        ConflictError,
        lambda host, s: host.append_messages(s, [message("n"), message("a1", text="x")]),
    ),
    "review of nobody": (
        MessageNotFoundError,
        lambda host, s: host.set_review_state(s, "nobody", "s1", "x"),
    ),
    "review of another's snapshot": (
        InvalidRecordError,
        lambda host, s: host.set_review_state(s, "x1", "s2", "x"),
    ),
    "review of no tool message": (
        InvalidRecordError,
        lambda host, s: host.set_review_state(s, "a1", "s1", "x"),
    ),
    "an empty state": (
        InvalidRecordError,
        lambda host, s: host.set_review_state(s, "x1", "s1", ""),
    ),
    "a state that is no string": (
        InvalidRecordError,
        lambda host, s: host.set_review_state(s, "x1", "s1", 1),
    ),
    "update of nobody": (
        MessageNotFoundError,
        lambda host, s: host.update_message(s, message("nobody")),
    ),
    "cut at nobody": (MessageNotFoundError, lambda host, s: host.truncate_from(s, "nobody")),
    "cut at nothing": (TypeError, lambda host, s: host.truncate_from(s)),
    "cut at a negative position": (ValueError, lambda host, s: host.truncate_from(s, before=-1)),
    "cut behind the end": (PositionError, lambda host, s: host.truncate_from(s, before=4)),
    "cut at a fraction": (TypeError, lambda host, s: host.truncate_from(s, before=1.5)),
    "cut at a truth value": (TypeError, lambda host, s: host.truncate_from(s, before=True)),
    "cut at an empty id": (InvalidRecordError, lambda host, s: host.truncate_from(s, "")),
    "cut at a number": (InvalidRecordError, lambda host, s: host.truncate_from(s, 7)),
    "fork at nobody": (MessageNotFoundError, lambda host, s: host.fork_session(s, "nobody")),
    "fork at a number": (InvalidRecordError, lambda host, s: host.fork_session(s, 1)),
    "branches of nobody": (
        MessageNotFoundError,
        lambda host, s: host.list_revisions(s, "nobody"),
    ),
    "a branch of nobody": (
        MessageNotFoundError,
        lambda host, s: host.save_revision(s, "nobody", []),
    ),
    "a branch of no user message": (
        InvalidRecordError,
        lambda host, s: host.save_revision(s, "a1", []),
    ),
    "a branch with an id twice": (
        InvalidRecordError,
        lambda host, s: host.save_revision(s, "u1", [message("n"), message("n")]),
    ),
    "a branch that is no list": (
        InvalidRecordError,
        lambda host, s: host.save_revision(s, "u1", {"a": 1}),
    ),
    "an unknown revision": (MmapStoreError, lambda host, s: host.activate_revision(s, "u1", 9)),
    "revision 0": (MmapStoreError, lambda host, s: host.activate_revision(s, "u1", 0)),
    "revision true": (MmapStoreError, lambda host, s: host.delete_revision(s, "u1", True)),
    "revision one half": (MmapStoreError, lambda host, s: host.activate_revision(s, "u1", "1")),
    "the active revision": (ConflictError, lambda host, s: host.delete_revision(s, "u1", 1)),
    "an empty root": (InvalidRecordError, lambda host, s: host.list_revisions(s, "")),
    "two places": (ValueError, lambda host, s: host.get_session(s, before=1, after=0)),
    "a limit of nothing": (ValueError, lambda host, s: host.get_session(s, limit=0)),
    "around nobody": (MessageNotFoundError, lambda host, s: host.get_session(s, around="nobody")),
    **{
        f"compaction, {name}": (
            InvalidRecordError,
            lambda host, s, bad=bad: host.append_compaction(s, bad),
        )
        for name, bad in {
            "empty id": compaction("", "a1"),
            "no id": {"summary": "s", "throughMessageId": "a1", "tokensBefore": 1},
            "empty summary": compaction("c", "a1", summary=""),
            "empty boundary": compaction("c", ""),
            "negative count": compaction("c", "a1", tokensBefore=-1),
            "no count": {"id": "c", "summary": "s", "throughMessageId": "a1"},
            "a truth value": compaction("c", "a1", tokensBefore=True),
            "nan": compaction("c", "a1", usage=float("nan")),
            "another type": compaction("c", "a1", type="message"),
            "no object": [1],
        }.items()
    },
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call_is_refused(host: mmapstore.Host, session: str, name: str) -> None:
    error, call = BAD_CALLS[name]
    before = files(host)
    with pytest.raises(error) as info:
        call(host, session)
    assert isinstance(info.value, (MmapStoreError, TypeError, ValueError))
    assert files(host) == before
    assert ids(host, session) == ["u1", "x1", "a1"]
    assert host.append_message(session, message("n")) == 3


def test_a_message_whose_lines_are_all_damaged(host: mmapstore.Host, session: str) -> None:
    path = Path(host.data_dir, "sessions", f"{session}.jsonl")
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"torn","role":\n')
    before = files(host)
    calls: list[Callable[[], object]] = [
        lambda: host.update_message(session, message("torn")),
        lambda: host.truncate_from(session, "torn"),
        lambda: host.fork_session(session, "torn"),
        lambda: host.set_review_state(session, "torn", "s", "x"),
    ]
    for call in calls:
        with pytest.raises(mmapstore.LineDecodeError):
            call()
    assert files(host) == before


def test_a_closed_host(tmp_path: Path) -> None:
    host = mmapstore.Host(tmp_path)
    session = host.create_session().id
    window = host.get_session(session)
    host.close()
    host.close()
    assert window.total == 0
    for call in (
        host.list_sessions,
        host.reindex,
        lambda: host.get_session(session),
        lambda: host.append_message(session, message("a")),
        lambda: host.navigate(None),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_what_is_there_already_is_allowed_to_stay(host: mmapstore.Host, session: str) -> None:
    """A field that another writer put in the line does not forbid every other change."""
    path = Path(host.data_dir, "sessions", f"{session}.jsonl")
    with path.open("ab") as file:
        file.write(b'{"type":"message","id":"odd","role":"robot","blocks":[NaN],"meta":7}\n')
    (odd,) = host.get_session(session, limit=1).messages
    assert host.update_message(session, {**odd, "extra": 1})
    assert path.read_bytes().endswith(b'"robot","blocks":[NaN],"meta":7,"extra":1}\n')
    with pytest.raises(InvalidRecordError):
        host.update_message(session, {**odd, "meta": 8})
    host.replace_messages(session, host.get_session(session).messages)


def test_a_data_dir_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(OSError, match="f"):
        mmapstore.Host(tmp_path / "f")


# -- what the host takes, and what lies in its files, never costs another session ----------


ODD = [
    pytest.param({"createdAt": "0001-01-01T00:00:00+14:00"}, id="before the first year"),
    pytest.param({"createdAt": "9999-12-31T23:59:59-14:00"}, id="behind the last year"),
    pytest.param({"meta": {"revisionCount": 2**63, "activeRevision": 2**63}}, id="huge index"),
    pytest.param({"meta": {"revisionCount": 2**53, "activeRevision": 2**53}}, id="inexact index"),
    pytest.param({"id": ["x"], "meta": {"revisionCount": 1}}, id="a list for an id"),
    pytest.param({"id": {}, "meta": {"revisionCount": 1}}, id="an object for an id"),
    pytest.param({"id": None, "meta": {"revisionCount": 1}}, id="no id"),
    pytest.param({"turnId": 5, "role": 7, "blocks": None}, id="fields of other types"),
]


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_line_never_costs_a_session(tmp_path: Path, odd: dict[str, Any]) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session(title="odd").id
        other = host.create_session(title="other").id
        host.append_messages(other, [message("o")])
        path = transcript(host, session)
    line = orjson.dumps({"type": "message", **user("u1"), **odd}) + b"\n"
    with path.open("ab") as file:
        file.write(line)
    (tmp_path / "index.sqlite").unlink()
    with mmapstore.Host(tmp_path) as host:
        assert {each.title for each in host.list_sessions()} == {"odd", "other"}
        host.reindex()
        host.append_messages(session, [user("u2"), message("a2")])
        host.save_active_revision(session)
        host.save_revision(session, "u2", [message("r")])
        assert [each.index for each in host.list_revisions(session, "u2")] == [1]
        host.truncate_from(session, "u2")
        assert path.read_bytes().endswith(line)
        host.append_message(session, message("a3"))
    (tmp_path / "index.sqlite").unlink()
    with mmapstore.Host(tmp_path) as host:
        assert host.get_session(session).total == 2


def test_a_revision_of_an_odd_index_is_skipped_and_kept(tmp_path: Path) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("u1"), message("a1")])
        host.save_revision(session, "u1", [message("r")])
        archive = revisions_file(host, session)
    odd = {"type": "revision", "rootUserId": "u1", "revisionIndex": 2**63, "messages": []}
    with archive.open("ab") as file:
        file.write(orjson.dumps(odd) + b"\n")
    (tmp_path / "index.sqlite").unlink()
    with mmapstore.Host(tmp_path) as host:
        assert [each.index for each in host.list_revisions(session, "u1")] == [1]
        host.save_revision(session, "u1", [message("r2")])
        assert archive.read_bytes().count(b"9223372036854775808") == 1


@pytest.mark.parametrize("depth", [3, 890, 896, 899, 950, 1000, 1018, 1020, 1021])
@pytest.mark.parametrize("inside", [b"1", b'"\\ud800"', b"NaN"])
def test_what_is_cut_can_be_shown_again_whatever_it_is(
    tmp_path: Path, depth: int, inside: bytes
) -> None:
    """Each message decodes by itself; all of them in one line are too much for a decoder."""
    nested = b"[" * depth + inside + b"]" * depth
    lines = [
        b'{"type":"message","id":"a1","role":"assistant","blocks":' + nested + b"}\n",
        b'{"type":"message","id":"a2","role":"assistant","blocks":["\\ud800"]}\n',
    ]
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, user("u1"))
        path = transcript(host, session)
        with path.open("ab") as file:
            file.writelines(lines)
        there = [line for line in lines if host.get_session(session).total == 3]
        damaged = len(host.get_session(session).damaged)
        cut = host.truncate_from(session, "u1")
        assert cut.revision is not None
        assert cut.revision.message_count == 3 - damaged
        host.activate_revision(session, "u1", 1)
        data = path.read_bytes()
        assert [line in data for line in there] == [not damaged, True]


def test_nothing_is_dropped_that_was_not_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("u1"), message("a1")])
        before = transcript(host, session).read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(revisions, "_record", lambda line: {"messages": []})
            with pytest.raises(InvalidRecordError, match="nothing was changed"):
                host.truncate_from(session, "u1")
        assert transcript(host, session).read_bytes() == before
        assert not revisions_file(host, session).exists()


@pytest.mark.parametrize("place", [0, 1, 2], ids="at {}".format)
@pytest.mark.parametrize("changed", [False, True], ids=["same", "changed"])
def test_a_damaged_line_makes_no_message_one_that_is_dropped(
    tmp_path: Path, place: int, changed: bool
) -> None:
    """Replaced by themselves and one more, messages leave a live branch where it is."""
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        path = transcript(host, session)
        messages = [user("u1", meta=root_meta("u1", 1, 1)), message("a1")]
        for number in range(3):
            if number == place:
                with path.open("ab") as file:
                    file.write(b'{"type":"message","id":\n')
            if number < 2:
                host.append_message(session, messages[number])
        host.save_active_revision(session)
        archive = revisions_file(host, session)
        assert archive.read_bytes().count(b"\n") == 1
        given = [messages[0], message("a1", text="other")] if changed else messages
        host.replace_messages(session, [*given, message("a2")])
        assert archive.read_bytes().count(b"\n") == 1 + changed
        host.append_message(session, message("a3"))
        cut = host.truncate_from(session, "u1")
        assert cut.revision is not None and cut.revision.message_count == 4
        assert ids(host, session) == []
        assert len(host.get_session(session).damaged) == (place == 0)


@pytest.mark.parametrize(
    "torn", [b"{", b'{"type":"revision","messages":[{"a":1},{"b', b"]}", b"\x00,,"]
)
def test_a_damaged_line_of_the_archive_is_skipped(tmp_path: Path, torn: bytes) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_messages(session, [user("u1"), message("a1")])
        host.save_revision(session, "u1", [message("r")])
        archive = revisions_file(host, session)
        with archive.open("ab") as file:
            file.write(torn + b"\n")
        assert [each.index for each in host.list_revisions(session, "u1")] == [1]


@pytest.mark.parametrize("more", [b"", b'{"type":"other"}\n', C("c")])
def test_a_fork_of_a_file_with_a_byte_order_mark_has_every_message(
    tmp_path: Path, more: bytes
) -> None:
    directory = tmp_path / "sessions"
    directory.mkdir()
    header = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-01T00:00:00Z"}\n'
    for head in (b"\xef\xbb\xbf" + header, b"\xef\xbb\xbf"):
        (directory / "s.jsonl").write_bytes(head + more + M("a") + M("b"))
        with mmapstore.Host(tmp_path) as host:
            child = host.fork_session("s")
            window = host.get_session(child.id)
            assert (len(window.messages), window.damaged) == (2, [])
            assert b"\xef\xbb\xbf" not in transcript(host, child.id).read_bytes()
            host.delete_session(child.id)


@pytest.mark.parametrize(
    "title", ["t" * 5000, "t" * 70_000, "a\ud800b", "\\ud800", "é行😀", "\x00"]
)
def test_a_title_is_what_it_was_given_as(tmp_path: Path, title: str) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session(title=title)
        assert session.title == title
        created = session.created_at
    for reindexed in (False, True):
        if reindexed:
            (tmp_path / "index.sqlite").unlink()
        with mmapstore.Host(tmp_path) as host:
            assert host.session(session.id).title == title
            assert host.session(session.id).created_at == created
            assert [each.title for each in host.list_sessions()] == [title]
            host.append_message(session.id, message("a"))
            child = host.fork_session(session.id)
            assert child.title == title
            host.delete_session(child.id)


@pytest.mark.parametrize("turn", ["t", "\ud800", "\\ud800"])
def test_a_turn_of_any_text_is_found(tmp_path: Path, turn: str) -> None:
    with mmapstore.Host(tmp_path) as host:
        session = host.create_session().id
        host.append_message(session, message("m\ud800"), turn_id=turn)
        host.append_message(session, message("other"), turn_id="o")
        assert [m["id"] for m in host.turn_messages(session, turn)] == ["m\ud800"]
    with mmapstore.Host(tmp_path) as host:
        assert [m["id"] for m in host.turn_messages(session, turn)] == ["m\ud800"]
        host.append_message(session, message("last\ud800"))
