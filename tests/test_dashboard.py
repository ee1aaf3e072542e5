"""Kept results are small, one series, and published as asv's own; the page is checked file by file."""

import base64
import hashlib
import importlib
import inspect
import json
import os
import re
import string
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asv_bench import dashboard, history, offline
from asv_bench.offline import Source

from . import dashboard_support as support


def series(directory):
    """Return the graphs of one benchmark, each with its points."""
    return {
        path: json.loads(path.read_text())
        for path in (directory / "graphs").rglob(f"{support.STEPPED}.json")
        if "summary" not in path.parts
    }


# -- what is kept -------------------------------------------------------------------------


def test_kept_result_has_numbers_and_no_samples_of_a_named_machine():
    result = history.compact(support.measured("c" * 40, 0), support.MACHINE)
    assert result["results"] == {
        support.STEPPED: [[0.001], [], "1"],
        support.FLAT: [[0.001, 0.002], [["'small'", "'large'"]], "1"],
        support.COUNTED: [[4096], [], "1"],
    }
    assert result["params"] == {
        **{name: value for name, value in support.MACHINE.items() if name != "version"},
        "python": "3.11",
    }
    assert result["env_name"] == "python3.11"
    assert "somewhere" not in history.written(result)


def test_neither_kernel_nor_memory_nor_path_tells_two_results_apart():
    one, other = (
        history.compact(support.measured("c" * 40, number, kernel=kernel), support.MACHINE)
        for number, kernel in ((0, "6.1"), (1, "7.0"))
    )
    for name in ("params", "env_vars", "requirements", "env_name", "python"):
        assert one[name] == other[name]


@pytest.mark.parametrize(
    ("python", "expected"),
    [("3.12", "3.12"), ("/a/3.9/bin/python3.13", "3.13"), ("C3.11", "3.11")],
)
def test_series_is_named_by_the_version_of_python(python, expected):
    result = support.measured("c" * 40, 0) | {"python": python}
    assert history.compact(result, support.MACHINE)["python"] == expected


def test_what_failed_or_was_skipped_is_not_kept():
    result = support.measured("c" * 40, 0)
    result["results"][support.STEPPED][0] = None
    result["results"][support.COUNTED][0] = [float("nan")]
    result["results"][support.FLAT][0] = [float("nan"), 2.0]
    kept = history.compact(result, support.MACHINE)["results"]
    assert {name: row[0] for name, row in kept.items()} == {support.FLAT: [None, 2]}


@given(st.floats(min_value=1e-12, max_value=1e12))
def test_kept_number_is_within_a_ten_thousandth(value):
    result = support.measured("c" * 40, 0)
    result["results"][support.STEPPED][0] = [value]
    kept = history.compact(result, support.MACHINE)["results"][support.STEPPED][0][0]
    assert kept == pytest.approx(value, rel=1e-4)


@given(st.integers(min_value=0, max_value=2**53))
def test_count_is_kept_to_its_last_digit(value):
    result = support.measured("c" * 40, 0)
    result["results"][support.COUNTED][0] = [float(value)]
    assert history.compact(result, support.MACHINE)["results"][support.COUNTED][0] == [value]


@given(
    st.dictionaries(
        st.text(string.ascii_letters + '._"\\é', min_size=1),
        st.tuples(
            st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.just([]), st.just("1")
        ),
    )
)
def test_written_result_reads_back_as_it_was(rows):
    result = history.compact(support.measured("c" * 40, 0), support.MACHINE)
    result["results"] = {name: list(row) for name, row in rows.items()}
    text = history.written(result)
    assert json.loads(text) == result
    # each benchmark has a line of its own, of which a difference is made
    assert all(f"  {json.dumps(name)}: " in text for name in rows)


def test_kept_file_is_a_small_part_of_what_asv_left(tmp_path):
    left, kept = support.made_results(tmp_path, ["c" * 40])
    (path,) = history.keep(left, kept)
    (measured,) = (left / "made").glob("cccccccc-*.json")
    assert path.stat().st_size < measured.stat().st_size / 10


def test_measuring_a_part_again_leaves_the_rest(tmp_path):
    left, kept = support.made_results(tmp_path, ["c" * 40])
    history.keep(left, kept)
    (measured,) = (left / "made").glob("cccccccc-*.json")
    again = json.loads(measured.read_text())
    again["results"] = {support.COUNTED: [[5000], *again["results"][support.COUNTED][1:]]}
    measured.write_text(json.dumps(again))
    (path,) = history.keep(left, kept)
    results = json.loads(path.read_text())["results"]
    assert results[support.COUNTED][0] == [5000]
    assert results[support.STEPPED][0] == [0.001]


