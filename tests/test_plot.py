"""The plots: where the points and bars stand, by the marks of their own axes."""

import json
import math
import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asv_bench import data, figures, growth, peers
from asv_bench.figures import Growth
from tools.gen_synthetic.nbytes import parse_nbytes

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no plots")

from asv_bench import plot, plot_growth, plot_peers

SVG = "{http://www.w3.org/2000/svg}"
NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}

sizes = st.lists(st.integers(10**6, 10**10), min_size=2, max_size=6, unique=True).map(sorted)
names = st.sampled_from(["cold open", "warm window", "refresh, another's append", "a < b & c"])


@st.composite
def growths(draw):
    """Draw figures in which some operation is taken to the largest size."""
    measured = draw(sizes)
    asked = draw(st.lists(names, min_size=1, unique=True))
    ns = {}
    for number, name in enumerate(asked):
        count = len(measured) if number == 0 else draw(st.integers(1, len(measured)))
        ns[name] = {size: draw(st.floats(100, 1e11)) for size in measured[:count]}
    return Growth({"processor": "A processor"}, ns)


def parsed(svg):
    # the texts of a figure stand as comments beside their shapes
    return ET.fromstring(svg, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))


def group(root, gid):
    found = root.findall(f".//{SVG}g[@id='{gid}']")
    assert len(found) == 1, gid
    return found[0]


def texts(root):
    return [one.text.strip() for one in root.iter(ET.Comment)]


def number_of(text):
    number, unit = text.split()
    return float(number) * NS[unit] if unit in NS else parse_nbytes(number + unit)


def axis(root, letter, axes=None):
    """Return what maps a value to a coordinate, from the grid lines and the texts beside them."""
    place = []
    for tick in (root if axes is None else axes).iter(f"{SVG}g"):
        if re.fullmatch(f"{letter}tick_[0-9]+", tick.get("id", "")):
            # the grid line comes first
            line = next(tick.iter(f"{SVG}path")).get("d")
            numbers = [float(number) for number in re.findall(r"-?[0-9.]+", line)]
            (text,) = texts(tick)
            place.append((math.log(number_of(text)), numbers[letter == "y"]))
    (low, start), (high, stop) = min(place), max(place)
    return lambda value: start + (math.log(value) - low) / (high - low) * (stop - start)


def points(line):
    """Return the points of a line, and its marks, which must lie on them."""
    drawn = next(line.iter(f"{SVG}path")).get("d")
    found = [tuple(map(float, pair)) for pair in re.findall(r"[ML] (-?[0-9.]+) (-?[0-9.]+)", drawn)]
    marks = [(float(use.get("x")), float(use.get("y"))) for use in line.iter(f"{SVG}use")]
    assert marks == found
    return found


# -- growth -------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(growths())
def test_each_operation_is_a_line_with_all_its_points(found):
    root = parsed(plot_growth.draw(found))
    # marks whose texts are rounded to four digits are no measure
    at_y = axis(root, "y")
    columns = {}
    for operation, by_size in found.ns.items():
        drawn = points(group(root, f"line-{plot.slug(operation)}"))
        assert len(drawn) == len(by_size)
        for (x, y), size in zip(drawn, sorted(by_size), strict=True):
            assert y == pytest.approx(at_y(by_size[size]), abs=0.01)
            assert columns.setdefault(size, x) == pytest.approx(x, abs=0.01)
    low, *_, high = sorted(columns)
    for size, x in columns.items():
        share = math.log(size / low) / math.log(high / low)
        assert x == pytest.approx(columns[low] + share * (columns[high] - columns[low]), abs=0.01)


def test_sizes_stand_at_the_marks_of_their_names():
    by_size = {10**6: 1e4, 64 * 10**6: 2e4, 8 * 10**9: 1e4}
    root = parsed(plot_growth.draw(Growth({}, {"cold open": by_size})))
    at_x, at_y = axis(root, "x"), axis(root, "y")
    for (x, y), (size, ns) in zip(
        points(group(root, "line-cold-open")), by_size.items(), strict=True
    ):
        assert (x, y) == (pytest.approx(at_x(size), abs=0.01), pytest.approx(at_y(ns), abs=0.01))


def test_each_line_is_named_with_its_last_cost_and_ratio():
    found = Growth(
        {"processor": "A processor"},
        {
            "opening": {10**6: 1e6, 10**9: 1.5e9},
            "looking": {10**6: 1e4, 10**9: 9.5e3},
            "reading": {10**6: 2e6},
        },
        left_out={8 * 10**9: "no room"},
    )
    root = parsed(plot_growth.draw(found))
    said = texts(root)
    for text in ("opening", "1.5 s", "×1,500", "looking", "9.5 µs", "×0.95", "reading"):  # noqa: RUF001
        assert text in said
    assert "2.0 ms at 1 MB, ×1.00; not taken further" in said  # noqa: RUF001
    assert any(text.startswith("2 of 3 operations are flat") for text in said)
    assert {"A processor", "not measured: 8 GB: no room"} <= set(said)
    description = root.findtext(f"{SVG}desc")
    assert "opening: 1.0 ms at 1 MB, 1.5 s at 1 GB, grows." in description


def test_what_is_flat_is_told_by_more_than_a_colour():
    found = Growth({}, {"up": {1000: 10.0, 2000: 90.0}, "level": {1000: 10.0, 2000: 10.0}})
    root = parsed(plot_growth.draw(found))
    dashed = {
        name: "stroke-dasharray"
        in next(group(root, f"line-{name}").iter(f"{SVG}path")).get("style")
        for name in found.ns
    }
    assert dashed == {"up": True, "level": False}


