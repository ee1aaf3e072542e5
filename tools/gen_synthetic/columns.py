"""Fixed-width fields of many messages at once: identities and times as columns of bytes.

Invariant: every value of a column has the same width, so the length of a line is known before it is filled.
"""

from datetime import date
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .noise import Index, Words, draws, shuffle32

#: 2026-01-01T00:00:00Z, in milliseconds since 1970: the first message of every transcript starts here.
EPOCH_MS = 1_767_225_600_000
UUID_NBYTES = 36
SHORT_ID_NBYTES = 8
TIME_NBYTES = 24

_DAY_MS = 86_400_000
_UNIX_DAY = date(1970, 1, 1).toordinal()
# Pairs of digits, looked up whole: 0xNN as two characters.
_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), dtype=np.uint16)

# The sequences that feed the columns. LOT is the one die of a message: text, pauses, asides.
LOT, JITTER, CALL, NON_ASCII, ESCAPED = range(5)
_FIRST_ID_STREAM = 16

# Who an identity belongs to.
MESSAGE, ASIDE, EMBEDDED, COMPACTION, BOUNDARY, DAMAGED, SESSION = range(7)


def _split(table: NDArray[np.uint8]) -> list[bytes]:
    """Return the rows of an (n, width) table of characters as n byte strings."""
    rows = np.ascontiguousarray(table)
    values: list[bytes] = rows.view(f"S{rows.shape[1]}").ravel().tolist()
    return values


def _hex_table(words: Words) -> NDArray[np.uint8]:
    """Return the 16 hexadecimal digits of each word as an (n, 16) table."""
    octets = words.astype(">u8").view(np.uint8)
    return _HEX_PAIRS[octets].view(np.uint8).reshape(-1, 16)


def uuids(seed: int, owner: int, index: Index) -> list[bytes]:
    """Return a version 4 UUID for each index: 36 characters."""
    stream = _FIRST_ID_STREAM + 2 * owner
    high = _hex_table(draws(seed, stream, index))
    low = _hex_table(draws(seed, stream + 1, index))
    high[:, 12] = ord("4")
    low[:, 0] = ord("a")
    table = np.full((len(index), UUID_NBYTES), ord("-"), dtype=np.uint8)
    table[:, 0:8], table[:, 9:13], table[:, 14:18] = high[:, 0:8], high[:, 8:12], high[:, 12:16]
    table[:, 19:23], table[:, 24:36] = low[:, 0:4], low[:, 4:16]
    return _split(table)


def short_ids(seed: int, owner: int, index: Index) -> list[bytes]:
    """Return eight hexadecimal digits for each index, unique among all owners of a transcript."""
    return _split(_hex_table(shuffle32(seed, index + (owner << 29)))[:, 8:])


def call_ids(seed: int, index: Index) -> list[bytes]:
    """Return the sixteen hexadecimal digits that name the tool call of each message."""
    return _split(_hex_table(draws(seed, CALL, index)))


def stamps(ms: Index) -> list[bytes]:
    """Return RFC 3339 times, in UTC with milliseconds, of the milliseconds since 1970."""
    table = np.empty((len(ms), TIME_NBYTES), dtype=np.uint8)
    days, which = np.unique(ms // _DAY_MS, return_inverse=True)
    dates = b"".join(f"{date.fromordinal(_UNIX_DAY + int(d))}T".encode() for d in days)
    table[:, :11] = np.frombuffer(dates, dtype=np.uint8).reshape(-1, 11)[which]
    minutes, rest = np.divmod(ms % _DAY_MS, 60_000)
    by_minute, by_ms = _clock()
    table[:, 11:17] = by_minute[minutes]
    table[:, 17:24] = by_ms[rest]
    return _split(table)


@cache
def _clock() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the texts of all minutes of a day and of all milliseconds of a minute."""
    minutes = "".join(f"{n // 60:02}:{n % 60:02}:" for n in range(1440))
    ms = "".join(f"{n // 1000:02}.{n % 1000:03}Z" for n in range(60_000))
    by_minute, by_ms = (np.frombuffer(text.encode(), dtype=np.uint8) for text in (minutes, ms))
    return by_minute.reshape(-1, 6), by_ms.reshape(-1, 7)
