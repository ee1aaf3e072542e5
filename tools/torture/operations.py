"""Operations: performed by a host, and applied to the model."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import mmapstore
from mmapstore.errors import ConflictError, InvalidRecordError, MessageNotFoundError

from .disk import reviews_of
from .model import Message, SessionModel, World

AT = "2026-01-02T03:04:05.000Z"
#: of these whole messages may be there although they were not acknowledged
GROWING = ("append", "outbox")
#: of these the session is a new one
MAKING = ("create", "fork")


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that a host is asked for.

    Attributes
    ----------
    kind : str
        Which of its methods.
    session : str
        The model's name of the session that it changes.
    more : dict
        What else it is about.
    """

    kind: str
    session: str
    more: dict[str, Any] = field(default_factory=dict)


class Wrong(Exception):
    """The host said something else than it had to say."""


# -- records ----------------------------------------------------------------------------


def message(message_id: str, role: str, text: str, **more: Any) -> Message:
    """Return a message; one of a tool owns two snapshots."""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if role == "tool":
        reviews = [{"snapshotId": name, "state": "active"} for name in ("s1", "s2")]
        details = {"root": text, "reviews": reviews}
        blocks = [
            {"type": "tool_call", "callId": f"call-{message_id}", "result": {"details": details}}
        ]
    return {"id": message_id, "role": role, "blocks": blocks, "createdAt": AT, **more}


def compaction(record_id: str, through: str) -> dict[str, Any]:
    """Return a checkpoint."""
    return {
        "id": record_id,
        "summary": f"of {record_id}",
        "throughMessageId": through,
        "tokensBefore": 7,
        "createdAt": AT,
    }


# -- the model ----------------------------------------------------------------------------


def is_possible(op: Operation, world: World) -> bool:
    """Whether the host has to do what is asked for, in this state."""
    more = op.more
    if op.kind == "fork":
        parent = world.get(more["parent"])
        return parent is not None and (
            more["through"] is None or parent.index(more["through"]) is not None
        )
    if op.kind == "create":
        return True
    session = world.get(op.session)
    if session is None:
        return False
    if op.kind in ("append", "outbox"):
        there = {m["id"]: m for m in session.messages}
        return all(there.get(m["id"], m) == m for m in more["messages"])
    if op.kind in ("review", "truncate"):
        return session.index(more["id"]) is not None
    if op.kind in ("update", "again", "conflict"):
        return session.index(more["message"]["id"]) is not None
    if op.kind == "compact":
        return session.index(more["record"]["throughMessageId"]) is not None
    if op.kind == "save":
        at = session.root(more["family"])
        return at is not None and session.messages[at]["role"] == "user"
    if op.kind == "activate":
        return session.can_activate(more["family"], more["index"])
    if op.kind == "delete revision":
        at = session.root(more["family"])
        root = {} if at is None else session.messages[at]
        is_root = at is None or root["role"] == "user"
        is_active = root.get("meta", {}).get("activeRevision") == more["index"]
        return is_root and not is_active and (more["family"], more["index"]) in session.archive
    return True


def applied(op: Operation, world: World) -> World:
    """Return what the world is after an operation."""
    world = copy.deepcopy(world)
    more = copy.deepcopy(op.more)
    if op.kind == "create":
        world[op.session] = SessionModel(more["title"])
    elif op.kind == "fork":
        world[op.session] = world[more["parent"]].forked(more["through"], more["title"])
    elif op.kind == "delete":
        del world[op.session]
    elif op.kind not in ("reindex", "look", "conflict", "unknown", "close", "again"):
        _apply(op.kind, world[op.session], more)
    return world


