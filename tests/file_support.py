"""What the tests of reading share: small steps, and a file that is read ahead whatever its size."""

from __future__ import annotations

import pytest

from mmapstore import filemap, reading
from mmapstore.filemap import MappedFile, ReadFile
from mmapstore.reading import AheadReader, Reader


class AheadFile(ReadFile):
    """What is read of a file that is large enough to be read ahead, of any size."""

    def reader(self, start: int) -> Reader:
        return AheadReader(self.descriptor, start, self.nbytes, filemap._scratch)


SOURCES = {"mmap": MappedFile, "pread": ReadFile, "ahead": AheadFile}


def shrink_steps(patch: pytest.MonkeyPatch, step: int, buffer: int) -> None:
    """Make walks go through small files as they go through large ones."""
    patch.setattr(filemap, "SPAN_NBYTES", step)
    patch.setattr(reading, "STEP_NBYTES", step)
    patch.setattr(reading, "BUFFER_NBYTES", buffer)
    patch.setattr(reading, "PIECE_NBYTES", buffer)
    patch.setattr(reading, "MARGIN_NBYTES", buffer + 18)
