"""A window: a half-open range of positions of one generation, and its lines.

A window never mixes generations and never goes stale: it holds the generation it
was cut from. Its lines are zero-copy views of a mapping, or of bytes that it read
itself; either stays valid after the file grew, was replaced or was closed, for as
long as the view lives. Nothing is decoded before it is asked for.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from . import lookup
from .decode import Undecodable, decode_distinct
from .generation import Damaged
from .identity import offset_address
from .review import overlay

if TYPE_CHECKING:
    from .filemap import Run
    from .generation import Generation
    from .grammar import Dialect


class _Decoded:
    """What the lines of a window say."""

    __slots__ = ("damaged", "ids", "messages", "positions")

    def __init__(
        self,
        messages: list[dict[str, Any]],
        positions: Sequence[int],
        ids: Iterable[str],
        damaged: Sequence[Damaged],
    ) -> None:
        self.messages = messages
        self.positions = positions
        self.ids = ids
        self.damaged = damaged


class Window:
    """A page of a transcript.

    Attributes
    ----------
    start, stop : int
        Positions, half-open.
    total : int
        Messages of the generation.
    reset : bool
        Whether what was followed is void: see :meth:`mmapstore.Transcript.follow`.

    Notes
    -----
    Making one costs no look at the file. Decision record: 0127, one coordinate space.
    """

    def __init__(self, generation: Generation, start: int, stop: int) -> None:
        self._generation = generation
        self.start = start
        self.stop = stop
        self.total = len(generation.layout.messages)
        self.reset = False

    def __repr__(self) -> str:
        """Show the range and the whole."""
        return f"<Window [{self.start}, {self.stop}) of {self.total}>"

    def __len__(self) -> int:
        """Return the number of positions: of the lines, which may be more than the messages."""
        return self.stop - self.start

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over :attr:`messages`."""
        return iter(self._decoded.messages)

    def __contains__(self, message_id: str) -> bool:
        """Whether one of :attr:`messages` has that id.

        Raises
        ------
        TypeError
            Asked for anything but an id.
        """
        if not isinstance(message_id, str):
            message = f"a window is asked for an id, a string, not {type(message_id).__name__}"
            raise TypeError(message)
        return message_id in self._decoded.ids

    @property
    def dialect(self) -> Dialect:
        """What the messages are written in: its words for id, role, time and text."""
        return self._generation.dialect

    @property
    def has_before(self) -> bool:
        """Whether older messages exist."""
        return self.start > 0

    @property
    def has_after(self) -> bool:
        """Whether newer messages exist."""
        return self.stop < self.total

    @cached_property
    def lines(self) -> Lines:
        """The physical lines, one a position, newline included; each is checked when touched."""
        return Lines(self._generation, self.start, self.stop)

    @cached_property
    def _decoded(self) -> _Decoded:
        generation = self._generation
        texts = generation.texts(generation.layout.messages, self.start, self.stop)
        key = generation.dialect.id_path.key
        by_id = None if key is None else decode_distinct(texts, key)
        if by_id is None:
            decoded = self._one_by_one(
                generation.decode(generation.layout.messages, self.start, texts)
            )
        else:
            positions = range(self.start, self.stop)
            decoded = _Decoded(list(by_id.values()), positions, by_id, ())
        if len(generation.layout.reviews):
            states = generation.review_states
            for message in decoded.messages:
                overlay(message, states)
        return decoded

    def _one_by_one(self, records: list[dict[str, Any] | Undecodable]) -> _Decoded:
        generation = self._generation
        offsets = generation.layout.messages.part(self.start, self.stop)[0].tolist()
        messages: list[dict[str, Any]] = []
        positions: list[int] = []
        ids: list[str] = []
        damaged: list[Damaged] = []
        # by its id, or by its offset: an id may be spelled like an address
        place: dict[str | int, int] = {}
        for position, record in enumerate(records, self.start):
            offset = offsets[position - self.start]
            if isinstance(record, Undecodable):
                damaged.append(Damaged(position, offset, record.reason))
                continue
            message_id = generation.dialect.id(record)
            # a repeated id keeps its first place and takes its last content
            index = place.setdefault(message_id or offset, len(messages))
            if index < len(messages):
                messages[index] = record
            else:
                messages.append(record)
                positions.append(position)
                ids.append(message_id or offset_address(offset))
        return _Decoded(messages, positions, ids, damaged)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The effective messages: whole line objects, decoded on first use.

        A repeated id is shown once, at its first place with its last content; damaged
        lines are left out, see :attr:`damaged`. The list is the caller's, a new one each time;
        the messages in it are the window's own.
        """
        return list(self._decoded.messages)

    @property
    def message_positions(self) -> list[int]:
        """The position of each of :attr:`messages`; of a repeated id the first."""
        return list(self._decoded.positions)

    @property
    def message_ids(self) -> list[str]:
        """The id of each of :attr:`messages`; ``@<offset>`` where it has none."""
        return list(self._decoded.ids)

    @cached_property
    def updates(self) -> list[int]:
        """The positions whose id an earlier line of the transcript already has.

        Of the window's physical lines, but for those that do not decode.

        Notes
        -----
        The first look-up of a generation reads the ids of all messages.
        """
        generation = self._generation
        found = self._decoded
        # what was folded into an earlier place
        folded = set(range(self.start, self.stop)).difference(
            found.positions, (line.position for line in found.damaged)
        )
        repeated = [
            position
            for message, position, message_id in zip(
                found.messages, found.positions, found.ids, strict=True
            )
            if generation.dialect.id(message) and self._is_known(message_id, position)
        ]
        return sorted(folded.union(repeated))

    def _is_known(self, message_id: str, position: int) -> bool:
        """Whether a line before this position has the id."""
        generation = self._generation
        return any(
            earlier < position and lookup.message_id(generation, earlier) == message_id
            for earlier in generation.identities.candidates(message_id)
        )

    @cached_property
    def damaged(self) -> list[Damaged]:
        """The lines that do not decode: of this window, and of the checkpoints and review states.

        The position is None for a line that is not a message; those are looked for once a
        generation, by decoding all checkpoints and review states.
        """
        return [*self._decoded.damaged, *self._generation.damaged_aside]

    @cached_property
    def compactions(self) -> Checkpoints:
        """The whole chain of checkpoints, in file order; each is decoded when touched."""
        return Checkpoints(self._generation)

    @property
    def compaction_positions(self) -> list[int]:
        """How many messages of the transcript precede each of :attr:`compactions`."""
        return self.compactions.positions


class Lines(Sequence[memoryview]):
    """The physical lines of a window; see :attr:`Window.lines`."""

    __slots__ = ("_edges", "_generation", "_held", "_start", "_stop")

    def __init__(self, generation: Generation, start: int, stop: int) -> None:
        self._generation = generation
        self._start = start
        self._stop = stop
        # positions, and the run of memory that holds their lines; swapped as one, so that
        # threads that read one window never see a run that is not theirs
        self._held: tuple[int, int, Run] | None = None
        # where the lines of the last part that was looked at fall apart
        self._edges: list[int] = []
        if generation.source.access == "mmap":
            self._held = start, stop, generation.source.run(0, 0)

    def __repr__(self) -> str:
        """Show the range."""
        return f"<Lines of positions [{self._start}, {self._stop})>"

    def __len__(self) -> int:
        """Return the number of lines."""
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...
    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        """Return one line, or a list of them.

        Raises
        ------
        TranscriptChangedError
            The file was changed in place under the layout.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = operator.index(index)
        if at < 0:
            at += len(self)
        if not 0 <= at < len(self):
            message = f"line {index} of a window of {len(self)}"
            raise IndexError(message)
        at += self._start
        held = self._held
        if held is None or not held[0] <= at < held[1]:
            held = self._held = self._find_run(at)
        return self._generation.line(self._generation.layout.messages, at, held[2])

    def _find_run(self, at: int) -> tuple[int, int, Run]:
        # Adjacent lines are read at once when one of them is touched. Only the last run is
        # kept: the views given out keep their own bytes alive.
        generation = self._generation
        messages = generation.layout.messages
        edges = self._edges
        if not edges or not edges[0] <= at < edges[-1]:
            parts = generation.parts(messages, self._start, self._stop)
            first, end = next(part for part in parts if at < part[1])
            edges = self._edges = generation.edges(messages, first, end)
        index = bisect.bisect_right(edges, at)
        low, high = edges[index - 1], edges[index]
        return low, high, generation.read_run(messages, low, high)