@given(st.lists(st.floats(-100, 100)).map(sorted), st.floats(0.01, 10))
def test_labels_are_apart_in_order_and_moved_only_where_they_touch(wanted, gap):
    places = plot_growth.spread(wanted, gap)
    assert len(places) == len(wanted)
    assert all(b - a >= gap - 1e-9 for a, b in pairwise(places))
    # those that stand together are moved by nothing in the mean
    start = 0
    for stop in range(1, len(places) + 1):
        if stop == len(places) or places[stop] - places[stop - 1] > gap + 1e-9:
            moved = sum(places[start:stop]) - sum(wanted[start:stop])
            assert moved == pytest.approx(0, abs=1e-6)
            start = stop


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4).map(sorted))
def test_labels_are_as_near_as_any_others(wanted):
    gap = 2
    places = plot_growth.spread(wanted, gap)

    def distance(tried):
        return sum((a - b) ** 2 for a, b in zip(tried, wanted, strict=True))

    def others(count, least):
        if not count:
            yield ()
            return
        for place in range(least, 24):
            for rest in others(count - 1, place + gap):
                yield (place, *rest)

    best = min(map(distance, others(len(wanted), -8)))
    assert distance(places) <= best + 1e-9


# -- both ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Return real figures of some opponents over a tiny file; one of them is not installed."""

    def missing(path, wanted, directory):
        raise ImportError("No module named 'absent'")

    kept = ("mmapstore", "orjson loop", "orjson, backwards", "linecache")
    opponents = {name: peers.OPPONENTS[name] for name in kept} | {"absent": missing}
    files = data.Files(tmp_path_factory.mktemp("measured"), data.TINY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "OPPONENTS", opponents)
        return peers.measured(files, ("records-small", "reviews"), 1)


def test_same_figures_give_the_same_bytes_whatever_the_user_has_set(compared):
    import matplotlib as mpl

    found = Growth({}, {"cold open": {10**6: 1e6, 10**9: 1e9}})
    first = (plot_growth.draw(found), plot_peers.draw(compared))
    with mpl.rc_context({"font.size": 20, "lines.linewidth": 9, "svg.fonttype": "none"}):
        assert (plot_growth.draw(found), plot_peers.draw(compared)) == first
    for svg in first:
        assert "<dc:date>" not in svg
        assert svg.endswith("</svg>\n")


@pytest.mark.parametrize("command", ["growth", "peers"])
def test_stored_figures_are_drawn_again_without_measuring(
    command, compared, tmp_path, monkeypatch, capsys
):
    stored, drawn = tmp_path / "figures.json", tmp_path / "plot.svg"
    if command == "growth":
        found = Growth({}, {"cold open": {10**6: 1e6, 10**9: 1e9}})
        stored.write_text(figures.as_json(found))
        module, expected = growth, plot_growth.draw(found)
    else:
        stored.write_text(json.dumps(compared))
        module, expected = peers, plot_peers.draw(compared)
    monkeypatch.setattr(module, "measured", None)
    assert module.main(["--from", str(stored), "--plot", str(drawn)]) == 0
    assert drawn.read_text(encoding="utf-8") == expected
    assert capsys.readouterr().out


# -- peers --------------------------------------------------------------------------------


def test_each_answer_is_a_bar_as_long_as_its_time(compared):
    root = parsed(plot_peers.draw(compared))
    panels = [one for one in root.iter(f"{SVG}g") if re.fullmatch("axes_[0-9]+", one.get("id", ""))]
    bars = 0
    for question, axes in zip(compared["questions"], panels, strict=False):
        at_x = axis(root, "x", axes)
        for file, one in compared["compared"].items():
            for name, ms in one["ms"].items():
                gid = f"bar-{plot.slug(question)}-{plot.slug(name)}-{plot.slug(file)}"
                if question not in ms:
                    assert root.find(f".//{SVG}g[@id='{gid}']") is None
                    continue
                drawn = next(group(axes, gid).iter(f"{SVG}path")).get("d")
                right = max(float(x) for x in re.findall(r"[ML] (-?[0-9.]+)", drawn))
                assert right == pytest.approx(at_x(ms[question] * 1e6), abs=0.01)
                assert plot.shown(ms[question] * 1e6) in texts(axes)
                bars += 1
    assert bars == 2 * (5 + 5 + 2 + 5)


def test_peer_that_is_not_there_is_named_with_the_reason(compared):
    root = parsed(plot_peers.draw(compared))
    said = texts(root)
    assert "not measured" in said
    assert "does not answer this" in said
    legend = " ".join(said)
    assert "Not measured: absent: No module" in legend
    assert "not measured: absent: No module named 'absent'" in peers.report(compared)


def test_command_keeps_the_figures_and_says_the_machine(compared, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers, "measured", lambda files, names, rounds: compared)
    stored = tmp_path / "peers.json"
    assert peers.main(["--quick", "--data", str(tmp_path), "--json", str(stored)]) == 0
    printed = capsys.readouterr().out
    assert json.loads(stored.read_text(encoding="utf-8")) == compared
    assert printed.rstrip().endswith(peers.machine.sentence(compared["machine"]))
    assert peers.main(["--quick", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == compared


def test_figures_in_the_documentation_are_drawn_from_those_beside_them():
    for name, drawn in (
        ("growth", plot_growth.draw(figures.read(plot_docs("growth.json")))),
        ("peers", plot_peers.draw(json.loads(plot_docs("peers.json").read_text("utf-8")))),
    ):
        kept = parsed(plot_docs(f"{name}.svg").read_text(encoding="utf-8"))
        # by the texts: another version of what draws may shape a letter otherwise
        assert texts(kept) == texts(parsed(drawn))


def plot_docs(name):
    return peers.Path(__file__).parent.parent / "docs" / name
