"""Tables as lines of text: the cells of a column as wide as its widest one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Container[int]) -> list[str]:
    """Return rows as lines; the columns of these numbers are aligned to the right.

    >>> aligned([("row", "us"), ("append", "7"), ("cut", "12")], right={1})
    ['row     us', 'append   7', 'cut     12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if number in right else text.ljust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
