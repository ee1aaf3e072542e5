"""Values in a file of doubtful content, proven block by block, each when it is first used.

A block carries a checksum. The table of checksums needs none of its own: a wrong entry
is a block that fails. When one does, all sections that were worked out together are
worked out again from what they were made of, and whoever holds a column of them goes on
with those values.
"""

from __future__ import annotations

import weakref
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from .columns import BLOCK_NBYTES
from .errors import TranscriptChangedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    #: what the sections of one group hold, worked out from the transcript itself
    Recompute = Callable[[], Sequence[NDArray[Any]]]


def checksum(octets: memoryview, salt: int, number: int) -> int:
    """Return the checksum of the block of that number in a file of that salt."""
    return zlib.crc32(octets, salt ^ number)


class Group:
    """The sections that are worked out together when one of them turns out to be bad.

    Parameters
    ----------
    path : str
        The transcript's, for errors.
    counts : tuple of int
        How many values each section has.
    recompute : callable
        Returns what the sections should hold.

    Notes
    -----
    It does not keep them: a transcript that is let go of must not wait for the collector of
    cycles with its mappings.
    """

    def __init__(self, path: str, counts: tuple[int, ...], recompute: Recompute) -> None:
        self._proofs: list[tuple[int, weakref.ref[Proof]]] = []
        self._path = path
        self._counts = counts
        self._recompute = recompute

    def add(self, number: int, proof: Proof) -> None:
        """Let a section of the group be renewed."""
        self._proofs.append((number, weakref.ref(proof)))

    def renew(self) -> None:
        """Replace the values of every section by those of the transcript itself.

        Raises
        ------
        TranscriptChangedError
            It has another number of them: the file is not the one that was cached.
        """
        columns = self._recompute()
        if tuple(map(len, columns)) != self._counts:
            raise TranscriptChangedError(
                "the file was changed in place", path=self._path, hint="refresh() reads it anew"
            )
        for number, known in self._proofs:
            proof = known()
            if proof is not None:
                proof.settle(columns[number])


class Proof:
    """The guard of one section: proves a block when a value of it is first used.

    Parameters
    ----------
    group : Group
        Is renewed when a block fails.
    number : int
        The section's in its group.
    blocks : memoryview
        The section's bytes.
    kind : dtype
        Of its values.
    checks : memoryview
        Four bytes for each block.
    salt, first_block : int
        The file's salt, and the number of the section's first block in the file.
    """

    __slots__ = (
        "__weakref__",
        "_blocks",
        "_checks",
        "_first_block",
        "_group",
        "_per_block",
        "_proven",
        "_salt",
        "values",
    )

    def __init__(
        self,
        group: Group,
        number: int,
        blocks: memoryview,
        kind: np.dtype[Any],
        checks: memoryview,
        salt: int,
        first_block: int,
    ) -> None:
        self.values: NDArray[Any] = np.frombuffer(blocks, kind)
        self._group = group
        self._blocks: memoryview | None = blocks
        self._checks = checks
        self._salt = salt
        self._first_block = first_block
        self._per_block = BLOCK_NBYTES // kind.itemsize
        self._proven: set[int] = set()
        group.add(number, self)

    def proven(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values, of which those at [start, stop) can be relied on."""
        first, last = start // self._per_block, (stop - 1) // self._per_block
        if first == last:
            if first not in self._proven:
                self._prove(first)
        else:
            for block in range(first, last + 1):
                if block not in self._proven:
                    self._prove(block)
        return self.values

    def _prove(self, block: int) -> None:
        blocks = self._blocks
        if blocks is None:
            return
        octets = blocks[block * BLOCK_NBYTES : (block + 1) * BLOCK_NBYTES]
        check = int.from_bytes(self._checks[4 * block : 4 * block + 4], "little")
        if checksum(octets, self._salt, self._first_block + block) == check:
            self._proven.add(block)
        else:
            self._group.renew()

    def settle(self, values: NDArray[Any]) -> None:
        """Take other values, which need no proof."""
        self.values = values
        self._blocks = None
