"""Cost against size: what is measured at every size, and what is said of the figures."""

import json
import shutil
from contextlib import closing

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asv_bench import figures, growing, growth, machine, sized
from asv_bench.figures import FLAT, FLAT_VERDICT, GROWS, Growth
from asv_bench.growing import OPERATIONS, READ, Cost, Rounds
from mmapstore.fileio import LockFile
from tools.gen_synthetic import generate
from tools.gen_synthetic.nbytes import parse_nbytes

SIZES = (40_000, 400_000, 2_000_000)
ONCE = Rounds(passes=1, looks=1, writes=1, refreshes=1)

costs_ns = st.floats(1, 1e12)
growths = st.builds(
    Growth,
    st.dictionaries(st.text(), st.text(), max_size=3),
    st.dictionaries(
        st.text(), st.dictionaries(st.integers(1, 10**10), costs_ns, min_size=1), min_size=1
    ),
    st.dictionaries(st.text(), st.dictionaries(st.integers(1, 10**10), st.integers(1))),
    st.dictionaries(st.integers(1, 10**10), st.text()),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("measured") / "growth"


@pytest.fixture(scope="module")
def measured(directory):
    return growth.measured(directory, SIZES, ONCE)


# -- what is measured ---------------------------------------------------------------------


def test_every_operation_is_measured_at_every_size(measured):
    assert list(measured.ns) == list(OPERATIONS)
    for by_size in measured.ns.values():
        assert tuple(by_size) == SIZES
        assert all(ns > 0 for ns in by_size.values())
    assert measured.left_out == {}


def test_full_read_goes_no_further_than_it_is_bearable(directory, monkeypatch, measured):
    monkeypatch.setattr(growing, "READ_NBYTES", SIZES[1])
    again = growth.measured(directory, SIZES, ONCE)
    assert tuple(again.ns.pop(READ)) == SIZES[:2]
    assert {tuple(by_size) for by_size in again.ns.values()} == {SIZES}


def test_sizes_hold_lines_of_one_shape():
    for nbytes in sized.SIZES:
        assert sized.spec_of(nbytes).nbytes == nbytes
        assert sized.spec_of(nbytes).messages == nbytes // 10_000
    assert sized.SIZES[0] == 1_000_000
    assert sized.SIZES[-1] == 8_000_000_000


def test_next_run_begins_with_the_file_as_it_was_generated(directory, measured):
    for nbytes in SIZES:
        (path,) = (directory / str(nbytes) / "sessions").glob("*.jsonl")
        inode = path.stat().st_ino
        with open(path, "rb") as file:
            file.seek(nbytes)
            appended = [orjson.loads(line) for line in file]
        # a host and a reader, in rounds: all of it is behind what was generated
        assert {"message", "tool_review_state"} == {record["type"] for record in appended}
        prepared = sized.prepared(directory, nbytes)
        assert (prepared.path, path.stat().st_ino) == (path, inode)
        assert path.read_bytes() == generate(sized.spec_of(nbytes))
        assert (prepared.session, prepared.data_dir) == (path.stem, directory / str(nbytes))


def test_file_that_was_not_only_appended_to_is_refused(tmp_path):
    path = sized.prepared(tmp_path, 40_000).path
    path.write_bytes(path.read_bytes()[:-1] + b"...\n")
    with pytest.raises(RuntimeError, match=path.name):
        sized.prepared(tmp_path, 40_000)
    path.write_bytes(b"short\n")
    with pytest.raises(RuntimeError, match=path.name):
        sized.prepared(tmp_path, 40_000)


def test_size_without_room_on_the_disk_is_left_out_and_named(tmp_path, monkeypatch):
    reserve = growth._RESERVE_NBYTES
    free = type("Usage", (), {"free": reserve + 100_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    found = growth.measured(tmp_path, (40_000, 400_000), ONCE)
    assert found.sizes == [40_000]
    assert list(found.left_out) == [400_000]
    assert "not measured: 400 kB: the disk has 4 GB free" in figures.table(found)
    # what is there already needs no room
    monkeypatch.setattr(free, "free", 0)
    assert growth.measured(tmp_path, (40_000,), ONCE).left_out == {}


def test_two_runs_do_not_measure_in_one_directory(tmp_path):
    with (
        closing(LockFile(str(tmp_path / "lock"), "the other run")),
        pytest.raises(BlockingIOError, match="the other run"),
    ):
        growth.measured(tmp_path, (40_000,), ONCE)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_what_the_disk_gave_is_that_of_the_round_that_counts(tmp_path, monkeypatch):
    # by call: the round that does not count, and two that do
    given_nbytes = iter([0, 7_000, 7_000, 7_050, 7_050, 7_070])
    ns = iter([1.0, 30.0, 20.0])
    monkeypatch.setattr(growing, "disk_nbytes", lambda: next(given_nbytes))
    monkeypatch.setattr(growing.measure, "cold_layout", lambda path: lambda: next(ns))
    monkeypatch.setattr(growing, "READ_NBYTES", 0)
    files = [sized.prepared(tmp_path, 40_000)]
    assert list(growing._passes(files, 2)) == [Cost(growing.COLD, 40_000, 20.0, 20)]


def test_disk_is_asked_for_nothing_where_the_system_does_not_say(monkeypatch):
    monkeypatch.setattr("builtins.open", lambda *args, **kwargs: (_ for _ in ()).throw(OSError))
    assert growing.disk_nbytes() == 0


# -- what is said of it -------------------------------------------------------------------


@given(st.lists(costs_ns, min_size=1), st.floats(1, 10))
def test_flat_is_what_no_size_makes_dearer_than_the_limit(ns, limit):
    expected = FLAT_VERDICT if all(one <= limit * ns[0] for one in ns) else GROWS
    assert figures.verdict(ns, limit) == expected


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        ([10.0, 10.0 * FLAT], FLAT_VERDICT),
        ([10.0, 10.0 * FLAT + 0.1], GROWS),
        ([10.0, 14.0, 10.0], GROWS),
        ([10.0, 1.0], FLAT_VERDICT),
        ([10.0], FLAT_VERDICT),
    ],
)
def test_verdict(ns, expected):
    assert figures.verdict(ns) == expected


@given(growths)
def test_figures_are_read_as_they_were_written(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("figures") / "growth.json"
    path.write_text(figures.as_json(found), encoding="utf-8")
    assert figures.read(path) == found


def test_table_holds_figures_ratio_verdict_and_machine():
    found = Growth(
        {"processor": "A processor", "processors": "2"},
        {"opening": {1_000_000: 1e6, 4_000_000: 4e6}, "looking": {4_000_000: 9500, 1_000_000: 1e4}},
        {"opening": {1_000_000: 10_000, 4_000_000: 4_000_000}},
        {8_000_000_000: "no room"},
    )
    lines = [line.split() for line in figures.table(found).splitlines()]
    assert lines[0][:4] == ["1", "MB", "4", "MB"]
    assert lines[1] == ["opening", "1.0", "ms", "4.0", "ms", "4.00", "grows"]
    assert lines[2] == ["looking", "10", "us", "9.5", "us", "0.95", "flat"]
    # a hundredth of the file is not worth a word
    assert found.remarks == [
        "opening, 4 MB: not in the page cache, 4 MB came from the disk",
        "not measured: 8 GB: no room",
    ]
    assert all(remark in figures.table(found) for remark in found.remarks)
    assert figures.table(found).endswith("\nA processor, 2 processors")


def test_operation_that_was_not_taken_to_the_end_has_its_own_last_size():
    found = Growth({}, {"short": {1_000_000: 10.0}, "long": {1_000_000: 10.0, 4_000_000: 30.0}})
    row = figures.table(found).splitlines()[1].split()
    assert row == ["short", "10", "ns", "-", "1.00", "flat"]


@given(st.integers(1, 10**13))
def test_size_is_within_four_digits_of_the_bytes(nbytes):
    assert parse_nbytes(figures.size(nbytes).replace(" ", "")) == pytest.approx(nbytes, rel=6e-4)


@given(st.floats(1, 1e13))
def test_duration_is_within_two_digits_of_the_time(ns):
    number, unit = figures.duration(ns).split()
    assert float(number) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit] == pytest.approx(
        ns, rel=0.5 if ns < 10 else 0.051
    )


# -- the command --------------------------------------------------------------------------


def test_command_measures_up_to_a_size_and_keeps_the_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sized, "SIZES", (40_000, 400_000, 8_000_000_000))
    monkeypatch.setattr(growth, "ROUNDS", ONCE)
    kept = tmp_path / "growth.json"
    assert growth.main(["--max", "400k", "--data", str(tmp_path), "--json", str(kept)]) == 0
    printed = capsys.readouterr().out
    assert list(json.loads(kept.read_text())["ns"]["cold open"]) == ["40000", "400000"]
    # and read again it says the same
    monkeypatch.setattr(growth, "measured", None)
    assert growth.main(["--from", str(kept)]) == 0
    assert capsys.readouterr().out == printed


