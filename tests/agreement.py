"""Where the library and the oracle must say the same of one file, and how it is asked."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmapstore
from tests.oracle import COMPACTION, MESSAGE, OTHER, REVIEW, Oracle, same_json
from tests.strategies import HEADER


@functools.lru_cache(maxsize=4096)
def kind_alone(line: bytes) -> str:
    """Return the kind the library gives to a line that stands alone behind a header.

    The oracle takes it for lines that no parser accepts: what the kind is does not
    matter, but it has to be the same wherever the line stands and however it is reached.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "alone.jsonl"
        path.write_bytes(HEADER + line)
        with mmapstore.open(path, dialect="native", access="pread") as t:
            layout = t.layout
            kinds = {
                MESSAGE: len(layout.message_offsets),
                COMPACTION: len(layout.compaction_offsets),
                REVIEW: len(layout.review_offsets),
            }
    found = [kind for kind, count in kinds.items() if count]
    return found[0] if found else OTHER


def native_oracle(data: bytes) -> Oracle:
    """Return the oracle of a native file that may hold damaged lines."""
    return Oracle(data, "native", kind_alone)


def check_layout(t: mmapstore.Transcript, oracle: Oracle) -> None:
    """Compare what the scan says: extents of every kind, the torn tail, the counters."""
    layout = t.layout
    assert layout.message_offsets.tolist() == [line.offset for line in oracle.messages]
    assert layout.messages.ends.tolist() == [line.end for line in oracle.messages]
    assert layout.compaction_offsets.tolist() == [line.offset for line in oracle.compactions]
    assert layout.compactions.ends.tolist() == [line.end for line in oracle.compactions]
    assert layout.review_offsets.tolist() == [line.offset for line in oracle.reviews]
    assert layout.reviews.ends.tolist() == [line.end for line in oracle.reviews]
    for offsets in (layout.message_offsets, layout.compaction_offsets, layout.review_offsets):
        assert offsets.dtype == np.dtype("<u8")
        assert not offsets.flags.writeable
    standing = [oracle.compactions.index(line) for line in oracle.checkpoints]
    assert layout.checkpoints.whole().tolist() == standing
    assert layout.line_count == len(oracle.lines)
    assert layout.file_len == oracle.file_len
    assert t.message_count == len(t) == oracle.total
    assert t.nbytes == len(oracle.data)
    assert t.torn_nbytes == len(oracle.torn_tail)
    assert bytes(t.torn_tail) == oracle.torn_tail


def check_window(w: mmapstore.Window, oracle: Oracle, start: int, stop: int) -> None:
    """Compare one window with the slice [start, stop) of the oracle's messages."""
    assert (w.start, w.stop, w.total) == (start, stop, oracle.total)
    assert (w.has_before, w.has_after) == (start > 0, stop < oracle.total)
    assert len(w) == len(w.lines) == stop - start
    assert [bytes(line) for line in w.lines] == [line.raw for line in oracle.messages[start:stop]]
    shown = oracle.shown(start, stop)
    assert w.message_positions == [position for position, _, _ in shown]
    assert w.message_ids == [message_id for _, message_id, _ in shown]
    assert same_json(w.messages, [message for _, _, message in shown])
    check_damaged(w, oracle, start, stop)
    check_chain(w, oracle)


def check_damaged(w: mmapstore.Window, oracle: Oracle, start: int, stop: int) -> None:
    found = [(position, offset) for position, offset, _ in w.damaged]
    elsewhere = [
        (None, line.offset) for line in (*oracle.compactions, *oracle.reviews) if line.damaged
    ]
    assert found == oracle.damaged(start, stop) + elsewhere
    assert all(reason for _, _, reason in w.damaged)


def check_chain(w: mmapstore.Window, oracle: Oracle) -> None:
    assert same_json(list(w.compactions), [record for record, _ in oracle.chain])
    assert w.compaction_positions == [position for _, position in oracle.chain]


def check_singles(t: mmapstore.Transcript, oracle: Oracle) -> None:
    """Compare every message reached one by one: by position, by id, by iteration."""
    for position, line in enumerate(oracle.messages):
        assert bytes(t.line(position)) == line.raw
        if line.record is None:
            with pytest.raises(mmapstore.LineDecodeError) as caught:
                t[position]
            assert caught.value.offset == line.offset
            assert caught.value.line_number == line.number
            assert caught.value.path == t.path
            assert caught.value.reason
            continue
        assert same_json(t[position], oracle.effective(line))
        assert t.message_id(position) == oracle.address_of(line)
    for message_id in {oracle.address_of(line) for line in oracle.messages if line.record}:
        last = oracle.positions_of(message_id)[-1]
        assert t.position(message_id) == last
        assert same_json(t.message(message_id), oracle.effective(oracle.messages[last]))
    expected = list(oracle.effective_messages())
    assert same_json(list(t.iter()), expected)
    assert same_json(list(t.iter(reverse=True)), expected[::-1])


def check_all(t: mmapstore.Transcript, oracle: Oracle) -> None:
    """Compare everything that does not depend on a choice of window."""
    check_layout(t, oracle)
    check_window(t.window(limit=None), oracle, 0, oracle.total)
    check_singles(t, oracle)


def layout_facts(t: mmapstore.Transcript) -> tuple[Any, ...]:
    """Return what must be equal for two layouts of the same bytes."""
    layout = t.layout
    return (
        t.dialect.name,
        layout.file_len,
        layout.line_count,
        *(
            getattr(extents, side).tolist()
            for extents in (layout.messages, layout.compactions, layout.reviews)
            for side in ("starts", "ends")
        ),
        layout.checkpoints.whole().tolist(),
        t.torn_tail,
    )
