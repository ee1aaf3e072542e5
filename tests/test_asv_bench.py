"""The harness itself: it asks what it should, and its verdicts follow from the numbers."""

import importlib
import inspect
import json
import math
import statistics
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

import mmapstore
from asv_bench import compare, compiled, data, measure, peers, planted, promises, report
from asv_bench.benchmarks import common
from asv_bench.verdict import Limit, Row, judge, read_budget, skipped
from tools.gen_synthetic import DAMAGE_KINDS, Spec, generate

BENCH = Path(report.__file__).parent
PREFIXES = ("time_", "timeraw_", "track_")
MODULES = sorted(
    path.stem for path in (BENCH / "benchmarks").glob("[a-z]*.py") if path.stem != "common"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return data.Files(tmp_path_factory.mktemp("measured"), data.TINY)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    try:
        return compiled.build(tmp_path_factory.mktemp("compiled"))
    except compiled.UnavailableError as error:
        pytest.skip(str(error))


def benchmark_classes():
    for name in MODULES:
        module = importlib.import_module(f"asv_bench.benchmarks.{name}")
        for _, one in inspect.getmembers(module, inspect.isclass):
            if one.__module__ == module.__name__:
                yield one


def benchmarks():
    for one in benchmark_classes():
        for name, _ in inspect.getmembers(one, inspect.isfunction):
            if name.startswith(PREFIXES):
                yield pytest.param(one, name, id=f"{one.__module__[21:]}.{one.__name__}.{name}")


# -- asv ----------------------------------------------------------------------------------


def test_asv_knows_every_key_of_its_configuration():
    config = pytest.importorskip("asv.config", reason="asv is not installed").Config()
    keys = json.loads((BENCH / "asv.conf.json").read_text()).keys()
    assert keys <= vars(config).keys() | {"version", "build_cache_size"}


def test_asv_measures_the_directory_of_the_benchmarks():
    config = json.loads((BENCH / "asv.conf.json").read_text())
    assert {
        "append",
        "cache",
        "follow",
        "importing",
        "layout",
        "ls",
        "refresh",
        "review",
        "scan",
        "window",
    } == set(MODULES)
    assert (BENCH / config["benchmark_dir"]).samefile(BENCH / "benchmarks")
    assert (BENCH / config["repo"] / "mmapstore").is_dir()


@pytest.mark.parametrize(("one", "name"), list(benchmarks()))
def test_benchmark_runs(one, name, files, monkeypatch):
    monkeypatch.setattr(common, "files", files)
    monkeypatch.setattr(common, "effort", promises.ONCE)
    for values in product(*getattr(one, "params", ())):
        benchmark = one()
        try:
            getattr(benchmark, "setup", lambda *values: None)(*values)
        except NotImplementedError as error:
            pytest.skip(str(error))
        try:
            answer = getattr(benchmark, name)(*values)
        finally:
            getattr(benchmark, "teardown", lambda *values: None)(*values)
        if name.startswith("timeraw_"):
            compile(answer, name, "exec")
        elif name.startswith("track_"):
            # NaN says that there is nothing to track, which without rustc is so
            assert answer > 0 or (math.isnan(answer) and "claude" in name)
            assert getattr(one, name).unit


def test_every_function_of_a_benchmark_class_is_one_that_asv_finds():
    for one in benchmark_classes():
        for name, _ in inspect.getmembers(one, inspect.isfunction):
            assert name.startswith(PREFIXES) or name in ("setup", "teardown")


@pytest.mark.parametrize(("one", "name"), list(benchmarks()))
def test_sampling_can_show_a_change(one, name):
    sampled = getattr(one, name)
    samples = one.rounds * getattr(sampled, "repeat", one.repeat)
    assert samples >= 10
    assert one.version == "1"


# -- promises and verdicts ----------------------------------------------------------------


def test_every_promise_of_the_budget_is_measured_in_its_order(files):
    rows = report.measure_all(files, promises.ONCE)
    assert [row.key for row in rows] == list(read_budget())
    for row in rows:
        if row.measured is None:
            assert row.key == "cold_claude"
            assert "rustc" in row.detail
        else:
            assert row.measured > 0
            assert row.detail


def test_quick_run_leaves_the_large_files_out(files):
    effort = replace(promises.ONCE, large=False)
    rows = {row.key: row for row in promises.warm_windows(files, effort)}
    assert judge(read_budget()["window_million"], [rows["window_million"]]).verdict == "skipped"
    assert rows["window_longer"].measured is not None


def test_ratio_is_of_minima_and_the_median_of_rounds():
    samples = {"ours": [30.0, 12.0, 20.0], "base": [10.0, 12.0, 40.0]}
    assert measure.ratio(samples, "ours", "base") == (12.0 / 10.0, statistics.median([3, 1, 0.5]))


def test_each_round_measures_everyone_once_in_rotating_order():
    asked = []
    contenders = {name: lambda name=name: asked.append(name) or len(asked) for name in "abc"}
    samples = measure.interleave(contenders, 4)
    assert "".join(asked) == "abc" + "abc" + "bca" + "cab" + "abc"
    # the first three did not count
    assert samples == {"a": [4, 9, 11, 13], "b": [5, 7, 12, 14], "c": [6, 8, 10, 15]}


def test_batch_is_an_average_and_warms_up_outside_it(monkeypatch):
    clock = iter([100, 700])
    stub = SimpleNamespace(perf_counter_ns=lambda: next(clock))
    monkeypatch.setattr(measure, "time", stub)
    calls = []
    assert measure.timed(lambda: calls.append(1), 6, warm=True)() == 100
    assert len(calls) == 7


class Told:
    """Promises whose numbers are given: one a pass, the last for ever."""

    def __init__(self, monkeypatch, **numbers):
        self.asked = Counter()
        monkeypatch.setattr(
            report, "PROMISES", tuple(map(self._promise, *zip(*numbers.items(), strict=True)))
        )
        monkeypatch.setattr(report.reopening, "PROMISES", ())
        monkeypatch.setattr(report.writing, "PROMISES", ())

    def _promise(self, key, numbers):
        def promise(files, effort):
            at = min(self.asked[key], len(numbers) - 1)
            self.asked[key] += 1
            yield Row(key, numbers[at], detail=f"why {at}")

        promise.__name__ = key
        return promise


@pytest.mark.parametrize(
    ("numbers", "expected", "code"),
    [
        ([2.0, 2.1], "over", 1),
        ([1.0, 1.1], "under", 0),
        ([None], "skipped", 0),
        ([1.0, 2.0] * report.MOST_COUNT, "undecided", 0),
    ],
)
def test_report_fails_only_on_a_broken_promise(
    numbers, expected, code, monkeypatch, capsys, tmp_path
):
    key = "cold_type_first"
    options = ["--quick", "--data", str(tmp_path)]
    Told(monkeypatch, **{key: numbers})
    assert report.main(options) == code
    printed = capsys.readouterr().out
    assert read_budget()[key].promise in printed
    assert expected in printed
    assert "why" in printed
    Told(monkeypatch, **{key: numbers})
    assert report.main([*options, "--json"]) == code
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["key"], row["verdict"], row["limit"]) == (key, expected, 1.5)


