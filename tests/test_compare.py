"""Comparing two versions: what is flagged follows from the times, and each side runs its own."""

import io
import json
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asv_bench import compare, pair, planted, side, trees
from asv_bench.batches import Spent, Workbench
from asv_bench.compare import FIRST_COUNT, MOST_COUNT, THRESHOLD, Comparison, compared
from asv_bench.operations import OPERATIONS, specs
from asv_bench.pair import Bench, CannotMeasureError, Timing
from tools.gen_synthetic import write

seeds = st.integers(0, 2**32)
ROWS = [row for name in OPERATIONS for row in [name] * len(OPERATIONS[name].clocks)]


def noisy(seed, slower=(), factor=1.0, *, spread=0.02):
    """Return a measurement of invented times: what disturbs only ever adds."""
    draw = random.Random(seed)

    def measure(name, repetition):
        def side_of(cost):
            batches = [
                [cost * (1 + draw.expovariate(1 / spread)) for _clock in Spent._fields]
                for _turn in range(10)
            ]
            return Spent(*map(min, zip(*batches, strict=True)))

        return Timing(side_of(1e6), side_of(1e6 * (factor if name in slower else 1)))

    return measure


def verdicts(rows):
    return Counter(row.verdict for row in rows)


# -- what is flagged ----------------------------------------------------------------------


@settings(max_examples=25)
@given(seeds, st.sets(st.sampled_from(list(OPERATIONS))))
def test_exactly_what_is_half_as_slow_again_is_flagged(seed, slower):
    rows = compared(list(OPERATIONS), noisy(seed, slower, 1.5))
    assert planted.flagged(rows) == slower
    assert compare.code(rows) == (1 if slower else 0)
    assert [row.operation for row in rows] == ROWS


@settings(max_examples=25)
@given(seeds, st.floats(1.2, 3))
def test_the_other_way_round_it_is_faster_and_fails_nothing(seed, factor):
    rows = compared(["lookup"], noisy(seed, {"lookup"}, 1 / factor))
    assert verdicts(rows) == {"faster": 1}
    assert compare.code(rows) == 0


@settings(max_examples=25)
@given(seeds, st.floats(0.001, 0.15))
def test_equal_versions_are_not_flagged(seed, spread):
    rows = compared(["window", "append"], noisy(seed, spread=spread))
    assert not planted.flagged(rows)


def test_equal_versions_are_hardly_ever_flagged_on_the_noisiest_machine():
    # a batch takes four times what it costs in the mean: pairs are apart by a half
    runs = [compared(["lookup"], noisy(seed, spread=3.0)) for seed in range(400)]
    assert sum(compare.code(rows) for rows in runs) <= 4


@given(seeds, st.floats(0.01, 0.5))
def test_the_same_times_give_the_same_rows(seed, spread):
    names = ["window", "append"]
    first, second = (compared(names, noisy(seed, spread=spread)) for _ in range(2))
    assert first == second


@given(st.lists(st.floats(0.5, 2), min_size=FIRST_COUNT, max_size=MOST_COUNT))
def test_exchanged_sides_give_the_opposite_verdict(ratios):
    opposite = {"slower": "faster", "faster": "slower"}
    there = [Timing(Spent(1.0, 1.0), Spent(ratio, ratio)) for ratio in ratios]
    back = [Timing(timing.head, timing.base) for timing in there]
    verdict = Comparison("window", "cpu", tuple(there)).verdict
    assert Comparison("window", "cpu", tuple(back)).verdict == opposite.get(verdict, verdict)


def test_a_part_of_the_pairs_is_no_regression():
    # five of six say twice as slow, and one says nothing
    timings = [Timing(Spent(1, 1), Spent(ratio, ratio)) for ratio in [2, 2, 2, 2, 2, 1]]
    assert Comparison("window", "cpu", tuple(timings)).verdict == "undecided"
    more = [Timing(Spent(1, 1), Spent(2, 2))] * 6
    assert Comparison("window", "cpu", (*timings, *more)).verdict == "slower"


