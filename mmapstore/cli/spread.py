"""A part of a message, whole and legible: its long strings as text, the rest as JSON.

A string of several lines, or of more than fit on one, leaves the JSON, where a word says
so, and follows under a heading that names its place. Nothing is left out; what is
exact to the byte is for programs, and elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..jsonline import encode
from .visible import as_text, on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_BELOW = "[text below]"
_ABOVE = "[text above]"
_LINE_CHARACTERS = 72
#: what a heading says already, where nothing else is left
_SAID = frozenset({"type", "name"})


def sections(name: str, part: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield (heading, text) of a part, safe to show; `above` is the text shown already."""
    rest, texts = _lifted(part, above)
    alone = len(texts) == 1 and set(part) <= _SAID | {texts[0][0]}
    if not alone:
        yield on_one_line(name), as_text(encode(rest, indent=True).decode())
    for place, text in texts:
        yield on_one_line(name if alone else f"{name} {place}"), as_text(text.rstrip("\n"))


def _lifted(part: dict[str, Any], above: str) -> tuple[Any, list[tuple[str, str]]]:
    """Return a copy without long strings, and those: (place, text), in order.

    Without recursion: a line may nest deeper than Python calls.
    """
    top: list[Any] = [part]
    texts: list[tuple[str, str]] = []
    todo: list[tuple[Any, Any, str]] = [(top, 0, "")]
    while todo:
        holder, key, place = todo.pop()
        item = holder[key]
        if isinstance(item, dict):
            holder[key] = item = dict(item)
            prefix = f"{place}." if place else ""
            todo += [(item, name, f"{prefix}{name}") for name in reversed(item)]
        elif isinstance(item, list):
            holder[key] = item = list(item)
            todo += [(item, at, f"{place}[{at}]") for at in reversed(range(len(item)))]
        elif isinstance(item, str) and ("\n" in item or len(item) > _LINE_CHARACTERS):
            if item in above:
                holder[key] = _ABOVE
            else:
                holder[key] = _BELOW
                texts.append((place, item))
    return top[0], texts
