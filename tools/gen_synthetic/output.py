"""Writing a transcript: to a path, all of it or nothing, or to a stream.

Invariant: the path holds either what it held before or the whole transcript, never a part of one.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from .spec import Spec
from .stream import lines

Progress = Callable[[int, int], None]

_BATCH_NBYTES = 1 << 20


def write(spec: Spec, path: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
    """Write a transcript to a path, replacing what is there.

    Parameters
    ----------
    spec : Spec
        What to write.
    path : path-like
        Where; its directory must exist. The file is written under another name in it first.
    progress : callable, optional
        Called with the bytes written and the bytes to be written, about once a MiB. An
        exception that it raises stops the writing and leaves nothing.

    Returns
    -------
    nbytes : int
        Bytes written.

    Raises
    ------
    ValueError
        The spec cannot be met in its nbytes.
    OSError
        The file cannot be written.
    """
    target = Path(path)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            nbytes = write_to(spec, file, progress=progress)
        os.replace(name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return nbytes


def write_to(spec: Spec, file: BinaryIO, *, progress: Progress | None = None) -> int:
    """Write a transcript to an open binary file and return the bytes written."""
    stream = lines(spec)
    # Counting lines and not bytes keeps the loop over them out of Python.
    count = max(1, _BATCH_NBYTES * spec.messages // spec.nbytes)
    done = 0
    while batch := list(islice(stream, count)):
        done += _write_all(file, b"".join(batch))
        if progress is not None:
            progress(done, spec.nbytes)
    return done


def _write_all(file: BinaryIO, content: bytes) -> int:
    """Write all of it, also through a raw file that takes less than it is given."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]
    return len(content)
