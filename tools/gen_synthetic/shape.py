"""The shape of a transcript: which lines one message is, field by field.

Invariant: a shape only writes templates; sizes, texts, white space, line ends and identities are the same
machinery for all. It keeps nothing of a message but what links the next one to it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from . import columns, words
from .form import Form, Press
from .marks import FIRST_REPLY_KEY, IMAGE, LONE_SURROGATE, VARIANTS, form_key, from_key
from .noise import Index
from .roles import ROLES
from .spec import Spec
from .words import CELL_NBYTES, POOL_NBYTES

Fields = Mapping[str, bytes]
Row = tuple[bytes, ...]

#: Text of a checkpoint's summary, of a damaged line, and of the remark beside a tool's result.
SUMMARY_NBYTES, DAMAGED_NBYTES, REMARK_NBYTES = 240, 64, 48

_CHECKPOINT = (
    "checkpoint",
    "aside",
    "through",
    "kept",
    "time",
    "time1",
    "time2",
    "link",
    "summary",
)
_PLAIN = ("id", "time", "time1", "ms", "link", "text")


class Shape(ABC):
    """How the lines of one dialect are written.

    Attributes
    ----------
    varying : the fields that differ from message to message; the first is the id
    short_ids : eight hexadecimal digits in place of UUIDs
    tree : whether a message names the one before it (its link is a parent), not the turn that it is in
    """

    varying: ClassVar[tuple[str, ...]] = ("id", "call", "time")
    short_ids: ClassVar[bool] = False
    tree: ClassVar[bool] = True

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        id_nbytes = columns.SHORT_ID_NBYTES if self.short_ids else columns.UUID_NBYTES
        identities = ("id", "aside", "embedded", "through", "kept", "checkpoint")
        self.press = Press(
            widths={
                **dict.fromkeys(identities, id_nbytes),
                **dict.fromkeys(("time", "time1", "time2"), columns.TIME_NBYTES),
                **dict.fromkeys(("call", "next"), 16),
                "link": id_nbytes + 2 if self.tree else 8,
                "ms": 13,
                "state": len("rolledBack"),
                "remark": REMARK_NBYTES,
                "summary": SUMMARY_NBYTES,
                "image": spec.image_nbytes,
            },
            whitespace=spec.whitespace,
            line_end=b"\r\n" if spec.crlf else b"\n",
        )
        zero = np.zeros(1, dtype=np.int64)
        self.session_id = columns.uuids(spec.seed, columns.SESSION, zero)[0].decode()
        self.started = columns.stamps(zero + columns.EPOCH_MS - 1)[0].decode()
        self._link = b"null"
        self._prose = words.prose()
        self._order = (*self.varying, "link", "image", "text")
        self._forms: dict[int, Form] = {}
        self._checkpoint = self.press.form(_CHECKPOINT, *self.checkpoint_templates())
        self._plain = self.press.form(_PLAIN, self.plain_template())

    @abstractmethod
    def header_template(self) -> str | None:
        """Return the first line, if this dialect has one."""

    @abstractmethod
    def plain_template(self) -> str:
        """Return one message line by itself: what gets damaged, and what the torn tail is a part of."""

    @abstractmethod
    def templates(self, role: int, flags: int, variant: int) -> tuple[str, ...]:
        """Return the lines of one message, the message line among them."""

    @abstractmethod
    def checkpoint_templates(self) -> tuple[str, ...]:
        """Return the lines of one compaction."""

    def header(self) -> list[bytes]:
        """Return the first line, or none."""
        template = self.header_template() if self.spec.header else None
        return [self.press.line(template)] if template else []

    def ids(self, owner: int, index: Index) -> list[bytes]:
        """Return identities in this dialect's style."""
        make = columns.short_ids if self.short_ids else columns.uuids
        return make(self.spec.seed, owner, index)

    def form(self, key: int) -> Form:
        """Return the form of a message by its key."""
        form = self._forms.get(key)
        if form is None:
            templates = self.templates(*from_key(key))
            form = self._forms[key] = self.press.form(self._order, *templates)
        return form

    def overhead(self, *roles: int) -> int:
        """Return the most bytes that a message of some roles takes without text and all that is extra."""
        return max(
            self.form(form_key(role, variant=n)).overhead for role in roles for n in range(VARIANTS)
        )

    def extra(self, flags: int) -> int:
        """Return the most bytes that flags add to a message of any role."""
        most = 0
        for role in ROLES:
            full = self.form(form_key(role, flags))
            added = full.overhead - self.form(form_key(role)).overhead
            if flags & LONE_SURROGATE:
                added += full.texts * len(words.LONE_SURROGATE)
            most = max(most, added)
        return most

    def message(self, key: int, flags: int, room: int, lot: int, row: Row) -> Sequence[bytes]:
        """Return the lines of one message, `room` bytes long but for what division leaves.

        Parameters
        ----------
        key, flags, lot : which form the message has, what is special in it, and its die
        room : bytes for all its lines
        row : the varying fields
        """
        form = self._forms.get(key) or self.form(key)
        nbytes = room - form.overhead
        if form.texts > 1:
            nbytes //= form.texts
        if not flags and 0 <= nbytes <= POOL_NBYTES:
            # The common case without a call, and below without a loop: a line has three microseconds.
            start = lot * CELL_NBYTES
            full = (*row, self._link, b"", self._prose[start : start + nbytes])
        else:
            prefix = words.LONE_SURROGATE if flags & LONE_SURROGATE else b""
            text = prefix + words.cut(max(nbytes - len(prefix), 0), lot, flags)
            image = words.image(self.spec.image_nbytes, lot) if flags & IMAGE else b""
            full = (*row, self._link, image, text)
        if self.tree:
            self._link = b'"%b"' % row[0]
        elif key < FIRST_REPLY_KEY:
            self._link = row[0][:8]
        if len(form.lines) > 1:
            return form.fill(full)
        line, pick = form.lines[0]
        return (line % pick(full),)

    def plain(self, nbytes: int, lot: int, fields: Fields) -> bytes:
        """Return one message line with nbytes of text."""
        text = words.cut(nbytes, lot)
        return self._fill(self._plain, _PLAIN, {**fields, "text": text})[0]

    def plain_nbytes(self) -> int:
        """Return the bytes of a plain line without its text."""
        return self._plain.overhead

    def checkpoint(self, lot: int, fields: Fields) -> list[bytes]:
        """Return the lines of one compaction."""
        summary = words.cut(SUMMARY_NBYTES, words.elsewhere(lot))
        lines = self._fill(self._checkpoint, _CHECKPOINT, {**fields, "summary": summary})
        if self.tree:
            self._link = b'"%b"' % fields["checkpoint"]
        return lines

    def checkpoint_nbytes(self) -> int:
        """Return the bytes of one compaction."""
        return self._checkpoint.overhead

    def review_nbytes(self) -> int:
        """Return the most bytes of a review state line, where there are such lines."""
        return 0

    def _fill(self, form: Form, order: tuple[str, ...], fields: Fields) -> list[bytes]:
        fields = {**fields, "link": self._link}
        return form.fill([fields.get(name, b"") for name in order])