class Checkpoints(Sequence[dict[str, Any]]):
    """The checkpoints of a generation, decoded one by one; damaged ones are left out."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._known: dict[int, dict[str, Any] | None] = {}

    def __repr__(self) -> str:
        """Show the count, damaged ones included: nothing is decoded for it."""
        return f"<Checkpoints: {len(self._generation.layout.checkpoints)}>"

    def _record(self, checkpoint: int) -> dict[str, Any] | None:
        if checkpoint not in self._known:
            layout = self._generation.layout
            line = layout.checkpoints.at(checkpoint)
            ((_, record),) = self._generation.records(layout.compactions, line, line + 1)
            self._known[checkpoint] = None if isinstance(record, Undecodable) else record
        return self._known[checkpoint]

    @cached_property
    def _intact(self) -> list[int]:
        count = len(self._generation.layout.checkpoints)
        return [index for index in range(count) if self._record(index) is not None]

    def __len__(self) -> int:
        """Return the number of checkpoints that decode."""
        return len(self._intact)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """Return one checkpoint's record, or a list of them."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index == -1 and "_intact" not in self.__dict__:
            # the newest drives a model's context: do not decode the chain for it
            for checkpoint in reversed(range(len(self._generation.layout.checkpoints))):
                if (record := self._record(checkpoint)) is not None:
                    return record
        record = self._record(self._intact[index])
        if record is None:  # pragma: no cover - _intact holds those that decode
            raise IndexError(index)
        return record

    @property
    def positions(self) -> list[int]:
        """How many messages precede each checkpoint."""
        layout = self._generation.layout
        lines = [layout.checkpoints.at(checkpoint) for checkpoint in self._intact]
        return [layout.messages.first_from(layout.compactions.at(line)[0]) for line in lines]
