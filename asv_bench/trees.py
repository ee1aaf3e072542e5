"""Versions of the library as trees of files: a commit's, or what stands in a directory now.

Either is copied, and nothing but the package is: an edit during a long measurement is not
measured, and the two trees differ in the library alone.
"""

from __future__ import annotations

import compileall
import io
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = "mmapstore"


class NoSuchTreeError(Exception):
    """Is raised where a name is neither a commit nor a directory with the package."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A version of the library.

    Attributes
    ----------
    root : Path
        The directory that holds the package.
    name : str
        What it is a copy of.
    """

    root: Path
    name: str


def extracted(version: str | None, root: Path, project: Path = PROJECT) -> Tree:
    """Copy a version of the package.

    Parameters
    ----------
    version : str or None
        A directory that holds the package, or a revision as git names it; None for the
        working tree.
    root : Path
        Where the copy goes; made.
    project : Path
        The repository.

    Raises
    ------
    NoSuchTreeError
        It is neither.
    """
    root.mkdir(parents=True)
    directory = project if version is None else Path(version)
    if (directory / PACKAGE / "__init__.py").is_file():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(directory / PACKAGE, root / PACKAGE, ignore=ignored)
        name = "working tree" if version is None else str(directory)
    else:
        assert version is not None
        commit = _git(project, "rev-parse", "--verify", "--end-of-options", f"{version}^{{commit}}")
        name = commit.decode().strip()
        with tarfile.open(fileobj=io.BytesIO(_git(project, "archive", name, PACKAGE))) as archive:
            archive.extractall(root, filter="data")
        name = name[:12] if name.startswith(version) else f"{version} ({name[:12]})"
    # else the first import of one of them would compile it, and be measured
    compileall.compile_dir(root, quiet=2)
    return Tree(root, name)


def _git(project: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", project, *arguments], capture_output=True, check=True)
    except OSError as error:
        message = f"git cannot be run: {error.strerror}"
        raise NoSuchTreeError(message) from error
    except subprocess.CalledProcessError as error:
        raise NoSuchTreeError(error.stderr.decode(errors="replace").strip()) from error
    return done.stdout
