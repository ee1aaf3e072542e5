"""The operations of a host under the names that other processes call them by.

One row a method: what it takes, of what type, and the call of the host that it is. What
a row does not name is refused, and so is a value of another type, before the host is
asked; a name that was misspelled must not turn into a default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InvalidRecordError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .host import Host
    from .revisions import Revision
    from .session import Session

#: messages of a page, at most; a page that does not say how many has all
MAX_PAGE = 1000


class InvalidParamsError(InvalidRecordError):
    """Is raised for parameters that a method does not take."""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_page(value: object) -> bool:
    return _is_count(value) and 1 <= value <= MAX_PAGE  # type: ignore[operator]


#: of each parameter: what it is, and whether a value is that
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "sessionId": ("a string", lambda value: isinstance(value, str)),
    "title": ("a string", lambda value: isinstance(value, str)),
    "turnId": ("a string that is not empty", _is_text),
    "messageId": ("a string that is not empty", _is_text),
    "snapshotId": ("a string that is not empty", _is_text),
    "state": ("a string that is not empty", _is_text),
    "rootUserId": ("a string that is not empty", _is_text),
    "throughMessageId": ("a string that is not empty", _is_text),
    "truncateFromMessageId": ("a string that is not empty", _is_text),
    "messageAround": ("a string that is not empty", _is_text),
    "truncateBefore": ("an integer from 0", _is_count),
    "messageBefore": ("an integer from 0", _is_count),
    "messageAfter": ("an integer from 0", _is_count),
    "messageLimit": (f"an integer from 1 to {MAX_PAGE:,}", _is_page),
    "revisionIndex": ("an integer from 0", _is_count),
    "makeActive": ("true or false", lambda value: isinstance(value, bool)),
    "message": ("an object", lambda value: isinstance(value, dict)),
    "compaction": ("an object", lambda value: isinstance(value, dict)),
    "messages": ("a list", lambda value: isinstance(value, list)),
}


@dataclass(frozen=True, slots=True)
class Method:
    """A method: its parameters, required and not, and what it does."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    call: Callable[[Host, dict[str, Any]], dict[str, Any]]

    def __call__(self, host: Host, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result, or raise what the host raises.

        Raises
        ------
        InvalidParamsError
            The host was not asked.
        """
        for name in self.required:
            if name not in params:
                message = f"{name} is missing"
                raise InvalidParamsError(message)
        allowed = (*self.required, *self.optional)
        for name, value in params.items():
            if name not in allowed:
                names = ", ".join(allowed) or "nothing"
                message = f"{name!r:.100} is not a parameter"
                raise InvalidParamsError(message, hint=f"the method takes {names}")
            what, is_one = _TYPES[name]
            if not is_one(value):
                message = f"{name} is {what}, not {value!r:.100}"
                raise InvalidParamsError(message)
        return self.call(host, params)


# -- results ----------------------------------------------------------------------------


def _session(session: Session) -> dict[str, Any]:
    return {
        "id": session.id,
        "title": session.title,
        "createdAt": session.created_at,
        "updatedAt": session.updated_at,
    }


def _revision(revision: Revision) -> dict[str, Any]:
    return {
        "rootUserId": revision.root_user_id,
        "revisionIndex": revision.index,
        "createdAt": revision.created_at,
        "messageCount": revision.message_count,
        "isActive": revision.is_active,
    }


def _done(operation: Callable[[Host, dict[str, Any]], None]) -> Callable[..., dict[str, Any]]:
    def call(host: Host, params: dict[str, Any]) -> dict[str, Any]:
        operation(host, params)
        return {"ok": True}

    return call


# -- methods ----------------------------------------------------------------------------


def _get(host: Host, params: dict[str, Any]) -> dict[str, Any]:
    given = [key for key in ("messageBefore", "messageAfter", "messageAround") if key in params]
    if len(given) > 1:
        message = f"{' and '.join(given)} exclude each other"
        raise InvalidParamsError(message)
    session_id = params["sessionId"]
    window = host.get_session(
        session_id,
        limit=params.get("messageLimit"),
        before=params.get("messageBefore"),
        after=params.get("messageAfter"),
        around=params.get("messageAround"),
    )
    return {
        "session": _session(host.session(session_id)),
        "messages": window.messages,
        "messageStart": window.start,
        "messageEnd": window.stop,
        "messageTotal": window.total,
        "hasMoreBefore": window.has_before,
        "hasMoreAfter": window.has_after,
        "compactions": list(window.compactions),
        "damaged": [
            {"position": each.position, "offset": each.offset, "reason": each.reason}
            for each in window.damaged
        ],
    }


def _update(host: Host, params: dict[str, Any]) -> dict[str, Any]:
    message = params["message"]
    if "turnId" in params:
        message = {**message, "turnId": params["turnId"]}
    return {"ok": True, "written": host.update_message(params["sessionId"], message)}


def _truncate(host: Host, params: dict[str, Any]) -> dict[str, Any]:
    message_id, before = params.get("truncateFromMessageId"), params.get("truncateBefore")
    if message_id is None and before is None:
        message = "truncateFromMessageId or truncateBefore is missing"
        raise InvalidParamsError(message)
    cut = host.truncate_from(params["sessionId"], message_id, before)
    revision = cut.revision and {
        "rootUserId": cut.revision.root_user_id,
        "revisionIndex": cut.revision.index,
    }
    return {"keptCount": cut.kept, "discardedCount": cut.discarded, "revision": revision}


def _save_active(host: Host, params: dict[str, Any]) -> dict[str, Any]:
    saved = host.save_active_revision(params["sessionId"])
    return {"saved": None if saved is None else _revision(saved)}


def _branch(params: dict[str, Any]) -> tuple[str, str, int]:
    return params["sessionId"], params["rootUserId"], params["revisionIndex"]


def _activate(host: Host, params: dict[str, Any]) -> dict[str, Any]:
    window = host.activate_revision(*_branch(params))
    return {"messages": window.messages}


METHODS: dict[str, Method] = {
    "session.create": Method(
        (), ("title",), lambda host, p: {"session": _session(host.create_session(p.get("title")))}
    ),
    "session.list": Method(
        (), (), lambda host, _: {"sessions": [_session(each) for each in host.list_sessions()]}
    ),
    "session.delete": Method(
        ("sessionId",), (), _done(lambda host, p: host.delete_session(p["sessionId"]))
    ),
    "session.get": Method(
        ("sessionId",), ("messageLimit", "messageBefore", "messageAfter", "messageAround"), _get
    ),
    "session.appendMessage": Method(
        ("sessionId", "message"),
        ("turnId",),
        lambda host, p: {
            "ok": True,
            "position": host.append_message(p["sessionId"], p["message"], p.get("turnId")),
        },
    ),
    "session.appendMessages": Method(
        ("sessionId", "messages"),
        ("turnId",),
        lambda host, p: {
            "ok": True,
            "positions": host.append_messages(p["sessionId"], p["messages"], p.get("turnId")),
        },
    ),
    "session.appendCompaction": Method(
        ("sessionId", "compaction"),
        (),
        _done(lambda host, p: host.append_compaction(p["sessionId"], p["compaction"])),
    ),
    "session.updateMessage": Method(("sessionId", "message"), ("turnId",), _update),
    "session.replaceMessages": Method(
        ("sessionId", "messages"),
        (),
        _done(lambda host, p: host.replace_messages(p["sessionId"], p["messages"])),
    ),
    "session.truncateFrom": Method(
        ("sessionId",), ("truncateFromMessageId", "truncateBefore"), _truncate
    ),
    "session.fork": Method(
        ("sessionId",),
        ("throughMessageId", "title"),
        lambda host, p: {
            "session": _session(
                host.fork_session(p["sessionId"], p.get("throughMessageId"), title=p.get("title"))
            )
        },
    ),
    "session.saveRevision": Method(
        ("sessionId", "rootUserId", "messages"),
        ("makeActive",),
        lambda host, p: {
            "revision": _revision(
                host.save_revision(
                    p["sessionId"], p["rootUserId"], p["messages"], p.get("makeActive", False)
                )
            )
        },
    ),
    "session.saveActiveRevision": Method(("sessionId",), (), _save_active),
    "session.listRevisions": Method(
        ("sessionId", "rootUserId"),
        (),
        lambda host, p: {
            "revisions": [
                _revision(each) for each in host.list_revisions(p["sessionId"], p["rootUserId"])
            ]
        },
    ),
    "session.activateRevision": Method(("sessionId", "rootUserId", "revisionIndex"), (), _activate),
    "session.deleteRevision": Method(
        ("sessionId", "rootUserId", "revisionIndex"),
        (),
        _done(lambda host, p: host.delete_revision(*_branch(p))),
    ),
    "review.setState": Method(
        ("sessionId", "messageId", "snapshotId", "state"),
        (),
        lambda host, p: {
            "ok": True,
            "written": host.set_review_state(
                p["sessionId"], p["messageId"], p["snapshotId"], p["state"]
            ),
        },
    ),
}
