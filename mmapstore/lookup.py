"""Look-ups in one generation: from a message id or a tool call to a line.

The identities say which lines may have an id; the line itself decides, as a parser
reads it. Of several the last in the file counts, and one that does not decode yields
to the last that does. Decision record: append-only review state, identities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import identity
from .decode import Undecodable
from .errors import MessageNotFoundError
from .generation import text_of
from .review import overlay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .generation import Generation
    from .identity import Identities

#: lines without a readable id that an error looks at for its hint
_UNRESOLVED_LOOKED_AT = 1000
_NAMED_COUNT = 10


def message_id(generation: Generation, position: int) -> str:
    """Return a message's id, as far as a damaged line's can be read; else its ``@offset``."""
    messages, dialect = generation.layout.messages, generation.dialect
    offset = messages.at(position)[0]
    record = generation.one(messages, position)
    if isinstance(record, Undecodable):
        line = bytes(text_of(generation.line(messages, position), offset))
        return identity.read_id(line, dialect) or identity.offset_address(offset)
    return dialect.id(record) or identity.offset_address(offset)


def position(generation: Generation, wanted: str) -> int | None:
    """Return the last position with that id whose line decodes, or None.

    Raises
    ------
    LineDecodeError
        Lines have that id, and none of them decodes.
    """
    identities = generation.identities
    found = _among(generation, identities, wanted)
    if generation.identities is not identities:
        # a line has shown that what the cache says is of another file: all is known anew
        found = _among(generation, generation.identities, wanted)
    return _position_at(generation, identity.addressed_offset(wanted)) if found is None else found


def _among(generation: Generation, identities: Identities, wanted: str) -> int | None:
    messages = generation.layout.messages
    damaged = None
    for candidate in identities.candidates(wanted):
        record = generation.one(messages, candidate)
        if isinstance(record, Undecodable):
            if damaged is None and message_id(generation, candidate) == wanted:
                damaged = candidate
        elif wanted and generation.dialect.id(record) == wanted:
            return candidate
    if damaged is not None:
        generation.record(messages, damaged)  # raises, with the line's number
    return None


def _position_at(generation: Generation, offset: int | None) -> int | None:
    messages = generation.layout.messages
    if offset is None or offset > generation.layout.file_len:
        return None
    found = messages.first_from(offset)
    if found == len(messages) or messages.at(found)[0] != offset:
        return None
    # a message that has an id is not addressed by its offset
    return found if message_id(generation, found) == identity.offset_address(offset) else None


def not_found(generation: Generation, wanted: str) -> MessageNotFoundError:
    """Return the error for an id that no message has."""
    messages = generation.layout.messages
    damaged = [
        str(candidate)
        for candidate in generation.identities.without_id(_UNRESOLVED_LOOKED_AT)
        if isinstance(generation.one(messages, candidate), Undecodable)
    ]
    hint = None
    if damaged:
        more = " and more" if len(damaged) > _NAMED_COUNT else ""
        shown = ", ".join(damaged[:_NAMED_COUNT]) + more
        hint = f"damaged message lines without a readable id are at position {shown}"
    return MessageNotFoundError(
        f"no message with the id {wanted!r}", path=generation.path, hint=hint
    )


def tool_parent(generation: Generation, call_id: str) -> dict[str, Any]:
    """Return the newest effective message that holds a tool call, or raise."""
    messages = generation.layout.messages
    for start, stop in reversed(list(generation.parts(messages, 0, len(messages)))):
        for candidate in _lines_that_may_hold(generation, start, stop, call_id):
            message = generation.one(messages, candidate)
            if isinstance(message, Undecodable):
                continue
            if call_id in generation.dialect.calls(message):
                overlay(message, generation.review_states)
                return message
    raise MessageNotFoundError(f"no message holds the tool call {call_id!r}", path=generation.path)


def _lines_that_may_hold(
    generation: Generation, start: int, stop: int, call_id: str
) -> Iterator[int]:
    """Yield, from the last on, positions in [start, stop) whose lines may spell a string."""
    plain = call_id.isascii() and call_id.isprintable() and not set(call_id) & {'"', "\\"}
    needle = f'"{call_id}"'.encode() if plain else b""
    texts = generation.texts(generation.layout.messages, start, stop)
    for candidate in range(stop - 1, start - 1, -1):
        text = bytes(texts[candidate - start])
        # any character may be spelled by an escape, and a slash by one more
        if needle in text or b"\\u" in text or b"\\/" in text:
            yield candidate
