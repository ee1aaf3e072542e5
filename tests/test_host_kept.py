"""Whatever is cut, shown or stamped: what an archive holds is never lost to another branch."""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import mmapstore
from mmapstore import ConflictError
from tests.host_support import ids, message, revisions_file, root_meta, shown, transcript, user
from tests.strategies import M


@pytest.fixture
def host(tmp_path: Path) -> Iterator[mmapstore.Host]:
    with mmapstore.Host(tmp_path / "data") as made:
        yield made


@pytest.fixture
def session(host: mmapstore.Host) -> str:
    return host.create_session().id


def stamped(message_id: str, family: str, index: int) -> dict[str, Any]:
    return user(message_id, meta=root_meta(family, index, index))


def branches(host: mmapstore.Host, session: str, family: str) -> dict[int, list[str]]:
    """Return the ids of every branch of a family, as its activation shows them in a copy."""
    found = {}
    active = [each.index for each in host.list_revisions(session, family) if each.is_active]
    for revision in host.list_revisions(session, family):
        host.activate_revision(session, family, revision.index)
        found[revision.index] = ids(host, session)
    for index in active:
        host.activate_revision(session, family, index)
    return found


def everything(host: mmapstore.Host, session: str) -> set[str]:
    """Return the ids of all messages in the transcript and in the lines of the archive that count."""
    found = set(ids(host, session))
    lines = {}
    for line in revisions_file(host, session).read_bytes().splitlines():
        record = orjson.loads(line)
        if record["type"] == "revision":
            lines[record["rootUserId"], record["revisionIndex"]] = record["messages"]
    return found | {each["id"] for messages in lines.values() for each in messages}


def lines_aside(host: mmapstore.Host, session: str) -> list[bytes]:
    found = []
    for line in revisions_file(host, session).read_bytes().splitlines():
        record = orjson.loads(line)
        if record["type"] == "aside":
            text = record.get("text")
            found.append(base64.b64decode(record["base64"]) if text is None else text.encode())
    return found


