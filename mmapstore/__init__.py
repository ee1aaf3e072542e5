"""Open a coding agent's transcript for the price of a window, whatever its history.

::

    import mmapstore

    with mmapstore.open("session.jsonl") as t:
        for message in t.window(limit=100).messages:
            print(t.dialect.role(message), t.dialect.text(message))

Reading goes bottom-up through :mod:`~mmapstore.scan` (bytes to line ends),
:mod:`~mmapstore.probe` and :mod:`~mmapstore.keys` (where a key has its value),
:mod:`~mmapstore.classify` (lines to kinds), :mod:`~mmapstore.layout` (kinds to
offset arrays), :mod:`~mmapstore.generation` (a layout over its bytes) and
:mod:`~mmapstore.window` to :class:`Transcript`.
"""

from __future__ import annotations

from .cachedir import CacheDir
from .errors import (
    LineDecodeError,
    MessageNotFoundError,
    MmapStoreError,
    NotATranscriptError,
    PositionError,
    TranscriptChangedError,
)
from .generation import Damaged
from .grammar import Dialect, Kind
from .layout import Extents, Layout
from .loader import Refresh
from .stamp import Stamp
from .transcript import Transcript, open
from .verify import Finding
from .window import Window

__all__ = [
    "CacheDir",
    "Damaged",
    "Dialect",
    "Extents",
    "Finding",
    "Kind",
    "Layout",
    "LineDecodeError",
    "MessageNotFoundError",
    "MmapStoreError",
    "NotATranscriptError",
    "PositionError",
    "Refresh",
    "Stamp",
    "Transcript",
    "TranscriptChangedError",
    "Window",
    "open",
]
