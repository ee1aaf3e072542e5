"""Random numbers that are a function of (seed, stream, index) and of nothing else.

Invariant: a number depends on no other number, so any message of a transcript can be derived alone, in
blocks of any length, on any machine. The function is SplitMix64 in wrapping uint64 arithmetic: unlike the
methods of a library's generator, it cannot change with a version.
"""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Index = NDArray[np.int64]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(word: int) -> int:
    """Return SplitMix64's finaliser of one 64-bit word."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def draws(seed: int, stream: int, index: Index) -> Words:
    """Return one 64-bit draw for each index.

    Parameters
    ----------
    seed : int
        0 <= seed < 2**64.
    stream : int
        Which of the independent sequences of this seed.
    index : (n,) int64
        Which members of the sequence.

    Returns
    -------
    draws : (n,) uint64
        Distinct for distinct indexes of one stream, since the finaliser is a bijection.
    """
    key = _mix((_mix(seed) + (stream + 1) * _GOLDEN) & _MASK)
    # Arrays only: numpy wraps array arithmetic silently and warns of the same in a scalar.
    word = (index.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(key)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def uniform(words: Words) -> NDArray[np.float64]:
    """Map 64-bit draws to [0, 1): the 53 high bits, which a float64 holds exactly."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffle32(seed: int, index: Index) -> Words:
    """Return the image of each index under one bijection of [0, 2**32): short numbers that never repeat."""
    mask = np.uint64(0xFFFFFFFF)
    word = (index.astype(np.uint64) + np.uint64(_mix(seed) & 0xFFFFFFFF)) & mask
    word = ((word ^ (word >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & mask
    word = ((word ^ (word >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & mask
    return word ^ (word >> np.uint64(16))
