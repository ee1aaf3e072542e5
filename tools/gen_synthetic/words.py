"""Text by the slice: message bodies are cut out of pools of text that is already JSON string content.

Invariant: any cut, of any length and at any cell, is valid inside a JSON string. Encoding each body would
cost more than all the rest of the generator.

A pool is a run of 16-byte cells, each complete by itself: no character and no escape crosses a cell's end.
The pools are the same for every seed; the seed decides the cuts.
"""

import base64
from functools import cache

import numpy as np

from .noise import draws

CELL_NBYTES = 16
CELLS = 1 << 15
POOL_NBYTES = CELL_NBYTES * CELLS
#: A high surrogate without its partner: legal in JSON text, and in no other form of Unicode text.
LONE_SURROGATE = rb"\ud83d"

# Kinds of text: also the low bits of a message's flags.
PLAIN, NON_ASCII, ESCAPED = 0, 1, 2
_TEXT_KIND = NON_ASCII | ESCAPED

_POOL_SEED = 2026
_LETTERS = b"etaoinshrdlucmfwypvbgk"
# Two, three and four bytes in UTF-8; the last three end a line for a careless text reader.
_FOREIGN = tuple(c.encode() for c in "éßñжΩשप語本한€😀🚀𝄞\u0085\u2028\u2029")
_ESCAPES = (
    rb"\n",
    rb"\t",
    rb"\"",
    rb"\\",
    rb"\/",
    rb"\r\n",
    rb"\u00e9",
    rb"\u2028",
    rb"\ud83d\ude00",
)


def _numbers(stream: int, count: int, below: int) -> list[int]:
    values: list[int] = (draws(_POOL_SEED, stream, np.arange(count)) % np.uint64(below)).tolist()
    return values


def _prose() -> bytes:
    """Return words and punctuation in ASCII, without one character that JSON escapes."""
    letters = iter(_numbers(0, 12_000, len(_LETTERS)))
    vocabulary = []
    for n, length in enumerate(_numbers(1, 1024, 9)):
        word = bytes(_LETTERS[next(letters)] for _ in range(length + 2))
        vocabulary.append(word + (b". ", b", ")[n // 8 % 2] if n % 8 == 0 else word + b" ")
    return b"".join(vocabulary[n] for n in _numbers(2, POOL_NBYTES // 4, 1024))[:POOL_NBYTES]


def _cells(tokens: tuple[bytes, ...], stream: int) -> bytes:
    """Return a pool of cells that mix tokens with ASCII letters."""
    picks = iter(_numbers(stream, 1 << 14, 1 << 20))
    vocabulary = []
    for _ in range(512):
        cell = b""
        while len(cell) < CELL_NBYTES:
            pick = next(picks)
            token = tokens[pick % len(tokens)] if pick & 0x10000 else b"e t a"[pick % 5 :][:1]
            cell += token if len(cell) + len(token) <= CELL_NBYTES else b"."
        vocabulary.append(cell)
    return b"".join(vocabulary[n] for n in _numbers(stream + 1, CELLS, 512))


@cache
def _pools() -> tuple[bytes, bytes, bytes]:
    """Return the pools by kind, each twice over so that a cut seldom has to wrap."""
    return _prose() * 2, _cells(_FOREIGN, 4) * 2, _cells(_ESCAPES, 6) * 2


def prose() -> bytes:
    """Return the plain pool, twice over: any cut of up to POOL_NBYTES from any cell is in it."""
    return _pools()[PLAIN]


@cache
def _base64_pool() -> bytes:
    octets = draws(_POOL_SEED, 3, np.arange(CELLS)).astype("<u8").tobytes()
    return base64.b64encode(octets[: len(octets) // 3 * 3]) * 2


def _slice(pool: bytes, offset: int, nbytes: int) -> bytes:
    """Return nbytes from an offset in the first half of a doubled pool, going round as often as needed."""
    half = len(pool) // 2
    if nbytes <= half:
        return pool[offset : offset + nbytes]
    body = pool[offset : offset + half]
    return body * (nbytes // half) + body[: nbytes % half]


def cut(nbytes: int, cell: int, kind: int = PLAIN) -> bytes:
    """Return exactly nbytes of JSON string content of one kind, from the cell of that number."""
    kind &= _TEXT_KIND
    plain, foreign, escaped = _pools()
    if kind == PLAIN:
        return _slice(plain, cell * CELL_NBYTES, nbytes)
    whole = nbytes - nbytes % CELL_NBYTES
    pool = foreign if kind & NON_ASCII else escaped
    return _slice(pool, cell * CELL_NBYTES, whole) + plain[: nbytes - whole]


def elsewhere(cell: int) -> int:
    """Return a cell far from another, for a text that is not to repeat the one cut there."""
    return (cell + CELLS // 2) % CELLS


def image(nbytes: int, cell: int) -> bytes:
    """Return exactly nbytes (a multiple of four) of base64 that starts as a PNG file does."""
    return (b"iVBORw0KGgoA" + _slice(_base64_pool(), cell * 4, nbytes))[:nbytes]