def test_size_below_the_smallest_is_an_error(capsys):
    with pytest.raises(SystemExit):
        growth.main(["--max", "10k"])
    assert "the smallest size is 1 MB" in capsys.readouterr().err


# -- the machine's facts ------------------------------------------------------------------


def test_facts_name_what_the_figures_stand_on_and_no_host(monkeypatch):
    monkeypatch.setattr(machine.platform, "node", lambda: "a-host")
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    monkeypatch.setattr(machine.platform, "release", lambda: "6.18.44-a-host")
    found = machine.facts(("numpy", "no-such-distribution"))
    assert found["kernel"] == "Linux 6.18"
    assert set(found) == {"processor", "processors", "memory", "kernel", "python", "numpy"}
    said = machine.sentence(found)
    assert all(value in said for value in found.values())
    assert "a-host" not in said
    assert "/" not in said


def test_what_cannot_be_found_out_is_left_out(monkeypatch):
    def missing(*args, **kwargs):
        raise OSError

    monkeypatch.setattr(machine.Path, "read_text", missing)
    monkeypatch.setattr(machine.os, "sysconf", missing)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: None)
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "arch")
    monkeypatch.setattr(machine.platform, "release", lambda: "")
    monkeypatch.setattr(machine.platform, "system", lambda: "System")
    found = machine.facts(())
    assert found == {"processor": "arch", "kernel": "System", "python": found["python"]}
    assert machine.sentence(found).startswith("arch, System, ")
