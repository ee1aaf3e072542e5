"""What a session must show: a plain model in memory, with nothing clever in it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Branch = list[Message]
#: of an archived branch: its family, and its number in it
Key = tuple[str, int]
World = dict[str, "SessionModel"]

_STAMPS = ("revisionRootId", "revisionCount", "activeRevision")


@dataclass(slots=True)
class SessionModel:
    """One session.

    Attributes
    ----------
    title : str
        Its title.
    messages : list of dict
        Effective, without their type.
    compactions : list of dict
        Checkpoints, without their type.
    archive : dict
        Branches by family and number; None for one that is the transcript's own end.
    is_fork : bool
        The ids in it are the host's own, and are not known before somebody has looked.
    places : dict
        Behind which message a stored branch stood, None for the beginning; where it is known.
    stored : dict
        The last stored content of each branch, also of one that is the end since.
    damaged : int
        Lines that say nothing and have a position all the same.
    """

    title: str
    messages: Branch = field(default_factory=list)
    compactions: list[dict[str, Any]] = field(default_factory=list)
    archive: dict[Key, Branch | None] = field(default_factory=dict)
    is_fork: bool = False
    places: dict[Key, str | None] = field(default_factory=dict)
    stored: dict[Key, Branch] = field(default_factory=dict)
    damaged: int = 0

    # -- looking ----------------------------------------------------------------------

    def index(self, message_id: str) -> int | None:
        """Return where a message stands, or None."""
        return next((i for i, m in enumerate(self.messages) if m["id"] == message_id), None)

    def roots(self) -> list[int]:
        """Return where the stamped user messages stand."""
        return [i for i, m in enumerate(self.messages) if m["role"] == "user" and stamp_of(m, 1)]

    def root(self, family: str) -> int | None:
        """Return where a family's last root stands, or the message of that id."""
        stamped = [
            i
            for i in self.roots()
            if family in (family_of(self.messages[i]), self.messages[i]["id"])
        ]
        return stamped[-1] if stamped else self.index(family)

    def next_free(self, family: str, at: int | None) -> int:
        """Return the number that a family's next branch has."""
        root = {} if at is None else self.messages[at]
        stored = [index for name, index in self.archive if name == family]
        return max([0, *stored, stamp_of(root, 1) or 0, stamp_of(root, 2) or 0]) + 1

    # -- what operations do -----------------------------------------------------------

    def keep(self, messages: Branch) -> None:
        """Put messages in the place of all; a checkpoint stays if its boundary does."""
        self.messages = messages
        there = {m["id"] for m in messages}
        self.compactions = [c for c in self.compactions if c["throughMessageId"] in there]

    def before_dropping(self, at: int) -> None:
        """Store the branches that are the transcript's end, before messages go."""
        if at >= len(self.messages):
            return
        for i in self.roots():
            key = self._live_key(i)
            if self._is_live(key):
                self._store(key, i)

    def cut(self, at: int) -> None:
        """Drop what stands from `at` on, archived under its first user message."""
        self.before_dropping(at)
        tail = self._branch(at)
        first = next((m for m in tail if m["role"] == "user"), None)
        if first is not None:
            family = family_of(first)
            index = stamp_of(first, 2)
            if index is None:
                same = [k for k, v in self.archive.items() if k[0] == family and v == tail]
                stored = [i for name, i in self.archive if name == family]
                free = max([0, *stored, stamp_of(first, 1) or 0]) + 1
                index = same[0][1] if same else free
            self._store((family, index), at, live=False)
        self.keep(self.messages[:at])

    def replace(self, messages: Branch) -> None:
        """Put a caller's messages in the place of all."""
        same = 0
        while same < min(len(messages), len(self.messages)) and (
            messages[same] == self.messages[same]
        ):
            same += 1
        self.before_dropping(same)
        self.keep(messages)

    def save(self, family: str, branch: Branch, *, active: bool) -> None:
        """Archive a branch of a root that is there, and stamp it."""
        at = self.root(family)
        assert at is not None
        family = family_of(self.messages[at])
        old = stamp_of(self.messages[at], 2)
        index = self.next_free(family, at)
        if active:
            if old == index - 1 and (family, old) not in self.archive:
                index = old
            if old is not None and old != index and self._is_live((family, old)):
                self._store((family, old), at)
        self._put((family, index), branch, self._behind(at))
        self._stamp(at, family, index, index if active else old)

    def save_active(self) -> None:
        """Refer to the branch that the transcript ends in."""
        roots = self.roots()
        if roots:
            at = roots[-1]
            family = family_of(self.messages[at])
            index = stamp_of(self.messages[at], 2) or self.next_free(family, at)
            self.archive[family, index] = None
            self._stamp(at, family, index, index)

    def can_activate(self, family: str, index: int) -> bool:
        """Whether the model knows what activating a branch leads to."""
        if (family, index) not in self.archive:
            return False
        branch = self.archive[family, index]
        at = self.root(family)
        root = None if at is None else self.messages[at]
        if root is not None and root["role"] != "user":
            return False
        if root is not None and stamp_of(root, 2) == index:
            return True
        if branch is None or (at is None and _own(branch, family) is None):
            return False
        place = self._place((family, index)) if at is None else at
        behind = self.messages[place:]
        if at is None and (
            self.damaged or (behind and not any(m["role"] == "user" for m in behind))
        ):
            return False
        kept = {m["id"] for m in self.messages[:place]}
        return not kept & {m["id"] for m in branch}

    def activate(self, family: str, index: int) -> None:
        """Show an archived branch; the one that is shown is stored first."""
        at = self.root(family)
        if at is not None and stamp_of(self.messages[at], 2) == index:
            return
        branch = copy.deepcopy(self.archive[family, index])
        assert branch is not None
        newest = index
        if at is not None:
            newest = stamp_of(self.messages[at], 2) or self.next_free(family, at)
            self._store((family, newest), at)
            for i in self.roots():
                if i > at and stamp_of(self.messages[i], 2) is not None:
                    key = self._live_key(i)
                    if self.archive.get(key) is None:
                        self._store(key, i)
            self.before_dropping(at)
        else:
            self.cut(self._place((family, index)))
        count = 0 if at is None else stamp_of(self.messages[at], 1) or 0
        own = _own(branch, family)
        place = len(self.messages) + (own or 0) if at is None else at
        before = self.messages[:at]
        if at is None:
            new = [*before, *branch]
        elif own is None:
            new = [*before, self.messages[at], *branch]
        else:
            new = [*before, *branch[own:]]
        self.keep(copy.deepcopy(new))
        count = max(count, stamp_of(self.messages[place], 1) or 0)
        self._stamp(place, family, max(count, newest, index), index)

    def forked(self, through: str | None, title: str) -> SessionModel:
        """Return the child that a fork makes; its ids stand for others."""
        at = None if through is None else self.index(through)
        messages = copy.deepcopy(self.messages[: None if at is None else at + 1])
        for message in messages:
            meta = message.get("meta")
            if isinstance(meta, dict):
                message["meta"] = {k: v for k, v in meta.items() if k not in _STAMPS}
        child = SessionModel(title, [], copy.deepcopy(self.compactions), is_fork=True)
        child.keep(messages)
        return child

    # -- parts ------------------------------------------------------------------------

    def _branch(self, at: int) -> Branch:
        return copy.deepcopy(self.messages[at:])

    def _behind(self, at: int) -> str | None:
        return self.messages[at - 1]["id"] if at else None

    def _put(self, key: Key, branch: Branch, *places: str | None) -> None:
        self.archive[key] = self.stored[key] = branch
        self.places.pop(key, None)
        for place in places:
            self.places[key] = place

    def _store(self, key: Key, at: int, *, live: bool = True) -> None:
        """Store the messages from one on; what would be lost of the stored ones is kept apart."""
        branch, places = self._branch(at), [self._behind(at)]
        old = self.stored.get(key, [])
        old_places = [self.places[key]] if key in self.places else []
        shown = {m["id"] for m in self.messages}
        front = [m for m in old[: _own(old, key[0]) or 0] if m["id"] not in shown]
        if live and front:
            branch, places = [*front, *branch], old_places
        there = shown | {m["id"] for m in branch}
        others = [v for k, v in self.archive.items() if k[0] == key[0] and k != key]
        if any(m["id"] not in there for m in old) and old not in others:
            root = self.root(key[0])
            if root is not None and self.messages[root]["role"] != "user":
                root = None
            self._put((key[0], self.next_free(key[0], root)), old, *old_places)
        self._put(key, branch, *places)

    def _place(self, key: Key) -> int:
        """Return where a branch goes whose root was cut."""
        behind = self.places.get(key, "nobody says")
        at = -1 if behind is None else self.index(behind)
        return len(self.messages) if at is None else at + 1

    def _live_key(self, at: int) -> Key:
        return family_of(self.messages[at]), stamp_of(self.messages[at], 2) or 0

    def _is_live(self, key: Key) -> bool:
        return self.archive.get(key, []) is None

    def _stamp(self, at: int, family: str, count: int, active: int | None) -> None:
        stored = [index for name, index in self.archive if name == family]
        meta = self.messages[at].setdefault("meta", {})
        meta["revisionRootId"] = family
        meta["revisionCount"] = max([count, meta.get("revisionCount", 0), *stored])
        if active is not None:
            meta["activeRevision"] = active


def stamp_of(message: Message, number: int) -> int | None:
    """Return one of the stamps in a message's meta: 1 for the count, 2 for the active one."""
    value = message.get("meta", {}).get(_STAMPS[number])
    return value if isinstance(value, int) else None


def family_of(message: Message) -> str:
    """Return the family that a user message is a root of."""
    return str(message.get("meta", {}).get(_STAMPS[0]) or message["id"])


def _own(branch: Branch, family: str) -> int | None:
    """Return where a branch has a root of its own, or None."""
    return next(
        (i for i, m in enumerate(branch) if m["role"] == "user" and family_of(m) == family), None
    )


def masked(session: SessionModel) -> tuple[Any, ...]:
    """Return what two sessions have in common that differ in ids alone."""
    messages = copy.deepcopy(session.messages)
    for message in messages:
        message["id"] = None
        for block in message["blocks"]:
            block.pop("callId", None)
    compactions = sorted(c["summary"] for c in session.compactions)
    return session.title, messages, compactions, session.archive
