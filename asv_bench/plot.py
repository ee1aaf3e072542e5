"""What the plots stand on: figures in, an SVG of the same bytes out each time.

Every line and bar is named where it stands, so no colour has to be told from another,
and text is drawn as shapes on a ground of its own, so it looks the same on any page.
"""

from __future__ import annotations

import io
import re
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from .figures import duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from matplotlib.axis import Axis

INK, FAINT, GRID = "#1f2328", "#57606a", "#d8dee4"
BLUE, PALE_BLUE, ORANGE = "#0550ae", "#80b3f0", "#a0410d"
GREY, PALE_GREY = "#6e7781", "#c4cad1"

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "mmapstore",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def style() -> AbstractContextManager[None]:
    """Return the settings under which everything is drawn, whatever those of the user are."""
    settings: dict[Any, Any] = {**mpl.rcParamsDefault, **_STYLE}
    del settings["backend"]  # a figure that is only written needs none
    return mpl.rc_context(settings)


def ground(width: float, height: float, title: str, below: str, captions: Sequence[str]) -> Figure:
    """Return an empty figure, in inches, with its title, a line below it and lines at its foot."""
    figure = Figure(figsize=(width, height), facecolor="white")
    left = 0.2 / width
    figure.text(left, 1 - 0.32 / height, title, size=13, weight="bold")
    figure.text(left, 1 - 0.57 / height, below, size=9.5)
    figure.text(
        left, 0.1 / height, "\n".join(captions), size=7.5, color=FAINT, linespacing=1.5, va="bottom"
    )
    return figure


def svg(figure: Figure, title: str, description: str) -> str:
    """Return a figure as SVG, with words for who does not see it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    head, tag, rest = buffer.getvalue().partition("<svg ")
    attributes, end, body = rest.partition(">")
    words = f"\n <title>{escape(title)}</title>\n <desc>{escape(description)}</desc>"
    lines = f'{head}{tag}role="img" {attributes}{end}{words}{body}'.splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def slug(name: str) -> str:
    """Return what the SVG calls the line or bar of a name.

    >>> slug("refresh, another's append")
    'refresh-another-s-append'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def limits(values: Iterable[float]) -> tuple[float, float]:
    """Return the powers of ten that values lie between.

    >>> limits([20, 300]), limits([10])
    ((10.0, 1000.0), (10.0, 100.0))
    """
    logs = [log10(value) for value in values]
    low = floor(min(logs))
    return 10.0**low, 10.0 ** max(ceil(max(logs)), low + 1)


def decades(low: float, high: float) -> list[float]:
    """Return the powers of ten from one to another."""
    return [10.0**power for power in range(round(log10(low)), round(log10(high)) + 1)]


def scale(axis: Axis, ticks: Sequence[float], text: Callable[[float], str]) -> None:
    """Mark these places of a logarithmic axis and no other."""
    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def shown(ns: float) -> str:
    """Return a time as it is written in a plot.

    >>> shown(9_432)
    '9.4 µs'
    """
    return duration(ns).replace(" us", " µs")


def mark(ns: float) -> str:
    """Return a power of ten as it is written beside an axis.

    >>> mark(1_000)
    '1 µs'
    """
    return shown(ns).replace(".0 ", " ")
