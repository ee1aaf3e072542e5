"""Foreign text made safe to show: a terminal must not obey what a transcript holds.

Control characters, the line separators that are not line feeds, the characters that
turn the direction of text around, and lone surrogates are spelled as escapes. Line
feed and tab stay.
"""

from __future__ import annotations

_UNSAFE = [
    *range(0x20),
    *range(0x7F, 0xA0),
    0x2028,
    0x2029,
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
]


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


_DOTS = "..."
_ON_ONE_LINE = {code: _spelled(code) for code in _UNSAFE} | {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
_AS_TEXT = {code: text for code, text in _ON_ONE_LINE.items() if code not in (0x09, 0x0A)}


def as_text(text: str) -> str:
    r"""Return text of any number of lines that a terminal can be given.

    >>> as_text("red: \x1b[31m\r\nnext")
    'red: \\x1b[31m\nnext'
    """
    return _encodable(text.replace("\r\n", "\n").translate(_AS_TEXT))


def on_one_line(text: str) -> str:
    r"""Return text that a terminal can be given and that stays on one line.

    >>> on_one_line("two\nlines")
    'two\\nlines'
    """
    return _encodable(text.translate(_ON_ONE_LINE))


def width(text: str) -> int:
    """Return how many columns of a terminal a line takes: some characters take two, some none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, columns: int, *, keep_end: bool = False) -> str:
    """Return a line that takes so many columns at most; what is left out shows as dots.

    >>> cut("one two", 6), cut("one two", 6, keep_end=True), cut("one two", 7)
    ('one...', '...two', 'one two')
    """
    if width(text) <= columns:
        return text
    kept = ""
    for character in reversed(text) if keep_end else text:
        if width(kept + character) > columns - len(_DOTS):
            break
        kept += character
    return f"{_DOTS}{kept[::-1]}" if keep_end else f"{kept}{_DOTS}"


def counted(count: int, noun: str) -> str:
    """Return a count of things in words.

    >>> counted(1, "byte"), counted(2500, "byte")
    ('1 byte', '2,500 bytes')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _encodable(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def clipped(text: str, *, characters: int, lines: int) -> str:
    """Return the beginning of `text`: at most so many characters, and so many lines.

    >>> clipped("one two", characters=3, lines=1)
    'one'
    """
    return "\n".join(text[:characters].split("\n", lines)[:lines])