def test_what_a_branch_has_before_its_root_outlives_being_shown(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u0"), message("a0"), user("u1"), message("a1")])
    cut = host.truncate_from(session, "a0")  # an answer, with a question behind it
    assert cut.revision is not None and cut.revision.message_count == 3
    host.append_messages(session, [message("b0"), stamped("u2", "u1", 2), message("a2")])
    before = everything(host, session)
    for index in (1, 2, 1, 2, 1):
        host.activate_revision(session, "u1", index)
    assert ids(host, session) == ["u0", "b0", "u1", "a1"]
    assert everything(host, session) == before == {"u0", "a0", "u1", "a1", "b0", "u2", "a2"}
    assert [each.index for each in host.list_revisions(session, "u1")] == [1, 2]
    # with another beginning it is another branch, and each is shown where nothing else stands
    host.truncate_from(session, "b0")
    assert [each.index for each in host.list_revisions(session, "u1")] == [1, 2, 3]
    host.activate_revision(session, "u1", 3)
    assert ids(host, session) == ["u0", "a0", "u1", "a1"]


def test_an_older_copy_of_a_nested_branch_does_not_take_the_place_of_a_newer_one(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1"), user("u8"), message("a8")])
    host.truncate_from(session, "u8")
    host.append_messages(session, [stamped("u12", "u8", 2), message("a12")])
    host.save_active_revision(session)
    host.truncate_from(session, "u1")
    host.append_messages(session, [stamped("u32", "u1", 2), message("a32")])
    host.save_active_revision(session)
    host.activate_revision(session, "u8", 2)
    host.append_messages(session, [user("u41"), message("a41")])
    before = everything(host, session)
    host.activate_revision(session, "u8", 1)
    host.activate_revision(session, "u1", 1)
    host.activate_revision(session, "u8", 1)
    host.activate_revision(session, "u8", 2)
    assert everything(host, session) >= before
    assert ["u41", "a41"] in [seen[-2:] for seen in branches(host, session, "u8").values()]
    count = len(host.list_revisions(session, "u8"))
    for index in (1, 2, 3, 1, 2):
        host.activate_revision(session, "u8", index)
    assert len(host.list_revisions(session, "u8")) == count


def test_a_branch_is_not_shown_behind_another_line_of_one_of_its_messages(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1"), user("u2"), message("a2")])
    host.truncate_from(session, "u2")
    host.append_messages(session, [message("a2", text="edited"), stamped("u3", "u2", 2)])
    before = shown(host, session)
    with pytest.raises(ConflictError, match="position 2"):
        host.activate_revision(session, "u2", 1)
    assert shown(host, session) == before
    assert [each.index for each in host.list_revisions(session, "u2")] == [1]
    host.truncate_from(session, "a2")
    host.activate_revision(session, "u2", 1)
    assert ids(host, session) == ["u1", "a1", "u2", "a2"]


@pytest.mark.parametrize("how", ["activated", "cut", "replaced"])
def test_an_index_that_is_stamped_twice_loses_neither_branch(
    host: mmapstore.Host, session: str, how: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    host.truncate_from(session, "u1")
    host.append_messages(session, [stamped("u2", "u1", 2), message("a2")])
    host.save_active_revision(session)
    host.truncate_from(session, "u2")
    host.append_messages(session, [stamped("u3", "u1", 2), message("a3")])
    host.save_active_revision(session)
    if how == "activated":
        host.activate_revision(session, "u1", 1)
    elif how == "cut":
        host.truncate_from(session, "u3")
    else:
        host.replace_messages(session, [])
    assert {"u1", "a1", "u2", "a2", "u3", "a3"} <= everything(host, session)
    assert sorted(branches(host, session, "u1").values()) == [
        ["u1", "a1"],
        ["u2", "a2"],
        ["u3", "a3"],
    ]


def test_an_answer_that_was_stored_outlives_being_made_anew(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    host.truncate_from(session, "u1")
    host.append_messages(session, [stamped("u2", "u1", 2), message("a2")])
    host.activate_revision(session, "u1", 1)
    host.activate_revision(session, "u1", 2)
    assert host.truncate_from(session, "a2").revision is None
    host.append_message(session, message("b2"))
    host.activate_revision(session, "u1", 1)
    assert branches(host, session, "u1") == {1: ["u1", "a1"], 2: ["u2", "b2"], 3: ["u2", "a2"]}


def test_a_branch_that_went_on_is_stored_in_its_own_place(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    host.truncate_from(session, "u1")
    host.append_messages(session, [stamped("u2", "u1", 2), message("a2")])
    for number in range(3):
        host.activate_revision(session, "u1", 1)
        host.activate_revision(session, "u1", 2)
        host.append_message(session, message(f"b{number}"))
        host.update_message(session, message("a2", text=f"edited {number}"))
    host.activate_revision(session, "u1", 1)
    found = branches(host, session, "u1")
    assert found == {1: ["u1", "a1"], 2: ["u2", "a2", "b0", "b1", "b2"]}


@pytest.mark.parametrize(
    "change",
    [
        {"role": "system"},
        {"meta": root_meta("zz", 2, 2)},
        {"meta": {"revisionRootId": "u0", "activeRevision": 2}},
        {"meta": {}},
    ],
    ids=["role", "family", "count", "stamp"],
)
def test_a_root_that_is_no_longer_one_leaves_its_branch_stored(
    host: mmapstore.Host, session: str, change: dict[str, Any]
) -> None:
    host.append_messages(session, [user("u0"), message("a0")])
    host.truncate_from(session, "u0")
    host.append_messages(session, [stamped("u2", "u0", 2), message("a2")])
    host.save_active_revision(session)
    host.update_message(session, {**user("u2"), **change})
    host.truncate_from(session, "u2")
    host.activate_revision(session, "u0", 2)
    assert ids(host, session) == ["u2", "a2"]


@pytest.mark.parametrize(
    "first", [b'"role":"user"', b'"id":"","role":"user"'], ids=["none", "empty"]
)
def test_a_cut_is_archived_under_the_first_user_message_that_has_an_id(
    host: mmapstore.Host, session: str, first: bytes
) -> None:
    with transcript(host, session).open("ab") as file:
        file.write(b'{"type":"message",' + first + b',"blocks":[]}\n')
    host.append_messages(session, [user("u9"), message("a9")])
    cut = host.truncate_from(session, before=0)
    assert cut.revision is not None
    assert (cut.revision.root_user_id, cut.revision.message_count) == ("u9", 3)
    host.activate_revision(session, "u9", 1)
    assert len(host.get_session(session)) == 3


def test_messages_without_a_name_are_not_taken_for_one(host: mmapstore.Host, session: str) -> None:
    with transcript(host, session).open("ab") as file:
        for text in (b"one", b"two"):
            file.write(b'{"type":"message","id":"","role":"assistant","blocks":"' + text + b'"}\n')
    host.append_message(session, user("u0"))
    child = host.fork_session(session).id
    assert [each["blocks"] for each in shown(host, child)][:2] == ["one", "two"]
    host.truncate_from(session, before=0)
    host.activate_revision(session, "u0", 1)
    assert [each["blocks"] for each in shown(host, session)][:2] == ["one", "two"]


def test_what_a_cut_takes_and_no_branch_can_hold_is_put_aside(
    host: mmapstore.Host, session: str
) -> None:
    odd = [
        b'{"type":"message","id":"dam","role":"assistant","blocks":["precious',
        b'{"type":"note","x":1}',
        b'{"type":"revision","rootUserId":"u2","revisionIndex":1,"messages":[]}',
        b"\xff\x00 not even text",
    ]
    host.append_messages(session, [user("u1"), user("u2")])
    with transcript(host, session).open("ab") as file:
        file.write(odd[0] + b"\n" + odd[1] + b"\n\n" + M("a2") + odd[2] + b"\n" + odd[3])
    cut = host.truncate_from(session, "u2")
    assert cut.revision is not None and cut.revision.message_count == 2
    assert lines_aside(host, session) == odd
    assert [each.index for each in host.list_revisions(session, "u2")] == [1]
    host.activate_revision(session, "u2", 1)
    assert ids(host, session) == ["u1", "u2", "a2"]


def test_messages_that_no_branch_can_have_are_put_aside(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1"), message("a1"), message("a2")])
    lines = transcript(host, session).read_bytes().splitlines()[-2:]
    assert host.truncate_from(session, "a1").revision is None
    assert lines_aside(host, session) == lines
    assert host.list_revisions(session, "u1") == []


def test_a_cut_that_is_archived_puts_nothing_aside(host: mmapstore.Host, session: str) -> None:
    host.append_messages(session, [user("u1"), message("a1")])
    host.truncate_from(session, "u1")
    assert lines_aside(host, session) == []


def test_a_torn_message_is_archived_by_a_cut_like_any_other(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(session, [user("u1"), message("a1"), user("u2")])
    with transcript(host, session).open("ab") as file:
        file.write(M("torn").rstrip(b"\n"))
    host.truncate_from(session, "u2")
    host.activate_revision(session, "u2", 1)
    assert ids(host, session) == ["u1", "a1", "u2", "torn"]


def test_a_family_with_the_name_of_an_answer_can_be_cut_and_shown(
    host: mmapstore.Host, session: str
) -> None:
    host.append_messages(
        session, [user("u1"), message("a1"), stamped("u2", "a1", 1), message("a2")]
    )
    cut = host.truncate_from(session, "u2")
    assert cut.revision is not None and cut.revision.root_user_id == "a1"
    assert [each.index for each in host.list_revisions(session, "a1")] == [1]
    host.activate_revision(session, "a1", 1)
    assert ids(host, session) == ["u1", "a1", "u2", "a2"]


@pytest.mark.parametrize("garbage", [b"\0" * 100 + b"\n", b"\n\n", b"\xef\xbb\xbf", b"no\n"])
@pytest.mark.parametrize("how", ["cut", "replaced"])
def test_a_transcript_of_which_nothing_is_left_can_still_be_opened(
    tmp_path: Path, garbage: bytes, how: str
) -> None:
    (tmp_path / "sessions").mkdir()
    path = tmp_path / "sessions" / "s.jsonl"
    lines = [] if garbage == b"\xef\xbb\xbf" and how == "replaced" else [M("u1"), M("a1")]
    path.write_bytes(garbage + b"".join(lines))
    with mmapstore.Host(tmp_path) as host:
        if how == "cut":
            host.truncate_from("s", before=0)
        else:
            host.replace_messages("s", [])
        assert ids(host, "s") == []
        assert garbage.strip() in path.read_bytes()
        assert path.read_bytes().count(b"\xef\xbb\xbf") == garbage.count(b"\xef\xbb\xbf")
        host.append_message("s", user("z"))
    with mmapstore.Host(tmp_path) as host:
        assert ids(host, "s") == ["z"]


def test_a_turn_has_what_the_last_line_of_an_id_says(host: mmapstore.Host, session: str) -> None:
    with transcript(host, session).open("ab") as file:
        file.write(b'{"type":"message","id":"m","role":"user","blocks":1,"turnId":"T1"}\n')
        file.write(b'{"type":"message","id":"m","role":"user","blocks":2,"turnId":"T2"}\n')
    for _ in range(2):
        assert host.turn_messages(session, "T1") == []
        assert [each["blocks"] for each in host.turn_messages(session, "T2")] == [2]
        host.reindex()


def test_a_host_that_was_forgotten_frees_its_directory(tmp_path: Path) -> None:
    host = mmapstore.Host(tmp_path)
    host.append_message(host.create_session().id, user("u1"))
    del host
    gc.collect()
    with mmapstore.Host(tmp_path) as again:
        assert len(again.list_sessions()) == 1
