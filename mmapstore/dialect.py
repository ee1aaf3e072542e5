"""The dialect table: how each agent writes its lines, as data.

A dialect says which key decides a line's kind and what its values mean, where
id, role, time and text of a message are, and how a file of it is recognised.
Nothing here is code of a dialect: adding one is adding an entry.
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Dialect:
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
    id_path, role_path, time_path, text_path, call_path : Path
        Where a message has them.
    signatures : tuple of Signature
        How a file is recognised: by any of them. The first is asked of all dialects before
        the others are.
    path_hint : str
        Regular expression over an absolute path with ``/``; empty: none.
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
    id_path: Path = field(default_factory=lambda: Path("id"))
    role_path: Path = field(default_factory=lambda: Path("role"))
    time_path: Path = field(default_factory=lambda: Path("timestamp"))
    text_path: Path = field(default_factory=lambda: Path(""))
    call_path: Path = field(default_factory=lambda: Path(""))
    path_hint: str = ""
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
        text; empty where there is neither.
        """
        return "\n".join(self.text_path.strings(message))

    def calls(self, message: dict[str, Any]) -> list[str]:
        """Return the ids of the tool calls that the message holds."""
        return [value for value in self.call_path.every(message) if isinstance(value, str)]


def as_id(value: object) -> str | None:
    """Return a decoded value as an id: a string as it is, an integer of 64 bits as digits."""
    if isinstance(value, str):
        return value
    # a larger one is a float to one decoder and an integer to the other
    return str(value) if type(value) is int and -(2**63) <= value < 2**64 else None


def _all(kind: Kind, *values: bytes) -> dict[bytes, Kind | Look]:
    return dict.fromkeys(values, kind)


# What is said; where nothing is, what a tool gave back; where that is not either, what was thought.
_CONTENT = "message.content|message.content[].text"
_RESULTS = "message.content[].content|message.content[].content[].text|message.content[].thinking"

NATIVE = Dialect(
    "native",
    b"type",
    {
        b"message": Kind.MESSAGE,
        b"compaction": Kind.COMPACTION,
        b"tool_review_state": Kind.REVIEW,
    },
    (
        Signature(type=("session",), has=("schema", "sessionId")),
        # a transcript whose header is damaged or gone
        Signature(
            first_line=False,
            type=("message",),
            has=("id",),
            absent=("message", "content", "text", "timestamp", "sessionId", "session_id"),
        ),
        Signature(first_line=False, type=("compaction",), has=("id", "throughMessageId")),
        Signature(first_line=False, type=("tool_review_state",), has=("messageId", "snapshotId")),
    ),
    # the writer puts type first; lines of the previous key order have it last
    probes=(Probe.FIRST, Probe.TAIL, Probe.HEAD),
    time_path=Path("createdAt"),
    text_path=Path(
        "blocks|blocks[].text|blocks[].result|blocks[].result.content"
        "|blocks[].result.content[].text"
    ),
    call_path=Path("blocks[].callId"),
    safe_to_map=True,
)

GENERIC = Dialect("generic", b"", {}, (), keyless=Kind.MESSAGE, id_path=Path(""))