# -- measuring again ----------------------------------------------------------------------


def asked(ratios_of):
    """Return a measurement of given ratios, and what it was asked for."""
    requests = []

    def measure(name, repetition):
        requests.append((name, repetition))
        ratio = ratios_of(name, repetition)
        return Timing(Spent(1, 1), Spent(ratio, ratio))

    return measure, requests


def test_only_what_is_undecided_is_measured_again():
    told = []
    measure, requests = asked(lambda name, at: 2 if (name, at) == ("window", 0) else 1)
    rows = compared(["window", "lookup"], measure, told.append)
    assert verdicts(rows) == {"same": 2}
    assert requests == [
        *((name, at) for at in range(FIRST_COUNT) for name in ("window", "lookup")),
        *(("window", at) for at in range(FIRST_COUNT, FIRST_COUNT + compare.MORE_COUNT)),
    ]
    assert f"undecided after {FIRST_COUNT} pairs, measured again: window" in told


def test_what_stays_undecided_is_said_to_be_and_fails_nothing():
    measure, requests = asked(lambda name, at: THRESHOLD * (0.8 if at % 2 else 1.2))
    rows = compared(["window"], measure)
    assert len(requests) == MOST_COUNT
    assert verdicts(rows) == {"undecided": 1}
    assert compare.code(rows) == 0


def test_what_one_side_cannot_do_is_listed_and_fails_nothing():
    def measure(name, repetition):
        if name == "append":
            raise CannotMeasureError("base: AttributeError: no Host")
        return Timing(Spent(1, 1), Spent(1, 1))

    rows = compared(["window", "append"], measure)
    assert verdicts(rows) == {"same": 1, "not measured": 2}
    assert compare.code(rows) == 0
    assert "append: base: AttributeError: no Host" in compare.table(rows).splitlines()


def test_a_run_that_measured_nothing_is_no_success():
    def measure(name, repetition):
        raise CannotMeasureError("head: SyntaxError")

    assert compare.code(compared(["window"], measure)) == 2


@pytest.mark.parametrize(("regression", "other", "expected"), [(1, 1, 1), (0, 1, 0), (1, 0, 1)])
def test_a_regression_is_the_only_thing_that_fails(regression, other, expected):
    rows = [Comparison("lookup", "cpu", failure="base: gone")] * other
    ratio = 2.0 if regression else 1.0
    timing = Timing(Spent(1, 1), Spent(ratio, ratio))
    rows.append(Comparison("window", "cpu", (timing,) * 9))
    assert compare.code(rows) == expected


def test_table_shows_ratio_interval_pairs_significance_and_calls():
    timings = [
        Timing(Spent(2e6, 4e6), Spent(2e6 * ratio, 4e6), 310, 312)
        for ratio in (1.2, 1.25, 1.3, 1.2, 1.4, 1.5, 1.3, 1.3, 1.3)
    ]
    row = Comparison("append", "cpu", tuple(timings))
    printed = compare.table([row, replace(row, clock="elapsed")]).splitlines()
    assert " ".join(printed[1].split()) == (
        "append 2 ms 2.4 ms 1.300 1.200 .. 1.400 9 0.004 310 > 312 slower"
    )
    assert printed[2].startswith("append, elapsed")
    assert printed[2].split()[-1] == "same"
    facts = json.loads(compare.as_json([row], "main", "working tree"))
    assert (facts["base"], facts["threshold"]) == ("main", THRESHOLD)
    assert facts["rows"][0]["verdict"] == "slower"
    assert facts["rows"][0]["interval"] == [pytest.approx(1.2), pytest.approx(1.4)]
    assert len(facts["rows"][0]["base_ns"]) == 9


# -- turns --------------------------------------------------------------------------------


