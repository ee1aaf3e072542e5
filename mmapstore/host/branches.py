"""Roots, families and branches: what is live, what is archived, and how one becomes the other.

A user message that has been answered more than once is a root; its ``meta`` says which
family it belongs to, how many branches that has, and which of them the transcript shows.
The branch that is shown is the transcript's own end from the root on; it is stored before
anything drops a message of it. Decision record: 0060.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import (
    ConflictError,
    InvalidRecordError,
    MessageNotFoundError,
    RevisionNotFoundError,
)
from .records import changed_line, check_message, message_line, same_message
from .revisions import MAX_INDEX, Behind, Revision
from .rewrite import Effective, Put, effective

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .journal import Journal
    from .revisions import Entry, Place, Revisions

_STEP_NBYTES = 4 << 20
_STAMP = b"revisionCount"


@dataclass(frozen=True, slots=True)
class Root:
    """A root in the transcript.

    Attributes
    ----------
    position : int
        Of its line.
    family : str
        The id that the family's first root had.
    count : int
        Branches that the family is said to have; 0 where nothing is said.
    active : int or None
        The branch that the transcript is said to show.
    record : dict
        The message.
    """

    position: int
    family: str
    count: int
    active: int | None
    record: dict[str, Any]


def as_index(value: object) -> int | None:
    """Return a value that can be the index of a branch, else None."""
    return value if type(value) is int and 1 <= value <= MAX_INDEX else None


def root_of(position: int, record: dict[str, Any]) -> Root:
    """Return what a user message says of its branches."""
    meta = record.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    family = meta.get("revisionRootId")
    if not isinstance(family, str) or not family:
        family = str(record.get("id"))
    count = as_index(meta.get("revisionCount")) or 0
    return Root(position, family, count, as_index(meta.get("activeRevision")), record)


class Branches:
    """The branches of one session.

    Parameters
    ----------
    journal : Journal
        Its transcript.
    revisions : Revisions
        Its archive.
    """

    def __init__(self, journal: Journal, revisions: Revisions) -> None:
        self.journal = journal
        self.revisions = revisions
        self._roots: list[Root] = []
        # of which state of the file, and how far it has been looked at
        self._looked = (-1, 0)

    # -- roots ------------------------------------------------------------------------

    def roots(self) -> list[Root]:
        """Return the stamped user messages, in file order.

        Notes
        -----
        O(what is new since the last call) while the file only grows.
        """
        journal = self.journal
        rewrites, position = self._looked
        if rewrites != journal.rewrites:
            self._roots, position = [], 0
        for candidate in self._spelling_a_stamp(position):
            record = journal.stored(candidate)
            if record is not None and record.get("role") == "user" and _has_id(record):
                root = root_of(candidate, record)
                if root.count:
                    self._roots.append(root)
        self._looked = journal.rewrites, journal.message_count
        last = {root.record.get("id"): root for root in self._roots}
        return [root for root in self._roots if last[root.record.get("id")] is root]

    def _spelling_a_stamp(self, position: int) -> Iterator[int]:
        """Yield the positions from one on whose lines spell the key of a stamp."""
        journal = self.journal
        extents = journal.layout.messages.part(position, journal.message_count)
        starts, ends = (column.tolist() for column in extents)
        last = -1
        index = 0
        while index < len(starts):
            end = max(index + 1, bisect.bisect_right(ends, starts[index] + _STEP_NBYTES))
            data = journal.read(starts[index], ends[end - 1])
            at = data.find(_STAMP)
            while at >= 0:
                line = bisect.bisect_right(starts, starts[index] + at) - 1
                if line != last and starts[index] + at < ends[line]:
                    last = line
                    yield position + line
                at = data.find(_STAMP, at + 1)
            index = end

    def root(self, root_id: str) -> Root | None:
        """Return the last root of a family, or the user message of that id; None if cut."""
        of_family = [root for root in self.roots() if root_id in (root.family, root.record["id"])]
        if of_family:
            return of_family[-1]
        position = self.journal.position(root_id)
        record = None if position is None else self.journal.stored(position)
        if position is None or record is None or record.get("role") != "user":
            return None
        return root_of(position, record)

    def family(self, root_id: str) -> tuple[str, Root | None]:
        """Return the family that an id names, and its root if the transcript has one."""
        root = self.root(root_id)
        if root is not None:
            return root.family, root
        if self.revisions.of_family(root_id):
            return root_id, None
        if self.journal.position(root_id) is not None:
            raise InvalidRecordError(
                f"message {root_id!r} is no user message", path=self.journal.path
            )
        raise MessageNotFoundError(f"no root with the id {root_id!r}", path=self.journal.path)

    # -- what there is ----------------------------------------------------------------

    def listed(self, root_id: str) -> list[Revision]:
        """Return the branches of a family by index."""
        family, root = self.family(root_id)
        found = sorted(self.revisions.of_family(family).items())
        return [self._revision(family, index, entry, root) for index, entry in found]

    def _revision(self, family: str, index: int, entry: Entry, root: Root | None) -> Revision:
        is_active = root is not None and root.active == index
        count = entry.message_count
        if root is not None and is_active:
            count = self.journal.message_count - root.position
        return Revision(family, index, entry.created_at, count, is_active)

    def all(self) -> list[Revision]:
        """Return every branch that is in the archive."""
        roots = {root.family: root for root in self.roots()}
        return [
            self._revision(family, index, entry, roots.get(family))
            for (family, index), entry in sorted(self.revisions.entries().items())
        ]

    def revision(self, family: str, index: int) -> Revision:
        """Return one branch that is in the archive."""
        root = self.root(family)
        return self._revision(family, index, self.revisions.entries()[family, index], root)

    def next_free(self, family: str, root: Root | None) -> int:
        """Return the index of the next branch of a family."""
        stored = self.revisions.of_family(family)
        return max([0, *stored, *([root.count, root.active or 0] if root else [])]) + 1

    # -- archiving --------------------------------------------------------------------

    def _live(self, root: Root) -> list[Effective]:
        return effective(self.journal, range(root.position, self.journal.message_count))

    def _place(self, position: int) -> Place:
        """Return where a branch stands that begins at a position."""
        if position == 0:
            return Behind(None)
        before = self.journal.stored(position - 1) or {}
        message_id = before.get("id")
        return Behind(message_id) if isinstance(message_id, str) else None

    def store_live(self, root: Root, index: int) -> None:
        """Archive the branch that the transcript ends in from a root on.

        What the archived one has in front of its root is not shown where another root
        stands, and is kept.
        """
        branch, place = self._live(root), self._place(root.position)
        entry = self.revisions.last_stored(root.family, index)
        if entry is not None:
            missing = self._not_shown(split(self.revisions.branch(entry), root.family)[0])
            if missing:
                branch, place = [*missing, *branch], self.revisions.place(entry)
        self._store(root.family, index, branch, place)

    def _store(self, family: str, index: int, branch: list[Effective], place: Place) -> None:
        """Archive a branch; what would be gone with the archived one gets an index of its own."""
        entry = self.revisions.last_stored(family, index)
        if entry is not None:
            stored = self.revisions.branch(entry)
            there = set(map(_identity, branch))
            lost = [each for each in self._not_shown(stored) if _identity(each) not in there]
            if lost and self._same(family, stored, index) is None:
                free = self.next_free(family, self.root(family))
                self.revisions.store(family, free, stored, self.revisions.place(entry))
        self.revisions.store(family, index, branch, place)

    def _not_shown(self, branch: list[Effective]) -> list[Effective]:
        """Return the messages of a branch that the transcript does not have."""
        return [
            message
            for message in branch
            if not _has_id(message.record) or self.journal.position(message.record["id"]) is None
        ]

    def _is_referred_to(self, root: Root) -> bool:
        if root.active is None:
            return False
        entry = self.revisions.entries().get((root.family, root.active))
        return entry is not None and entry.is_live

    def before_dropping(self, position: int) -> None:
        """Store every branch that is only referred to, before messages from `position` on go."""
        if position >= self.journal.message_count or not self.revisions.entries():
            return
        for root in self.roots():
            if root.active is not None and self._is_referred_to(root):
                self.store_live(root, root.active)

    def before_restamping(self, root: Root, active: int | None) -> None:
        """Store a branch that is only referred to, before its root is said to show another."""
        if root.active is not None and active != root.active and self._is_referred_to(root):
            self.store_live(root, root.active)

    def before_changing(self, root: Root, record: dict[str, Any]) -> None:
        """Store a branch that is only referred to, before its root is no longer that."""
        changed = root_of(root.position, record)
        is_root = record.get("role") == "user" and changed.count > 0
        is_same = is_root and changed.family == root.family
        self.before_restamping(root, changed.active if is_same else None)

    def archive_tail(self, position: int) -> tuple[str, int] | None:
        """Archive the messages from `position` on under the first user message among them."""
        tail = effective(self.journal, range(position, self.journal.message_count))
        first = next(
            (each for each in tail if each.record.get("role") == "user" and _has_id(each.record)),
            None,
        )
        if first is None:
            return None
        root = root_of(position, first.record)
        index = root.active
        if index is None:
            index = self._same(root.family, tail) or self.next_free(root.family, root)
        self._store(root.family, index, tail, self._place(position))
        return root.family, index

    def _same(self, family: str, branch: list[Effective], but_for: int | None = None) -> int | None:
        """Return the index under which a branch is archived already, as after a failed cut."""
        for index, entry in self.revisions.of_family(family).items():
            if index != but_for and not entry.is_live and self.revisions.branch(entry) == branch:
                return index
        return None

    def given(self, messages: object) -> list[Effective]:
        """Return messages of a caller as they go into the archive.

        One that the transcript has keeps its bytes; a changed one keeps its turn.
        """
        if not isinstance(messages, list):
            message = f"messages are a list, not {type(messages).__name__}"
            raise InvalidRecordError(message)
        found: list[Effective] = []
        seen = set()
        for message in messages:
            position = self.journal.position(message["id"]) if _has_id(message) else None
            stored = None if position is None else self.journal.stored(position)
            checked = check_message(message, stored)
            if checked["id"] in seen:
                raise InvalidRecordError(f"the id {checked['id']!r} is there twice")
            seen.add(checked["id"])
            if stored is not None and position is not None:
                (shown,) = effective(self.journal, [position])
                if same_message(checked, shown.record):
                    found.append(shown)
                    continue
            turn = checked.get("turnId") or (stored or {}).get("turnId")
            line = message_line(checked, turn)
            found.append(Effective(line[:-1], {**checked, **({"turnId": turn} if turn else {})}))
        return found

    # -- stamps -----------------------------------------------------------------------

    def stamped(self, text: bytes, root: Root, *, count: int, active: int | None) -> bytes | None:
        """Return the line of a root that says this, or None if it does already."""
        meta = root.record.get("meta")
        new = {**meta} if isinstance(meta, dict) else {}
        new |= {"revisionRootId": root.family, "revisionCount": count}
        if active is not None:
            new["activeRevision"] = active
        if new == meta:
            return None
        return changed_line({**root.record, "meta": new}, text, root.record)

    def stamp(self, root: Root, *, index: int, active: int | None) -> list[Put | int] | None:
        """Return the order that a stamped root makes of the messages; None if it is there."""
        count = self.count(root.family, root, index)
        text = self.journal.line(root.position)
        line = self.stamped(text, root, count=count, active=active)
        if line is None:
            return None
        order: list[Put | int] = list(range(self.journal.message_count))
        order[root.position] = Put(line, str(root.record["id"]), root.position)
        return order

    def count(self, family: str, root: Root | None, index: int) -> int:
        """Return how many branches a family is to be said to have that has had this index."""
        stored = self.revisions.of_family(family)
        return max([index, *stored, root.count if root else 0])

    # -- operations -------------------------------------------------------------------

    def save(self, root_id: str, messages: object, *, make_active: bool) -> tuple[str, int]:
        """Archive a branch that a caller gives; return its key."""
        family, root = self.family(root_id)
        branch = self.given(messages)
        index = self.next_free(family, root)
        if make_active and root is not None:
            if root.active == index - 1 and index - 1 not in self.revisions.of_family(family):
                index -= 1  # the live branch, which was not stored yet
            self.before_restamping(root, index)
        place = None if root is None else self._place(root.position)
        self.revisions.store(family, index, branch, place)
        return family, index

    def save_active(self) -> tuple[Root, int] | None:
        """Refer to the branch that the transcript ends in; None if it has no family."""
        roots = self.roots()
        if not roots:
            return None
        root = roots[-1]
        index = root.active or self.next_free(root.family, root)
        self.revisions.refer(root.family, index)
        return root, index

    def delete(self, root_id: str, index: int) -> None:
        """Remove an archived branch that is not the active one."""
        family, root = self.family(root_id)
        self.require(family, index)
        if root is not None and root.active == index:
            raise ConflictError(
                f"revision {index} of {family!r} is the active one",
                path=self.journal.path,
                hint="activate another first",
            )
        self.revisions.delete(family, index)

    def require(self, family: str, index: int) -> Entry:
        """Return the line that counts for a branch, or raise :class:`RevisionNotFoundError`."""
        entry = self.revisions.of_family(family).get(index) if as_index(index) else None
        if entry is None:
            raise RevisionNotFoundError(
                f"no revision {index!r:.40} of {family!r}", path=self.revisions.path
            )
        return entry


def split(
    branch: list[Effective], family: str
) -> tuple[list[Effective], Effective | None, list[Effective]]:
    """Return what stands before a branch's own root, the root, and what stands behind it."""
    for at, message in enumerate(branch):
        if message.record.get("role") == "user" and root_of(0, message.record).family == family:
            return branch[:at], message, branch[at + 1 :]
    return [], None, branch


def _identity(message: Effective) -> object:
    return message.record["id"] if _has_id(message.record) else message.text


def _has_id(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("id"), str) and bool(message["id"])
