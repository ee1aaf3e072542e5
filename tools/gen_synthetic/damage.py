"""Lines that are not one JSON object, as crashes and careless writers leave them.

Invariant: each kind breaks one line and holds no line feed, so the lines around it stay whole; its length
depends only on that of the line it was made from. "blank" is not damage to a reader of JSON lines, which
skips it; it is here because it stands where a line should.

"glued" and "invalid_utf8" keep the key that decides a line's kind, so they are message lines that do not
decode; so is "truncated" where `type` comes first. The others have no kind.
"""

from .spec import DamageKind

_NUL_NBYTES = 96
# A character of three bytes whose last is missing, and a byte that occurs in no UTF-8 text.
_NOT_UTF8 = b"\xe6\x97\xff"


def damage(kind: DamageKind, line: bytes, text: bytes) -> bytes:
    """Return what is left of a message line.

    Parameters
    ----------
    kind : what happened to it
    line : the message line without its line end
    text : the message's text, which is a part of the line
    """
    match kind:
        case "truncated":
            return line[: len(line) * 3 // 4]
        case "nul_run":
            return b"\0" * _NUL_NBYTES
        case "glued":
            return line + line
        case "invalid_utf8":
            inside = line.index(text) + len(text) // 2
            return line[:inside] + _NOT_UTF8 + line[inside:]
        case "bare_word":
            return b"undefined"
        case "not_object":
            return b'["type","message",42]'
        case "blank":
            return b""
