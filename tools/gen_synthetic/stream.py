"""The stream: a spec becomes the lines of a transcript, one after another.

Invariant: nothing is kept of a line once it is out, but the count of bytes; memory does not grow with the
transcript. That count corrects the lengths that follow, so what rounding leaves never adds up.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from . import columns, words
from .claude import Claude
from .codex import Codex
from .damage import damage
from .native import Native
from .pi import Pi
from .plan import Plan
from .shape import DAMAGED_NBYTES, Fields, Shape
from .spec import EXTRAS_A_MESSAGE, Spec
from .spread import Spread

_SHAPES: Final[dict[str, type[Shape]]] = {
    "native": Native,
    "claude": Claude,
    "codex": Codex,
    "pi": Pi,
}
# How far before its boundary a checkpoint begins to keep, and a review state looks for its message.
_KEPT = 12
_RECENT_TOOLS = 16


def lines(spec: Spec) -> Iterator[bytes]:
    """Return the lines of a transcript, line ends included, and then its torn tail if it has one.

    Raises
    ------
    ValueError
        The spec cannot be met in its nbytes. Raised by the call, not with the first line.

    Notes
    -----
    Holds the plan of one block of messages, and one line.
    """
    return _stream(Plan(spec, _SHAPES[spec.shape](spec)))


def generate(spec: Spec) -> bytes:
    """Return a whole transcript, for small ones."""
    return b"".join(lines(spec))


def _stream(plan: Plan) -> Iterator[bytes]:
    shape = plan.shape
    marks = {flag: shape.extra(flag) for flag, _ in plan.marks}
    # Bytes so far, and how many of them no message's end accounts for.
    written = extras = 0
    for line in shape.header():
        written += len(line)
        yield line
    for index, key, flags, lot, end, followed, row in plan.messages():
        if flags:
            extras += sum(nbytes for flag, nbytes in marks.items() if flags & flag)
        for line in shape.message(key, flags, end + extras - written, lot, row):
            written += len(line)
            yield line
        if followed:
            for line in _after(plan, index, lot):
                written += len(line)
                extras += len(line)
                yield line
    if plan.spec.torn_nbytes:
        yield _torn(plan)


def _after(plan: Plan, index: int, lot: int) -> Iterator[bytes]:
    """Yield what follows one message: review states, checkpoints, damaged lines."""
    if isinstance(plan.shape, Native) and plan.spec.reviews:
        yield from _reviews(plan, plan.shape, index, lot)
    for place, ordinal in enumerate(_at(plan.checkpoints, index)):
        yield from plan.shape.checkpoint(lot, _checkpoint_fields(plan, index, place, ordinal))
    for place, ordinal in enumerate(_at(plan.damaged, index)):
        yield _damaged(plan, plan.late_fields(index, EXTRAS_A_MESSAGE + place), lot, ordinal)


def _at(spread: Spread, place: int) -> range:
    """Return the ordinals of the extras at a place."""
    return range(spread.before(place), spread.before(place + 1))


def _reviews(plan: Plan, shape: Native, index: int, lot: int) -> Iterator[bytes]:
    """Yield the states that follow a tool message, each of it or of a tool message not long before."""
    tool, after = (int(n) for n in plan.roles.tools_before(np.array([index, index + 1])))
    if after == tool:
        return
    for ordinal in _at(plan.reviews, tool):
        back = (lot + ordinal) % min(tool + 1, _RECENT_TOOLS)
        owner = plan.message_id(plan.roles.tool(tool - back))
        yield shape.review(owner, (b"rolledBack", b"active")[ordinal % 2])


def _checkpoint_fields(plan: Plan, index: int, place: int, ordinal: int) -> Fields:
    only = np.array([ordinal])
    return {
        **plan.late_fields(index, place),
        "checkpoint": plan.shape.ids(columns.COMPACTION, only)[0],
        "aside": plan.shape.ids(columns.BOUNDARY, only)[0],
        "through": plan.message_id(index),
        "kept": plan.message_id(max(index - _KEPT, 0)),
    }


def _damaged(plan: Plan, fields: Fields, lot: int, ordinal: int) -> bytes:
    shape, kinds = plan.shape, plan.spec.damage
    own = shape.ids(columns.DAMAGED, np.array([ordinal]))[0]
    line_end = shape.press.line_end
    line = shape.plain(DAMAGED_NBYTES, lot, {**fields, "id": own}).removesuffix(line_end)
    return damage(kinds[ordinal % len(kinds)], line, words.cut(DAMAGED_NBYTES, lot)) + line_end


def _torn(plan: Plan) -> bytes:
    """Return the start of one further message, whose text alone is longer than what is kept."""
    count, nbytes = plan.spec.messages, plan.spec.torn_nbytes
    own = plan.shape.ids(columns.MESSAGE, np.array([count]))[0]
    text_nbytes = max(nbytes, int(plan.budget.text))
    return plan.shape.plain(text_nbytes, 0, {**plan.late_fields(count, 0), "id": own})[:nbytes]
