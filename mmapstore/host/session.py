"""A session: what is shown of it, and what a host holds while it has it open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .branches import Branches
from .journal import Journal
from .revisions import Revisions

if TYPE_CHECKING:
    from .catalog import SessionRow
    from .linefile import LineFile


class Session(NamedTuple):
    """A session of a host.

    Attributes
    ----------
    id : str
        Its id, and the name of its file.
    title : str or None
        As its header says.
    created_at, updated_at : str
        RFC 3339.
    """

    id: str
    title: str | None
    created_at: str
    updated_at: str


class Opened:
    """A session that is open.

    Attributes
    ----------
    journal : Journal
        Its transcript.
    branches : Branches
        Its archive.
    row : SessionRow or None
        What the index says of it, if it says it of the file as it was before the change that
        it has yet to be told of.
    changed_ns : int or None
        When this host last changed the session, if the index has yet to be told.
    changed_in : int
        How often the file had become another one by then.
    """

    def __init__(self, file: LineFile, archive: LineFile, session_id: str) -> None:
        self.journal = Journal(file, session_id)
        self.branches = Branches(self.journal, Revisions(archive))
        self.row: SessionRow | None = None
        self.changed_ns: int | None = None
        self.changed_in = 0

    @property
    def revisions(self) -> Revisions:
        """The file of its archive."""
        return self.branches.revisions

    def forget_row(self) -> None:
        """Take note that the index says nothing of this session that can be relied on."""
        self.row = self.changed_ns = None

    def close(self) -> None:
        """Let go of its files."""
        try:
            self.journal.close()
        finally:
            self.revisions.file.close()
