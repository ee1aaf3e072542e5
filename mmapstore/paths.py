"""Values in decoded records: dotted paths, list elements and alternatives.

``a.b`` is a nested key, ``a[]`` each element of a list, ``|`` separates
alternatives of which the first that yields anything counts, ``=x`` is the
constant x. The dialect table is written in this notation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: whether an object is passed over, with all that is in it
    Skip = Callable[[dict[str, Any]], bool]


class Path:
    """A compiled path expression.

    Parameters
    ----------
    expression : str
        In the notation above; empty for a path that never leads anywhere.
    """

    __slots__ = ("alternatives", "constant", "expression", "key", "keys")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.constant: str | None = None
        self.alternatives: list[list[str]] = []
        for alternative in filter(None, expression.split("|")):
            if alternative.startswith("="):
                self.constant = alternative[1:]
            else:
                self.alternatives.append(alternative.replace("[]", ".[]").split("."))
        #: the alternatives as keys from the top, for a scan of a line
        self.keys = [tuple(step.encode() for step in steps) for steps in self.alternatives]
        #: the one top-level key, where the path is no more than that
        self.key = expression if self.keys == [(expression.encode(),)] else None

    def __repr__(self) -> str:
        """Show the expression: what depends on the path can be told by it."""
        return f"Path({self.expression!r})"

    def first(self, record: dict[str, Any]) -> Any:
        """Return the first value that the path leads to and that is not null, or None."""
        for steps in self.alternatives:
            for value in _walk(record, steps, 0):
                if value is not None:
                    return value
        return self.constant

    def strings(self, record: dict[str, Any], skip: Skip | None = None) -> list[str]:
        """Return the strings of the first alternative that leads to any."""
        for steps in self.alternatives:
            found = [value for value in _walk(record, steps, 0, skip) if isinstance(value, str)]
            if found:
                return found
        return []

    def every(self, record: dict[str, Any]) -> Iterator[Any]:
        """Yield the values of all alternatives."""
        for steps in self.alternatives:
            yield from _walk(record, steps, 0)


def _walk(value: Any, steps: list[str], index: int, skip: Skip | None = None) -> Iterator[Any]:
    while index < len(steps):
        step = steps[index]
        index += 1
        if step == "[]":
            if isinstance(value, list):
                for element in value:
                    yield from _walk(element, steps, index, skip)
            return
        if not isinstance(value, dict) or step not in value or (skip and skip(value)):
            return
        value = value[step]
    yield value
