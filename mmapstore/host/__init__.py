"""The writing side: a host that owns the session directory.

Imports the reading side, never the reverse. Bottom-up: :mod:`~mmapstore.host.jsonvalue`
and :mod:`~mmapstore.host.splice` (values and their bytes), :mod:`~mmapstore.host.records`
(lines), :mod:`~mmapstore.host.linefile` (a file that is durable),
:mod:`~mmapstore.host.journal` (a transcript), :mod:`~mmapstore.host.rewrite` (what it
becomes), :mod:`~mmapstore.host.revisions` and :mod:`~mmapstore.host.branches` (its
archive), :mod:`~mmapstore.host.forks`, :mod:`~mmapstore.host.catalog` and
:mod:`~mmapstore.host.directory` (which sessions there are), :mod:`~mmapstore.host.desk`,
:mod:`~mmapstore.host.appends` and :mod:`~mmapstore.host.edits` to :class:`Host`.
"""

from __future__ import annotations

from .directory import Session
from .edits import Cut
from .host import Host
from .revisions import Revision

__all__ = ["Cut", "Host", "Revision", "Session"]
