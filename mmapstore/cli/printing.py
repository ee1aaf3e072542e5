"""A window on standard output: for people a head and an indented body, or JSON, a row a message.

What a window cannot show, its damaged lines, is mentioned on standard error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..jsonline import encode
from . import describe, output
from .spread import sections
from .visible import as_text, clipped

if TYPE_CHECKING:
    from collections.abc import Collection

    from .. import Dialect, Window

_CLIP_CHARACTERS = 1000
_CLIP_LINES = 12
#: of a row in JSON
_FIELDS = ("position", "id", "role", "time", "text", "message")


class Printer(NamedTuple):
    """How messages are printed.

    Attributes
    ----------
    dialect : Dialect
        What they are written in.
    name : str
        What to call the file.
    as_json : bool
        Whether as JSON.
    full : bool
        Whether nothing is clipped.
    """

    dialect: Dialect
    name: str
    as_json: bool
    full: bool

    def window(self, window: Window, updates: Collection[int] = (), *, reset: bool = False) -> int:
        """Print a window's messages; return how many were folded into another.

        Parameters
        ----------
        window : Window
            Whose messages to print.
        updates : collection of int
            The positions to mark as another state of an earlier message.
        reset : bool
            Whether to mark the first as making void what was printed before; in JSON.
        """
        shown = zip(window.message_positions, window.message_ids, window.messages, strict=True)
        for position, message_id, message in shown:
            update = position in updates
            if self.as_json:
                row = _row(self.dialect, message, position, message_id)
                if update:
                    row["update"] = True
                if reset:
                    row["reset"], reset = True, False
                _print_json(row)
            else:
                head = describe.head(self.dialect, message, position, message_id)
                output.line(f"{head}  {output.styled('(update)', 'bold')}" if update else head)
                self._body(message)
        return len(window) - len(window.messages) - self._mention_damage(window)

    def nothing_left(self) -> None:
        """Print, in JSON, that what was printed before is void and no message is left."""
        if self.as_json:
            _print_json({**dict.fromkeys(_FIELDS), "reset": True})

    def torn_tail(self, data: bytes, message: dict[str, Any] | None, mark: str) -> None:
        """Print an unterminated last line, as a message if it is one."""
        if message is not None:
            row = _row(self.dialect, message, None, self.dialect.id(message))
        else:
            row = dict.fromkeys(_FIELDS)
            row["text"] = data.decode("utf-8", "backslashreplace")
        if self.as_json:
            _print_json({**row, "unterminated": True})
            return
        output.line(output.styled(f"--- {mark} ---", "bold red"))
        if message is not None:
            output.line(describe.head(self.dialect, message))
            self._body(message)
        else:
            self._print_body(self._clipped(row["text"]))

    def _body(self, message: dict[str, Any]) -> None:
        results = describe.results(self.dialect, message)
        text = "" if results else self.dialect.text(message)
        lines = self._clipped(text)
        if self.full:
            for part_name, part in describe.parts(message):
                for heading, section in sections(part_name, part, text):
                    lines += [f"--- {heading}", *section.split("\n")]
        elif results:
            for label, result in results:
                lines += [label, *self._clipped(result)]
        elif summary := describe.summary(message, text):
            lines.append(summary)
        if not lines:
            lines.append(describe.fields(message))
        self._print_body(lines)

    def _clipped(self, text: str) -> list[str]:
        """Return the lines of a text that are shown."""
        text = text.rstrip("\n")
        shown = text if self.full else clipped(text, characters=_CLIP_CHARACTERS, lines=_CLIP_LINES)
        lines = as_text(shown).split("\n") if shown else []
        if len(shown) < len(text):
            lines.append(f"[{len(text) - len(shown):,} more characters; --full shows all]")
        return lines

    def _print_body(self, lines: list[str]) -> None:
        # indented: no text can pass for the head of a message
        output.line("".join(f"  {line}".rstrip(" ") + "\n" for line in lines))

    def _mention_damage(self, window: Window) -> int:
        """Say which messages are damaged; return how many."""
        # Only a window with a gap is asked: the answer takes a look at every checkpoint.
        if len(window.messages) == len(window):
            return 0
        count = 0
        for position, offset, reason in window.damaged:
            if position is not None:
                count += 1
                output.note(
                    f"{self.name}: position {position} is damaged: {reason} (at byte {offset})"
                )
        return count


def _row(
    dialect: Dialect, message: dict[str, Any], position: int | None, message_id: str | None
) -> dict[str, Any]:
    return {
        "position": position,
        "id": message_id,
        "role": dialect.role(message),
        "time": dialect.time(message),
        "text": dialect.text(message),
        "message": message,
    }


def _print_json(row: dict[str, Any]) -> None:
    output.write(encode(row) + b"\n")
