r"""Which dialect a file is written in: by where it lies, else by its first 64 KiB.

A path hint names the agents that keep files there; the file's own lines decide
among them. Without a hint every dialect is asked, in the order of the table, and
what none of them claims is ``generic``. At most the first 64 KiB are looked at,
whatever the size of the first line: keys are found by the same depth-aware scan
that classifies lines, so a line that is cut off there can still be recognised.
The first line that is claimed decides, so what is appended changes nothing.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from .classify import string_token
from .decode import BYTE_ORDER_MARK
from .dialect import DIALECTS, GENERIC, NATIVE
from .errors import NotATranscriptError
from .keys import find_path, object_start, token_at

if TYPE_CHECKING:
    from .grammar import Dialect, Signature

#: bytes of a file that detection looks at
DETECTION_NBYTES = 1 << 16
#: lines, blank ones left out, that it looks at among them
DETECTION_COUNT = 256

_BLANK = b" \t\r\n"

_FIRST_KEY = rb'[ \t\r\n]*\{[ \t\r\n]*"([^"\\]*)"'

#: how a compressed file begins, what it is then, and the command that prints what is in it
_COMPRESSED = (
    (rb"\x28\xb5\x2f\xfd", "zstd", "zstdcat"),
    (rb"\x1f\x8b\x08", "gzip", "zcat"),
    (rb"\xfd7zXZ\x00", "xz", "xzcat"),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "bzip2", "bzcat"),
    (rb"\x04\x22\x4d\x18", "lz4", "lz4cat"),
    (rb"PK(?:\x03\x04|\x05\x06)", "zip", "unzip -p"),
)


def detect(path: str, head: bytes) -> Dialect:
    """Return the dialect of a file.

    Parameters
    ----------
    path : str
        Where the file lies; looked at as text, and for a host's files beside it.
    head : bytes
        Its first :data:`DETECTION_NBYTES` bytes, or all of a shorter file.
    """
    path = os.path.abspath(path)
    if is_in_host_directory(path):
        return NATIVE
    hinted = [
        dialect for dialect in DIALECTS if dialect.path_hint and re.search(dialect.path_hint, path)
    ]
    complete, torn = _lines(head)
    order = [*hinted, *DIALECTS]
    claimed = _claimant(order, complete)
    if claimed is None and torn:
        # Half a line may tell until it is whole: nothing else does.
        claimed = _claimant(order, [*complete, torn])
    return claimed or (hinted[0] if hinted else GENERIC)


def is_claimed(dialect: Dialect, head: bytes) -> bool:
    """Whether a complete line in `head` shows that the file is of that dialect.

    Then it stays so, whatever is appended: the first line that any dialect claims decides.
    """
    return _claimant([dialect], _lines(head)[0]) is not None


def check_is_transcript(path: str, head: bytes) -> None:
    """Refuse a file that cannot be one of JSON lines.

    Raises
    ------
    NotATranscriptError
        It is compressed, or in `head` some line, complete or not, is not blank and none begins
        with ``{``.
    """
    for magic, name, command in _COMPRESSED:
        if re.match(magic, head):
            keep = ", or unpack it: zstd -d FILE" if name == "zstd" else ""
            raise NotATranscriptError(
                f"compressed with {name}",
                path=path,
                hint=f"to read it: {command} FILE | mmapstore tail -{keep}",
            )
    lines = [line for line in _all_lines(head) if line.strip(_BLANK)]
    if not lines or any(object_start(line) >= 0 for line in lines):
        return
    raise NotATranscriptError(
        f"no line in the first {len(head)} bytes begins with a JSON object", path=path, offset=0
    )


def _all_lines(head: bytes) -> list[bytes]:
    return head.removeprefix(BYTE_ORDER_MARK).split(b"\n")


def _lines(head: bytes) -> tuple[list[bytes], bytes]:
    """Return the first lines that are not blank, and the torn one behind the last newline.

    A line that only the end of what is looked at cuts off counts as complete.
    """
    *complete, torn = _all_lines(head)
    if len(head) >= DETECTION_NBYTES:
        complete.append(torn)
        torn = b""
    return list(islice((line for line in complete if line.strip(_BLANK)), DETECTION_COUNT)), torn


def is_in_host_directory(path: str) -> bool:
    """Whether a file lies among a host's transcripts, which are all native."""
    data_dir, folder = os.path.split(os.path.dirname(path))
    return folder == "sessions" and os.path.exists(os.path.join(data_dir, "host.lock"))


def _claimant(dialects: list[Dialect], lines: list[bytes]) -> Dialect | None:
    """Return the dialect that claims the first line that is claimed at all.

    Of a line the first signature of every dialect is asked before the others are.
    """
    for number, line in enumerate(lines):
        if object_start(line) < 0:
            continue
        for strong in (True, False):
            for dialect in dialects:
                signatures = dialect.signatures[:1] if strong else dialect.signatures[1:]
                for signature in signatures:
                    if (number == 0 or not signature.first_line) and _line_matches(signature, line):
                        return dialect
    return None


def _line_matches(signature: Signature, line: bytes) -> bool:
    if signature.first_key:
        match = re.match(_FIRST_KEY, line)
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