def _apply(kind: str, session: SessionModel, more: dict[str, Any]) -> None:
    if kind in GROWING:
        there = {m["id"] for m in session.messages}
        session.messages += [m for m in more["messages"] if m["id"] not in there]
    elif kind == "review":
        at = session.index(more["id"])
        assert at is not None
        for review in reviews_of(session.messages[at]):
            if review["snapshotId"] == more["snapshot"]:
                review["state"] = more["state"]
    elif kind == "update":
        at = session.index(more["message"]["id"])
        assert at is not None
        session.messages[at] = more["message"]
    elif kind == "compact":
        if more["record"] not in session.compactions:
            session.compactions.append(more["record"])
    elif kind == "replace":
        session.replace(more["messages"])
    elif kind == "truncate":
        at = session.index(more["id"])
        assert at is not None
        session.cut(at)
    elif kind == "save":
        session.save(more["family"], more["branch"], active=more["active"])
    elif kind == "save active":
        session.save_active()
    elif kind == "activate":
        session.activate(more["family"], more["index"])
    elif kind == "delete revision":
        del session.archive[more["family"], more["index"]]
        session.stored.pop((more["family"], more["index"]), None)
    else:
        raise AssertionError(kind)


# -- the host -----------------------------------------------------------------------------


def perform(op: Operation, host: mmapstore.Host, names: dict[str, str]) -> str | None:
    """Ask a host for an operation; return the id of a session that it made.

    Parameters
    ----------
    op : Operation
        What is asked for.
    host : Host
        Who is asked.
    names : dict
        The ids of sessions that the model knows by another name; a new one is added.
    """
    more = copy.deepcopy(op.more)
    if op.kind in MAKING:
        if op.kind == "create":
            made = host.create_session(more["title"])
        else:
            parent = names.get(more["parent"], more["parent"])
            made = host.fork_session(parent, more["through"], title=more["title"])
        names[op.session] = made.id
        return made.id
    _perform(op.kind, host, names.get(op.session, op.session), more)
    return None


def _perform(kind: str, host: mmapstore.Host, session: str, more: dict[str, Any]) -> None:
    if kind == "append":
        turn = more.get("turn")
        if turn is not None:
            for each in more["messages"]:
                del each["turnId"]
        ids = [each["id"] for each in more["messages"]]
        positions = host.append_messages(session, more["messages"], turn)
        if more["look"]:
            windows = [host.get_session(session, limit=1, after=each) for each in positions]
            found = [window.messages[0]["id"] for window in windows if window.messages]
            if found != ids:
                raise Wrong("the appended messages are elsewhere", positions, found)
    elif kind == "outbox":
        with mmapstore.Outbox(host, capacity=3) as outbox:
            for each in more["messages"]:
                outbox.append_message(session, each)
            if not outbox.drain() or outbox.refused:
                raise Wrong("the outbox", outbox.refused)
    elif kind == "again":
        host.append_message(session, more["message"])
    elif kind == "review":
        host.set_review_state(session, more["id"], more["snapshot"], more["state"])
    elif kind == "update":
        host.update_message(session, more["message"])
    elif kind == "compact":
        host.append_compaction(session, more["record"])
    elif kind == "replace":
        host.replace_messages(session, more["messages"])
    elif kind == "truncate":
        host.truncate_from(session, more["id"])
    elif kind == "save":
        host.save_revision(session, more["family"], more["branch"], make_active=more["active"])
    elif kind == "save active":
        host.save_active_revision(session)
    elif kind == "activate":
        host.activate_revision(session, more["family"], more["index"])
    elif kind == "delete revision":
        host.delete_revision(session, more["family"], more["index"])
    elif kind == "delete":
        host.delete_session(session)
    elif kind == "reindex":
        host.reindex()
    elif kind == "close":
        host.close()
    else:
        _be_refused(kind, host, session, more)


def _be_refused(kind: str, host: mmapstore.Host, session: str, more: dict[str, Any]) -> None:
    try:
        if kind == "conflict":
            host.append_message(session, {**more["message"], "blocks": ["other"]})
        elif more["what"] == "cut":
            host.truncate_from(session, "nobody")
        elif more["what"] == "update":
            host.update_message(session, message("nobody", "user", ""))
        elif more["what"] == "replace":
            host.replace_messages(session, [message("one", "user", "")] * 2)
        else:
            host.append_messages(session, [message("good", "user", ""), {"id": "bad"}])
    except (ConflictError, MessageNotFoundError, InvalidRecordError):
        return
    raise Wrong(f"{kind} {more}")
