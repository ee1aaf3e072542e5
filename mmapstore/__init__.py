"""Open a coding agent's transcript for the price of a window, whatever its history.

::

    import mmapstore

    with mmapstore.open("session.jsonl") as t:
        for message in t.window(limit=100).messages:
            print(t.dialect.role(message), t.dialect.text(message))

What is here:

- :func:`open` gives a :class:`Transcript`; its ``window()`` and ``follow()`` give a
  :class:`Window`, a page of messages; its ``layout``, the offsets as arrays.
- :class:`Host` keeps transcripts of its own: it appends, annotates, cuts, forks and
  archives. :class:`Outbox` appends in the background; :class:`mmapstore.rpc.Client`
  asks a host in another process.
- Every exception of the library's own is a :class:`MmapStoreError`.

Reading goes bottom-up through :mod:`~mmapstore.scan` (bytes to line ends),
:mod:`~mmapstore.probe` and :mod:`~mmapstore.keys` (where a key has its value),
:mod:`~mmapstore.classify` (lines to kinds), :mod:`~mmapstore.layout` (kinds to
offset arrays), :mod:`~mmapstore.generation` (a layout over its bytes) and
:mod:`~mmapstore.window` to :class:`Transcript`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cachedir import CacheDir
from .errors import (
    ConflictError,
    InvalidRecordError,
    InvalidSessionIdError,
    LineDecodeError,
    LockedError,
    MessageNotFoundError,
    MmapStoreError,
    NotATranscriptError,
    PositionError,
    RevisionNotFoundError,
    SessionNotFoundError,
    TranscriptChangedError,
    WriteFailedError,
)
from .generation import Damaged
from .grammar import Dialect, Kind
from .layout import Extents, Layout
from .loader import Refresh
from .stamp import Stamp
from .transcript import Transcript, open
from .window import Window

if TYPE_CHECKING:
    from .host import Host
    from .host.outbox import Outbox
    from .verify import Finding

__all__ = [
    "CacheDir",
    "ConflictError",
    "Damaged",
    "Dialect",
    "Extents",
    "Finding",
    "Host",
    "InvalidRecordError",
    "InvalidSessionIdError",
    "Kind",
    "Layout",
    "LineDecodeError",
    "LockedError",
    "MessageNotFoundError",
    "MmapStoreError",
    "NotATranscriptError",
    "Outbox",
    "PositionError",
    "Refresh",
    "RevisionNotFoundError",
    "SessionNotFoundError",
    "Stamp",
    "Transcript",
    "TranscriptChangedError",
    "Window",
    "WriteFailedError",
    "open",
]


#: the one place where it stands: packaging reads it from here
__version__ = "0.1.0"

#: what few ask for, loaded when it is asked for: a reader imports no sqlite3
_LAZY = {"Finding": ".verify", "Host": ".host.host", "Outbox": ".host.outbox"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(_LAZY[name], __name__), name)


def __dir__() -> list[str]:
    # what help() shows is what this names and what it then gets
    return sorted({*globals(), *_LAZY})
