r"""Which dialect a file is written in: by where it lies, else by its first 64 KiB.

A path hint names the agents that keep files there; the file's own lines decide
among them. Without a hint every dialect is asked, in the order of the table, and
what none of them claims is ``generic``. At most the first 64 KiB are looked at,
whatever the size of the first line: keys are found by the same depth-aware scan
that classifies lines, so a line that is cut off there can still be recognised.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .classify import string_token
from .decode import BYTE_ORDER_MARK
from .dialect import DIALECTS, GENERIC, NATIVE
from .errors import NotATranscriptError
from .keys import find_path, object_start, token_at

if TYPE_CHECKING:
    from .dialect import Dialect, Signature

#: bytes of a file that detection looks at
DETECTION_NBYTES = 1 << 16

_FIRST_KEY = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"([^"\\]*)"')
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def detect(path: str, head: bytes) -> Dialect:
    """Return the dialect of a file.

    Parameters
    ----------
    path : str
        Where the file lies; looked at as text, and for a host's files beside it.
    head : bytes
        Its first :data:`DETECTION_NBYTES` bytes, or all of a shorter file.
    """
    if _in_host_directory(path):
        return NATIVE
    every, complete = _all_lines(head), _lines(head)
    normal = os.path.abspath(path)
    hinted = [
        dialect
        for dialect in DIALECTS
        if dialect.path_hint and re.search(dialect.path_hint, normal)
    ]
    for strong in (True, False):
        for dialect in (*hinted, *DIALECTS):
            # half a line may tell by what it has, not by what it lacks
            signatures = dialect.signatures[:1] if strong else dialect.signatures[1:]
            lines = every if strong else complete
            if any(_matches(signature, lines) for signature in signatures):
                return dialect
    return hinted[0] if hinted else GENERIC


def is_claimed(dialect: Dialect, head: bytes) -> bool:
    """Whether some complete line in `head` shows that the file is of that dialect."""
    lines = _lines(head)
    return any(_matches(signature, lines) for signature in dialect.signatures)


def check_is_transcript(path: str, head: bytes) -> None:
    """Refuse a file that cannot be one of JSON lines.

    Raises
    ------
    NotATranscriptError
        In `head` some line, complete or not, is not blank and none begins with ``{``.
    """
    if head.startswith(_ZSTD_MAGIC):
        raise NotATranscriptError(
            "compressed with zstd", path=path, hint="unpack it first: zstd -d FILE.jsonl.zst"
        )
    lines = [line for line in _all_lines(head) if line.strip(b" \t\r\n")]
    if not lines or any(object_start(line) >= 0 for line in lines):
        return
    raise NotATranscriptError(
        f"no line in the first {len(head)} bytes begins with a JSON object", path=path, offset=0
    )


def _all_lines(head: bytes) -> list[bytes]:
    return head.removeprefix(BYTE_ORDER_MARK).split(b"\n")


def _lines(head: bytes) -> list[bytes]:
    """Return the complete lines, and one that only the end of what is looked at cuts off."""
    lines = _all_lines(head)
    return lines if len(head) >= DETECTION_NBYTES else lines[:-1]


def _in_host_directory(path: str) -> bool:
    data_dir, folder = os.path.split(os.path.dirname(os.path.abspath(path)))
    return folder == "sessions" and os.path.exists(os.path.join(data_dir, "host.lock"))


def _matches(signature: Signature, lines: list[bytes]) -> bool:
    for line in lines:
        if object_start(line) < 0:
            if signature.first_line and line.strip():
                return False  # the file's first line is damaged: nothing to go by
            continue
        if _line_matches(signature, line):
            return True
        if signature.first_line:
            return False
    return False


def _line_matches(signature: Signature, line: bytes) -> bool:
    if signature.first_key:
        match = _FIRST_KEY.match(line)
        if match is None or match[1].decode("utf-8", "replace") not in signature.first_key:
            return False
    if signature.type:
        found = find_path(line, (b"type",))
        known = [name.encode() for name in signature.type]
        if found < 0 or string_token(token_at(line, found)) not in known:
            return False
    return all(_has(line, dotted) for dotted in signature.has) and not any(
        _has(line, dotted) for dotted in signature.absent
    )


def _has(line: bytes, dotted: str) -> bool:
    return find_path(line, tuple(dotted.encode().split(b"."))) >= 0
