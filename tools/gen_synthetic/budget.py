"""The budget: where each message ends, so that the whole has the bytes that were asked for.

Invariant: ends are laid out over the whole file before its first line. Each message has its fixed bytes
and a linear share of the text, moved by up to 0.3 of a mean text either way at both ends; so texts vary
from 0.4 to 1.6 of their mean, no length depends on one before it, and the total is exact.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .columns import JITTER
from .damage import damage
from .marks import IMAGE, LONE_SURROGATE, NESTED
from .noise import Index, draws, uniform
from .roles import ASSISTANT, CALL, FAILED_TOOL, TOOL, USER, Roles
from .shape import DAMAGED_NBYTES, Shape
from .spec import Spec


@dataclass(frozen=True, slots=True)
class Budget:
    """The bytes of one transcript.

    Attributes
    ----------
    header : bytes before the first message
    other, tool : most bytes of a message without its text, by whether it is a tool's
    text : mean bytes of a text that is not a tool's
    """

    spec: Spec
    roles: Roles
    header: int
    other: int
    tool: int
    text: float

    @classmethod
    def of(cls, spec: Spec, shape: Shape, roles: Roles) -> "Budget":
        """Return the budget of a spec in a shape.

        Raises
        ------
        ValueError
            nbytes is less than the messages take without text.
        """
        blank = cls(
            spec=spec,
            roles=roles,
            header=sum(map(len, shape.header())),
            other=shape.overhead(USER, ASSISTANT, CALL),
            tool=shape.overhead(TOOL, FAILED_TOOL),
            text=0.0,
        )
        every = np.array([spec.messages])
        least = int(blank._fixed(every)[0]) + _extras(spec, shape) + spec.torn_nbytes
        # Two bytes of text a message: rounding must find something to take from.
        spare = spec.nbytes - least - 2 * spec.messages
        if spare < 0:
            message = (
                f"nbytes={spec.nbytes} is too small: {spec.messages} messages with these options "
                f"take at least {spec.nbytes - spare}"
            )
            raise ValueError(message)
        text = (spec.nbytes - least) / float(blank._weights(every)[0])
        return cls(spec, roles, blank.header, blank.other, blank.tool, text)

    def ends(self, index: Index) -> list[int]:
        """Return the bytes up to the end of each message, all that is spread over them left out."""
        jitter = uniform(draws(self.spec.seed, JITTER, index)) - 0.5
        jitter *= 0.6 * self.text * min(1.0, self.spec.tool_factor)
        jitter[index == self.spec.messages - 1] = 0.0
        text = np.rint(self._weights(index + 1) * self.text + jitter).astype(np.int64)
        ends: list[int] = (self._fixed(index + 1) + text).tolist()
        return ends

    def _fixed(self, index: Index) -> Index:
        """Return the bytes before each message without texts."""
        tools = self.roles.tools_before(index)
        return self.header + (index - tools) * self.other + tools * self.tool

    def _weights(self, index: Index) -> NDArray[np.float64]:
        """Return the texts before each message, in texts that are not a tool's."""
        tools = self.roles.tools_before(index)
        return (index - tools) + tools * float(self.spec.tool_factor)


def _extras(spec: Spec, shape: Shape) -> int:
    """Return the bytes of all that is spread over the messages."""
    line_end = len(shape.press.line_end)
    text = b"." * DAMAGED_NBYTES
    line = text + b" " * (shape.plain_nbytes() - line_end)
    rounds, rest = divmod(spec.damaged, len(spec.damage))
    damaged = [len(damage(kind, line, text)) + line_end for kind in spec.damage]
    return (
        rounds * sum(damaged)
        + sum(damaged[:rest])
        + spec.lone_surrogates * shape.extra(LONE_SURROGATE)
        + spec.images * shape.extra(IMAGE)
        + spec.nested * shape.extra(NESTED)
        + spec.compactions * shape.checkpoint_nbytes()
        + spec.reviews * shape.review_nbytes()
    )
