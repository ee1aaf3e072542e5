"""Operations drawn at random, such as are possible on what is there."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from .model import Branch, Message, SessionModel, World, family_of
from .operations import GROWING, Operation, applied, compaction, is_possible, message

if TYPE_CHECKING:
    import random

_WEIGHTS = {
    "append": 30,
    "outbox": 4,
    "again": 3,
    "review": 12,
    "update": 8,
    "compact": 4,
    "replace": 4,
    "truncate": 8,
    "regenerate": 6,
    "save": 4,
    "save active": 6,
    "activate": 8,
    "delete revision": 3,
    "fork": 4,
    "create": 3,
    "delete": 3,
    "reindex": 1,
    "conflict": 2,
    "unknown": 2,
}


#: characters of a session that is deleted rather than worked with
_MOST_NBYTES = 1_500_000


def nbytes_of(session: SessionModel) -> int:
    """Return about how large a session is."""
    branches = [session.messages, *(branch or [] for branch in session.archive.values())]
    return sum(len(block.get("text", "")) for b in branches for m in b for block in m["blocks"])


class Drawer:
    """Draws operations that are possible.

    Parameters
    ----------
    rng : random.Random
        Decides.
    sizes : sequence of int
        Lengths of texts, one of which each message has.
    """

    def __init__(self, rng: random.Random, sizes: tuple[int, ...] = (20, 100, 400)) -> None:
        self.rng = rng
        self.sizes = sizes
        self._serial = 0
        self._pending: list[Operation] = []

    def fresh(self, prefix: str) -> str:
        """Return an id that nothing has."""
        self._serial += 1
        return f"{prefix}{self._serial}"

    def message(self, role: str | None = None, **more: Any) -> Message:
        """Return a new message."""
        role = role or self.rng.choice(["user", "assistant", "assistant", "tool"])
        size = self.rng.choice(self.sizes)
        name = self.fresh("m")
        text = f"{name} é ".ljust(size, self.rng.choice('xyz{\\"行'))[:size]
        return message(name, role, text, **more)

    def draw(self, world: World) -> Operation:
        """Return an operation that is possible."""
        if self._pending:
            op = self._pending.pop()
            if is_possible(op, world):
                return op
        if not world:
            return self._create()
        for name, session in world.items():
            if nbytes_of(session) > _MOST_NBYTES:
                return Operation("delete", name)
        for _ in range(50):
            kind = self.rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
            drawn = self._drawn(kind, world)
            if drawn is not None and is_possible(drawn, world):
                return drawn
        return self._create()

    def _create(self) -> Operation:
        name = self.fresh("new-")
        return Operation("create", name, {"title": f"title of {name}"})

    def _drawn(self, kind: str, world: World) -> Operation | None:
        rng = self.rng
        if kind == "create":
            return self._create() if len(world) < 4 else None
        name = rng.choice(sorted(world))
        session = world[name]
        too_large = len(session.messages) > 25 or len(session.archive) > 8
        if kind == "delete" or (too_large and rng.random() < 0.2):
            return Operation("delete", name) if len(world) > 1 or too_large else None
        if kind == "reindex":
            return Operation(kind, name)
        if kind in GROWING:
            more: dict[str, Any] = {}
            turn = {} if rng.random() < 0.5 else {"turnId": f"t{rng.randrange(3)}"}
            if turn and kind == "append" and rng.random() < 0.5:
                more["turn"] = turn["turnId"]
            count = rng.choice([1, 1, 1, 2, 3, 5])
            messages = [self.message(**turn) for _ in range(count)]
            return Operation(kind, name, {"messages": messages, "look": rng.random() < 0.3, **more})
        if kind == "unknown":
            what = rng.choice(["cut", "update", "replace", "append"])
            return Operation(kind, name, {"what": what})
        if session.is_fork or not session.messages:
            return None
        if kind == "fork":
            title = self.fresh("fork-")
            through = None if rng.random() < 0.2 else rng.choice(session.messages)["id"]
            more = {"parent": name, "through": through, "title": title}
            return Operation(kind, title, more) if len(world) < 4 else None
        return self._on_messages(kind, name, session)

    def _on_messages(self, kind: str, name: str, session: SessionModel) -> Operation | None:
        rng = self.rng
        known = copy.deepcopy(rng.choice(session.messages))
        if kind in ("again", "conflict"):
            return Operation(kind, name, {"message": known})
        if kind == "review":
            tools = [m["id"] for m in session.messages if m["role"] == "tool"]
            if not tools:
                return None
            state = rng.choice(["active", "rolledBack", "zurückgenommen"])
            snapshot = rng.choice(["s1", "s2"])
            return Operation(
                kind, name, {"id": rng.choice(tools), "snapshot": snapshot, "state": state}
            )
        if kind == "update":
            known["edited"] = self.fresh("e")
            return Operation(kind, name, {"message": known})
        if kind == "compact":
            return Operation(kind, name, {"record": compaction(self.fresh("c"), known["id"])})
        if kind == "replace":
            return Operation(kind, name, {"messages": self._others(session)})
        if kind == "truncate":
            return Operation(kind, name, {"id": known["id"]})
        if kind == "regenerate":
            return self._regenerate(name, session)
        if kind == "save active":
            return Operation(kind, name)
        return self._on_branches(kind, name, session)

    def _others(self, session: SessionModel) -> Branch:
        messages = copy.deepcopy(session.messages)
        if self.rng.random() < 0.3:
            self.rng.shuffle(messages)
        messages = messages[: self.rng.randrange(len(messages) + 1)]
        if messages and self.rng.random() < 0.5:
            self.rng.choice(messages)["edited"] = self.fresh("e")
        return [*messages, self.message()]

    def _regenerate(self, name: str, session: SessionModel) -> Operation | None:
        """Return the cut of the last user message; what is drawn next puts others in its place."""
        users = [m for m in session.messages if m["role"] == "user"]
        if not users:
            return None
        cut = Operation("truncate", name, {"id": users[-1]["id"]})
        family = family_of(users[-1])
        archive = applied(cut, {name: session})[name].archive
        count = max(index for key, index in archive if key == family) + 1
        meta = {"revisionRootId": family, "revisionCount": count, "activeRevision": count}
        new = [self.message("user", meta=meta), self.message("assistant")]
        self._pending.append(Operation("append", name, {"messages": new, "look": False}))
        return cut

    def _on_branches(self, kind: str, name: str, session: SessionModel) -> Operation | None:
        rng = self.rng
        if kind == "save":
            users = [m for m in session.messages if m["role"] == "user"]
            if not users:
                return None
            family = family_of(rng.choice(users))
            branch = [self.message("assistant") for _ in range(rng.randrange(3))]
            more = {"family": family, "branch": branch, "active": rng.random() < 0.3}
            return Operation(kind, name, more)
        if not session.archive:
            return None
        family, index = rng.choice(sorted(session.archive))
        return Operation(kind, name, {"family": family, "index": index})
