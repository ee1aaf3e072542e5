"""Showing an archived branch in the place of the one that is shown.

What is live is stored before it goes, and a branch whose root was cut goes back to where
it stood: what stands there now is archived like the end of a session that is cut. Where
there is no archive for it nothing is done. Decision record: 0060.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConflictError, MessageNotFoundError, MmapStoreError
from .branches import Root, as_index, root_of, split
from .rewrite import Effective, Put
from .splice import with_first_member

if TYPE_CHECKING:
    from .branches import Branches


def activated(branches: Branches, root_id: str, index: int) -> list[Put | int] | None:
    """Store what is live, and return the order of messages that shows a branch.

    Parameters
    ----------
    branches : Branches
        Those of the session.
    root_id : str
        Of the root, or of its family.
    index : int
        The branch's.

    Returns
    -------
    order : list of Put or int, or None
        What a rewrite is made from; None if the branch is shown already.

    Raises
    ------
    RevisionNotFoundError
        There is no such branch.
    MessageNotFoundError
        Neither the transcript nor the branch has the root.
    ConflictError
        Messages that no archive can have stand where the branch stood, or one of the branch
        stands in front of that; nothing was changed.
    """
    journal = branches.journal
    family, root = branches.family(root_id)
    if root is not None and root.active == index and as_index(index):
        return None
    branches.require(family, index)
    before, first, after = split(_stored(branches, family, index), family)
    if first is None and root is None:
        raise MessageNotFoundError(
            f"the transcript has no root with the id {root_id!r}", path=journal.path
        )
    newest = index
    place = _place(branches, family, index) if root is None else root.position
    shown = [*(before if root is None else ()), *([first] if first else ()), *after]
    _check_apart(branches, shown, place)
    if root is None:
        _clear(branches, place)
    else:
        newest = root.active or branches.next_free(family, root)
        branches.store_live(root, newest)
        _store_families_behind(branches, root.position)
        branches.before_dropping(root.position)
    order: list[Put | int] = list(range(place))
    if root is None:
        order += [_put(message) for message in before]
    if first is None and root is not None:
        text, record = journal.line(root.position), root.record
    else:
        text, record = first  # type: ignore[misc]  # one of the two is there
    new = Root(0, family, 0, None, record)
    # an index that was given once is never given again
    count = max(branches.count(family, root, max(index, newest)), root_of(0, record).count)
    line = branches.stamped(text, new, count=count, active=index)
    is_same = root is not None and root.record.get("id") == record.get("id")
    position = root.position if root is not None and is_same else None
    put = _put(Effective(text, record))
    order.append(Put(put.line if line is None else line, put.message_id, position))
    return order + [_put(message) for message in after]


def _stored(branches: Branches, family: str, index: int) -> list[Effective]:
    entry = branches.revisions.last_stored(family, index)
    if entry is None:
        raise MmapStoreError(
            f"revision {index} of {family!r} was the end of a transcript that has another now",
            path=branches.revisions.path,
        )
    return branches.revisions.branch(entry)


def _check_apart(branches: Branches, shown: list[Effective], place: int) -> None:
    """Refuse to show a message that is shown already, maybe otherwise, and would stay."""
    journal = branches.journal
    for message in shown:
        message_id = message.record.get("id")
        if isinstance(message_id, str) and message_id:
            there = journal.positions(message_id)
            if there and there[0] < place:
                raise ConflictError(
                    f"message {message_id!r} of the branch stands in front of it, "
                    f"at position {there[0]}",
                    path=journal.path,
                    hint="cut there first",
                )


def _place(branches: Branches, family: str, index: int) -> int:
    """Return where a branch stood whose root was cut."""
    journal = branches.journal
    count = journal.message_count
    entry = branches.revisions.last_stored(family, index)
    behind = None if entry is None else branches.revisions.place(entry)
    if behind is None:
        return count
    found = [] if behind.message_id is None else journal.positions(behind.message_id)
    if behind.message_id is not None and not found:
        return count  # what it followed is gone as well
    return found[-1] + 1 if found else 0


def _clear(branches: Branches, place: int) -> None:
    """Archive what stands where a branch stood."""
    journal = branches.journal
    if place < journal.message_count:
        branches.before_dropping(place)
        if branches.archive_tail(place) is None:
            raise ConflictError(
                f"other messages stand where the branch stood, from position {place} on",
                path=journal.path,
                hint="no branch of their own could be archived: cut them first, if they may go",
            )


def _store_families_behind(branches: Branches, position: int) -> None:
    """Store the live branches of roots behind a position, those never stored as well."""
    for root in branches.roots():
        if root.position > position and root.active is not None:
            entry = branches.revisions.entries().get((root.family, root.active))
            if entry is None or entry.is_live:
                branches.store_live(root, root.active)


def _put(message: Effective) -> Put:
    text, record = message
    if record.get("type") != "message":
        text = with_first_member(text, "type", "message")
    return Put(text + b"\n", str(record.get("id", "")))
