"""The import graph is the architecture: each module imports only what stands above it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mmapstore"

#: top to bottom; a module may import only modules that stand above it
LAYERS = [
    "errors",
    "jsonline",
    "stamp",
    "provenance",
    "scan",
    "keys",
    "decode",
    "review",
    "paths",
    "grammar",
    "dialect",
    "probe",
    "classify",
    "detect",
    "fileio",
    "reading",
    "filemap",
    "walk",
    "columns",
    "proof",
    "layout",
    "identity",
    "cache",
    "cachedir",
    "places",
    "glance",
    "catalogue",
    "sessions",
    "generation",
    "lookup",
    "window",
    "paging",
    "verify",
    "loader",
    "watch",
    "follow",
    "transcript",
    "rpc",
]

#: of the writing side, top to bottom; each may import any of the reading side besides
HOST_LAYERS = [
    "jsonvalue",
    "splice",
    "records",
    "linefile",
    "journal",
    "rewrite",
    "revisions",
    "branches",
    "activation",
    "forks",
    "catalog",
    "session",
    "index",
    "directory",
    "desk",
    "appends",
    "edits",
    "host",
    "outbox",
    "methods",
    "jsonrpc",
    "listening",
    "rpc",
]

#: the only modules that may import these
OWNERS = {
    "mmap": {"filemap"},
    "sqlite3": {"host/catalog"},
    "fcntl": {"stamp", "fileio"},
    "tempfile": {"cli"},
    "watchfiles": {"watch"},
}


def _imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports at run time, relative ones resolved."""
    found = set()
    tree = ast.parse(path.read_text())
    package = ("mmapstore", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            found.add(".".join(base))
            found |= {".".join([*base, alias.name]) for alias in node.names}
    return found


def _modules() -> dict[str, Path]:
    return {path.stem: path for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}


def test_every_module_has_a_place_in_the_order():
    assert sorted(_modules()) == sorted(LAYERS)


@pytest.mark.parametrize("name", LAYERS)
def test_a_module_imports_only_what_stands_above_it(name):
    above = set(LAYERS[: LAYERS.index(name)])
    imported = {
        dotted.split(".")[1]
        for dotted in _imports(_modules()[name])
        if dotted.startswith("mmapstore.")
    }
    assert imported <= above


def test_every_module_of_the_writing_side_has_a_place_in_the_order():
    found = {path.stem for path in (PACKAGE / "host").glob("*.py") if path.stem != "__init__"}
    assert sorted(found) == sorted(HOST_LAYERS)


@pytest.mark.parametrize("name", HOST_LAYERS)
def test_a_module_of_the_writing_side_imports_only_what_stands_above_it(name):
    above = set(HOST_LAYERS[: HOST_LAYERS.index(name)])
    imported = {
        dotted.split(".")[2]
        for dotted in _imports(PACKAGE / "host" / f"{name}.py")
        if dotted.startswith("mmapstore.host.")
    }
    assert imported <= above


def test_the_reading_side_never_imports_the_writing_side():
    for name in LAYERS:
        assert not any(
            dotted.startswith("mmapstore.host") for dotted in _imports(_modules()[name])
        ), name


@pytest.mark.parametrize(("library", "owners"), OWNERS.items())
def test_only_its_owners_import_a_library(library, owners):
    users = {
        path.relative_to(PACKAGE).with_suffix("").as_posix()
        for path in PACKAGE.rglob("*.py")
        if library in {dotted.split(".")[0] for dotted in _imports(path)}
    }
    assert {
        user for user in users if user not in owners and user.split("/")[0] not in owners
    } == set()


def _calls(path: Path, names: set[str]) -> set[str]:
    return {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id) in names
    }


def test_only_fileio_syncs_renames_and_locks():
    durable = {"fsync", "fdatasync", "rename", "renames", "flock", "lockf"}
    users = {
        path.stem
        for path in PACKAGE.rglob("*.py")
        if _calls(path, durable) or "os.replace(" in path.read_text()
    }
    assert users <= {"fileio"}


def test_only_the_command_line_prints():
    users = {path for path in PACKAGE.rglob("*.py") if _calls(path, {"print"})}
    assert all("cli" in path.parts for path in users)


def test_importing_the_library_loads_neither_sqlite_nor_the_command_line():
    import subprocess
    import sys

    code = "import sys, mmapstore; print(sorted({'sqlite3', 'click', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
