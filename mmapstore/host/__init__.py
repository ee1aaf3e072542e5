"""The writing side: a host that owns the session directory.

Imports the reading side, never the reverse. Bottom-up: :mod:`~mmapstore.host.jsonvalue`
and :mod:`~mmapstore.host.splice` (values and their bytes), :mod:`~mmapstore.host.records`
(lines), :mod:`~mmapstore.host.linefile` (a file that is durable),
:mod:`~mmapstore.host.journal` (a transcript), :mod:`~mmapstore.host.rewrite` (what it
becomes), :mod:`~mmapstore.host.revisions`, :mod:`~mmapstore.host.branches` and
:mod:`~mmapstore.host.activation` (its archive), :mod:`~mmapstore.host.forks`, :mod:`~mmapstore.host.catalog` (the index in
SQLite), :mod:`~mmapstore.host.session` (one that is open), :mod:`~mmapstore.host.index`
(what the index says of it), :mod:`~mmapstore.host.directory` (which sessions there are),
:mod:`~mmapstore.host.desk`, :mod:`~mmapstore.host.appends` and
:mod:`~mmapstore.host.edits` to :class:`Host`. Above it :mod:`~mmapstore.host.outbox`
(appending in the background), and for other processes :mod:`~mmapstore.host.methods`,
:mod:`~mmapstore.host.jsonrpc`, :mod:`~mmapstore.host.listening` and
:mod:`~mmapstore.host.rpc`.
"""

from __future__ import annotations

from .edits import Cut
from .host import Host
from .revisions import Revision
from .session import Session

__all__ = ["Cut", "Host", "Revision", "Session"]
