"""Every line of a file, read in full: what does not decode, and what is doubtful.

Verification walks all complete lines, those that no layout keeps included. A line
is damaged if it is not blank and does not decode to one object; it is doubtful if
the scan and a full parse give it different kinds, which takes a discriminator key
that is repeated or spelled with an escape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .classify import Classifier, kind_of_record
from .decode import BYTE_ORDER_MARK, UndecodableError, decode_object
from .dialect import Kind
from .scan import LineFinder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .filemap import FileBytes
    from .layout import Layout, Progress


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
    classifier = Classifier(layout.dialect)
    finder = LineFinder()
    reader = source.reader(0)
    keep = 0
    number = 0
    position = 0
    while reader.advance(keep):
        ends = finder.ends(reader.buffer, reader.octets, reader.start, reader.stop)
        if len(ends):
            starts = np.concatenate(([keep - reader.base], ends[:-1]))
            if keep == 0 and reader.octets[:3].tobytes() == BYTE_ORDER_MARK:
                starts[0] += len(BYTE_ORDER_MARK)
            kinds = classifier.kinds(reader.buffer, starts, ends)
            memory = memoryview(reader.buffer)
            for start, end, code in zip(
                starts.tolist(), ends.tolist(), kinds.tolist(), strict=True
            ):
                number += 1
                kind = Kind(code)
                reason = _reason(memory[start:end], kind, layout)
                if reason is not None:
                    offset = reader.base + start if number > 1 else 0
                    place = position if kind is Kind.MESSAGE else None
                    yield Finding(offset, number, KIND_NAMES[kind], place, reason)
                position += kind is Kind.MESSAGE
            memory.release()
            keep = reader.base + int(ends[-1])
        if progress is not None:
            progress(reader.base + reader.stop, source.nbytes)


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
