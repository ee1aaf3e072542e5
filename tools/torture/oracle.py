"""Whether what is found is allowed: acknowledged is there, refused is not, unknown is whole."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import mmapstore

from . import disk
from .model import Branch, SessionModel, World, masked
from .operations import GROWING, Operation


class Violation(AssertionError):
    """Something that must hold does not."""


def require(holds: bool, what: str, *facts: object) -> None:
    """Raise a :class:`Violation` unless something holds."""
    if not holds:
        said = "; ".join(f"{fact!r:.600}" for fact in facts)
        raise Violation(f"{what}: {said}" if facts else what)


def without_type(messages: list[dict[str, Any]]) -> Branch:
    """Return messages without their type, which the model does not have."""
    found = copy.deepcopy(messages)
    for message in found:
        kind = message.pop("type", None)
        require(kind in ("message", "compaction"), "the type is another", kind)
    return found


def look(host: mmapstore.Host) -> World:
    """Return what a host shows, which must be what its files say."""
    directory = Path(host.data_dir)
    listed = sorted(session.id for session in host.list_sessions())
    require(
        listed == disk.session_ids(directory), "listed are other sessions than lie there", listed
    )
    world: World = {}
    for session_id in listed:
        remains = disk.read(directory, session_id)
        found = remains.session
        window = host.get_session(session_id, limit=None)
        require(
            without_type(window.messages) == found.messages,
            f"{session_id}: shown are other messages than the file has",
            [m["id"] for m in window.messages],
            remains.positions,
        )
        require(
            without_type(list(window.compactions)) == found.compactions,
            f"{session_id}: shown are other checkpoints than the file has",
        )
        require(window.total == len(remains.positions), "another total", window.total)
        require(host.session(session_id).title == found.title, "another title", found.title)
        _check_branches(host, session_id, found)
        for turn in {m["turnId"] for m in found.messages if "turnId" in m}:
            of_turn = [m["id"] for m in found.messages if m.get("turnId") == turn]
            shown = [m["id"] for m in host.turn_messages(session_id, turn)]
            require(shown == of_turn, "another turn", turn, shown, of_turn)
        world[session_id] = found
    return world


def _check_branches(host: mmapstore.Host, session_id: str, found: SessionModel) -> None:
    for family in {family for family, _ in found.archive}:
        at = found.root(family)
        if at is not None and found.messages[at]["role"] != "user":
            continue
        shown = [revision.index for revision in host.list_revisions(session_id, family)]
        stored = sorted(index for name, index in found.archive if name == family)
        require(shown == stored, "other branches are listed", family, shown, stored)


def check_closed(directory: Path) -> None:
    """Check a directory that has no host: the index says what the files say, and nothing strays."""
    require(not disk.strays(directory), "a temporary file was left", disk.strays(directory))
    rows = disk.index_rows(directory)
    ids = disk.session_ids(directory)
    require(sorted(rows) == ids, "the index has other sessions", sorted(rows), ids)
    for session_id in ids:
        remains = disk.read(directory, session_id)
        by_id = {m["id"]: m for m in remains.session.messages}
        messages = [
            (seq, i, by_id[i].get("turnId"), by_id[i]["role"]) if i else (seq, None, None, None)
            for seq, i in enumerate(remains.positions)
        ]
        branches = sorted(remains.session.archive)
        expected = (remains.session.title, len(messages), messages, branches)
        require(rows[session_id] == expected, "the index differs", rows[session_id], expected)


# -- found against asked for -------------------------------------------------------------


def judge(
    found: World,
    before: World,
    after: World,
    unknown: Operation | None,
    *,
    any_order: bool = False,
) -> World:
    """Return what is there, by the names that the model has; what is not allowed raises.

    Parameters
    ----------
    found : World
        By session id.
    before : World
        What was acknowledged.
    after : World
        What would be there if the unknown operation had been executed.
    unknown : Operation, optional
        That was asked for and not acknowledged.
    any_order : bool
        Whether of lines written at once later ones may be there without those before them, as
        a power cut may leave them.
    """
    world: World = {}
    rest = dict(found)
    for name, session in before.items():
        there = rest.pop(name, None)
        if there is None:
            gone = unknown is not None and name not in after
            require(gone, f"{name}: an acknowledged session is gone")
            continue
        is_touched = unknown is not None and unknown.session == name
        goal = after.get(name, session) if is_touched else session
        op = unknown if is_touched else None
        if any_order and op is not None and op.kind in GROWING:
            found_ids = {m["id"] for m in there.messages}
            goal = copy.deepcopy(goal)
            added = [m for m in goal.messages[len(session.messages) :] if m["id"] in found_ids]
            goal.messages[len(session.messages) :] = added
        world[name] = _judged(name, there, session, goal, op)
    new = [name for name in after if name not in before]
    for name, there in rest.items():
        require(len(new) == 1, f"{name}: a session that nobody asked for", there.title)
        goal = after[new.pop()]
        require(masked(there) == masked(goal), "a new session is not whole", there, goal)
        world[name] = there
    return world


def _judged(
    name: str, found: SessionModel, before: SessionModel, after: SessionModel, op: Operation | None
) -> SessionModel:
    require(found.title == before.title, f"{name}: another title", found.title, before.title)
    if before.is_fork:
        # its ids are read now: the first look at it that anybody has
        count = len(found.messages)
        require(len(before.messages) <= count <= len(after.messages), f"{name}: messages are gone")
        wanted = copy.deepcopy(after)
        wanted.messages = wanted.messages[:count]
        require(masked(found) == masked(wanted), f"{name}: a fork differs", found, wanted)
        return found
    if op is not None and op.kind in GROWING:
        count = len(found.messages)
        is_between = len(before.messages) <= count <= len(after.messages)
        require(
            is_between and found.messages == after.messages[:count],
            f"{name}: not the acknowledged messages and whole ones of those behind them",
            _summary(found.messages),
            _summary(before.messages),
            _summary(after.messages),
        )
        _require_compactions(name, found, before)
        _require_archive(name, found, before, before)
        return found
    is_before = _shows(found, before)
    is_after = _shows(found, after)
    require(
        is_before or is_after,
        f"{name}: neither what was nor what was asked for" if op else f"{name}: something changed",
        _difference(found, before),
        _difference(found, after),
    )
    # what a rewrite drops has been archived before it
    _require_archive(name, found, before if is_before else after, after)
    return found


def _shows(found: SessionModel, wanted: SessionModel) -> bool:
    return found.messages == wanted.messages and _by_id(found) == _by_id(wanted)


def _by_id(session: SessionModel) -> list[dict[str, Any]]:
    return sorted(session.compactions, key=lambda record: str(record["id"]))


def _require_compactions(name: str, found: SessionModel, wanted: SessionModel) -> None:
    require(_by_id(found) == _by_id(wanted), f"{name}: other checkpoints")


def _require_archive(
    name: str, found: SessionModel, before: SessionModel, after: SessionModel
) -> None:
    for key in {*found.archive, *before.archive, *after.archive}:
        wanted = [each.archive[key] for each in (before, after) if key in each.archive]
        if key not in found.archive:
            gone = key not in before.archive or key not in after.archive
            require(gone, f"{name}: an archived branch is gone", key)
            continue
        there = found.archive[key]
        if there is not None and None in wanted:
            # stored where it might have been referred to
            at = found.root(key[0])
            wanted += [] if at is None else [found.messages[at:]]
        require(there in wanted, f"{name}: an archived branch differs", key, there, wanted)


def _summary(messages: Branch) -> list[str]:
    return [f"{m['id']}:{len(str(m['blocks']))}" for m in messages]


def _difference(found: SessionModel, wanted: SessionModel) -> str:
    for at, (one, other) in enumerate(zip(found.messages, wanted.messages, strict=False)):
        if one != other:
            keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
            parts = [f"{key} {one.get(key)!r:.200}, due {other.get(key)!r:.200}" for key in keys]
            return f"message {at}, {one['id']}: {parts}"
    if len(found.messages) != len(wanted.messages):
        return f"{len(found.messages)} messages where {len(wanted.messages)} are due"
    return f"checkpoints {[c['id'] for c in found.compactions]}, due {[c['id'] for c in wanted.compactions]}"
