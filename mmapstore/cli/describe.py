"""A message for people: its head line, and in a few words what it holds besides text.

What an agent puts beside text is found by the names that agents use for lists of
parts, in whatever dialect; nothing is assumed of a part but that it is an object.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..grammar import is_reasoning
from ..jsonline import encode
from .output import styled
from .visible import clipped, on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .. import Dialect

_BODIES = ("message", "payload", "data", "event")
_PART_LISTS = ("blocks", "content", "parts", "part", "toolCalls", "tool_calls", "toolRequests")
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text"})
_NAMES = ("name", "toolName", "tool_name")
#: where a part's substance is, most telling first
_SUBSTANCE = (
    "input",
    "arguments",
    "args",
    "output",
    "response",
    "content",
    "result",
    "thinking",
    "think",
    "text",
)
_INPUTS = ("input", "arguments", "args")
_OUTCOMES = ("output", "response", "result", "content")
_STYLES = {"user": "bold green", "human": "bold green", "assistant": "bold cyan"}

_SNIPPET_CHARACTERS = 72
_PARTS_NAMED = 4
_FIELDS_NAMED = 12


def head(
    dialect: Dialect,
    message: dict[str, Any],
    position: int | None = None,
    message_id: str | None = None,
) -> str:
    """Return the line that stands over a message: position, role, time, id."""
    role = dialect.role(message) or "-"
    time = dialect.time(message) or "-"
    place = "-" if position is None else str(position)
    words = [place, *map(on_one_line, (role, time, message_id or dialect.id(message) or "-"))]
    words[1] = styled(words[1], _STYLES.get(role, "bold yellow"))
    return "  ".join(words)


def parts(message: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a message holds besides text: (a name for it, the part)."""
    bodies = [message, *(message.get(name) for name in _BODIES)]
    for body in bodies:
        if not isinstance(body, dict):
            continue
        for place in _PART_LISTS:
            found = body.get(place)
            for part in found if isinstance(found, list) else [found]:
                if isinstance(part, dict) and not _is_text(part):
                    yield _name(part, place), part


def own_text(dialect: Dialect, message: dict[str, Any]) -> str:
    """Return the text that no part of the message shows by itself: what is said, mostly."""
    return "" if results(dialect, message) else dialect.text(message)


def results(dialect: Dialect, message: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each part of a message whose text is what tools gave back, and only that.

    As (what to call it, its share of the text); empty where parts do not make up the text.
    """
    if dialect.said(message) or not (text := dialect.text(message)):
        return []
    found = []
    for name, part in parts(message):
        label = _labelled([_phrase(name, part, text)])
        wording = next((each for each in _wordings(part) if _among(each, text)), "")
        found.append((label, wording))
    return found if "\n".join(wording for _, wording in found if wording) == text else []


def summary(message: dict[str, Any], above: str = "") -> str:
    """Return on one line what a message holds besides text; empty if that is nothing.

    `above` is the message's text: a result that is in there is named and not told again.
    """
    found = list(parts(message))
    phrases = [_phrase(name, part, above) for name, part in found[:_PARTS_NAMED]]
    return _labelled(phrases, unnamed=len(found) - len(phrases))


def _labelled(phrases: list[tuple[str, int]], unnamed: int = 0) -> str:
    words = [f"[{on_one_line(phrase)}]" for phrase, _ in phrases]
    if unnamed:
        words.append(f"and {unnamed} more")
    if hidden := sum(count for _, count in phrases):
        words.append(f"[{hidden:,} more characters; --full shows all]")
    return " ".join(words)


def fields(message: dict[str, Any]) -> str:
    """Return on one line which fields a message has, for one that holds nothing else."""
    named = ", ".join(list(message)[:_FIELDS_NAMED]) or "none"
    return on_one_line(f"[no text; fields: {named}]")


def _is_text(part: dict[str, Any]) -> bool:
    if is_reasoning(part):
        return False
    kind = part.get("type")
    if isinstance(kind, str):
        return kind in _TEXT_TYPES
    return isinstance(part.get("text"), str)


def _name(part: dict[str, Any], place: str) -> str:
    kind = part.get("type")
    if not isinstance(kind, str):
        # a part without a type is often one key that names it
        inner = [key for key, value in part.items() if isinstance(value, dict)]
        kind = inner[0] if len(part) == 1 and inner else place
        kind = "thought" if is_reasoning(part) else kind
    tool = _first(part, _NAMES)
    return f"{kind} {tool}" if isinstance(tool, str) else kind


def _phrase(name: str, part: dict[str, Any], above: str) -> tuple[str, int]:
    """Return a part in a few words, and how many characters they leave out."""
    given, back = _wordings(part)
    told, hidden = ("", 0) if _among(given, above) else _snippet(given)
    phrase = f"{name}: {told}" if told else name
    if back and not _among(back, above):
        told, more = _snippet(back)
        phrase, hidden = f"{phrase} -> {told}", hidden + more
    return phrase, hidden


def _wordings(part: dict[str, Any]) -> tuple[str, str]:
    """Return what a part holds as text, and of a call that holds its own result as well that."""
    given = _first(part, _INPUTS)
    if given is None:
        return _wording(_unwrapped(_first(part, _SUBSTANCE))), ""
    return _wording(given), _wording(_unwrapped(_first(part, _OUTCOMES)))


def _unwrapped(outcome: Any) -> Any:
    if isinstance(outcome, dict):
        return next((outcome[key] for key in _SUBSTANCE if outcome.get(key)), outcome)
    return outcome


def _among(text: str, above: str) -> bool:
    """Whether a text that is not empty stands in another."""
    # the parts of a message's text are joined by newlines
    return bool(text) and f"\n{text}\n" in f"\n{above}\n"


def _wording(substance: Any) -> str:
    if isinstance(substance, list):
        texts = [item["text"] for item in substance if isinstance(item, dict) and "text" in item]
        substance = "\n".join(text for text in texts if isinstance(text, str)) or substance
    if substance in (None, "", [], {}):
        return ""
    return substance if isinstance(substance, str) else encode(substance).decode()


def _snippet(text: str) -> tuple[str, int]:
    # of a text of megabytes no more is looked at than can be shown
    begun = clipped(text, characters=1000, lines=20)
    words = " ".join(begun.split())
    shown = words[:_SNIPPET_CHARACTERS].rstrip()
    if shown == words and not text[len(begun) :].strip():
        return shown, 0
    # what separates the words is folded: count how far into the text they reach
    reach = len("".join(shown.split()))
    taken = re.match(rf"\s*(?:\S\s*){{{reach}}}", text)
    return f"{shown}...", len(text) - (taken.end() if taken else 0)


def _first(part: dict[str, Any], keys: tuple[str, ...]) -> Any:
    values = list(part.values())
    if len(values) == 1 and isinstance(values[0], dict):
        part = values[0]
    return next((part[key] for key in keys if part.get(key) is not None), None)
