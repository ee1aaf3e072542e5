"""Numbers of bytes as people write them: 129M, 1.5G, 64Ki."""

import re
from decimal import Decimal

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
_NBYTES = re.compile(r"(\d+(?:\.\d+)?)(k|m|g|ki|mi|gi|)b?", re.IGNORECASE)


def parse_nbytes(text: str) -> int:
    """Return the bytes that a text says.

    Raises
    ------
    ValueError
        The text is not a number with an optional suffix, or not a whole number of bytes.

    Examples
    --------
    >>> parse_nbytes("129M"), parse_nbytes("1.5k"), parse_nbytes("2Gi"), parse_nbytes("700")
    (129000000, 1500, 2147483648, 700)
    """
    match = _NBYTES.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is not a number of bytes such as 700, 129M, 1.5G or 64Ki"
        raise ValueError(message)
    nbytes = Decimal(match[1]) * _UNITS[match[2].lower()]
    if nbytes != int(nbytes):
        message = f"{text!r} is not a whole number of bytes"
        raise ValueError(message)
    return int(nbytes)
