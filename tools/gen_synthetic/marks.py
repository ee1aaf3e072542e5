"""What is special in a message, as bits, and which form a message has because of it.

Invariant: a form key holds all that a form depends on: the role, the bits that shape the line, the variant.
"""

from .noise import Index

# The two bits below are the kind of text (words.NON_ASCII, words.ESCAPED).
LONE_SURROGATE, IMAGE, NESTED = 4, 8, 16
_SHAPING = IMAGE | NESTED

#: How many ways a shape may vary what accompanies one role.
VARIANTS = 4
_ROLE_BIT = 8
#: Keys from here on are not the user's.
FIRST_REPLY_KEY = 1 << _ROLE_BIT


def form_keys(roles: Index, flags: Index, lots: Index) -> Index:
    """Return which form each message has."""
    return roles << _ROLE_BIT | flags & _SHAPING | lots % VARIANTS


def form_key(role: int, flags: int = 0, variant: int = 0) -> int:
    """Return which form one message has."""
    return role << _ROLE_BIT | flags & _SHAPING | variant


def from_key(key: int) -> tuple[int, int, int]:
    """Return the role, the flags that shape the line and the variant."""
    return key >> _ROLE_BIT, key & _SHAPING, key % VARIANTS
