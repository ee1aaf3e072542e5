"""Where sessions lie: the folders that agents keep transcripts in, and the files found there.

The folders are a table. Finding looks at names and at one stat result a file; nothing is
opened. What cannot be looked into is mentioned and costs nothing else; what vanishes
while it is looked for was never there.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".jsonl"
#: archived branches of a native session: kept beside it, no session of their own
_ARCHIVE_SUFFIX = ".revisions.jsonl"
_COMPRESSED_SUFFIX = ".jsonl.zst"
_LAYOUT_SUFFIX = ".jsonl.layout"

_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class Place(NamedTuple):
    """A folder in which an agent keeps its transcripts.

    Attributes
    ----------
    dialect : str
        What is mostly written there; each file is still told by its own lines.
    variable : str
        The environment variable by which the agent's user moves `base`; empty: none.
    base : str
        The agent's folder, from the home directory.
    folder : str
        The folder that is looked through, from there; may be a shell pattern.
    within : str
        Regular expression: what must be found in the path of a folder, from there and with a
        slash at its end, for transcripts to lie in it.
    name : str
        What a transcript is called; empty: anything.
    """

    dialect: str
    variable: str
    base: str
    folder: str
    within: str = ""
    name: str = ""


PLACES: tuple[Place, ...] = (
    # a workflow's journal is no transcript
    Place("claude", "CLAUDE_CONFIG_DIR", ".claude", "projects", r"^(?!.*/subagents/workflows/)"),
    Place("codex", "CODEX_HOME", ".codex", "sessions"),
    Place("codex", "CODEX_HOME", ".codex", "archived_sessions"),
    Place("pi", "PI_CODING_AGENT_DIR", ".pi/agent", "sessions"),
    Place("pi", "", ".omp/agent", "sessions"),
    Place("pi", "", ".openclaw", "agents", r"/sessions/"),
    Place("pi", "", ".clawdbot", "agents", r"/sessions/"),
    Place("copilot", "", ".copilot", "session-state"),
    Place("gemini", "", ".gemini", "tmp", r"/chats/"),
    Place("antigravity", "", ".gemini", "antigravity*"),
    Place("kimi", "", ".kimi-code", "sessions", name="wire.jsonl"),
    Place("droid", "", ".factory", "sessions"),
    Place("qwen", "", ".qwen", "projects", r"/chats/"),
    Place("cursor", "", ".cursor", "projects", r"/agent-transcripts/"),
    Place("grok", "", ".grok", "", name="chat_history.jsonl"),
)


class Root(NamedTuple):
    """A folder to look through, or a file.

    Attributes
    ----------
    path : str
        Absolute.
    within, name : str
        As of a :class:`Place`.
    """

    path: str
    within: str = ""
    name: str = ""


class Trouble(NamedTuple):
    """What could not be looked into.

    Attributes
    ----------
    path, reason : str
        Where, and why.
    """

    path: str
    reason: str


def known_roots() -> list[Root]:
    """Return the folders of the agents that are installed here."""
    home = os.path.expanduser("~")
    found = []
    for place in PLACES:
        given = os.environ.get(place.variable, "") if place.variable else ""
        base = os.path.abspath(os.path.expanduser(given)) if given else f"{home}/{place.base}"
        pattern = os.path.join(glob.escape(base), place.folder).rstrip("/")
        found += [Root(path, place.within, place.name) for path in sorted(glob.glob(pattern))]
    return found


def root_at(path: str) -> Root:
    """Return the root that a path names, relative to the working directory."""
    # behind a symbolic link, ".." is not the folder before it
    up = os.pardir in path.split(os.sep)
    return Root(os.path.realpath(path) if up else os.path.abspath(path))


class Search:
    """A walk through roots.

    Attributes
    ----------
    files : dict
        Stat results by path; of a symbolic link, of what it leads to.
    layouts : set of str
        Paths of layout caches that lie beside a file.
    troubles : list of Trouble
        What could not be looked into.
    compressed_count : int
        Transcripts that would have to be unpacked first.
    """

    def __init__(self) -> None:
        self.files: dict[str, os.stat_result] = {}
        self.layouts: set[str] = set()
        self.troubles: list[Trouble] = []
        self.compressed_count = 0
        self._seen: set[tuple[int, int]] = set()

    def add(self, root: Root) -> None:
        """Look through a root; one that is a file is taken whatever its name.

        Raises
        ------
        OSError
            There is nothing at the path, or it cannot be reached.
        """
        status = os.stat(root.path)
        if not os.path.isdir(root.path):
            self.files[root.path] = status
            if os.path.exists(root.path + ".layout"):
                self.layouts.add(root.path + ".layout")
            return
        # links come last, so that what can be reached without one is listed without one
        folders, links = [root.path], list[str]()
        while folders or links:
            linked = not folders
            folder = links.pop() if linked else folders.pop()
            try:
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in self._seen:
                    if linked:
                        self._mention(folder, "a link to a folder that is looked through already")
                    continue
                self._seen.add((status.st_dev, status.st_ino))
                with os.scandir(folder) as entries:
                    self._look_through(folder, entries, root, folders, links)
            except OSError as error:
                self._mention_error(folder, error)

    def _look_through(
        self,
        folder: str,
        entries: Iterator[os.DirEntry[str]],
        root: Root,
        folders: list[str],
        links: list[str],
    ) -> None:
        taken = re.search(root.within, f"{folder[len(root.path) :]}/") is not None
        for entry in entries:
            name = entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif name.endswith(SUFFIX) and entry.is_file():
                    if taken and name == (root.name or name) and not name.endswith(_ARCHIVE_SUFFIX):
                        self.files[entry.path] = entry.stat()
                elif name.endswith(_LAYOUT_SUFFIX):
                    self.layouts.add(entry.path)
                elif name.endswith(_COMPRESSED_SUFFIX):
                    self.compressed_count += taken
                elif entry.is_symlink() and entry.is_dir():
                    links.append(entry.path)
            except OSError as error:
                self._mention_error(entry.path, error)

    def _mention(self, path: str, reason: str) -> None:
        self.troubles.append(Trouble(path, reason))

    def _mention_error(self, path: str, error: OSError) -> None:
        if error.errno not in _VANISHED:
            self._mention(path, error.strerror or str(error))


def has_vanished(error: OSError) -> bool:
    """Whether an error means that a file is no longer there."""
    return error.errno in _VANISHED
