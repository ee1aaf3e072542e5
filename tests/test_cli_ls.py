"""``mmapstore ls``: one line a session, newest first, whatever titles and paths hold."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="the command line is an extra")
pytest.importorskip("rich", reason="the command line is an extra")

from mmapstore import places
from mmapstore.cli import ls as ls_module
from mmapstore.cli import main
from tests.strategies import M

ROOT = Path(__file__).parent.parent
HEADER = b'{"type":"session","schema":2,"sessionId":"s","createdAt":"2026-01-02T03:04:05Z"}\n'
FIELDS = ["path", "dialect", "title", "messages", "nbytes", "last_activity"]
FIELDS += ["modified", "session_id"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "cache"))
    for place in places.PLACES:
        if place.variable:
            monkeypatch.delenv(place.variable, raising=False)
    return tmp_path / "home"


@pytest.fixture
def run(capsysbinary: Any) -> Callable[..., tuple[int, str, str]]:
    def run_command(*arguments: object) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        code = main(["ls", *(str(argument) for argument in arguments)])
        out, err = capsysbinary.readouterr()
        return code, out.decode(), err.decode()

    return run_command


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Give a folder of three sessions: of the first a lot is known, of the last nothing."""
    folder = tmp_path / "three"
    folder.mkdir()
    asked = M("a", "what was asked", createdAt="2026-03-04T05:06:07Z")
    (folder / "new.jsonl").write_bytes(HEADER + asked + M("b", role="assistant"))
    modified_s = datetime.datetime(2026, 3, 5, tzinfo=datetime.UTC).timestamp() + 0.5
    os.utime(folder / "new.jsonl", (0, modified_s))
    (folder / "old.jsonl").write_bytes(HEADER + M("x", "y" * 300_000) + HEADER)
    (folder / "empty.jsonl").write_bytes(b"")
    os.utime(folder / "empty.jsonl", (0, 0))
    return folder


def test_a_pipe_gets_one_line_a_session_in_columns(run: Any, three: Path) -> None:
    code, out, err = run(three)
    assert (code, err) == (0, "")
    new, old, empty = out.splitlines()
    assert new.split() == [
        "2026-03-04",
        "05:06:07Z",
        "native",
        "2",
        f"{(three / 'new.jsonl').stat().st_size:,}",
        "what",
        "was",
        "asked",
        str(three / "new.jsonl"),
    ]
    nbytes = (three / "old.jsonl").stat().st_size
    assert old.split()[2:6] == ["native", "-", f"{nbytes:,}", "-"]
    # no line has a time: the file's own, marked
    assert empty.split()[:2] == ["1970-01-01", "00:00:00Z*"]
    assert empty.split()[2:] == ["generic", "0", "0", "-", str(three / "empty.jsonl")]
    assert len({row.index(str(three)) for row in (new, old, empty)}) == 1


def test_json_is_one_object_a_session(run: Any, three: Path) -> None:
    code, out, err = run(three, "--json")
    rows = [json.loads(row) for row in out.splitlines()]
    assert (code, err) == (0, "")
    assert [list(row) for row in rows] == [FIELDS] * 3
    assert rows[0] == {
        "path": str(three / "new.jsonl"),
        "dialect": "native",
        "title": "what was asked",
        "messages": 2,
        "nbytes": (three / "new.jsonl").stat().st_size,
        "last_activity": "2026-03-04T05:06:07.000Z",
        "modified": "2026-03-05T00:00:00.500Z",
        "session_id": "s",
    }
    assert (rows[1]["messages"], rows[1]["title"]) == (None, None)
    assert rows[2] == {
        "path": str(three / "empty.jsonl"),
        "dialect": "generic",
        "title": None,
        "messages": 0,
        "nbytes": 0,
        "last_activity": None,
        "modified": "1970-01-01T00:00:00.000Z",
        "session_id": None,
    }


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], ["new", "old", "empty"]),
        (["-n", "1"], ["new"]),
        (["--limit", "2"], ["new", "old"]),
        (["-n", "99"], ["new", "old", "empty"]),
        (["-n", "all"], ["new", "old", "empty"]),
        (["--dialect", "native"], ["new", "old"]),
        (["--dialect", "native", "--dialect", "generic"], ["new", "old", "empty"]),
        (["--dialect", "native", "-n", "1"], ["new"]),
        (["--dialect", "pi"], []),
    ],
)
def test_options_choose_what_is_shown(
    run: Any, three: Path, options: list[str], shown: list[str]
) -> None:
    _, out, _ = run(three, "--json", *options)
    rows = [json.loads(row) for row in out.splitlines()]
    assert [Path(row["path"]).stem for row in rows] == shown
    _, table, _ = run(three, *options)
    assert [Path(row.split()[-1]).stem for row in table.splitlines()] == shown


