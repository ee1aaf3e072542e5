"""A form: the lines of one message, or of what stands between messages, with their fields left open.

Invariant: the number of bytes that a form adds to its texts is known before it is filled, because every
other field has a fixed width. Templates are written compactly, once, with %(name)b for a field; white space
is put between their tokens here, so no shape knows about it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

_SLOT = re.compile(rb"%\((\w+)\)b")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^"{}\[\]:,]+')
# All that JSON allows between tokens, but for the line feed that ends a line.
_GAPS = (b" ", b"", b"\t", b"  ", b"\r", b" \t ", b"")


def respace(template: bytes) -> bytes:
    """Return a template with white space between its tokens, at both ends, and in no string."""
    tokens: list[bytes] = _TOKEN.findall(template)
    spaced = [token + _GAPS[n % len(_GAPS)] for n, token in enumerate(tokens)]
    return b" " + b"".join(spaced) + b" "


@dataclass(frozen=True, slots=True)
class Form:
    """Line templates and how to fill them from a row of fields in a fixed order.

    Attributes
    ----------
    lines : each with its line end and a %b for each field, and what picks those fields from a row
    overhead : bytes of all lines when every text is empty
    texts : how many times the message's text occurs in them
    """

    lines: tuple[tuple[bytes, Callable[[Sequence[bytes]], Any]], ...]
    overhead: int
    texts: int

    def fill(self, row: Sequence[bytes]) -> list[bytes]:
        """Return the lines with their fields in place."""
        return [line % pick(row) for line, pick in self.lines]


@dataclass(frozen=True, slots=True)
class Press:
    """Makes forms out of compact templates, all in the style of one transcript.

    Attributes
    ----------
    widths : bytes of each field but the text
    whitespace : whether to put white space between tokens
    line_end : LF or CR LF
    """

    widths: Mapping[str, int]
    whitespace: bool
    line_end: bytes

    def form(self, order: Sequence[str], *templates: str) -> Form:
        """Return the form of compact one-line templates whose rows have their fields in that order."""
        lines = []
        overhead = texts = 0
        for template in templates:
            compact = template.encode()
            line = (respace(compact) if self.whitespace else compact) + self.line_end
            slots = [slot.decode() for slot in _SLOT.findall(line)]
            literal = _SLOT.sub(b"%b", line)
            lines.append((literal, itemgetter(*map(order.index, slots))))
            overhead += len(literal) - len(b"%b") * len(slots)
            overhead += sum(self.widths[slot] for slot in slots if slot != "text")
            texts += slots.count("text")
        return Form(lines=tuple(lines), overhead=overhead, texts=texts)

    def line(self, compact: str) -> bytes:
        """Return a line that has no fields."""
        return (respace(compact.encode()) if self.whitespace else compact.encode()) + self.line_end
