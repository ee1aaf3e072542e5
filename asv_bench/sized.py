"""The transcripts of growth: the same lines at every size, each a session of a host of its own.

A file is made once, in place. What a run has appended stays until the next one begins by
cutting it off, so all runs begin with the same bytes and none copies them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.gen_synthetic import Spec

from . import data

if TYPE_CHECKING:
    from pathlib import Path

SIZES = tuple(number * 1_000_000 for number in (1, 4, 16, 64, 256, 1000, 2000, 4000, 8000))
LINE_NBYTES = 10_000


@dataclass(frozen=True, slots=True)
class Sized:
    """One transcript of a size, the only session of a host directory of its own.

    A host keeps no more than some sessions open: with a directory each, none is closed
    and opened again while the others have their turn.
    """

    nbytes: int
    path: Path

    @property
    def session(self) -> str:
        """Its session's id."""
        return self.path.stem

    @property
    def data_dir(self) -> Path:
        """The directory that a host owns."""
        return self.path.parents[1]


def spec_of(nbytes: int) -> Spec:
    """Return what the file of a size holds: native lines of plain text, 10 KB each."""
    return Spec(messages=max(1, nbytes // LINE_NBYTES), nbytes=nbytes)


def prepared(directory: Path, nbytes: int) -> Sized:
    """Return the transcript of a size, made if it is not there, without what was ever appended.

    Raises
    ------
    RuntimeError
        The file is not one that has been generated and then appended to.
    """
    spec = spec_of(nbytes)
    files = data.Files(directory / str(nbytes) / "sessions", {"growth": spec})
    path = files.path("growth")
    with open(path, "r+b") as file:
        # nobody maps it: the run has the directory to itself
        if os.fstat(file.fileno()).st_size > nbytes:
            file.truncate(nbytes)
        file.seek(nbytes - 1)
        if file.read() != b"\n":
            message = f"{path.name} is not {nbytes} bytes of whole lines; remove it"
            raise RuntimeError(message)
    return Sized(nbytes, path)


def missing_nbytes(directory: Path, nbytes: int) -> int:
    """Return what the disk has to have room for before a size is measured."""
    there = sum(path.stat().st_size for path in (directory / str(nbytes)).glob("sessions/*.jsonl"))
    return max(0, nbytes - there)