def test_what_asv_measured_before_is_not_kept_again(tmp_path):
    left, kept = support.made_results(tmp_path, ["c" * 40])
    known = history.times(left)
    later = support.measured("d" * 40, 1)
    Path(left, "made", "dddddddd-1.json").write_text(json.dumps(later))
    assert [path.name for path in history.keep(left, kept, known)] == ["dddddddd-python3.11.json"]
    assert not list(kept.glob("made/cccccccc-*.json"))


def test_results_of_an_unknown_machine_are_not_kept(tmp_path):
    left, kept = support.made_results(tmp_path, ["c" * 40])
    (left / "made").rename(left / "other")
    assert history.keep(left, kept) == []


def test_benchmark_without_a_number_is_not_shown(tmp_path):
    left, kept = support.made_results(tmp_path, ["c" * 40])
    unmeasured = {**support.BENCHMARKS["made.Made.time_flat"], "name": "made.Made.time_never"}
    known = json.loads((left / "benchmarks.json").read_text())
    (left / "benchmarks.json").write_text(json.dumps({**known, "made.Made.time_never": unmeasured}))
    history.keep(left, kept)
    shown = json.loads((kept / "benchmarks.json").read_text())
    assert shown.keys() == {*support.BENCHMARKS, "version"}
    assert {row["code"] for name, row in shown.items() if name != "version"} == {""}


@given(
    st.integers(min_value=0, max_value=60),
    st.integers(min_value=0, max_value=20),
    st.integers(min_value=1, max_value=7),
)
def test_pruning_keeps_the_newest_and_every_nth_and_then_nothing_more(count, newest, every):
    commits = [f"{number:040d}" for number in range(count)]
    gone = set(history.thinned(commits, newest, every))
    for number, commit in enumerate(commits):
        assert (commit not in gone) == (number >= count - newest or number % every == 0)
    # what is gone later was there before, and what was kept for good stays
    later = set(history.thinned([*commits, "f" * 40], newest, every))
    assert gone <= later


def test_pruning_removes_files_of_old_commits(tmp_path, monkeypatch):
    commits = [f"{number:08d}" + "0" * 32 for number in range(7)]
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "machine.json").write_text("{}")
    for commit in commits:
        (tmp_path / "made" / f"{commit[:8]}-python3.11.json").write_text("{}")
    monkeypatch.setattr(history, "_git", lambda *arguments: "\n".join(commits))
    gone = history.prune(tmp_path, newest=2, every=3)
    assert [path.name[:8] for path in gone] == ["00000001", "00000002", "00000004"]
    assert len(list((tmp_path / "made").iterdir())) == 5
    assert history.prune(tmp_path, newest=2, every=3) == []


def test_recording_measures_each_range_as_the_machine_that_the_repository_knows(
    tmp_path, monkeypatch
):
    _, kept = support.made_results(tmp_path, [])
    asked = []
    monkeypatch.setattr(history, "KEPT", kept)
    monkeypatch.setattr(history, "_asv", lambda *arguments, **_: asked.append(arguments))
    monkeypatch.setattr(history, "keep", lambda known: ["kept"])
    assert history.record("made", ["a^!", "b^!"], ["window"]) == ["kept"]
    machine, *runs = asked
    assert {"machine", "--yes", "--machine=made", "--ram=24GB", "--os=Linux"} <= set(machine)
    assert runs == [
        ("run", "--machine=made", "--bench=window", "a^!"),
        ("run", "--machine=made", "--bench=window", "b^!"),
    ]


def test_kept_results_of_the_project_are_in_the_kept_form():
    paths = sorted(history.KEPT.glob("*/*-*.json"))
    shown = json.loads((history.KEPT / "benchmarks.json").read_text())
    assert len({path.name[:8] for path in paths}) >= 5
    for path in paths:
        text = path.read_text()
        result = json.loads(text)
        assert history.written(result) == text
        assert path.name == f"{result['commit_hash'][:8]}-{result['env_name']}.json"
        machine = json.loads(path.with_name("machine.json").read_text())
        assert result["params"] == {
            **{name: value for name, value in machine.items() if name != "version"},
            "python": result["python"],
        }
        assert path.stat().st_size < 20_000
        assert result["results"].keys() <= shown.keys()


# -- the site -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("asv", reason="asv is not installed")
    arguments = support.published(tmp_path_factory.mktemp("site"))
    dashboard.publish(**arguments)
    return arguments["html"]


def test_series_is_one_whatever_happened_to_the_machine(site):
    (points,) = series(site).values()
    assert len(points) == support.COMMITS


