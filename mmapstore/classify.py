"""Lines to their kinds: probe where the discriminator stands, walk where no probe proves it.

One function of a line's bytes and its dialect decides, so a line has one kind on
every path: cold scan, grown tail, verification. The line is never parsed into a
value for it. Decision record: 0127, cheap classification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from .grammar import Kind, Look, Probe
from .keys import find_path, find_value, object_start, token_at
from .probe import (
    OPEN_BRACE,
    blocks,
    may_be_objects,
    plain_values,
    string_values,
    tail_values,
    without_key,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .grammar import Dialect
    from .probe import Block, Offsets
    from .scan import Searchable


class Classifier:
    """Tells the kinds of many lines of one dialect.

    Parameters
    ----------
    dialect : Dialect
        Its key, kinds and probes are used.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def at_a_glance(self, line: bytes) -> Kind | None:
        """Return the kind of one line that begins as writers begin it, else None.

        What :meth:`kinds` says of such a line, for less than the arrays cost.
        """
        closing, commonest, openings = _literals(self._dialect)
        for opening, kind in openings:
            if line.startswith(opening):
                return commonest if line.endswith(closing) else kind
        return None

    def kinds(self, buffer: Searchable, starts: Offsets, ends: Offsets) -> NDArray[np.uint8]:
        """Return the kind of each line.

        Parameters
        ----------
        buffer : bytes, bytearray or mmap
            Holds the lines.
        starts, ends : (count,) int64, bytes
            Half-open extents in the buffer, newline included. A byte order mark before
            the first line is not part of it.

        Returns
        -------
        kinds : (count,) uint8
            Values of :class:`Kind`.

        Notes
        -----
        O(count) where the probes prove the kind, O(nbytes) of a line where they do not.
        """
        kinds = np.zeros(len(starts), dtype=np.uint8)
        for lines, block in blocks(buffer, starts, ends):
            kinds[lines] = self._of_block(block)
        return kinds

    def _of_block(self, block: Block) -> NDArray[np.uint8]:
        dialect = self._dialect
        kinds = np.zeros(len(block.starts), dtype=np.uint8)
        if not dialect.key:
            objects = block.octets[block.starts] == OPEN_BRACE
            kinds[objects] = Kind.MESSAGE
            return self._walked(block, kinds, np.flatnonzero(may_be_objects(block) & ~objects))
        todo = self._commonest(block, kinds)
        todo = todo[may_be_objects(block)[todo]]
        if not len(todo):
            return kinds
        at = string_values(block, dialect.key, dialect.probes, todo)
        proven = at >= 0
        walk = [todo[~proven]]
        todo, at = todo[proven], at[proven]
        for value, kind in dialect.kinds.items():
            if not len(todo):
                break
            literal = value + b'"'
            hit = block.texts(at, len(literal)) == literal
            if isinstance(kind, Look):
                self._look(block, kinds, todo[hit], at[hit] + len(literal), kind)
            else:
                kinds[todo[hit]] = kind
            todo, at = todo[~hit], at[~hit]
        if len(todo):
            # Values not listed are other, unless an escape spells a listed one.
            walk.append(todo[plain_values(block, at, todo)[1] < 0])
        left = np.concatenate(walk)
        if len(left) and not isinstance(dialect.keyless, Look):
            keyless = without_key(block, dialect.key, left)
            kinds[left[keyless]] = dialect.keyless
            left = left[~keyless]
        return self._walked(block, kinds, left)

    def _commonest(self, block: Block, kinds: NDArray[np.uint8]) -> Offsets:
        """Settle the lines that begin or end with the commonest value; return the others.

        FIRST and TAIL would prove the same, at the price of looking for the place.
        """
        dialect = self._dialect
        value, kind = next(iter(dialect.kinds.items()))
        todo: Offsets = np.arange(len(kinds))
        if Probe.FIRST not in dialect.probes or isinstance(kind, Look):
            return todo
        member = b'"' + dialect.key + b'":"' + value + b'"'
        opening, closing = b"{" + member, b"," + member + b"}\n"
        hit = block.texts(block.starts, len(opening)) == opening
        kinds[hit] = kind
        todo = todo[~hit]
        if len(todo):
            hit = block.texts(block.ends[todo] - len(closing), len(closing)) == closing
            hit &= block.octets[block.starts[todo]] == OPEN_BRACE
            kinds[todo[hit]] = kind
            todo = todo[~hit]
        return todo

    def _look(
        self,
        block: Block,
        kinds: NDArray[np.uint8],
        lines: Offsets,
        behind: Offsets,
        look: Look,
    ) -> None:
        """Settle the kinds of lines whose discriminator ends at `behind`."""
        if look.unless_text:
            text = b"," + look.unless_text
            hit = block.texts(behind, len(text)) == text
            kinds[lines[hit]] = look.absent
            lines = lines[~hit]
        if look.wants_strings and len(lines):
            at = string_values(block, b'":{"'.join(look.path), (Probe.HEAD,), lines)
            rows, lengths = plain_values(block, np.maximum(at, 0), lines)
            proven = (at >= 0) & (lengths >= 0)
            texts, sizes = rows[proven].tolist(), lengths[proven].tolist()
            kinds[lines[proven]] = [
                look.kinds.get(b'"' + text[:nbytes] + b'"', look.present)
                for text, nbytes in zip(texts, sizes, strict=True)
            ]
            lines = lines[~proven]
        # a key that stands nowhere in the line, quoted, is not there
        there = _holds(block, lines, b'"' + look.path[-1] + b'"')
        kinds[lines[~there]] = look.absent
        lines = lines[there]
        if len(look.path) == 1 and not look.wants_strings and len(lines):
            lines = _flags(block, kinds, lines, look)
        for index in lines.tolist():
            kinds[index] = _kind_by_look(block.line(index), look)

    def _walked(self, block: Block, kinds: NDArray[np.uint8], lines: Offsets) -> NDArray[np.uint8]:
        for index in lines.tolist():
            kinds[index] = self._kind_by_walk(block.line(index))
        return kinds

    def _kind_by_walk(self, line: bytes) -> Kind:
        dialect = self._dialect
        brace = object_start(line)
        if brace < 0:
            return Kind.OTHER
        found = find_value(line, brace, dialect.key) if dialect.key else -1
        if found < 0:
            kind = dialect.keyless
        else:
            kind = dialect.kinds.get(string_token(token_at(line, found)), Kind.OTHER)
        return _kind_by_look(line, kind) if isinstance(kind, Look) else kind


