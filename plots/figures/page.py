"""Page layout that all figures share: sizes in inches, titles, captions, ticks and colors.

A figure is as wide as a page; fonts and lines are in page.mplstyle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import matplotlib.style
import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.kinds import SystemFile
from dynbatch.plots.tables.cells import format_plain

WIDTH_IN = 7.0
TITLE_PT, TEXT_PT, SMALL_PT = 9.0, 7.5, 7.0
CAPTION_LINES = 3
LINE_IN, NAME_IN = 1.3 * TEXT_PT / 72, 0.34  # between two names; from axes to names
INK, DIM, GRAY = "#222222", "#555555", "#8a8a8a"
STYLE, COLORS = Path(__file__).with_name("page.mplstyle"), Path(__file__).parents[1] / "looks.yaml"
MARKERS, LINES = "os^DvPXph<>d*", ("-", "--", "-.", ":")
LOG_STEPS = (  # of ticks within a decade, the densest first
    (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8),
    (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    (1, 1.5, 2, 3, 5, 7),
    (1, 2, 5),
    (1, 3),
    (1,),
)


def start_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Start an empty figure in the common style.

    Neither the user's style nor the window system of MPLBACKEND, as in a notebook, has an effect.
    """
    mpl.rcdefaults()
    matplotlib.style.use(STYLE)
    return Figure(figsize=(width_in, height_in))


def place_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes; sizes are in inches, left and top are distances from the upper left corner."""
    total_width, total_height = figure.get_size_inches()
    x, y = left / total_width, 1 - (top + height) / total_height
    return figure.add_axes((x, y, width / total_width, height / total_height))


def measure_axes(axes: Axes) -> tuple[float, float]:
    width, height = np.divide(axes.bbox.size, axes.figure.dpi)
    return float(width), float(height)


@cache
def measure_text(text: str, size: float = TEXT_PT, weight: str = "normal") -> float:
    """Return the width of a line of text in inches."""
    properties = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    width, _, _ = TextToPath().get_text_width_height_descent(text, properties, ismath=False)
    return float(width) / 72


def wrap_caption(caption: str) -> list[str]:
    """Break a caption between words into lines as wide as the page."""
    lines: list[str] = []
    for word in caption.split():
        if lines and measure_text(f"{lines[-1]} {word}", SMALL_PT) <= WIDTH_IN:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def add_title(figure: Figure, title: str) -> None:
    """Write a title of one line above a figure.

    Raises:
        ConfigError: if the title does not fit into one line in the smallest font.
    """
    size = TITLE_PT * min(1, WIDTH_IN / measure_text(" ".join(title.split()), TITLE_PT, "bold"))
    if size < SMALL_PT or "\n" in title:
        raise ConfigError(f"title {title!r} is longer than one line; shorten `title`")
    figure.text(0, 1, title, va="bottom", fontsize=size, fontweight="bold")


def add_caption(figure: Figure, caption: str) -> None:
    lines = wrap_caption(caption)
    if len(lines) > CAPTION_LINES:
        raise ConfigError(
            f"a caption has {len(lines)} lines: expected at most {CAPTION_LINES}; move details to"
            f" `notes`: {caption}"
        )
    style: dict[str, Any] = {"va": "top", "fontsize": SMALL_PT, "color": DIM, "linespacing": 1.35}
    figure.text(0, -0.05 / figure.get_figheight(), "\n".join(lines), **style)


def spread(
    wanted: Sequence[float] | np.ndarray,
    gap: float | np.ndarray,
    low: float = -math.inf,
    high: float = math.inf,
) -> np.ndarray:
    """Return the positions nearest to the wanted ones, in their order, at least a gap apart.

    Args:
        gap: distance of all neighbors, or of each position and the next in that order.
        low: lower limit of all positions, if they fit between both limits.
        high: upper limit.
    """
    order = np.argsort(wanted, kind="stable")
    steps = np.cumsum([0.0, *np.broadcast_to(gap, max(0, len(order) - 1))])
    pools: list[list[float]] = []  # positions minus steps; a pool shares its mean
    for value in np.asarray(wanted, dtype=float)[order] - steps[: len(order)]:
        pools.append([float(value)])
        while len(pools) > 1 and fmean(pools[-2]) > fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    flat = [mean for pool in pools for mean in [fmean(pool)] * len(pool)]
    places = np.empty(len(order))
    places[order] = np.clip(flat, low, max(low, high - steps[-1])) + steps[: len(order)]
    return places


def set_ticks(axis: Axis, ticks: Iterable[float]) -> None:
    """Set ticks at these numbers only, without exponents."""
    numbers = list(ticks)
    axis.set_ticks(numbers, [format_plain(number) for number in numbers])
    axis.minorticks_off()


def choose_log_ticks(low: float, high: float, n_most: int = 7) -> list[float]:
    """Choose at most `n_most` round numbers between the ends of a logarithmic axis."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in LOG_STEPS[int(high > 2 * low) :]:
        ticks = [float(f"{step * 10.0**power:.6g}") for power in decades for step in steps]
        chosen = [tick for tick in ticks if low <= tick <= high]
        if len(chosen) <= n_most:
            break
    return chosen[:: max(1, math.ceil(len(chosen) / n_most))]


@dataclass(frozen=True, slots=True)
class Look:
    """Color, marker and line of a curve."""

    color: str
    marker: str
    line: str

    @property
    def mark(self) -> dict[str, Any]:
        """Options of `Axes.plot` for a mark without a line."""
        return {"color": self.color, "marker": self.marker, "linestyle": "none"}


def find_looks(names: Iterable[str], systems: Iterable[SystemFile] = ()) -> dict[str, Look]:
    """Find the looks of a panel's curves, which are systems or names from a paper.

    A color means a framework or the idea of a strategy; marker and line follow from the order.
    """
    colors = yaml.safe_load(COLORS.read_text(encoding="utf-8"))
    frameworks = {system.name: system.framework.rpartition(".")[2] for system in systems}
    looks = {}
    for index, name in enumerate(dict.fromkeys(names)):
        keys = (name, frameworks.get(name), name.partition(" ")[0].rstrip(","), "other")
        color = next(colors[key] for key in keys if key in colors)
        looks[name] = Look(color, MARKERS[index % len(MARKERS)], LINES[index % len(LINES)])
    return looks


def add_names(
    axes: Axes,
    names: Sequence[tuple[str, str]],
    looks: Mapping[str, Look],
    ends: Mapping[str, tuple[float, float]],
) -> None:
    """Write names to the right of axes without overlap, each with a thin line from its curve.

    Args:
        names: curves and texts; those without an end are below all others, in this order.
        ends: last point of each curve.
    """
    width, height = measure_axes(axes)
    points = {curve: (axes.transData - axes.transAxes).transform(ends[curve]) for curve in ends}
    wanted = [points[name][1] if name in ends else -n for n, (name, _) in enumerate(names)]
    half = LINE_IN / 2 / height
    places = spread(wanted, 2 * half, half, 1 - half)
    for (curve, text), position in zip(names, places, strict=True):
        color = looks[curve].color if curve in looks else DIM
        if curve in ends:
            x, y = points[curve]
            axes.plot(
                (x, 1, 1 + (NAME_IN - 0.07) / width), (y, y, position), transform=axes.transAxes,
                color=color, linewidth=0.5, linestyle=(0, (1, 2)), marker=looks[curve].marker,
                markevery=[2], markersize=3.4, clip_on=False, zorder=1,
            )  # fmt: skip
        axes.text(
            1 + NAME_IN / width, position, text,
            transform=axes.transAxes, va="center_baseline", color=color,
        )  # fmt: skip