def test_sides_take_turns_and_the_least_counts():
    order = []

    def one(name, numbers):
        given = iter(numbers)

        def batch():
            order.append(name)
            return Spent(*next(given))

        return batch

    found = pair.alternate(
        one("A", [(3, 9), (2, 8), (4, 4), (5, 5)]), one("B", [(7, 1), (6, 2), (8, 3), (9, 4)]), 4
    )
    assert "".join(order) == "ABBAABBA"
    assert found == (Spent(2, 4), Spent(6, 1))


def test_calls_are_counted_the_same_each_time():
    def batch(number):
        return [len(str(each)) for each in range(10 * number)]

    assert side.calls_of(batch) == side.calls_of(batch) >= 11


# -- sides --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("compared")
    made = {}
    for name, spec in specs().items():
        made[name] = directory / f"{name}.jsonl"
        write(replace(spec, messages=150, nbytes=300_000, compactions=0), made[name])
    return made


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_runs_on_this_version(name, paths, tmp_path, monkeypatch):
    if name == "command":
        pytest.importorskip("click", reason="the command line is not installed")
    monkeypatch.setenv("MMAPSTORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(trees.PROJECT))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with ExitStack() as stack:
        batch = OPERATIONS[name].prepare(Workbench(paths, scratch, stack))
        spent = batch(2)
    assert spent.elapsed > 0
    assert spent.cpu >= 0


def package(root, source, *, commit=False):
    """Make a project whose package is a few lines."""
    (root / "mmapstore").mkdir(parents=True, exist_ok=True)
    (root / "mmapstore" / "__init__.py").write_text(source)
    if commit:
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
            identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
            subprocess.run(["git", *identity, *arguments], cwd=root, check=True)
    return root


OPENS = """
class open:
    def __init__(self, path, cache_dir):
        self.data = path.read_bytes()
    def close(self):
        print("closed")
"""


def test_each_side_runs_the_version_of_its_own_tree(paths, tmp_path):
    base = package(tmp_path / "base", OPENS)
    head = package(tmp_path / "head", OPENS + "def more(): pass\n")
    bench = Bench(trees.Tree(base, "a"), trees.Tree(head, "b"), paths, tmp_path)
    timing = bench("cold_type_first", 0)
    assert timing.base_calls == timing.head_calls > 0
    assert min(*timing.base, *timing.head) > 0
    # the working tree has windows, and neither of these has
    with pytest.raises(CannotMeasureError, match=r"base: TypeError: .*manager"):
        bench("window", 0)


def test_side_that_dies_says_so(paths, tmp_path):
    base = package(tmp_path / "base", OPENS)
    head = package(tmp_path / "head", "import os\ndef open(path, cache_dir): os._exit(3)\n")
    bench = Bench(trees.Tree(base, "a"), trees.Tree(head, "b"), paths, tmp_path)
    with pytest.raises(CannotMeasureError, match="head: the process ended"):
        bench("cold_type_first", 0)


def test_version_that_cannot_be_imported_says_why(paths, tmp_path):
    base = package(tmp_path / "base", OPENS)
    head = package(tmp_path / "head", "raise RuntimeError('half an edit')")
    bench = Bench(trees.Tree(base, "a"), trees.Tree(head, "b"), paths, tmp_path)
    with pytest.raises(CannotMeasureError, match="head: RuntimeError: half an edit"):
        bench("cold_type_first", 0)


def test_request_that_fails_is_answered_like_any_other(paths, tmp_path):
    requests = io.BytesIO(b'["prepare", "no such"]\n["prepare", "decoded"]\n["run", 1]\n')
    asked_of = side.Asked(paths, tmp_path)
    answers = [json.loads(answer) for answer in side.answers(asked_of, requests)]
    asked_of.close()
    assert answers[0] == {"error": "KeyError: 'no such'"}
    assert answers[1] == {"ok": None}
    assert len(answers[2]["ok"]) == len(Spent._fields)


# -- versions -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return package(tmp_path_factory.mktemp("project"), "A = 1\n", commit=True)


def test_revision_is_the_commit_and_the_working_tree_is_what_stands_there(project, tmp_path):
    package(project, "A = 2\n")
    committed = trees.extracted("HEAD", tmp_path / "base", project)
    standing = trees.extracted(None, tmp_path / "head", project)
    assert (committed.root / "mmapstore" / "__init__.py").read_text() == "A = 1\n"
    assert (standing.root / "mmapstore" / "__init__.py").read_text() == "A = 2\n"
    assert committed.name.startswith("HEAD (")
    assert standing.name == "working tree"
    package(project, "A = 3\n")
    assert (standing.root / "mmapstore" / "__init__.py").read_text() == "A = 2\n"


def test_directory_with_the_package_is_a_version(project, tmp_path):
    other = package(tmp_path / "other", "A = 4\n")
    tree = trees.extracted(str(other), tmp_path / "base", project)
    assert (tree.root / "mmapstore" / "__init__.py").read_text() == "A = 4\n"


@pytest.mark.parametrize("version", ["no-such-branch", "--help", "HEAD~99999"])
def test_what_is_no_version_is_an_error_of_usage(version, project, tmp_path, capsys):
    with pytest.raises(trees.NoSuchTreeError):
        trees.extracted(version, tmp_path / "base", project)
    if not version.startswith("-"):
        with pytest.raises(SystemExit) as raised:
            compare.main([version, "--head", str(project), "--only", "window"])
        assert raised.value.code == 2
        assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["HEAD", "--only", "no-such-row"]])