_known_literals: dict[str, tuple[Dialect, bytes, Kind, list[tuple[bytes, Kind]]]] = {}


def _literals(dialect: Dialect) -> tuple[bytes, Kind, list[tuple[bytes, Kind]]]:
    """Return how lines of a dialect end that have its commonest kind, and how any begin."""
    known = _known_literals.get(dialect.name)
    if known is None or known[0] is not dialect:
        value, commonest = next(iter(dialect.kinds.items()), (b"", Kind.OTHER))
        openings = []
        # where the commonest kind is left open, the arrays look at more than these literals
        if dialect.key and Probe.FIRST in dialect.probes and isinstance(commonest, Kind):
            openings = [
                (b'{"' + dialect.key + b'":"' + value + b'"', kind)
                for value, kind in dialect.kinds.items()
                if isinstance(kind, Kind)
            ]
        closing = b',"' + dialect.key + b'":"' + value + b'"}\n'
        commonest = commonest if isinstance(commonest, Kind) else Kind.OTHER
        known = _known_literals[dialect.name] = (dialect, closing, commonest, openings)
    return known[1:]


def string_token(token: bytes) -> bytes:
    """Return what a JSON string token spells, as UTF-8; empty for any other token."""
    if token[:1] != b'"':
        return b""
    if b"\\" not in token:
        return token[1:-1]
    try:
        value = orjson.loads(token)
    except orjson.JSONDecodeError:
        return b""  # no listed value is spelled by what orjson refuses
    return value.encode() if isinstance(value, str) else b""


def _kind_by_look(line: bytes, look: Look) -> Kind:
    found = find_path(line, look.path)
    if found < 0 or (look.unless and find_path(line, look.unless) >= 0):
        return look.absent
    token = token_at(line, found)
    if b"\\" in token:
        token = b'"' + string_token(token) + b'"'
    return look.kinds.get(token, look.present)


def _flags(block: Block, kinds: NDArray[np.uint8], lines: Offsets, look: Look) -> Offsets:
    """Settle lines that have a listed scalar near their end; return the others."""
    at = tail_values(block, b'"' + look.path[0] + b'":', lines)
    for token, kind in look.kinds.items():
        for behind in (b",", b"}"):
            hit = (at >= 0) & (block.texts(np.maximum(at, 0), len(token) + 1) == token + behind)
            for index in lines[hit].tolist():
                excluded = look.unless and find_path(block.line(index), look.unless) >= 0
                kinds[index] = look.absent if excluded else kind
            lines, at = lines[~hit], at[~hit]
    return lines


def _holds(block: Block, lines: Offsets, literal: bytes) -> NDArray[np.bool_]:
    """Return which of `lines` hold `literal` anywhere."""
    if not len(lines):
        return np.zeros(0, dtype=np.bool_)
    find = block.buffer.find
    extents = zip(block.starts[lines].tolist(), block.ends[lines].tolist(), strict=True)
    return np.array([find(literal, start, end) >= 0 for start, end in extents])


def kind_of_record(dialect: Dialect, record: dict[str, Any]) -> Kind:
    """Return the kind that a full parse gives a line: the scan's answer, by other means."""
    key = dialect.key.decode()
    if key and key in record:
        value = record[key]
        spelled = value.encode("utf-8", "replace") if isinstance(value, str) else b""
        kind = dialect.kinds.get(spelled, Kind.OTHER)
    else:
        kind = dialect.keyless
    if not isinstance(kind, Look):
        return kind
    missing = object()
    value = _value_at(record, kind.path, missing)
    if value is missing:
        return kind.absent
    if kind.unless and _value_at(record, kind.unless, missing) is not missing:
        return kind.absent
    token = b"" if isinstance(value, dict | list) else _spelled(value)
    return kind.kinds.get(token, kind.present)


def _value_at(value: Any, path: tuple[bytes, ...], missing: object) -> Any:
    for key in path:
        if key:
            value = value.get(key.decode(), missing) if isinstance(value, dict) else missing
        else:
            value = value[0] if isinstance(value, list) and value else missing
    return value


def _spelled(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # a lone surrogate, a huge number: no kind is spelled so
        return b""
