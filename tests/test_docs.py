"""What the README says is so: its example runs, its commands exist, its limits are the budget's."""

import re
from pathlib import Path

import pytest

import mmapstore
from asv_bench import report
from asv_bench.verdict import read_budget
from tools.gen_synthetic import Spec, write
from tools.torture.__main__ import NAMES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("click")
    write(Spec(messages=250, nbytes=200_000), tmp_path / "session.jsonl")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the server that the example starts
    names = {}
    for example in blocks("python"):
        exec(compile(example, "README.md", "exec"), names)  # noqa: S102 - our own README
    assert (names["window"].start, len(names["window"].messages)) == (0, 50)
    assert (names["cut"].kept, names["cut"].discarded, len(names["page"])) == (2, 1, 2)
    assert names["cut"].revision.message_count == 1
    assert names["answer"]["messageTotal"] == 4
    assert names["answer"]["messages"][0]["id"] == "m5"
    assert bytes(names["line"]).endswith(b"\n")
    assert names["first"]["type"] == "message"
    assert capsys.readouterr().out.count("\n") >= 100


def python_of(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_life_of_a_branch_is_as_the_page_tells_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    (example,) = python_of("native.md")
    exec(compile(example, "native.md", "exec"), names)  # noqa: S102 - our own page
    assert (names["first"], names["second"]) == (["m1", "m2"], ["m3", "m4"])
    assert names["indexes"] == [1, 2]


def test_the_lines_that_the_page_shows_are_lines_of_the_format(tmp_path):
    text = (ROOT / "docs" / "native.md").read_text(encoding="utf-8")
    shown = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    assert len(shown) == 2
    path = tmp_path / "sessions" / "s1.jsonl"
    path.parent.mkdir()
    path.write_text(shown[0], encoding="utf-8")
    path.with_suffix(".revisions.jsonl").write_text(shown[1], encoding="utf-8")
    with mmapstore.Host(tmp_path) as host:
        window = host.get_session("s1")
        assert [m["id"] for m in window.messages] == ["m1"]
        assert [c["id"] for c in window.compactions] == ["c1"]
        assert host.session("s1").title == "first"
        assert [each.index for each in host.list_revisions("s1", "m1")] == [1, 2]


def test_every_decision_that_the_code_names_is_on_the_page():
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").lower()
    named = set()
    for path in (ROOT / "mmapstore").rglob("*.py"):
        joined = " ".join(path.read_text(encoding="utf-8").split())
        for names in re.findall(r"Decision records?: ([^.]*)\.", joined):
            named |= {name.strip().lower() for name in re.split(r"[;,]", names)}
    assert {"0060", "0127", "append-only review state", "layout index"} <= named
    assert [name for name in sorted(named) if name not in page] == []


def test_the_files_that_the_decisions_name_are_there():
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[a-z_]+\.py)`", page)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_tortures_on_the_page_are_those_that_there_are():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `([a-z]+)` \|", page, flags=re.MULTILINE)) == NAMES
    assert f"{' '.join(NAMES)})" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_make_target_named_is_one():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert {"demo", "test", "bench", "bench-compare", "peers", "growth"} <= named
    assert named <= targets


def test_what_the_page_links_to_is_there():
    named = re.findall(r"\]\(([^)]*)\)", README)
    assert {"docs/peers.svg", "docs/growth.svg", "docs/native.md", "docs/rpc.md"} <= set(named)
    assert [name for name in named if not (ROOT / name).exists()] == []


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


def test_the_promises_in_the_readme_are_those_of_the_budget_as_they_were_measured():
    kept = report.kept(ROOT / "docs" / "budget.json")
    assert [one.limit for one in kept] == list(read_budget().values())
    assert report.markdown(kept) in README
    assert report.put_table(README, report.markdown(kept)) == README
