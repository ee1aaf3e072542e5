"""Every line of a file, read in full: what does not decode, and what is doubtful.

Verification walks all complete lines, those that no layout keeps included. A line
is damaged if it is not blank and does not decode to one object; it is doubtful if
the scan and a full parse give it different kinds, which takes a discriminator key
that is repeated or spelled with an escape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .classify import kind_of_record
from .decode import UndecodableError, decode_object, without_mark
from .errors import TranscriptChangedError
from .grammar import Kind
from .walk import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .filemap import FileBytes
    from .layout import Layout
    from .walk import Progress


class Finding(NamedTuple):
    """A line that is damaged or doubtful.

    Attributes
    ----------
    offset : int
        Byte offset of the line.
    line_number : int
        Physical line number, from 1.
    kind : str
        What the scan says the line is.
    position : int or None
        Its position if it is a message line.
    reason : str
        What is wrong with it.
    """

    offset: int
    line_number: int
    kind: str
    position: int | None
    reason: str


KIND_NAMES = {
    Kind.OTHER: "other",
    Kind.MESSAGE: "message",
    Kind.COMPACTION: "compaction",
    Kind.SUMMARY: "compaction",
    Kind.REVIEW: "tool_review_state",
}


def findings(
    layout: Layout, source: FileBytes, *, progress: Progress | None = None
) -> Iterator[Finding]:
    """Yield a finding for each damaged or doubtful line of a file, in file order.

    Notes
    -----
    O(nbytes), at the speed of decoding; memory is bounded by the longest line.
    """
    number = 0
    position = 0
    seen = 0
    for batch in batches(source, layout.dialect, 0, progress):
        with memoryview(batch.buffer) as memory:
            for start, end, code in zip(
                batch.starts.tolist(), batch.ends.tolist(), batch.kinds.tolist(), strict=True
            ):
                number += 1
                kind = Kind(code)
                offset = batch.base + start
                line = memory[start : end - 1]
                reason = _reason(without_mark(line) if offset == 0 else line, kind, layout)
                if reason is not None:
                    place = position if kind is Kind.MESSAGE else None
                    yield Finding(offset, number, KIND_NAMES[kind], place, reason)
                position += kind is Kind.MESSAGE
        seen = batch.base + int(batch.ends[-1])
    if seen < layout.file_len:
        raise TranscriptChangedError(
            "the file has become shorter",
            path=source.descriptor.path,
            offset=seen,
            hint="refresh() reads it anew",
        )


def _reason(line: memoryview, kind: Kind, layout: Layout) -> str | None:
    try:
        record: dict[str, Any] = decode_object(line)
    except UndecodableError as error:
        return None if not bytes(line).strip(b" \t\r\n") else str(error)
    parsed = kind_of_record(layout.dialect, record)
    if parsed is kind:
        return None
    return (
        f"the scan reads the line as {KIND_NAMES[kind]}, a parser as {KIND_NAMES[parsed]}: "
        "its discriminator key is repeated or spelled with an escape"
    )
