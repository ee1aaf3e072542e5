"""What a dialect is made of: kinds, where to look for them, and words for a message's parts.

A dialect says which key decides a line's kind and what its values mean, where
id, role, time and text of a message are, and how a file of it is recognised. All
of it is data; the table itself is :mod:`mmapstore.dialect`.
"""

from __future__ import annotations

import datetime
import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .paths import Path

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(enum.IntEnum):
    """What a line is, as its discriminator says."""

    OTHER = 0
    MESSAGE = 1
    COMPACTION = 2
    REVIEW = 3
    #: a compaction line that, after a boundary, completes the boundary's checkpoint
    SUMMARY = 4


class Probe(enum.Enum):
    """A place where a key is looked for before the whole line is."""

    #: the first key of the line
    FIRST = enum.auto()
    #: before the line's first nested container, near its start
    HEAD = enum.auto()
    #: after the line's last nested container, near its end
    TAIL = enum.auto()


class Look(NamedTuple):
    """A further look into a line whose discriminator leaves the kind open.

    Attributes
    ----------
    path : tuple of bytes
        Keys from the top of the line.
    kinds : mapping of bytes to Kind
        By the JSON scalar at that path, as it is spelled, quotes included.
    present : Kind
        The kind where the path leads to anything else.
    absent : Kind
        The kind where it leads nowhere.
    """

    path: tuple[bytes, ...]
    kinds: Mapping[bytes, Kind] = MappingProxyType({})
    present: Kind = Kind.OTHER
    absent: Kind = Kind.OTHER
    unless: tuple[bytes, ...] = ()
    unless_text: bytes = b""

    @property
    def wants_strings(self) -> bool:
        """Whether every scalar listed is a string."""
        return bool(self.kinds) and all(token.startswith(b'"') for token in self.kinds)


class Signature(NamedTuple):
    """What a line shows by which a dialect is recognised.

    Attributes
    ----------
    first_line : bool
        Whether only the file's first line counts.
    type : tuple of str
        Values of the top-level ``type``, any of them; empty: not asked.
    has, absent : tuple of str
        Dotted paths that must, and must not, be there.
    first_key : tuple of str
        Keys of which one must stand first; empty: not asked.
    """

    first_line: bool = True
    type: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    first_key: tuple[str, ...] = ()


class Dialect(NamedTuple):
    """One agent's way of writing lines.

    Attributes
    ----------
    name : str
        As ``t.dialect.name`` and ``dialect=`` give and take it.
    key : bytes
        The discriminator: a top-level key. Empty: every object is a message.
    kinds : mapping of bytes to Kind or Look
        By the discriminator's value; a value that is not listed means other.
    keyless : Kind or Look
        What a line without the discriminator is.
    probes : tuple of Probe
        Where to look for the discriminator first, likeliest first.
    id_path, role_path, time_path, text_path, result_path, call_path : Path
        Where a message has them; `text_path` what is said, `result_path` what a tool gave back.
    signatures : tuple of Signature
        How a file is recognised: by any of them. The first is asked of all dialects before
        the others are.
    path_hint : str
        Regular expression over an absolute path with ``/``; empty: none.
    call_role : str
        The role of the messages that hold tool calls; empty: any.
    role_until : str
        Where in the role's value the role ends; empty: the whole value is the role.
    safe_to_map : bool
        Whether the writers replace by rename and never truncate in place.
    """

    name: str
    key: bytes
    kinds: Mapping[bytes, Kind | Look]
    signatures: tuple[Signature, ...]
    keyless: Kind | Look = Kind.OTHER
    probes: tuple[Probe, ...] = (Probe.FIRST, Probe.HEAD, Probe.TAIL)
    id_path: Path = Path("id")
    role_path: Path = Path("role")
    time_path: Path = Path("timestamp")
    text_path: Path = Path("")
    result_path: Path = Path("")
    call_path: Path = Path("")
    path_hint: str = ""
    call_role: str = ""
    role_until: str = ""
    safe_to_map: bool = False

    def id(self, message: dict[str, Any]) -> str | None:
        """Return a decoded message's id, or None where it has none.

        A message without one is addressed as ``@<offset>``: see ``Window.message_ids``.
        """
        return as_id(self.id_path.first(message))

    def role(self, message: dict[str, Any]) -> str | None:
        """Return who speaks, in the dialect's own word, or None."""
        value = self.role_path.first(message)
        if not isinstance(value, str):
            return None
        return value.partition(self.role_until)[0] if self.role_until else value

    def time(self, message: dict[str, Any]) -> str | None:
        """Return when the message was written, RFC 3339, or None.

        A string is returned as it stands; a number is taken as milliseconds since the epoch.
        """
        value = self.time_path.first(message)
        if isinstance(value, str):
            return value
        if type(value) in (int, float):
            try:
                instant = datetime.datetime.fromtimestamp(value / 1000, tz=datetime.UTC)
            except (OverflowError, ValueError, OSError):
                return None
            return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return None

    def text(self, message: dict[str, Any]) -> str:
        """Return the text that a person would read in the message; parts joined by newlines.

        What is said; where a message says nothing, what a tool gave back, as far as it is
        text; empty where there is neither. Never what the model thought: see
        :func:`is_reasoning`.
        """
        return self.said(message) or "\n".join(self.result_path.strings(message, is_reasoning))

    def said(self, message: dict[str, Any]) -> str:
        """Return what :meth:`text` does, but nothing that a tool gave back."""
        return "\n".join(self.text_path.strings(message, is_reasoning))

    def calls(self, message: dict[str, Any]) -> list[str]:
        """Return the ids of the tool calls that the message holds."""
        if self.call_role and self.role(message) != self.call_role:
            return []
        return [value for value in self.call_path.every(message) if isinstance(value, str)]


#: types of the parts that hold what a model thought and did not say
REASONING_TYPES = frozenset(
    {"thinking", "redacted_thinking", "think", "thought", "reasoning", "reasoning_text"}
)


def is_reasoning(part: dict[str, Any]) -> bool:
    """Whether a part of a message holds what a model thought and did not say."""
    kind = part.get("type")
    return (isinstance(kind, str) and kind in REASONING_TYPES) or part.get("thought") is True


def as_id(value: object) -> str | None:
    """Return a decoded value as an id: a string as it is, an integer of 64 bits as digits."""
    if isinstance(value, str):
        return value
    # a larger one is a float to one decoder and an integer to the other
    return str(value) if type(value) is int and -(2**63) <= value < 2**64 else None