def test_planted_step_is_listed_as_the_regression(site):
    listed = json.loads((site / "regressions.json").read_text())["regressions"]
    ((name, _, _, _, last, best, jumps),) = listed
    assert name == support.STEPPED
    assert last / best == pytest.approx(3, rel=0.02)
    ((_, revision, before, after),) = jumps
    assert after / before == pytest.approx(3, rel=0.02)
    hashes = json.loads((site / "index.json").read_text())["revision_to_hash"]
    commits = support.git(site.parent / "repository", "rev-list", "--reverse", "HEAD").split()
    assert hashes[str(revision)] == commits[support.STEP]


def test_publishing_names_other_places_and_nothing_else(tmp_path):
    made = dashboard.configuration(tmp_path / "results", tmp_path / "html", tmp_path)
    own = json.loads((history.BENCH / "asv.conf.json").read_text())
    changed = {name for name in made if made[name] != own.get(name)}
    assert changed == {"results_dir", "html_dir", "repo"}
    assert made.keys() == own.keys()


def benchmark_names():
    """Return the names of all benchmarks, as asv makes them."""
    directory = history.BENCH / "benchmarks"
    for path in directory.glob("[a-z]*.py"):
        module = importlib.import_module(f"asv_bench.benchmarks.{path.stem}")
        for name, one in inspect.getmembers(module, inspect.isclass):
            if one.__module__ == module.__name__:
                for method in dir(one):
                    if method.startswith(("time", "track_")) and method != "timeout":
                        yield f"{path.stem}.{name}.{method}"


def test_each_benchmark_has_one_threshold():
    # of several that match, asv takes the greatest
    thresholds = json.loads((history.BENCH / "asv.conf.json").read_text())["regressions_thresholds"]
    names = list(benchmark_names())
    assert names
    for name in names:
        assert len([pattern for pattern in thresholds if re.match(pattern, name)]) == 1, name


def test_a_step_of_the_machine_alone_is_no_regression():
    configuration = json.loads((history.BENCH / "asv.conf.json").read_text())
    (floors,) = configuration["regressions_first_commits"]
    names = {name for name in benchmark_names() if re.match(floors, name)}
    assert names == {
        "append.Append.time_bare_write",
        "follow.Following.time_bare_write",
        "follow.Following.time_hundred_stat_calls",
        "importing.Import.timeraw_needed",
        "refresh.Refresh.time_bare_append",
        "scan.CompiledScan.track_claude_ms",
        "scan.Floors.time_bare_pass",
    }


def test_page_of_asv_loads_nothing_of_which_no_package_is_known(site):
    addresses = list(offline.elsewhere(site))
    assert addresses
    for address in addresses:
        assert any(address.endswith(f"/{name}") for name in offline.SOURCES), address


# -- the page without a network -----------------------------------------------------------

SCRIPT, STYLE, FONT = b"let a = 1;\n", b"@font-face{src:url('../fonts/f.woff?#x')}\n", b"font"


def digest(data, algorithm="sha256"):
    return f"{algorithm}-" + base64.b64encode(hashlib.new(algorithm, data).digest()).decode()


SOURCES = {
    "a@1/a.js": Source("a", "1", "dist/a.js"),
    "b/2/b.css": Source("b", "2", "css/b.css", beside=(("fonts/f.woff", digest(FONT)),)),
    "old/1/old.js": Source("new", "2", "new.js", integrity=digest(SCRIPT)),
}

PAGE = """<html><head>
<script src="https://net.example.org/npm/a@1/a.js" integrity="{a}" crossorigin="anonymous"
 referrerpolicy="no-referrer" onerror="failed()"></script>
<script src="//net.example.org/old/1/old.js" integrity="{old}"></script>
<script src="own.js"></script>
<link rel="stylesheet" href="https://net.example.org/b/2/b.css" integrity="{b}">
<link rel="alternate" href="https://example.org/feed.xml"/>
</head><body><a href="https://example.org/">followed, not loaded</a><img src="own.png">
</body></html>
"""


@pytest.fixture
def page(tmp_path):
    """A published page, and packages with what it loads."""
    html, modules = tmp_path / "html", tmp_path / "node_modules"
    html.mkdir()
    for path, data in {
        "a/dist/a.js": SCRIPT,
        "b/css/b.css": STYLE,
        "b/fonts/f.woff": FONT,
        "new/new.js": SCRIPT,
    }.items():
        target = modules / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    text = PAGE.format(a=digest(SCRIPT, "sha512"), b=digest(STYLE), old=digest(b"of old"))
    (html / "index.html").write_text(text)
    return html, modules


