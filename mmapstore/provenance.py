"""What this process has written itself: the states of a file that its own appends led through.

An append by a host is the one kind of growth that needs no proof by reading: the host
held the file's stamp before it wrote, and took the stamp after. A reader of the same
process that knows any state of such a chain extends to its end by what was appended.
A state that nobody here has written is in no chain, so whatever another program does
to the file ends the chain and is read anew. Decision record: append-only review state,
the proven generation.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stamp import Stamp

#: states of one file that are remembered; a reader that is farther behind reads anew
STATE_COUNT = 4096
#: files that are remembered; those whose chains began first are forgotten
FILE_COUNT = 64

_lock = allocate_lock()


class _Chain:
    """The states of one file that appends of this process led through."""

    __slots__ = ("newest", "states")

    def __init__(self, first: Stamp) -> None:
        self.newest = first
        self.states = {first: None}

    def shorten(self) -> None:
        for oldest in list(self.states)[: len(self.states) // 2]:
            del self.states[oldest]


#: by device, inode and inode generation
_chains: dict[tuple[int, int, int], _Chain] = {}


def _file(stamp: Stamp) -> tuple[int, int, int]:
    return stamp.device, stamp.inode, stamp.inode_generation


def note_append(before: Stamp, after: Stamp) -> None:
    """Remember that an append of this process led from one state of a file to another.

    Two threads do not append to one file at the same time.
    """
    chain = _chains.get((after.device, after.inode, after.inode_generation))
    if chain is None or (chain.newest is not before and chain.newest != before):
        with _lock:
            chain = _begun(before)
    # in this order: whoever sees the newest state sees those that led to it
    chain.states[after] = None
    chain.newest = after
    if len(chain.states) > STATE_COUNT:
        chain.shorten()


def note_creation(stamp: Stamp) -> None:
    """Remember that this process has just given a file its content."""
    with _lock:
        _begun(stamp)


def _begun(first: Stamp) -> _Chain:
    file = _file(first)
    _chains.pop(file, None)
    chain = _chains[file] = _Chain(first)
    if len(_chains) > FILE_COUNT:
        del _chains[next(iter(_chains))]
    return chain


def is_own(stamp: Stamp) -> bool:
    """Whether the last change that led to a state was made by this process."""
    chain = _chains.get(_file(stamp))
    return chain is not None and chain.newest == stamp


def only_appended(before: Stamp, after: Stamp) -> bool:
    """Whether appends of this process, and nothing else, led from one state to another."""
    chain = _chains.get(_file(after))
    return chain is not None and chain.newest == after and before in chain.states
