"""The plot of growth: one line an operation, cost against size, both scales logarithmic."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

from . import machine
from .figures import FLAT, FLAT_VERDICT, ordered, size, verdict
from .plot import (
    BLUE,
    FAINT,
    GRID,
    ORANGE,
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
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from .figures import Growth

#: where the name, the cost and the ratio of a line stand, in widths of the axes
_NAME_X, _COST_X, _RATIO_X = 1.03, 1.465, 1.6
#: a line of text, as a share of the height of the axes
_LABEL_GAP = 0.045


def draw(growth: Growth) -> str:
    """Return the figures as SVG."""
    sizes = growth.sizes
    flat = [verdict(ordered(ns)) for ns in growth.ns.values()].count(FLAT_VERDICT)
    title = "What an operation costs as the transcript grows"
    below = (
        f"{flat} of {len(growth.ns)} operations are flat (blue): at no size more than {FLAT:g} times"
        f" their cost at {size(sizes[0])}. Both scales are logarithmic."
    )
    captions = [
        machine.sentence(growth.machine),
        "Least of interleaved rounds, page cache warm; appended messages have 1 KB.",
        *growth.remarks,
    ]
    low, high = limits(ns for by_size in growth.ns.values() for ns in by_size.values())
    with style():
        height = 6.4 + 0.16 * len(growth.remarks)
        figure = ground(10, height, title, below, captions)
        foot, head = 0.9 + 0.16 * len(growth.remarks), 0.9
        axes = figure.add_axes((0.075, foot / height, 0.565, (height - foot - head) / height))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(sizes[0] / 1.25, sizes[-1] * 1.25)
        # a line at the lowest mark is not to be half hidden
        bottom, top = low / 1.6, high * 1.6
        axes.set_ylim(bottom, top)
        scale(axes.xaxis, sizes, size)
        scale(axes.yaxis, decades(low, high), mark)
        axes.grid(color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.set_xlabel("size of the transcript, native lines of 10 KB", labelpad=6)
        for operation, by_size in growth.ns.items():
            _draw_line(axes, operation, by_size)
        _name_lines(axes, growth, bottom, top)
        return svg(figure, title, f"{below} {_in_words(growth)}")


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Return ascending places at least `gap` apart, as near to the ascending ones as can be.

    Labels that would touch are moved apart together: what is least in the sum of squares.
    """
    # Without the gaps it is the nearest sequence that does not descend: means of neighbours.
    blocks: list[tuple[float, int]] = []
    for number, place in enumerate(wanted):
        total, count = place - number * gap, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / count:
            before = blocks.pop()
            total, count = total + before[0], count + before[1]
        blocks.append((total, count))
    means = [total / count for total, count in blocks for _ in range(count)]
    return [mean + number * gap for number, mean in enumerate(means)]


def times(costs: Sequence[float]) -> str:
    """Return how many times its first cost an operation's last one is."""
    ratio = costs[-1] / costs[0]
    return "\N{MULTIPLICATION SIGN}" + (f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}")


def _colour(costs: Sequence[float]) -> str:
    return BLUE if verdict(costs) == FLAT_VERDICT else ORANGE


def _draw_line(axes: Axes, operation: str, by_size: Mapping[int, float]) -> None:
    costs = ordered(by_size)
    flat = verdict(costs) == FLAT_VERDICT
    (line,) = axes.plot(
        sorted(by_size),
        costs,
        color=_colour(costs),
        linestyle="-" if flat else "--",
        marker="o" if flat else "s",
        markersize=4,
        linewidth=1.6,
    )
    line.set_gid(f"line-{slug(operation)}")


def _name_lines(axes: Axes, growth: Growth, low: float, high: float) -> None:
    """Write the name of each line at its end, beside the axes where it ends at their edge."""
    smallest, largest = growth.sizes[0], growth.sizes[-1]
    at_edge = []
    for operation, by_size in growth.ns.items():
        costs = ordered(by_size)
        last = max(by_size)
        if last == largest:
            at_edge.append((costs[-1], operation, costs))
            continue
        axes.annotate(
            f"{operation}\n{shown(costs[-1])} at {size(last)}, {times(costs)}; not taken further",
            (last, costs[-1]),
            (-8, 6),
            textcoords="offset points",
            ha="right",
            color=_colour(costs),
        )
    at_edge.sort()
    decade_count = log10(high / low)
    begins = [log10(ns / low) / decade_count for ns, _, _ in at_edge]
    beside = axes.transAxes
    for (ns, operation, costs), begin, at in zip(
        at_edge, begins, spread(begins, _LABEL_GAP), strict=True
    ):
        colour = _colour(costs)
        axes.plot(
            [0.985, _NAME_X - 0.01],
            [begin, at],
            transform=beside,
            color=colour,
            linewidth=0.6,
            clip_on=False,
        )
        for x, text, side in (
            (_NAME_X, operation, "left"),
            (_COST_X, shown(ns), "right"),
            (_RATIO_X, times(costs), "right"),
        ):
            axes.text(x, at, text, transform=beside, color=colour, va="center_baseline", ha=side)
    for x, text in ((_COST_X, f"at {size(largest)}"), (_RATIO_X, f"by {size(smallest)}")):
        axes.text(x, 1.03, text, transform=beside, color=FAINT, ha="right")


def _in_words(growth: Growth) -> str:
    lines = []
    for operation, by_size in growth.ns.items():
        costs = ordered(by_size)
        ends = f"{shown(costs[0])} at {size(min(by_size))}, {shown(costs[-1])} at"
        lines.append(f"{operation}: {ends} {size(max(by_size))}, {verdict(costs)}.")
    return " ".join(lines)