def test_a_terminal_gets_the_newest_under_headings(
    run: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    for number in range(25):
        data = HEADER + M("a", createdAt=f"2026-01-02T03:04:{number:02}Z")
        (tmp_path / f"{number}.jsonl").write_bytes(data)
    monkeypatch.setattr(ls_module, "_on_a_terminal", lambda: True)
    monkeypatch.setattr(ls_module.output, "talks", lambda: True)
    _, out, err = run(tmp_path)
    headings, *rows = out.splitlines()
    assert headings.split() == ["LAST", "ACTIVITY", "DIALECT", "MESSAGES", "SIZE", "TITLE", "FILE"]
    assert [Path(row.split()[-1]).stem for row in rows] == [str(n) for n in range(24, 4, -1)]
    assert "5 older sessions; -n all shows them" in err
    assert len(run(tmp_path, "-n", "all")[1].splitlines()) == 26


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


TITLES = ["short", "what was asked " * 9, "\u6f22\u5b57" * 40, "-"]


@pytest.fixture
def many(home: Path) -> Path:
    """Give sessions of titles and folders of all lengths, in a folder of the user's."""
    for number, title in enumerate(TITLES * 2):
        folder = home / ("deep" * 9 * (number > 3) + "x")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{'0' * 36}-{number}.jsonl").write_bytes(HEADER + M("a", title))
    (home / "none.jsonl").write_bytes(b"")
    return home


@pytest.mark.parametrize("columns", [80, 100, 300])
def test_a_terminal_gets_no_line_longer_than_it_is_wide(
    run: Any, many: Path, monkeypatch: Any, columns: int
) -> None:
    monkeypatch.setattr(ls_module, "_on_a_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    headings, *rows = run(many)[1].splitlines()
    assert len(rows) == 9
    assert {_columns(row) <= columns for row in (headings, *rows)} == {True}
    # the ends of the paths stand in one column of the terminal, and tell the sessions apart
    assert len({row[-18:] for row in rows}) == 9 or columns == 300
    starts = {_columns(row[: row.rindex("  ")]) for row in (headings, *rows)}
    assert len(starts) == 1
    assert any("..." in row for row in rows)
    assert all(("~/" in row) for row in rows) == (columns == 300)


def test_a_pipe_gets_titles_and_paths_whole(run: Any, many: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = run(many)[1].splitlines()
    paths = {str(path) for path in many.rglob("*.jsonl")}
    assert {row.split()[-1] for row in rows} == paths


def test_a_person_is_told_what_was_cut_and_what_the_mark_means(
    run: Any, many: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ls_module, "_on_a_terminal", lambda: True)
    monkeypatch.setattr(ls_module.output, "talks", lambda: True)
    for columns, cut in ((80, True), (300, False)):
        monkeypatch.setenv("COLUMNS", str(columns))
        _, out, err = run(many)
        assert ("paths are cut to fit" in err) == cut
        assert "mmapstore: * the file's own time" in err
        assert sum("Z*" in row for row in out.splitlines()) == 1
    (many / "none.jsonl").unlink()
    assert "*" not in run(many)[2]


@pytest.mark.parametrize(
    ("nbytes", "told"),
    [
        (0, "0 B"),
        (9, "9 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_949, "9.9 kB"),
        (9_950, "10 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (129_000_000, "129 MB"),
        (37_800_000_000, "38 GB"),
        (5_000_000_000_000_000, "5000 TB"),
    ],
)
def test_a_size_is_told_in_a_few_digits(nbytes: int, told: str) -> None:
    assert ls_module._size(nbytes) == told


def test_what_is_named_and_no_transcript_is_the_error_that_opening_it_is(
    run: Any, three: Path, tmp_path: Path, capsysbinary: Any
) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_bytes(b"words\n")
    code, out, err = run(plain)
    assert (code, out) == (3, "")
    assert (main(["tail", str(plain)]), capsysbinary.readouterr().err.decode()) == (3, err)
    # the others are listed all the same
    code, out, err = run(plain, three)
    assert (code, out.count("\n"), err.count("\n")) == (3, 3, 1)
    assert run(three, "--json", plain)[0] == 3
    assert run(tmp_path)[0] == 0


def test_without_a_path_the_agents_folders_are_looked_through(run: Any, home: Path) -> None:
    folder = home / ".codex" / "sessions" / "2026"
    folder.mkdir(parents=True)
    (folder / "rollout.jsonl").write_bytes(
        b'{"timestamp":"2026-01-02T03:04:05Z","type":"session_meta","payload":{"id":"x"}}\n'
    )
    (row,) = run("--json")[1].splitlines()
    assert json.loads(row)["dialect"] == "codex"
    assert json.loads(row)["session_id"] == "x"


def test_nothing_found_is_no_error_and_is_said(run: Any, tmp_path: Path) -> None:
    code, out, err = run()
    assert (code, out) == (0, "")
    assert "no sessions in the folders of the agents" in err
    code, out, err = run(tmp_path, "--json")
    assert (code, out) == (0, "")
    assert f"no sessions in {tmp_path}" in err


def test_what_cannot_be_listed_is_mentioned(run: Any, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "s.jsonl").write_bytes(HEADER)
    (tmp_path / "old.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    code, out, err = run(tmp_path)
    assert (code, len(out.splitlines())) == (0, 1)
    assert f"{tmp_path / 'loop'}: a link to a folder" in err
    assert "1 compressed session is left out" in err


def test_a_path_that_is_not_there_and_bad_options_have_their_codes(
    run: Any, tmp_path: Path
) -> None:
    for arguments, expected, told in [
        ([tmp_path / "absent"], 4, "No such file"),
        (["-n", "0"], 2, "'0'"),
        (["-n", "few"], 2, "'few'"),
        (["--dialect", "klingon"], 2, "klingon"),
    ]:
        code, out, err = run(*arguments)
        assert (code, out) == (expected, ""), arguments
        assert err.startswith("mmapstore: error: ")
        assert told in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_terminal_is_never_given_orders(run: Any, tmp_path: Path, options: list[str]) -> None:
    name = os.fsdecode(b"\x1b[31m\xff\n.jsonl")
    (tmp_path / name).write_bytes(HEADER + M("a", "red \x1b[31m \u202e \x9b"))
    code, out, err = run(tmp_path, *options)
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert not set(out) & set("\x1b\u202e\x9b")
    if options:
        row = json.loads(out)
        assert row["title"] == "red \x1b[31m \u202e \x9b"
        assert os.fsencode(row["path"]) == os.fsencode(tmp_path / name)


def test_a_long_title_is_cut_for_people(run: Any, tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_bytes(HEADER + M("a", "word " * 99))
    assert f"  {'word ' * 9}...  " in run(tmp_path)[1]


def test_a_second_listing_imports_nothing_that_draws(tmp_path: Path, three: Path) -> None:
    code = (
        "import sys; from mmapstore.cli import main; main(['ls', sys.argv[1]]); "
        "print(sorted({'rich', 'sqlite3'} & set(sys.modules)))"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, str(three)],
            capture_output=True,
            cwd=ROOT,
            check=True,
            text=True,
        )
    assert done.stdout.splitlines()[3:] == ["[]"]
    assert done.stderr == ""


def test_the_process_prints_what_the_function_does(run: Any, three: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "mmapstore", "ls", str(three), "--json"],
        capture_output=True,
        cwd=ROOT,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == run(three, "--json")
