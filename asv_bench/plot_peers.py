"""The plot of the peers: a panel a question, a row a peer, a bar a file, one scale for all."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from . import machine
from .figures import size
from .plot import (
    BLUE,
    FAINT,
    GREY,
    GRID,
    INK,
    PALE_BLUE,
    PALE_GREY,
    decades,
    ground,
    limits,
    mark,
    scale,
    shown,
    slug,
    style,
    svg,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

OURS = "mmapstore"
_NS = 1e6
_COLUMNS = 3
_LEGEND_WIDTH = 40


@dataclass(frozen=True, slots=True)
class _Chart:
    """What all panels have in common."""

    names: list[str]
    ms: list[tuple[str, Mapping[str, Mapping[str, float]]]]
    low: float
    high: float

    def answers(self, name: str, question: str) -> list[float | None]:
        """Return a peer's times by file."""
        return [by_name.get(name, {}).get(question) for _, by_name in self.ms]

    def is_measured(self, name: str) -> bool:
        """Whether a peer has answered anything."""
        return any(name in by_name for _, by_name in self.ms)


def draw(found: Mapping[str, Any]) -> str:
    """Return the figures that ``python -m asv_bench.peers --json`` gives as SVG."""
    chart = _chart(found["compared"])
    questions = found["questions"]
    # the cell behind the last question says what the bars are
    row_count = len(questions) // _COLUMNS + 1
    panel, head, foot, gap = 0.7 + 0.32 * len(chart.names), 1.25, 0.75, 0.85
    height = head + foot + row_count * panel + (row_count - 1) * gap
    title = "The same questions, asked of each library in one run"
    below = (
        f"Least of {found['rounds']} interleaved rounds, page cache warm; shorter is better."
        " The scale is logarithmic."
    )
    with style():
        figure = ground(11, height, title, below, [machine.sentence(found["machine"])])
        grid = figure.add_gridspec(
            row_count,
            _COLUMNS,
            left=0.165,
            right=0.985,
            top=1 - head / height,
            bottom=foot / height,
            wspace=0.06,
            hspace=gap / panel,
        )
        for number, (question, meaning) in enumerate(questions.items()):
            axes = figure.add_subplot(grid[divmod(number, _COLUMNS)])
            _draw_panel(axes, chart, question, meaning)
            axes.tick_params(axis="y", labelleft=number % _COLUMNS == 0)
        _draw_legend(figure.add_subplot(grid[divmod(len(questions), _COLUMNS)]), found)
        return svg(figure, title, f"{below} {_in_words(found, chart)}")


def refused(compared: Mapping[str, Any]) -> dict[str, str]:
    """Return who was not measured over any of the files, and why."""
    return dict(chain.from_iterable(one["refused"].items() for one in compared.values()))


def _chart(compared: Mapping[str, Any]) -> _Chart:
    ms = [(file, one["ms"]) for file, one in compared.items()]
    names = dict.fromkeys(name for _, by_name in ms for name in by_name)
    # a question that was answered wrong is told in the legend, and has no row of its own
    names |= dict.fromkeys(name for name in refused(compared) if name.split(", ")[0] not in names)
    every = [one for _, by_name in ms for asked in by_name.values() for one in asked.values()]
    return _Chart(list(names), ms, *limits(every))


def _draw_panel(axes: Axes, chart: _Chart, question: str, meaning: str) -> None:
    """Draw one question."""
    axes.set_xscale("log")
    # room for the figure behind the longest bar
    axes.set_xlim(chart.low, chart.high * 10)
    axes.set_ylim(len(chart.names) - 0.4, -0.6)
    axes.set_yticks(range(len(chart.names)), chart.names)
    for label, name in zip(axes.get_yticklabels(), chart.names, strict=True):
        label.set_color(BLUE if name == OURS else INK)
        label.set_fontweight("bold" if name == OURS else "normal")
    scale(axes.xaxis, decades(chart.low, chart.high), lambda ms: mark(ms * _NS))
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(question, loc="left", size=10, weight="bold", pad=17)
    axes.text(0, 1.02, meaning, transform=axes.transAxes, size=7.5, color=FAINT)
    for row, name in enumerate(chart.names):
        _draw_row(axes, chart, question, row, name)


def _draw_row(axes: Axes, chart: _Chart, question: str, row: int, name: str) -> None:
    answers = chart.answers(name, question)
    if not any(answers):
        said = "does not answer this" if chart.is_measured(name) else "not measured"
        axes.text(chart.low * 1.3, row, said, size=7, color=FAINT, va="center_baseline")
        return
    count = len(answers)
    height = 0.8 / count
    dark, pale = (BLUE, PALE_BLUE) if name == OURS else (GREY, PALE_GREY)
    for place, ((file, _), ms) in enumerate(zip(chart.ms, answers, strict=True)):
        if ms is None:
            continue
        at = row + (place - (count - 1) / 2) * height
        colour = dark if place == count - 1 else pale
        (bar,) = axes.barh(at, ms - chart.low, height * 0.92, left=chart.low, color=colour)
        bar.set_gid(f"bar-{slug(question)}-{slug(name)}-{slug(file)}")
        axes.annotate(
            shown(ms * _NS),
            (ms, at),
            (3, 0),
            textcoords="offset points",
            size=6.5,
            va="center_baseline",
        )


def _draw_legend(axes: Axes, found: Mapping[str, Any]) -> None:
    """Say in the cell that no question needs what the bars are."""
    axes.set_axis_off()
    texts = ["One bar for each file, from above:"]
    for name in found["compared"]:
        file = found["files"][name]
        texts.append(f"{file['messages']:,} messages, {size(file['nbytes'])}")
    texts += ["", "Who answers otherwise is not measured."]
    for name, why in refused(found["compared"]).items():
        texts += textwrap.wrap(f"Not measured: {name}: {why}", _LEGEND_WIDTH, max_lines=3)
    axes.text(0.06, 1, "\n".join(texts), va="top", size=8.5, linespacing=1.5)


def _in_words(found: Mapping[str, Any], chart: _Chart) -> str:
    file, by_name = chart.ms[-1]
    sentences = [f"Over {size(found['files'][file]['nbytes'])}:"]
    for question in found["questions"]:
        answers = (
            f"{name} {shown(asked[question] * _NS)}"
            for name, asked in by_name.items()
            if question in asked
        )
        sentences.append(f"{question}: {', '.join(answers)}.")
    return " ".join(sentences)