#: in the order in which they are tried
DIALECTS: tuple[Dialect, ...] = (
    NATIVE,
    Dialect(
        "pi",
        b"type",
        {
            b"message": Kind.MESSAGE,
            b"custom_message": Kind.MESSAGE,
            b"compaction": Kind.COMPACTION,
            b"branch_summary": Kind.COMPACTION,
        },
        (Signature(type=("session",), has=("id", "cwd")),),
        role_path=Path("message.role|=custom"),
        text_path=Path(f"{_CONTENT}|summary|message.output|content|content[].text|{_RESULTS}"),
        call_path=Path("message.content[].id"),
        path_hint=r"/\.(pi|omp)/agent/sessions/|/\.(openclaw|clawdbot)/agents/[^/]+/sessions/",
    ),
    Dialect(
        "codex",
        b"type",
        {
            b"response_item": Look(
                (b"payload", b"type"),
                {
                    b'"message"': Kind.MESSAGE,
                    b'"agent_message"': Kind.MESSAGE,
                    b'"compaction"': Kind.COMPACTION,
                    b'"context_compaction"': Kind.COMPACTION,
                },
            ),
            b"compacted": Kind.COMPACTION,
        },
        (Signature(type=("session_meta",), has=("payload", "timestamp")),),
        probes=(Probe.HEAD, Probe.TAIL),
        id_path=Path("payload.id|payload.call_id|ordinal"),
        role_path=Path("payload.role"),
        text_path=Path("payload.content[].text|payload.message"),
        path_hint=r"/\.codex/(sessions|archived_sessions)/",
    ),
    Dialect(
        "codex-2025",
        b"type",
        {b"message": Kind.MESSAGE},
        (Signature(has=("id", "timestamp", "instructions"), absent=("type",)),),
        keyless=Look((b"record_type",), {b'"message"': Kind.MESSAGE}),
        id_path=Path("id|call_id"),
        text_path=Path("content[].text"),
        path_hint=r"/\.codex/(sessions|archived_sessions)/",
    ),
    Dialect(
        "copilot",
        b"type",
        {
            **_all(Kind.MESSAGE, b"user.message", b"assistant.message", b"system.message"),
            b"session.compaction_complete": Look((b"data", b"success"), {b"true": Kind.COMPACTION}),
        },
        (Signature(type=("session.start",), has=("data", "id")),),
        role_path=Path("type"),
        role_until=".",
        text_path=Path("data.content"),
        path_hint=r"/\.copilot/session-state/",
    ),
    Dialect(
        "gemini",
        b"type",
        _all(Kind.MESSAGE, b"user", b"gemini"),
        (Signature(has=("sessionId", "projectHash", "startTime"), absent=("type",)),),
        keyless=Look((b"$set", b"messages"), present=Kind.COMPACTION),
        role_path=Path("type"),
        text_path=Path("content|content[].text"),
        path_hint=r"/\.gemini/tmp/[^/]+/chats/",
    ),
    Dialect(
        "kimi",
        b"type",
        {
            b"context.append_message": Kind.MESSAGE,
            b"context.append_loop_event": Look(
                (b"event", b"type"), {b'"content.part"': Kind.MESSAGE}
            ),
            b"context.apply_compaction": Kind.COMPACTION,
        },
        (Signature(type=("metadata",), has=("protocol_version",)),),
        id_path=Path("event.uuid|event.toolCallId|message.id"),
        role_path=Path("message.role|=assistant"),
        time_path=Path("time|created_at"),
        text_path=Path(
            "message.content|message.content[].text|event.part.text|event.part.think|summary"
        ),
        path_hint=r"/\.kimi-code/sessions/",
    ),
    Dialect(
        "droid",
        b"type",
        {b"message": Kind.MESSAGE, b"compaction_state": Kind.COMPACTION},
        (Signature(type=("session_start",), has=("id", "title")),),
        role_path=Path("message.role"),
        text_path=Path(f"{_CONTENT}|summaryText|{_RESULTS}"),
        call_path=Path("message.content[].id"),
        path_hint=r"/\.factory/sessions/",
    ),
    Dialect(
        "droid-stream",
        b"type",
        {b"message": Kind.MESSAGE},
        (Signature(type=("message", "system"), has=("session_id",)),),
        id_path=Path("id|toolCallId"),
        text_path=Path("text|content"),
    ),
    Dialect(
        "antigravity",
        b"type",
        _all(Kind.MESSAGE, b"USER_INPUT", b"PLANNER_RESPONSE"),
        (Signature(has=("step_index", "source", "type")),),
        id_path=Path("step_index"),
        role_path=Path("source"),
        time_path=Path("created_at"),
        text_path=Path("content"),
        path_hint=r"/\.gemini/antigravity[^/]*/",
    ),
    Dialect(
        "cursor",
        b"role",
        _all(Kind.MESSAGE, b"user", b"assistant"),
        (Signature(has=("role", "message.content"), absent=("type",)),),
        id_path=Path(""),
        time_path=Path(""),
        text_path=Path(_CONTENT),
        path_hint=r"/\.cursor/projects/.*/agent-transcripts/",
    ),
    Dialect(
        "qwen",
        b"type",
        {
            **_all(Kind.MESSAGE, b"user", b"assistant", b"tool_result"),
            b"system": Look((b"subtype",), {b'"chat_compression"': Kind.COMPACTION}),
        },
        (
            Signature(
                first_line=False,
                has=("uuid", "sessionId", "type", "version"),
                absent=("isSidechain",),
                first_key=("uuid",),
            ),
        ),
        probes=(Probe.HEAD, Probe.TAIL),
        id_path=Path("uuid"),
        role_path=Path("type"),
        text_path=Path("message.parts[].text"),
        path_hint=r"/\.qwen/projects/[^/]+/chats/",
    ),
    Dialect(
        "claude",
        b"type",
        {
            b"user": Look(
                (b"isCompactSummary",),
                {b"true": Kind.SUMMARY},
                present=Kind.MESSAGE,
                absent=Kind.MESSAGE,
                # A tool result is never a summary, and most of the bytes are tool results.
                unless=(b"message", b"content", b"", b"tool_use_id"),
                unless_text=b'"message":{"role":"user","content":[{"tool_use_id":',
            ),
            b"assistant": Kind.MESSAGE,
            b"system": Look((b"subtype",), {b'"compact_boundary"': Kind.COMPACTION}),
        },
        (
            Signature(
                first_line=False,
                has=("type", "message.role"),
                absent=("message.parts", "provenance", "id"),
                first_key=("parentUuid", "type", "isSidechain"),
            ),
        ),
        probes=(Probe.HEAD, Probe.TAIL),
        id_path=Path("uuid"),
        role_path=Path("message.role"),
        text_path=Path(f"{_CONTENT}|{_RESULTS}"),
        call_path=Path("message.content[].id"),
        path_hint=r"/\.claude/projects/",
    ),
    Dialect(
        "grok",
        b"type",
        _all(Kind.MESSAGE, b"system", b"user", b"assistant"),
        (
            Signature(
                first_line=False,
                type=("system", "user"),
                has=("content",),
                absent=("uuid", "id", "message"),
            ),
        ),
        id_path=Path("id|tool_call_id"),
        role_path=Path("type"),
        time_path=Path(""),
        text_path=Path("content|content[].text"),
        path_hint=r"/\.grok/",
    ),
    GENERIC,
)


def dialect_named(name: str) -> Dialect:
    """Return the dialect of that name.

    Raises
    ------
    ValueError
        There is none; the message lists those that are.
    """
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    known = ", ".join(dialect.name for dialect in DIALECTS)
    message = f"unknown dialect {name!r}; known are {known}"
    raise ValueError(message)
