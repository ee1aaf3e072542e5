"""The plan: for each message its role, its peculiarities and its fields.

Invariant: message i of a spec has one plan, whatever stretch it is planned with.
"""

from collections.abc import Iterator

import numpy as np

from . import columns, words
from .budget import Budget
from .marks import IMAGE, LONE_SURROGATE, NESTED, form_keys
from .noise import Index, draws, uniform
from .roles import TOOL, Roles
from .shape import REMARK_NBYTES, Fields, Row, Shape
from .spec import Spec
from .spread import Spread
from .words import CELLS, ESCAPED, NON_ASCII

#: Messages planned at a time: enough to spread numpy's cost, few enough to hold next to nothing.
BLOCK = 1024
#: Messages are a step apart, each in the first quarter of its step; what follows one is in the second half.
STEP_MS = 2000
_TIMES = {"time": 0, "time1": 1, "time2": 2}
_OWNERS = {"aside": columns.ASIDE, "embedded": columns.EMBEDDED}


#: One message: its index, form, flags and lot; the bytes of the file up to its end, without extras;
#: whether other lines follow it; its fields.
Message = tuple[int, int, int, int, int, bool, Row]


class Plan:
    """The layout of one spec in one shape.

    Raises
    ------
    ValueError
        The spec's nbytes cannot hold its messages, or it asks for reviews and has no tool message.
    """

    def __init__(self, spec: Spec, shape: Shape) -> None:
        self.spec = spec
        self.shape = shape
        self.roles = Roles.of(spec)
        tools = int(self.roles.tools_before(np.array([spec.messages]))[0])
        if spec.reviews and not tools:
            message = "reviews need tool messages: raise tool_share or messages"
            raise ValueError(message)
        self.reviews = Spread(spec.reviews, tools)
        self.checkpoints = Spread(spec.compactions, spec.messages)
        self.damaged = Spread(spec.damaged, spec.messages)
        self.marks = tuple(
            (flag, Spread(count, spec.messages))
            for flag, count in (
                (LONE_SURROGATE, spec.lone_surrogates),
                (IMAGE, spec.images),
                (NESTED, spec.nested),
            )
        )
        self.budget = Budget.of(spec, shape, self.roles)

    def messages(self) -> Iterator[Message]:
        """Yield the plan of each message; a block of them is planned at a time."""
        for start in range(0, self.spec.messages, BLOCK):
            yield from self._block(start, min(start + BLOCK, self.spec.messages))

    def message_id(self, index: int) -> bytes:
        """Return the id that a message carries."""
        return self.shape.ids(columns.MESSAGE, self.roles.originals(np.array([index])))[0]

    def late_fields(self, index: int, ordinal: int) -> Fields:
        """Return the times of a line that follows a message, by its place among those lines."""
        ms = columns.EPOCH_MS + index * STEP_MS + STEP_MS // 2 + len(_TIMES) * ordinal
        times = columns.stamps(ms + np.arange(len(_TIMES)))
        return {**dict(zip(_TIMES, times, strict=True)), "ms": b"%d" % ms}

    def _block(self, start: int, stop: int) -> Iterator[Message]:
        spec, roles = self.spec, self.roles
        index = np.arange(start, stop)
        lots = (draws(spec.seed, columns.LOT, index) % np.uint64(CELLS)).astype(np.int64)
        role = roles.column(index, lots)
        flags = np.zeros(stop - start, dtype=np.int64)
        for kind, stream, share in (
            (NON_ASCII, columns.NON_ASCII, spec.non_ascii),
            (ESCAPED, columns.ESCAPED, spec.escaped),
        ):
            flags |= kind * (uniform(draws(spec.seed, stream, index)) < share)
        for flag, spread in self.marks:
            flags |= flag * spread.counts(index)
        states = self.reviews.counts(roles.tools_before(index)) * (role >= TOOL)
        extras = states + self.checkpoints.counts(index) + self.damaged.counts(index)
        return zip(
            index.tolist(),
            form_keys(role, flags, lots).tolist(),
            flags.tolist(),
            lots.tolist(),
            self.budget.ends(index),
            (extras > 0).tolist(),
            self._rows(index, lots),
            strict=True,
        )

    def _rows(self, index: Index, lots: Index) -> Iterator[Row]:
        """Return the fields that the shape wants of each message."""
        original = self.roles.originals(index)
        ms = columns.EPOCH_MS + index * STEP_MS + lots % (STEP_MS // 4)
        made = []
        for slot in self.shape.varying:
            if slot == "id":
                made.append(self.shape.ids(columns.MESSAGE, original))
            elif slot in _OWNERS:
                made.append(self.shape.ids(_OWNERS[slot], index))
            elif slot in _TIMES:
                made.append(columns.stamps(ms + _TIMES[slot]))
            elif slot == "ms":
                made.append([b"%d" % value for value in ms.tolist()])
            elif slot == "remark":
                made.append(
                    [words.cut(REMARK_NBYTES, words.elsewhere(lot)) for lot in lots.tolist()]
                )
            else:
                made.append(columns.call_ids(self.spec.seed, index + (slot == "next")))
        return zip(*made, strict=True)
