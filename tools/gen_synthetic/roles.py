"""Which message speaks: the pattern of roles, and whom a repeated message repeats.

Invariant: a role is a function of the message's index, and so is the number of tool messages before it.
Roles come in periods of sixteen messages, whose tool messages are as many as their share demands so far.
Within a period every fifth of the other messages, the first included, is the user's, and the tool messages
follow the assistant's: one each while there are enough of those, then several, as after parallel calls.
"""

from dataclasses import dataclass

import numpy as np

from .noise import Index
from .spec import Spec
from .spread import Spread

# Plain numbers, in this order, for the sake of columns. CALL is an assistant's that a tool message follows.
USER, ASSISTANT, CALL, TOOL, FAILED_TOOL = ROLES = range(5)

_PERIOD = 16
_USER_EVERY = 5
_PARTS = 1_000_000
# A repeat resembles a retry: it looks for its original among so many messages before it.
_REACH = 64


def _period(tools: int) -> list[int]:
    """Return the roles of a period with so many tool messages."""
    others = _PERIOD - tools
    if others <= 1:
        return [CALL] * others + [TOOL] * tools
    speakers = [USER if n % _USER_EVERY == 0 else ASSISTANT for n in range(others)]
    assistants = speakers.count(ASSISTANT)
    roles: list[int] = []
    answered = 0
    for speaker in speakers:
        roles.append(speaker)
        if speaker == ASSISTANT:
            # An even part of the tool messages: the n-th assistant's ends at n / assistants of them.
            before, answered = answered * tools // assistants, answered + 1
            results = answered * tools // assistants - before
            if results:
                roles[-1] = CALL
            roles += [TOOL] * results
    return roles


_ROLES = np.array([_period(tools) for tools in range(_PERIOD + 1)])
_IS_TOOL = _ROLES == TOOL
#: Tool messages before each place of a period, by the tool messages of the period.
_TOOLS_BEFORE = np.cumsum(_IS_TOOL, axis=1) - _IS_TOOL


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of a transcript's messages."""

    messages: int
    tool_parts: int
    repeated: Spread
    checkpoints: Spread

    @classmethod
    def of(cls, spec: Spec) -> "Roles":
        """Return the roles that a spec asks for."""
        return cls(
            messages=spec.messages,
            tool_parts=round(spec.tool_share * _PARTS),
            repeated=Spread(spec.repeats, spec.messages),
            checkpoints=Spread(spec.compactions, spec.messages),
        )

    def tools_before(self, index: Index) -> Index:
        """Return how many tool messages stand before each index."""
        before, tools = self._periods(index // _PERIOD)
        within: Index = _TOOLS_BEFORE[tools, index % _PERIOD]
        return before + within

    def tool(self, ordinal: int) -> int:
        """Return the index of the tool message with that ordinal."""
        period = (-(-(ordinal + 1) * _PARTS // self.tool_parts) - 1) // _PERIOD
        before, tools = self._periods(np.array([period]))
        places = np.flatnonzero(_IS_TOOL[tools[0]])
        return period * _PERIOD + int(places[ordinal - int(before[0])])

    def column(self, index: Index, lots: Index) -> Index:
        """Return the roles of messages; their lots decide which tools fail."""
        _, tools = self._periods(index // _PERIOD)
        roles = _ROLES[tools, index % _PERIOD]
        return np.where((roles == TOOL) & (lots % 16 == 5), FAILED_TOOL, roles)

    def originals(self, index: Index) -> Index:
        """Return whose identity each message carries: an earlier message's if it is a repeat, else its own.

        Notes
        -----
        An original is no repeat itself, has the same role if one is near, and follows the last checkpoint
        if it can, so that a checkpoint's boundary keeps the position that it had.
        """
        originals = index.copy()
        if self.repeated.count:
            # A repeat may have moved on by one message, hence the second look.
            near = self.repeated.counts(index) + self.repeated.counts(np.maximum(index - 1, 0))
            for n in np.flatnonzero(near).tolist():
                if self._is_repeat(int(index[n])):
                    originals[n] = self._original(int(index[n]))
        return originals

    def _periods(self, period: Index) -> tuple[Index, Index]:
        """Return the tool messages before each period and in it."""
        step = _PERIOD * self.tool_parts
        before = period * step // _PARTS
        return before, (period + 1) * step // _PARTS - before

    def _original(self, index: int) -> int:
        passed = self.checkpoints.before(index)
        floor = self.checkpoints.place(passed - 1) + 1 if passed else 0
        near = range(index - 1, max(floor, index - _REACH) - 1, -1)
        candidates = [other for other in near if not self._is_repeat(other)]
        if not candidates:
            return next(n for n in range(index - 1, -1, -1) if not self._is_repeat(n))
        voices = self.column(
            np.array([index, *candidates]), np.zeros(len(candidates) + 1, np.int64)
        )
        voices[voices == CALL] = ASSISTANT
        alike = np.flatnonzero(voices[1:] == voices[0])
        return candidates[int(alike[0]) if len(alike) else 0]

    def _is_repeat(self, index: int) -> bool:
        if self._is_drawn(index):
            return not self._moves_on(index)
        return index > 0 and self._is_drawn(index - 1) and self._moves_on(index - 1)

    def _is_drawn(self, index: int) -> bool:
        return self.repeated.before(index + 1) > self.repeated.before(index)

    def _moves_on(self, index: int) -> bool:
        """Whether a repeat would have only messages before a checkpoint to repeat, and the next place is free."""
        after_checkpoint = self.checkpoints.before(index) > self.checkpoints.before(index - 1)
        return after_checkpoint and index + 1 < self.messages and not self._is_drawn(index + 1)
