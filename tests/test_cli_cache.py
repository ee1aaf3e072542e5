"""``mmapstore cache``: where caches are, what they are of, and that clearing takes ours alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

import mmapstore
from mmapstore import cachedir, catalogue, loader, sessions
from mmapstore.cli import main
from tests.strategies import HEADER, M

HEADED = HEADER + b"\n"


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "cache"))
    # as if every last change were long ago
    for module in (loader, sessions):
        monkeypatch.setattr(module, "is_racy", lambda *_, **__: False)
    return tmp_path / "cache"


@pytest.fixture
def run(capsysbinary: Any) -> Callable[..., tuple[int, str, str]]:
    def run_command(*arguments: object) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return run_command


def cached(path: Path, count: int, used_s: int) -> Path:
    """Write a transcript, open it, and return its cache, last used then."""
    path.write_bytes(HEADED + M("a") * count)
    mmapstore.open(path).close()
    cache = Path(cachedir.within(cachedir.user_directory(), str(path)))
    os.utime(cache, (used_s, used_s))
    return cache


def test_path_prints_the_directory_whether_it_is_there_or_not(
    run: Any, cache_home: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    assert run("cache", "path") == (0, f"{cache_home}\n", "")
    code, out, _ = run("cache", "path", "--json")
    assert (code, json.loads(out)) == (0, {"path": str(cache_home)})
    assert not cache_home.exists()
    monkeypatch.delenv("MMAPSTORE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert run("cache", "path")[1] == f"{tmp_path / 'xdg' / 'mmapstore'}\n"


def test_list_prints_what_was_used_last_first_and_the_total(run: Any, tmp_path: Path) -> None:
    old = cached(tmp_path / "old.jsonl", 2, 1_700_000_000)
    new = cached(tmp_path / "new.jsonl", 1500, 1_700_000_060)
    sizes = [new.stat().st_size, old.stat().st_size]
    code, out, err = run("cache", "list")
    assert (code, err) == (0, "")
    first, second, total = out.splitlines()
    assert first.split() == [
        f"{sizes[0]:,}",
        "bytes",
        "1,500",
        "messages",
        "native",
        str(tmp_path / "new.jsonl"),
    ]
    assert second.split()[2:] == ["2", "messages", "native", str(tmp_path / "old.jsonl")]
    assert total.split() == [
        f"{sum(sizes):,}",
        "bytes",
        "1,502",
        "messages",
        "in",
        "2",
        "caches",
    ]


def test_list_as_json_is_one_object_a_cache(run: Any, tmp_path: Path) -> None:
    cache = cached(tmp_path / "t.jsonl", 2, 1_700_000_000)
    code, out, _ = run("cache", "list", "--json")
    assert code == 0
    assert [json.loads(row) for row in out.splitlines()] == [
        {
            "nbytes": cache.stat().st_size,
            "used": "2023-11-14T22:13:20Z",
            "path": str(tmp_path / "t.jsonl"),
            "messages": 2,
            "dialect": "native",
            "cache": str(cache),
        }
    ]


def test_a_cache_that_cannot_be_used_is_listed_as_such(run: Any, tmp_path: Path) -> None:
    cache = cached(tmp_path / "t.jsonl", 2, 1_700_000_000)
    cache.write_bytes(bytes(cache.stat().st_size))
    code, out, _ = run("cache", "list")
    assert code == 0
    assert out.splitlines()[0].split()[2:] == ["-", "messages", "-", "-", f"({cache})"]
    (row,) = [json.loads(row) for row in run("cache", "list", "--json")[1].splitlines()]
    assert (row["path"], row["messages"], row["dialect"]) == (None, None, None)


def test_without_a_directory_there_is_nothing_to_list_or_clear(run: Any) -> None:
    code, out, err = run("cache", "list")
    assert (code, out.split(), err) == (0, ["0", "bytes", "0", "messages", "in", "0", "caches"], "")
    assert run("cache", "list", "--json") == (0, "", "")
    assert run("cache", "clear") == (0, "removed 0 files, 0 bytes\n", "")


def test_clear_removes_our_files_and_no_others(run: Any, tmp_path: Path, cache_home: Path) -> None:
    ours = [cached(tmp_path / f"{name}.jsonl", 2, 1_700_000_000) for name in "ab"]
    sessions.listing([str(tmp_path)])
    ours += [Path(catalogue.place()), cache_home / f"{catalogue.NAME}.12-0.tmp"]
    ours[-1].write_bytes(b"left over")
    ours.append(cache_home / f"{ours[0].name}.12-0.tmp")
    ours[-1].write_bytes(b"left over too")
    others = [
        "notes.txt",
        "x.layout",
        f"my-{catalogue.NAME}",
        f"{catalogue.NAME}.bak",
        "a.jsonl-12345678.layout.bak",
    ]
    for name in others:
        (cache_home / name).write_bytes(b"not ours")
    (cache_home / "d.jsonl-12345678.layout").mkdir()
    nbytes = sum(path.stat().st_size for path in ours)
    transcripts = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    assert run("cache", "clear") == (0, f"removed 5 files, {nbytes:,} bytes\n", "")
    left = {path.name for path in cache_home.iterdir()}
    assert left == {*others, "d.jsonl-12345678.layout"}
    assert {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")} == transcripts
    code, out, _ = run("cache", "clear", "--json")
    assert (code, json.loads(out)) == (0, {"removed": 0, "nbytes": 0})


def test_one_file_is_not_called_files(run: Any, tmp_path: Path) -> None:
    cache = cached(tmp_path / "t.jsonl", 2, 1_700_000_000)
    nbytes = cache.stat().st_size
    assert run("cache", "list")[1].endswith(" in 1 cache\n")
    assert run("cache", "clear")[1] == f"removed 1 file, {nbytes:,} bytes\n"


@pytest.mark.parametrize("arguments", [["cache"], ["cache", "nonsense"]])
def test_a_verb_without_an_action_is_a_usage_error(run: Any, arguments: list[str]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("mmapstore: error: ")


@pytest.mark.parametrize("action", ["path", "list", "clear"])
def test_every_action_has_help(run: Any, action: str) -> None:
    code, out, _ = run("cache", action, "--help")
    assert code == 0
    assert out.startswith(f"Usage: mmapstore cache {action}")
