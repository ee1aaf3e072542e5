"""What the README says is so: its example runs, its commands exist, its limits are the budget's."""

import re
import tomllib
from pathlib import Path

import pytest

from tools.gen_synthetic import Spec, write

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    write(Spec(messages=250, nbytes=200_000), tmp_path / "session.jsonl")
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in blocks("python"):
        exec(compile(example, "README.md", "exec"), names)  # noqa: S102 - our own README
    assert (names["cut"].kept, names["cut"].discarded, len(names["page"])) == (1, 1, 1)
    assert len(names["window"].messages) == len(names["older"].messages) == 100
    assert bytes(names["line"]).endswith(b"\n")
    assert names["message"]["type"] == "message"
    assert capsys.readouterr().out.count("\n") >= 100


def test_every_make_target_named_is_one():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert {"demo", "test", "bench", "peers"} <= named
    assert named <= targets


def test_every_verb_is_in_the_readme_and_has_help(capsys):
    pytest.importorskip("click")
    pytest.importorskip("rich")
    from mmapstore.cli import main
    from mmapstore.cli.run import app

    named = set(re.findall(r"^mmapstore ([a-z]+)", "\n".join(blocks("sh")), flags=re.MULTILINE))
    assert named == set(app.commands)
    for verb in app.commands:
        assert main([verb, "--help"]) == 0
        assert "Usage" in capsys.readouterr().out


def test_the_limits_in_the_readme_are_those_of_the_budget():
    budget = tomllib.loads((ROOT / "asv_bench" / "budget.toml").read_text())
    limit = {key: entry["limit"] for key, entry in budget.items()}
    section = README.split("| promise | limit |")[1].split("\n\n")[0]
    shown = re.findall(r"^\| (?!---)[^|]*\| ([^|]*) \|", section, re.MULTILINE)
    numbers = [[float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell)] for cell in shown]
    assert numbers == [
        [limit["cold_type_first"], limit["cold_type_last"]],
        [limit["cold_short_lines"]],
        [limit["cold_claude"]],
        [limit["window_warm"]],
        [limit["window_million"]],
        [limit["decoded_long"], limit["decoded_short"]],
        [limit["cached_open"]],
        [limit["cached_open_larger"], limit["cached_process_larger"]],
        [limit["lookup"]],
        [limit["memory_tail"]],
        [limit["memory_layout"]],
        [limit["listing"]],
        [limit["host_refresh"]],
        [limit["append"]],
        [limit["append_batch"]],
        [limit["review_longer"]],
        [limit["import"]],
    ]
