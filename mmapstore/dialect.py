"""The dialect table: how each agent writes its lines, as data.

Nothing here is code of a dialect: adding one is adding an entry.
"""

from __future__ import annotations

from .grammar import Dialect, Kind, Look, Probe, Signature
from .paths import Path


def _all(kind: Kind, *values: bytes) -> dict[bytes, Kind | Look]:
    return dict.fromkeys(values, kind)


_CONTENT = "message.content|message.content[].text"
_RESULTS = Path("message.content[].content|message.content[].content[].text")

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
    text_path=Path("blocks|blocks[].text"),
    result_path=Path("blocks[].result|blocks[].result.content|blocks[].result.content[].text"),
    call_path=Path("blocks[].callId"),
    call_role="tool",
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
        text_path=Path(f"{_CONTENT}|summary|message.output|content|content[].text"),
        result_path=_RESULTS,
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
        text_path=Path(f"{_CONTENT}|event.part.text|summary"),
        path_hint=r"/\.kimi-code/sessions/",
    ),
    Dialect(
        "droid",
        b"type",
        {b"message": Kind.MESSAGE, b"compaction_state": Kind.COMPACTION},
        (Signature(type=("session_start",), has=("id", "title")),),
        role_path=Path("message.role"),
        text_path=Path(f"{_CONTENT}|summaryText"),
        result_path=_RESULTS,
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
        text_path=Path(_CONTENT),
        result_path=_RESULTS,
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