def assert_self_contained(html):
    found = list(offline.references(html))
    assert found
    for path, reference in found:
        split = urlsplit(reference)
        assert (split.scheme, split.netloc) == ("", ""), reference
        local = path.parent / urldefrag(split.path)[0]
        assert local.exists() or local.name in ("own.js", "own.png"), reference


def test_page_loads_local_files_and_nothing_else(page):
    html, modules = page
    offline.localize(html, modules, SOURCES)
    assert_self_contained(html)
    assert (html / "vendor/a/dist/a.js").read_bytes() == SCRIPT
    assert (html / "vendor/b/fonts/f.woff").read_bytes() == FONT


def test_local_files_keep_the_digest_that_the_browser_checks(page):
    html, modules = page
    offline.localize(html, modules, SOURCES)
    text = (html / "index.html").read_text()
    assert f'src="vendor/a/dist/a.js" integrity="{digest(SCRIPT, "sha512")}"' in text
    # the version that stands in has its own
    assert f'src="vendor/new/new.js" integrity="{digest(SCRIPT)}"' in text
    assert "crossorigin" not in text
    assert "referrerpolicy" not in text
    assert 'onerror="failed()"' in text
    assert 'href="https://example.org/"' in text
    assert 'href="https://example.org/feed.xml"' in text


@pytest.mark.parametrize("path", ["a/dist/a.js", "b/css/b.css", "b/fonts/f.woff", "new/new.js"])
def test_file_with_another_digest_is_refused(page, path):
    html, modules = page
    before = (html / "index.html").read_text()
    (modules / path).write_bytes((modules / path).read_bytes() + b" ")
    with pytest.raises(offline.WrongFileError, match="digest"):
        offline.localize(html, modules, SOURCES)
    assert (html / "index.html").read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a@1/a.js", "a@2/a.js", "no package is known"),
        (' integrity="{b}"', "", "no digest"),
        ('"own.png"', '"https://net.example.org/own.png"', "still load"),
        ('rel="alternate"', 'rel="stylesheet"', "no package is known"),
    ],
)
def test_page_that_loads_anything_unknown_is_refused(page, old, new, reason):
    html, modules = page
    text = PAGE.replace(old, new)
    text = text.format(a=digest(SCRIPT, "sha512"), b=digest(STYLE), old=digest(b"of old"))
    (html / "index.html").write_text(text)
    with pytest.raises(offline.WrongFileError, match=reason):
        offline.localize(html, modules, SOURCES)


def test_style_that_loads_from_elsewhere_is_refused(page):
    html, modules = page
    (html / "own.css").write_text("@import 'https://net.example.org/more.css';")
    with pytest.raises(offline.WrongFileError, match=r"more\.css"):
        offline.localize(html, modules, SOURCES)


@given(st.binary(), st.sampled_from(["sha256", "sha384", "sha512"]), st.binary(min_size=1))
def test_only_the_very_bytes_pass(data, algorithm, change):
    wanted = digest(data, algorithm)
    assert offline.checked(data, wanted, "file") == data
    with pytest.raises(offline.WrongFileError):
        offline.checked(data + change, wanted, "file")


def test_packages_are_asked_for_once(tmp_path, monkeypatch):
    asked = []

    def install(specs, directory):
        asked.append(specs)
        Path(directory, "node_modules").mkdir()

    monkeypatch.setattr(offline, "_install", install)
    first = offline.packages(tmp_path, SOURCES)
    assert offline.packages(tmp_path, SOURCES) == first
    assert first.name == "node_modules"
    assert asked == [["a@1", "b@2", "new@2", "@".join(offline.MINIFIER)]]


def test_installation_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def install(specs, directory):
        Path(directory, "node_modules").mkdir()
        raise offline.UnavailableError("no network")

    monkeypatch.setattr(offline, "_install", install)
    for _ in range(2):
        with pytest.raises(offline.UnavailableError, match="no network"):
            offline.packages(tmp_path, SOURCES)
    assert list(tmp_path.iterdir()) == []


def test_machine_without_npm_is_told_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert dashboard.main(["--html", str(tmp_path / "html")]) == 1
    assert "no npm on the path" in capsys.readouterr().err
    assert not (tmp_path / "html").exists()


def test_what_a_command_says_is_the_reason(tmp_path, monkeypatch):
    program = tmp_path / "npm"
    program.write_text("#!/bin/sh\necho 'npm error code E404' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(offline.UnavailableError, match="npm: npm error code E404"):
        offline.packages(tmp_path / "cache", SOURCES)