def test_report_shows_the_share_of_the_limit_that_is_left(monkeypatch, capsys, tmp_path):
    Told(monkeypatch, cold_type_first=[1.2], append=[2.6])
    assert report.main(["--data", str(tmp_path)]) == 1
    heads, first, append, *_ = capsys.readouterr().out.splitlines()
    assert heads.split()[:4] == ["promise", "limit", "measured", "margin"]
    assert "  1.5     1.200    +20%  1.200 .. 1.200       6  x bare pass" in first
    assert "  1.3     2.600   -100%" in append


def test_what_is_undecided_is_measured_again_and_nothing_else(monkeypatch, capsys, tmp_path):
    told = Told(monkeypatch, cold_type_first=[1.6, 1.4], cold_type_last=[1.0])
    assert report.main(["--data", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert told.asked == {
        "cold_type_first": report.FIRST_COUNT + report.MORE_COUNT,
        "cold_type_last": report.FIRST_COUNT,
    }
    assert "2 under" in printed.out
    assert printed.err == "undecided after 6 passes, measured again: cold_type_first\n"


def test_what_stays_undecided_is_measured_as_often_as_is_allowed(monkeypatch, capsys, tmp_path):
    told = Told(monkeypatch, cold_type_first=[1.6, 1.4] * report.MOST_COUNT)
    assert report.main(["--data", str(tmp_path)]) == 0
    assert told.asked == {"cold_type_first": report.MOST_COUNT}
    assert "1 undecided" in capsys.readouterr().out


def test_what_was_measured_is_kept_and_shown_again(monkeypatch, capsys, tmp_path):
    told = Told(monkeypatch, cold_type_first=[1.254], append=[2.6], cold_claude=[None])
    file, page = tmp_path / "kept.json", tmp_path / "page.md"
    page.write_text("before\n\n| promise | limit | old |\n|---|\n| a |\n\n| b |\n")
    assert report.main(["--data", str(tmp_path), "--json", str(file)]) == 1
    first = capsys.readouterr().out
    asked = dict(told.asked)
    assert report.main(["--from", str(file), "--readme", str(page)]) == 1
    again = capsys.readouterr().out
    assert told.asked == asked
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert page.read_text() == (
        "before\n\n| promise | limit | measured |\n|---|---:|---:|\n"
        "| cold layout, 12,000 messages / 129 MB, type first | 1.5 x bare pass | 1.25 |\n"
        "| durable append of 1 KB by a host | 1.3 x write + fdatasync | **2.60** |\n"
        "| cold layout, Claude lines, 129 MB | 1 x compiled scan | not measured |\n"
        "\n| b |\n"
    )


def test_a_page_without_a_table_of_promises_is_left_as_it_is(monkeypatch, tmp_path):
    Told(monkeypatch, cold_type_first=[1.0])
    page = tmp_path / "page.md"
    page.write_text("| b |\n")
    with pytest.raises(ValueError, match="0 tables of promises"):
        report.main(["--data", str(tmp_path), "--readme", str(page)])
    assert page.read_text() == "| b |\n"


@pytest.mark.parametrize("program", [report, peers, compare, planted])
def test_programs_say_what_they_take(program, capsys):
    with pytest.raises(SystemExit) as raised:
        program.main(["--help"])
    assert raised.value.code == 0
    printed = capsys.readouterr().out
    assert f"python -m {program.__name__}" in printed
    assert "--data" in printed
    assert "--quick" in printed or program in (compare, planted)


def test_budget_names_a_reason_for_every_limit():
    budget = read_budget()
    assert budget["window_warm"] == Limit(
        "window_warm",
        "warm window of 100: refresh, window, first line touched",
        20.0,
        "us",
        "cheap enough to be asked for on every keystroke",
    )
    assert all(limit.limit > 0 and limit.reason for limit in budget.values())


# -- the compiled scan --------------------------------------------------------------------

READABLE_DAMAGE = tuple(kind for kind in DAMAGE_KINDS if kind != "invalid_utf8")

SPECS = {
    "plain": Spec(messages=200, nbytes=200_000),
    "key order": Spec(messages=200, nbytes=200_000, key_order="last", nested=50, escaped=0.5),
    "between": Spec(messages=200, nbytes=200_000, key_order="middle", nested=50, non_ascii=0.5),
    "all kinds": Spec(messages=200, nbytes=300_000, reviews=80, compactions=7, repeats=20),
    "white space": Spec(messages=200, nbytes=300_000, whitespace=True, crlf=True, nested=20),
    "torn": Spec(messages=200, nbytes=200_000, torn_nbytes=99),
    "damaged": Spec(messages=200, nbytes=200_000, damaged=30, damage=READABLE_DAMAGE),
    "claude": Spec(messages=200, nbytes=400_000, shape="claude", nested=50, escaped=0.5),
}


@pytest.mark.parametrize("name", SPECS)
def test_compiled_scan_agrees_with_the_library(name, program, tmp_path):
    spec = SPECS[name]
    path = tmp_path / "session.jsonl"
    path.write_bytes(generate(spec))
    answer = program.run(path, compiled.MESSAGE_TYPES[spec.shape], repetitions=3)
    with mmapstore.open(path) as transcript:
        layout = transcript.layout
        assert transcript.dialect.name == spec.shape
        assert answer["lines"] == layout.line_count
        assert answer["nbytes"] - answer["torn_nbytes"] == layout.file_len
        assert answer["messages"] == transcript.message_count
        assert answer["offset_sum"] == int(layout.message_offsets.sum())
        if spec.shape == "native":
            assert answer["types"].get("compaction", 0) == len(layout.compaction_offsets)
            assert answer["types"].get("tool_review_state", 0) == len(layout.review_offsets)
    assert len(answer["ns"]) == 3
    assert min(answer["ns"]) > 0


@pytest.mark.parametrize("name", ["key order", "all kinds", "white space", "claude"])
def test_compiled_scan_agrees_with_a_parser(name, program, tmp_path):
    content = generate(SPECS[name])
    path = tmp_path / "session.jsonl"
    path.write_bytes(content)
    parsed = Counter(json.loads(line)["type"] for line in content.split(b"\n") if line)
    assert program.run(path, ()).get("types") == parsed


def test_times_of_unequal_work_are_not_compared(program, tmp_path):
    path = tmp_path / "session.jsonl"
    path.write_bytes(generate(SPECS["plain"]))
    promises.check_equal_work(program, path, "native")
    with pytest.raises(RuntimeError, match=r"session\.jsonl"):
        promises.check_equal_work(program, path, "claude")


def test_a_machine_without_rustc_is_told_so(monkeypatch, tmp_path, files):
    monkeypatch.setenv("RUSTC", "no-such-compiler")
    with pytest.raises(compiled.UnavailableError, match="no rustc"):
        compiled.build(tmp_path)
    rows = list(promises.cold_claude(files, promises.ONCE))
    assert rows == [skipped("cold_claude", "no rustc on the path")]


# -- the measured files -------------------------------------------------------------------


def test_file_is_made_once(tmp_path, monkeypatch):
    files = data.Files(tmp_path / "new", data.TINY)
    first = files.path("records-small")
    assert first.read_bytes() == generate(data.TINY["records-small"])
    monkeypatch.setattr(data, "write", None)
    assert files.path("records-small") == first


def test_another_spec_is_another_file_and_the_old_one_goes(tmp_path):
    old = data.Files(tmp_path, data.TINY).path("records-small")
    beside = data.Files(tmp_path, data.TINY).path("records-large")
    spec = replace(data.TINY["records-small"], seed=2)
    new = data.Files(tmp_path, {"records-small": spec}).path("records-small")
    assert sorted(tmp_path.iterdir()) == sorted([beside, new])
    assert new != old


def test_real_files_are_ended_and_repeated_to_whole_lines(tmp_path):
    real = tmp_path / "real"
    (real / "claude").mkdir(parents=True)
    (real / "claude" / "a.jsonl").write_bytes(b'{"a":1}\n{"a":2}')
    (real / "claude" / "b.jsonl").write_bytes(b'{"b":1}\n')
    files = data.Files(tmp_path / "measured", data.TINY, real, real_nbytes=45)
    path, source = files.claude()
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"b":1}\n{"a":1}\n{"a":2}\n'
    assert source == "2 real files repeated"


@pytest.mark.parametrize("real", [None, Path("nowhere")])
def test_generated_file_stands_in_where_no_real_one_is(real, tmp_path):
    files = data.Files(tmp_path, data.TINY, real)
    path, source = files.claude()
    assert path == files.path("claude")
    assert source == "generated Claude lines"


def test_directory_is_the_one_that_was_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MMAPSTORE_BENCH_DATA", raising=False)
    assert data.default_directory() == tmp_path / "mmapstore-bench"
    monkeypatch.setenv("MMAPSTORE_BENCH_DATA", str(tmp_path / "chosen"))
    assert data.default_directory() == tmp_path / "chosen"


# -- peers --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["records-small", "reviews"])
def test_peers_give_the_same_answers(name, files):
    comparison = peers.Comparison(files.path(name), files.directory, 1)
    assert comparison.ms["mmapstore"].keys() == peers.QUESTIONS.keys()
    assert {"orjson loop", "linecache"} <= comparison.ms.keys()
    # what is refused is not installed here, never wrong
    assert [why for why in comparison.refused.values() if "answers" in why] == []
    printed = peers.table(comparison)
    assert all(one in printed for one in (*comparison.ms, *comparison.refused))


def test_peer_that_answers_something_else_is_not_measured(files, monkeypatch):
    def wrong(path, wanted, directory):
        tasks = peers.OPPONENTS["orjson loop"](path, wanted, directory)
        return tasks | {"kinds": replace(tasks["kinds"], answer=lambda: {"message": 0})}

    opponents = {"mmapstore": peers.OPPONENTS["mmapstore"], "wrong": wrong}
    opponents["orjson loop"] = peers.OPPONENTS["orjson loop"]
    monkeypatch.setattr(peers, "OPPONENTS", opponents)
    comparison = peers.Comparison(files.path("records-small"), files.directory, 1)
    assert comparison.refused.keys() == {"wrong, kinds"}
    assert comparison.ms["wrong"].keys() == peers.QUESTIONS.keys() - {"kinds"}
