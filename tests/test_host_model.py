"""The host against a plain model in memory: every operation, restarts, and deaths in the middle."""

from __future__ import annotations

import copy
import shutil
import tempfile
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import mmapstore
from mmapstore.errors import ConflictError, MessageNotFoundError, MmapStoreError
from tests.host_support import (
    Died,
    abandon,
    compaction,
    failing,
    ids,
    message,
    revisions_file,
    root_meta,
    shown,
    tool,
    transcript,
    user,
)

LIVE = "live"


def family_of(record: dict[str, Any]) -> str:
    return str(record.get("meta", {}).get("revisionRootId") or record["id"])


def ids_of(messages: list[dict[str, Any]]) -> list[str]:
    return [record["id"] for record in messages]


class Model:
    """One session: its effective messages, and its archive by (family, index)."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.archive: dict[tuple[str, int], Any] = {}
        # the last stored content of each branch, also of one that is live since
        self.stored: dict[tuple[str, int], list[dict[str, Any]]] = {}
        # behind which message a stored branch stood; None for the beginning
        self.places: dict[tuple[str, int], str | None] = {}
        self.compactions: list[dict[str, Any]] = []

    def index(self, message_id: str) -> int | None:
        found = [i for i, m in enumerate(self.messages) if m["id"] == message_id]
        return found[0] if found else None

    def roots(self) -> list[int]:
        return [
            i
            for i, m in enumerate(self.messages)
            if m["role"] == "user" and m.get("meta", {}).get("revisionCount")
        ]

    def root(self, family: str) -> int | None:
        stamped = [
            i
            for i in self.roots()
            if family in (family_of(self.messages[i]), self.messages[i]["id"])
        ]
        return stamped[-1] if stamped else self.index(family)

    def branch(self, at: int) -> list[dict[str, Any]]:
        return copy.deepcopy(self.messages[at:])

    def behind(self, at: int) -> str | None:
        return self.messages[at - 1]["id"] if at else None

    def put(self, key: tuple[str, int], branch: list[dict[str, Any]], behind: str | None) -> None:
        self.archive[key] = self.stored[key] = branch
        self.places[key] = behind

    def store(self, key: tuple[str, int], at: int, *, live: bool = True) -> None:
        """Store the messages from one on; what would be lost of the stored ones is kept apart."""
        branch, behind = self.branch(at), self.behind(at)
        old = self.stored.get(key, [])
        shown = {m["id"] for m in self.messages}
        roots = [i for i, m in enumerate(old) if m["role"] == "user" and family_of(m) == key[0]]
        front = [m for m in old[: roots[0] if roots else 0] if m["id"] not in shown]
        if live and front:
            branch, behind = [*front, *branch], self.places[key]
        there = shown | {m["id"] for m in branch}
        others = [v for k, v in self.archive.items() if k[0] == key[0] and k != key]
        if any(m["id"] not in there for m in old) and old not in others:
            self.put((key[0], self.free(key[0], self.root(key[0]))), old, self.places[key])
        self.put(key, branch, behind)

    def place(self, key: tuple[str, int]) -> int:
        """Where a branch goes whose root was cut."""
        behind = self.places[key]
        at = -1 if behind is None else self.index(behind)
        return len(self.messages) if at is None else at + 1

    def before_dropping(self, at: int) -> None:
        if at >= len(self.messages):
            return
        for i in self.roots():
            key = family_of(self.messages[i]), self.messages[i]["meta"].get("activeRevision")
            if self.archive.get(key) == LIVE:
                self.store(key, i)

    def free(self, family: str, at: int | None) -> int:
        meta = {} if at is None else self.messages[at].get("meta", {})
        stored = [index for name, index in self.archive if name == family]
        return max([0, *stored, meta.get("revisionCount", 0), meta.get("activeRevision", 0)]) + 1

    def stamp(self, at: int, family: str, count: int, active: int | None) -> None:
        meta = self.messages[at].setdefault("meta", {})
        stored = [index for name, index in self.archive if name == family]
        meta["revisionRootId"] = family
        meta["revisionCount"] = max([count, meta.get("revisionCount", 0), *stored])
        if active is not None:
            meta["activeRevision"] = active

    def drop(self, keep: list[dict[str, Any]]) -> None:
        self.messages = keep
        there = {m["id"]: i for i, m in enumerate(keep)}
        self.compactions = [c for c in self.compactions if c["throughMessageId"] in there]

    def cut(self, at: int) -> None:
        self.before_dropping(at)
        tail = self.branch(at)
        first = next((m for m in tail if m["role"] == "user"), None)
        if first is not None:
            family = family_of(first)
            index = first.get("meta", {}).get("activeRevision")
            same = [k for k, v in self.archive.items() if k[0] == family and v == tail]
            if index is None:
                root = first.get("meta", {})
                stored = [i for name, i in self.archive if name == family]
                index = same[0][1] if same else max([0, *stored, root.get("revisionCount", 0)]) + 1
            self.store((family, index), at, live=False)
        self.drop(self.messages[:at])

    def activate(self, family: str, index: int) -> None:
        at = self.root(family)
        if at is not None and self.messages[at].get("meta", {}).get("activeRevision") == index:
            return
        branch = copy.deepcopy(self.archive[family, index])
        assert branch != LIVE
        newest = index
        if at is not None:
            newest = self.messages[at].get("meta", {}).get("activeRevision") or self.free(
                family, at
            )
            self.store((family, newest), at)
            for i in self.roots():
                key = family_of(self.messages[i]), self.messages[i]["meta"].get("activeRevision")
                if i > at and key[1] is not None and self.archive.get(key, LIVE) == LIVE:
                    self.store(key, i)
            self.before_dropping(at)
        else:
            self.cut(self.place((family, index)))
        count = self.messages[at].get("meta", {}).get("revisionCount", 0) if at is not None else 0
        own = next(
            (i for i, m in enumerate(branch) if m["role"] == "user" and family_of(m) == family),
            None,
        )
        before = self.messages if at is None else self.messages[:at]
        if own is None:
            assert at is not None
            new = [*before, self.messages[at], *branch]
            place = at
        elif at is None:
            new = [*before, *branch]
            place = len(before) + own
        else:
            new = [*before, *branch[own:]]
            place = at
        self.drop(copy.deepcopy(new))
        count = max(count, self.messages[place].get("meta", {}).get("revisionCount", 0))
        self.stamp(place, family, max(count, newest, index), index)


class HostMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.host = mmapstore.Host(self.directory)
        self.session = self.host.create_session(title="T").id
        self.model = Model()
        self.serial = 0

    def teardown(self) -> None:
        self.host.close()
        shutil.rmtree(self.directory)

    def fresh(self) -> str:
        self.serial += 1
        return f"m{self.serial}"

    def pick(self, data: st.DataObject, role: str | None = None) -> dict[str, Any]:
        found = [m for m in self.model.messages if role in (None, m["role"])]
        return data.draw(st.sampled_from(found)) if found else {}

    # -- rules ------------------------------------------------------------------------

    @rule(roles=st.lists(st.sampled_from(["user", "assistant", "tool"]), min_size=1, max_size=3))
    def append(self, roles: list[str]) -> None:
        new = []
        for role in roles:
            name = self.fresh()
            more = {"turnId": f"t{self.serial % 3}"}
            new.append(
                tool(name, "s1", "s2", **more) if role == "tool" else message(name, role, **more)
            )
        count = len(self.model.messages)
        found = self.host.append_messages(self.session, copy.deepcopy(new))
        assert found == list(range(count, count + len(new)))
        self.model.messages += new

    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        known = copy.deepcopy(self.pick(data))
        if not known:
            return
        before = transcript(self.host, self.session).read_bytes()
        assert self.host.append_message(self.session, known) == self.model.index(known["id"])
        known["blocks"] = ["other"]
        with pytest.raises(ConflictError):
            self.host.append_message(self.session, known)
        assert transcript(self.host, self.session).read_bytes() == before

    @rule(
        data=st.data(),
        snapshot=st.sampled_from(["s1", "s2"]),
        state=st.sampled_from(["active", "rolledBack", "é"]),
    )
    def review(self, data: st.DataObject, snapshot: str, state: str) -> None:
        known = self.pick(data, "tool")
        if not known:
            return
        (review,) = [
            r
            for r in known["blocks"][0]["result"]["details"]["reviews"]
            if r["snapshotId"] == snapshot
        ]
        written = self.host.set_review_state(self.session, known["id"], snapshot, state)
        assert written == (review["state"] != state)
        review["state"] = state

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        known = self.pick(data)
        if not known:
            return
        known["extra"] = known.get("extra", 0) + 1
        assert self.host.update_message(self.session, copy.deepcopy(known))
        assert not self.host.update_message(self.session, copy.deepcopy(known))

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        known = self.pick(data)
        if known:
            record = compaction(f"c{self.fresh()}", known["id"])
            self.host.append_compaction(self.session, record)
            self.model.compactions.append(record)

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(self.model.messages)) if self.model.messages else []
        keep = copy.deepcopy(order[: data.draw(st.integers(0, len(order)))])
        if keep and data.draw(st.booleans()):
            keep[0]["edited"] = self.fresh()
        if data.draw(st.booleans()):
            keep.append(user(self.fresh()))
        same = 0
        while (
            same < min(len(keep), len(self.model.messages))
            and keep[same] == self.model.messages[same]
        ):
            same += 1
        self.model.before_dropping(same)
        self.host.replace_messages(self.session, copy.deepcopy(keep))
        self.model.drop(keep)
        order_of = {m["id"]: i for i, m in enumerate(keep)}
        self.model.compactions.sort(key=lambda c: order_of[c["throughMessageId"]] * 0)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        count = len(self.model.messages)
        at = data.draw(st.integers(0, count))
        if at == count:
            assert self.host.truncate_from(self.session, before=at).discarded == 0
            return
        if data.draw(st.booleans()):
            cut = self.host.truncate_from(self.session, before=at)
        else:
            cut = self.host.truncate_from(self.session, self.model.messages[at]["id"], before=0)
        assert (cut.kept, cut.discarded) == (at, count - at)
        has_user = any(m["role"] == "user" for m in self.model.messages[at:])
        assert (cut.revision is not None) == has_user
        self.model.cut(at)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        through = self.pick(data)
        child = self.host.fork_session(self.session, through.get("id"))
        stop = len(self.model.messages)
        if through:
            stop = (self.model.index(through["id"]) or 0) + 1
        copied = shown(self.host, child.id)
        assert len(copied) == stop
        for new, old in zip(copied, self.model.messages, strict=False):
            assert new["id"] != old["id"]
            assert new["role"] == old["role"]
            assert [b.get("text") for b in new["blocks"]] == [b.get("text") for b in old["blocks"]]
            if old["role"] == "tool":
                assert (
                    new["blocks"][0]["result"]["details"] == old["blocks"][0]["result"]["details"]
                )
            assert "revisionCount" not in new.get("meta", {})
        self.host.delete_session(child.id)

    # -- branches ---------------------------------------------------------------------

    @rule(data=st.data(), active=st.booleans(), replies=st.integers(0, 2))
    def save_revision(self, data: st.DataObject, active: bool, replies: int) -> None:
        known = self.pick(data, "user")
        if not known:
            return
        family = family_of(known)
        at = self.model.root(family)
        assert at is not None
        branch = [message(self.fresh()) for _ in range(replies)]
        root = self.model.messages[at]
        old = root.get("meta", {}).get("activeRevision")
        index = self.model.free(family, at)
        if active:
            if old == index - 1 and (family, index - 1) not in self.model.archive:
                index -= 1
            if old not in (None, index) and self.model.archive.get((family, old)) == LIVE:
                self.model.store((family, old), at)
        saved = self.host.save_revision(
            self.session, family, copy.deepcopy(branch), make_active=active
        )
        assert (saved.root_user_id, saved.index) == (family, index)
        self.model.put((family, index), branch, self.model.behind(at))
        self.model.stamp(at, family, index, index if active else old)

    @rule()
    def save_active(self) -> None:
        saved = self.host.save_active_revision(self.session)
        roots = self.model.roots()
        assert (saved is None) == (not roots)
        if saved is not None:
            at = roots[-1]
            root = self.model.messages[at]
            family = family_of(root)
            index = root["meta"].get("activeRevision") or self.model.free(family, at)
            assert (saved.root_user_id, saved.index) == (family, index)
            self.model.archive[family, index] = LIVE
            self.model.stamp(at, family, index, index)

    @rule()
    def regenerate(self) -> None:
        """Cut at the last user message, and go on with another of its family."""
        at = max(
            (i for i, m in enumerate(self.model.messages) if m["role"] == "user"), default=None
        )
        if at is None:
            return
        cut = self.host.truncate_from(self.session, self.model.messages[at]["id"])
        self.model.cut(at)
        assert cut.revision is not None
        family = cut.revision.root_user_id
        count = max(i for name, i in self.model.archive if name == family) + 1
        new = [user(self.fresh(), meta=root_meta(family, count, count)), message(self.fresh())]
        self.host.append_messages(self.session, copy.deepcopy(new))
        self.model.messages += new

    @precondition(lambda self: self.model.archive)
    @rule(data=st.data())
    def activate(self, data: st.DataObject) -> None:
        family, index = data.draw(st.sampled_from(sorted(self.model.archive)))
        branch = self.model.archive[family, index]
        at = self.model.root(family)
        active = (
            None if at is None else self.model.messages[at].get("meta", {}).get("activeRevision")
        )
        if at is not None and self.model.messages[at]["role"] != "user":
            return
        if branch == LIVE and active != index:
            with pytest.raises(MmapStoreError):
                self.host.activate_revision(self.session, family, index)
            return
        if at is None and not any(m["role"] == "user" and family_of(m) == family for m in branch):
            with pytest.raises(MessageNotFoundError):
                self.host.activate_revision(self.session, family, index)
            return
        place = self.model.place((family, index)) if at is None else at
        behind = self.model.messages[place:]
        if at is None and behind and not any(m["role"] == "user" for m in behind):
            with pytest.raises(ConflictError):
                self.host.activate_revision(self.session, family, index)
            return
        kept = {m["id"] for m in self.model.messages[:place]}
        own = [i for i, m in enumerate(branch) if branch != LIVE and family_of(m) == family]
        new = branch if at is None or not own else branch[own[0] :]
        if branch != LIVE and active != index and kept & {m["id"] for m in new}:
            with pytest.raises(ConflictError):
                self.host.activate_revision(self.session, family, index)
            return
        self.host.activate_revision(self.session, family, index)
        self.model.activate(family, index)

    @precondition(lambda self: self.model.archive)
    @rule(data=st.data())
    def delete_revision(self, data: st.DataObject) -> None:
        family, index = data.draw(st.sampled_from(sorted(self.model.archive)))
        at = self.model.root(family)
        root = {} if at is None else self.model.messages[at]
        if root.get("meta", {}).get("activeRevision") == index:
            with pytest.raises(ConflictError):
                self.host.delete_revision(self.session, family, index)
        else:
            self.host.delete_revision(self.session, family, index)
            del self.model.archive[family, index]
            self.model.stored.pop((family, index), None)

    # -- ends -------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.host.close()
        self.host = mmapstore.Host(self.directory)

    @rule()
    def reindex(self) -> None:
        self.host.reindex()

    @rule(
        at=st.integers(0, 3),
        mode=st.sampled_from(["error", "short", "late", "die", "die after", "die short"]),
    )
    def append_and_fail(self, at: int, mode: str) -> None:
        new = [message(self.fresh()), message(self.fresh())]
        with pytest.MonkeyPatch.context() as patch, failing(patch, at, mode) as made:
            try:
                self.host.append_messages(self.session, copy.deepcopy(new))
                failed = False
            except (mmapstore.WriteFailedError, Died):
                failed = True
        if mode.startswith("die"):
            abandon(self.host)
            self.host = mmapstore.Host(self.directory)
        assert failed == (len(made) > at)
        if failed and len(shown(self.host, self.session)) == len(self.model.messages) + 1:
            # the first of the two was whole: to ask again completes them
            assert ids(self.host, self.session)[-1] == new[0]["id"]
        self.host.append_messages(self.session, copy.deepcopy(new))
        self.model.messages += new

    # -- what always holds --------------------------------------------------------------

    @invariant()
    def the_messages_are_the_models(self) -> None:
        window = self.host.get_session(self.session, limit=None)
        assert shown(self.host, self.session) == self.model.messages
        assert window.total == len(self.model.messages) + len(
            [d for d in window.damaged if d.position is not None]
        )
        assert {c["id"] for c in window.compactions} == {c["id"] for c in self.model.compactions}

    @invariant()
    def the_archive_is_the_models(self) -> None:
        for family in {name for name, _ in self.model.archive}:
            listed = self.host.list_revisions(self.session, family)
            expected = {i: b for (name, i), b in self.model.archive.items() if name == family}
            assert [revision.index for revision in listed] == sorted(expected)
        stored = {}
        path = revisions_file(self.host, self.session)
        for line in path.read_bytes().splitlines() if path.exists() else ():
            record = orjson.loads(line)
            if record["type"] == "revision":
                messages = [{k: v for k, v in m.items() if k != "type"} for m in record["messages"]]
                stored[record["rootUserId"], record["revisionIndex"]] = messages
        assert {k: ids_of(v) for k, v in stored.items()} == {
            k: ids_of(v) for k, v in self.model.stored.items()
        }

    @invariant()
    def turns_are_found(self) -> None:
        for turn in ("t0", "t1", "t2"):
            found = self.host.turn_messages(self.session, turn)
            assert [m["id"] for m in found] == [
                m["id"] for m in self.model.messages if m.get("turnId") == turn
            ]

    @invariant()
    def a_plain_reader_sees_the_same(self) -> None:
        with mmapstore.open(transcript(self.host, self.session), cache_dir=None) as t:
            assert [m["id"] for m in t.window(limit=None).messages] == [
                m["id"] for m in self.model.messages
            ]
        assert [s.id for s in self.host.list_sessions()] == [self.session]


HostMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestHost = HostMachine.TestCase