def test_usage_is_2(arguments, capsys):
    with pytest.raises(SystemExit) as raised:
        compare.main(arguments)
    assert raised.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(("factor", "code"), [(1.5, 1), (1.0, 0)])
def test_command_exits_with_the_code_of_its_rows(factor, code, tmp_path, monkeypatch, capsys):
    version = str(package(tmp_path / "version", OPENS))
    rows = compared(["lookup"], noisy(1, {"lookup"}, factor))
    monkeypatch.setattr(compare, "measured_trees", lambda *given: rows)
    assert compare.main([version, "--head", version]) == code
    assert "lookup" in capsys.readouterr().out
    assert compare.main([version, "--head", version, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["rows"][0]["operation"] == "lookup"


# -- planted slowdowns --------------------------------------------------------------------


def test_plants_name_operations():
    for one in planted.PLANTS.values():
        assert one.flagged <= OPERATIONS.keys()
        assert one.flagged


@pytest.mark.parametrize("name", planted.PLANTS)
def test_planted_function_takes_half_as_long_again_and_answers_the_same(name, tmp_path):
    one = planted.PLANTS[name]
    tree = trees.extracted(None, tmp_path / "tree")
    planted.plant(tree.root, one)
    module = "mmapstore." + one.module.replace("/", ".")
    code = (
        f"import {module} as m, time\n"
        "ticks = iter([0, 100, 149, 150])\n"
        "time.perf_counter_ns = lambda: next(ticks)\n"
        f"function = m.{one.name}\n"
        "assert function.__wrapped__.__name__ == function.__name__\n"
        "m._planted(lambda: print('answered'))()\n"
        "assert next(ticks, None) is None\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={"PYTHONPATH": str(tree.root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", "answered\n")


def test_proof_fails_where_anything_else_is_flagged(capsys):
    rows = compared(["lookup", "decoded"], noisy(1, {"lookup"}, 1.5))
    assert planted.judged("lookup", frozenset({"lookup"}), rows)
    assert not planted.judged("nothing", frozenset(), rows)
    assert not planted.judged("both", frozenset({"lookup", "decoded"}), rows)
    printed = capsys.readouterr().out
    assert "flagged, but must not be: ['lookup']" in printed
    assert "not flagged, but must be: ['decoded']" in printed
