"""The files that are measured: synthetic ones of a fixed seed, real ones where they are at hand.

A file is made once and kept in a cache directory. Its name holds a digest of what it
was made from, the first lines that the generator gives for it included, so a change
of the generator is a new file and never a stale one.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tools.gen_synthetic import (
    MILLION,
    RECORDS_LARGE,
    RECORDS_SMALL,
    SHORT_LINES,
    Spec,
    lines,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

#: bytes to which the real files are repeated
REAL_NBYTES = 129_000_000

_REVIEWS = 10_000
_REVIEW_NBYTES = 170
_CLAUDE = Spec(messages=28_000, nbytes=REAL_NBYTES, shape="claude", compactions=20, escaped=0.5)

FULL = {
    "records-small": RECORDS_SMALL,
    "records-large": RECORDS_LARGE,
    "type-last": replace(RECORDS_LARGE, key_order="last"),
    "short-lines": SHORT_LINES,
    "million": MILLION,
    "huge": replace(RECORDS_LARGE, messages=187_500, nbytes=2_000_000_000),
    "reviews": replace(
        RECORDS_SMALL,
        nbytes=RECORDS_SMALL.nbytes + _REVIEWS * _REVIEW_NBYTES,
        reviews=_REVIEWS,
    ),
    "claude": _CLAUDE,
}

#: the same sorts of files, small enough for a test
TINY = {
    name: replace(
        spec,
        messages=300,
        nbytes=600_000 if name in ("reviews", "claude") else 300_000,
        reviews=min(spec.reviews, 500),
        compactions=min(spec.compactions, 3),
    )
    for name, spec in FULL.items()
}

_FINGERPRINT_LINES = 64


def default_directory() -> Path:
    """Return where files are kept: MMAPSTORE_BENCH_DATA, else a directory of the user's cache."""
    if chosen := os.environ.get("MMAPSTORE_BENCH_DATA"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "mmapstore-bench"


def real_directory() -> Path:
    """Return where real transcripts may lie: MMAPSTORE_REAL_TRANSCRIPTS, else beside the project."""
    beside = Path(__file__).resolve().parents[1] / ".." / "shared" / "transcripts"
    return Path(os.environ.get("MMAPSTORE_REAL_TRANSCRIPTS") or beside)


@dataclass(frozen=True, slots=True)
class Files:
    """The measured files in one directory.

    Attributes
    ----------
    directory : Path
        Where they are kept; made when the first file is.
    specs : dict of str to Spec
        What each file holds.
    real : Path or None
        Where real transcripts lie, if anywhere.
    real_nbytes : int
        To how many bytes they are repeated.
    """

    directory: Path
    specs: dict[str, Spec]
    real: Path | None = None
    real_nbytes: int = REAL_NBYTES

    def path(self, name: str) -> Path:
        """Return the path of a synthetic file, which is made if it is not there."""
        spec = self.specs[name]
        digest = hashlib.sha256(repr(spec).encode())
        for line in islice(lines(spec), _FINGERPRINT_LINES):
            digest.update(line)
        return self._made(name, digest.hexdigest(), lambda target: write(spec, target))

    def claude(self) -> tuple[Path, str]:
        """Return the path of a file of Claude lines, and what it is made of.

        The real files one after another, each ended with a newline, repeated up to the
        last whole line within `real_nbytes`; a generated file where there are none.
        """
        sources = sorted((self.real / "claude").glob("*.jsonl")) if self.real else []
        contents = [source.read_bytes() for source in sources]
        once = b"".join(_ended(content) for content in contents)
        if not once:
            return self.path("claude"), "generated Claude lines"
        digest = hashlib.sha256(once + b"%d" % self.real_nbytes).hexdigest()

        def repeat(target: Path) -> None:
            whole = once * (self.real_nbytes // len(once) + 1)
            cut = whole.rfind(b"\n", 0, self.real_nbytes) + 1
            target.write_bytes(whole[: cut or len(once)])

        path = self._made("claude-real", digest, repeat)
        return path, f"{len(sources)} real files repeated"

    def _made(self, name: str, digest: str, make: Callable[[Path], object]) -> Path:
        path = self.directory / f"{name}-{digest[:12]}.jsonl"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
                made = Path(scratch) / "made"
                make(made)
                made.replace(path)
            self._forget(name, path)
        return path

    def _forget(self, name: str, kept: Path) -> None:
        """Remove what earlier generators or specs gave under this name: a file is up to 300 MB."""
        for old in self.directory.glob(f"{name}-{'[0-9a-f]' * 12}.jsonl"):
            if old != kept:
                with suppress(FileNotFoundError):
                    old.unlink()


def _ended(content: bytes) -> bytes:
    return content if not content or content.endswith(b"\n") else content + b"\n"
