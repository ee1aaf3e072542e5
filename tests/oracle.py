"""The naive reading of a transcript: everything in memory, every line parsed, nothing remembered.

It shares no code with the library and takes no short cut, so that where the two
differ one of them is wrong. Only one question is left open here: what kind a line
is that no parser accepts. There the contract asks for one answer on every path,
not for a particular one, so the caller passes the answer in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

MESSAGE = "message"
COMPACTION = "compaction"
REVIEW = "tool_review_state"
OTHER = "other"
#: a compaction line that completes the checkpoint of a boundary before it
SUMMARY = "summary"

BOM = b"\xef\xbb\xbf"
_WHITE = b" \t\r\n"


@dataclass(frozen=True)
class Rules:
    """How one dialect is read: paths to join, and patterns for what they spell."""

    kind: tuple[str, ...]
    message: tuple[str, ...]
    compaction: tuple[str, ...] = ()
    review: tuple[str, ...] = ()
    #: a compaction only if this path leads to true
    compaction_if: str = ""
    #: a true value there makes the line the summary of a compaction
    summary_flag: str = ""
    id: str = "id"


RULES = {
    "native": Rules(("type",), ("message",), ("compaction",), ("tool_review_state",)),
    "pi": Rules(
        ("type", "message.role"),
        ("message/*", "custom_message"),
        ("compaction", "branch_summary"),
    ),
    "claude": Rules(
        ("type", "subtype"),
        ("user", "assistant"),
        ("system/compact_boundary",),
        summary_flag="isCompactSummary",
        id="uuid",
    ),
    "codex": Rules(
        ("type", "payload.type"),
        ("response_item/message", "response_item/agent_message"),
        ("compacted", "response_item/compaction", "response_item/context_compaction"),
        id="payload.id|payload.call_id|ordinal",
    ),
    "codex-2025": Rules(("type|record_type",), ("message",), id="id|call_id"),
    "copilot": Rules(
        ("type",),
        ("user.message", "assistant.message", "system.message"),
        ("session.compaction_complete",),
        compaction_if="data.success",
    ),
    "gemini": Rules(("type|@set",), ("user", "gemini"), ("@set+messages",)),
    "qwen": Rules(
        ("type", "subtype"),
        ("user", "user/*", "assistant", "tool_result"),
        ("system/chat_compression",),
        id="uuid",
    ),
    "kimi": Rules(
        ("type", "event.type"),
        ("context.append_message", "context.append_loop_event/content.part"),
        ("context.apply_compaction",),
        id="event.uuid|event.toolCallId|message.id",
    ),
    "droid": Rules(("type",), ("message",), ("compaction_state",)),
    "droid-stream": Rules(("type",), ("message",), id="id|toolCallId"),
    "cursor": Rules(("role",), ("user", "assistant"), id=""),
    "grok": Rules(("type",), ("system", "user", "assistant"), id="id|tool_call_id"),
    "antigravity": Rules(("type",), ("USER_INPUT", "PLANNER_RESPONSE"), id="step_index"),
    "generic": Rules(("=record",), ("record",), id=""),
}


def at_path(record: dict[str, Any], expression: str, *, null_counts: bool = False) -> Any:
    """Return what the first alternative of a dotted path that leads anywhere leads to, or None.

    For an id a null leads nowhere; for a kind a key that is there is there.
    """
    for alternative in expression.split("|"):
        if alternative.startswith("="):
            return alternative[1:]
        if alternative == "@set":
            update = record.get("$set")
            has_messages = isinstance(update, dict) and "messages" in update
            return "@set+messages" if has_messages else None
        value: Any = record
        there = bool(alternative)
        for key in filter(None, alternative.split(".")):
            there = there and isinstance(value, dict) and key in value
            value = value[key] if there else None
        if there and (null_counts or value is not None):
            return value
    return None


def decoded(text: bytes) -> dict[str, Any] | None:
    """Return the one JSON object that a line holds, or None."""
    try:
        record = json.loads(text.decode("utf-8", "strict"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def kind_of(record: dict[str, Any], rules: Rules) -> str:
    """Return what a decoded line is."""
    parts = [at_path(record, path, null_counts=True) for path in rules.kind]
    kind = "/".join(part for part in parts if isinstance(part, str))
    if not isinstance(parts[0], str):
        return OTHER

    def listed(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(kind, pattern) for pattern in patterns)

    if rules.summary_flag and listed(rules.message) and at_path(record, rules.summary_flag) is True:
        return SUMMARY
    if listed(rules.message):
        return MESSAGE
    if listed(rules.compaction):
        wanted = not rules.compaction_if or at_path(record, rules.compaction_if) is True
        return COMPACTION if wanted else OTHER
    return REVIEW if listed(rules.review) else OTHER


@dataclass(frozen=True)
class Line:
    """One complete line of the file."""

    offset: int
    number: int
    raw: bytes
    record: dict[str, Any] | None
    kind: str
    blank: bool

    @property
    def damaged(self) -> bool:
        return self.record is None and not self.blank

    @property
    def end(self) -> int:
        return self.offset + len(self.raw)


def _no_damage_expected(text: bytes) -> str:
    message = f"a line that does not parse: {text[:200]!r}"
    raise AssertionError(message)


class Oracle:
    """What a transcript's bytes mean.

    Parameters
    ----------
    data : the whole file
    dialect : the rules to read it by
    kind_of_damaged : called with a damaged line, newline included, for its kind
    """

    def __init__(
        self,
        data: bytes,
        dialect: str = "native",
        kind_of_damaged: Callable[[bytes], str] = _no_damage_expected,
    ) -> None:
        self.data = data
        self.rules = RULES[dialect]
        pieces = data.split(b"\n")
        self.torn_tail = pieces.pop()
        self.lines: list[Line] = []
        offset = 0
        for number, piece in enumerate(pieces, 1):
            text = piece.removeprefix(BOM) if offset == 0 else piece
            record = decoded(text)
            blank = not text.strip(_WHITE)
            if record is not None:
                kind = kind_of(record, self.rules)
            else:
                kind = OTHER if blank else kind_of_damaged(text + b"\n")
            self.lines.append(Line(offset, number, piece + b"\n", record, kind, blank))
            offset += len(piece) + 1
        self.file_len = offset

    @cached_property
    def messages(self) -> list[Line]:
        return [line for line in self.lines if line.kind == MESSAGE]

    @cached_property
    def compactions(self) -> list[Line]:
        return [line for line in self.lines if line.kind in (COMPACTION, SUMMARY)]

    @cached_property
    def reviews(self) -> list[Line]:
        return [line for line in self.lines if line.kind == REVIEW]

    @property
    def total(self) -> int:
        return len(self.messages)

    # -- checkpoints ------------------------------------------------------------------

    @cached_property
    def checkpoints(self) -> list[Line]:
        """The line that stands for each checkpoint: of a boundary and its summary, the summary."""
        standing: list[Line] = []
        boundary_is_open = False
        for line in self.lines:
            if line.kind == MESSAGE:
                boundary_is_open = False
            elif line.kind == COMPACTION:
                standing.append(line)
                boundary_is_open = True
            elif line.kind == SUMMARY:
                if boundary_is_open:
                    standing.pop()
                standing.append(line)
                boundary_is_open = False
        return standing

    @cached_property
    def chain(self) -> list[tuple[dict[str, Any], int]]:
        """Each checkpoint that decodes, with the number of message lines before it."""
        return [
            (line.record, sum(message.offset < line.offset for message in self.messages))
            for line in self.checkpoints
            if line.record is not None
        ]

    # -- messages ---------------------------------------------------------------------

    @cached_property
    def review_states(self) -> dict[tuple[str, str], str]:
        """(message id, snapshot id) -> the state that the last line for it gives."""
        states = {}
        for line in self.reviews:
            record = line.record or {}
            key = (record.get("messageId"), record.get("snapshotId"))
            state = record.get("state")
            if isinstance(state, str) and state and all(isinstance(part, str) for part in key):
                states[key] = state
        return states

    def effective(self, line: Line) -> dict[str, Any] | None:
        """Return a message with the last review states laid over it, or None if damaged."""
        if line.record is None:
            return None
        message = json.loads(json.dumps(line.record))
        if message.get("role") != "tool" or not isinstance(message.get("blocks"), list):
            return message
        for block in message["blocks"]:
            details = at_path(block, "result.details") if isinstance(block, dict) else None
            if not isinstance(details, dict):
                continue
            plural = details.get("reviews")
            for review in [details.get("review"), *(plural if isinstance(plural, list) else [])]:
                snapshot_id = review.get("snapshotId") if isinstance(review, dict) else None
                if not isinstance(snapshot_id, str):
                    continue
                if not isinstance(message.get("id"), str):
                    continue
                state = self.review_states.get((message["id"], snapshot_id))
                if state is not None:
                    review["state"] = state
        return message

    def id_of(self, line: Line) -> str | None:
        """Return a decodable message's own id, or None."""
        value = at_path(line.record or {}, self.rules.id)
        if isinstance(value, str):
            return value or None
        return str(value) if type(value) is int else None

    def address_of(self, line: Line) -> str:
        return f"@{line.offset}" if (own := self.id_of(line)) is None else own

    def positions_of(self, message_id: str) -> list[int]:
        """Return where decodable messages with an id, or address, are."""
        return [
            position
            for position, line in enumerate(self.messages)
            if line.record is not None and self.address_of(line) == message_id
        ]

    # -- windows ----------------------------------------------------------------------

    def range_of(
        self,
        *,
        before: int | None = None,
        after: int | None = None,
        around: str | None = None,
        limit: int | None = 100,
    ) -> tuple[int, int]:
        """Return the half-open range of positions that a window covers."""
        total = self.total
        width = total if limit is None else limit
        if after is not None:
            start = min(after, total)
            return start, min(start + width, total)
        if around is not None:
            if limit is None:
                return 0, total
            start = max(0, min(self.positions_of(around)[-1] - limit // 2, total - limit))
            return start, min(start + limit, total)
        stop = total if before is None else min(before, total)
        return max(0, stop - width), stop

    def shown(self, start: int, stop: int) -> list[tuple[int, str, dict[str, Any]]]:
        """Return (position, id, message): a repeated id once, first place, last content."""
        places: dict[str, int] = {}
        shown: list[tuple[int, str, dict[str, Any]]] = []
        for position in range(start, stop):
            line = self.messages[position]
            message = self.effective(line)
            if message is None:
                continue
            address = self.address_of(line)
            if address in places:
                place = places[address]
                shown[place] = (shown[place][0], address, message)
            else:
                places[address] = len(shown)
                shown.append((position, address, message))
        return shown

    def damaged(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return (position, offset) of the messages of a window that do not decode."""
        return [
            (position, self.messages[position].offset)
            for position in range(start, stop)
            if self.messages[position].record is None
        ]

    def effective_messages(self) -> Iterator[dict[str, Any]]:
        """Yield every message that decodes, repeated ids and all."""
        for line in self.messages:
            message = self.effective(line)
            if message is not None:
                yield message


def same_json(one: Any, other: Any) -> bool:
    """Whether two decoded values are the same JSON: types too, and NaN equals itself."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
