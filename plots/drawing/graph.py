"""A batched graph as a picture: one panel per policy, every vertex with the number of its batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from harness.errors import ConfigError
from harness.values.graph import Graph
from harness.values.schedule import Schedule
from plots.drawing.graph_layout import place
from plots.drawing.saving import save_picture
from plots.drawing.style import use_style
from plots.drawing.words import write_words

MAX_VERTICES = 300
MARKERS = ("o", "s", "D", "h", "p", "8")  # by type, wide enough for a number
RIMS = (0.7, 1.9, 3.1)  # widths; a marker is used again with the next rim
UNIT_IN, MIN_WIDTH_IN, MAX_WIDTH_IN = 0.34, 3.2, 24.0
COLORS = mpl.colormaps["cividis"]


def check_drawable(graph: Graph) -> None:
    """Raise ConfigError for a graph that no page can show."""
    if graph.n_vertices > MAX_VERTICES:
        raise ConfigError(
            f"{graph.n_vertices} vertices cannot be drawn readably, {MAX_VERTICES} can;"
            " lower batch_size or move offset to smaller instances"
        )


def draw_schedules(
    graph: Graph,
    schedules: Mapping[str, Schedule],
    path: Path,
    title: str,
    reasons: Mapping[str, str] | None = None,
) -> None:
    """Write a picture of one graph under several schedules; the suffix names the format.

    reasons: why further policies have no schedule; each has a panel that says so.

    Raises ConfigError for a graph that no page can show, OutputError for a file that cannot be
    written.
    """
    check_drawable(graph)
    use_style()
    x, y = place(graph)
    width = float(np.clip((np.ptp(x) + 1.5) * UNIT_IN, MIN_WIDTH_IN, MAX_WIDTH_IN))
    height = float((np.ptp(y) + 1.5) * 1.35 * UNIT_IN + 0.3)
    figure, panels = _panels(len(schedules) + len(reasons or {}), width, height)
    for axes, (name, schedule) in zip(panels, schedules.items(), strict=False):
        _draw_panel(axes, graph, schedule, x, y)
        axes.set_title(f"{name}: {schedule.n_batches} batches")
    for axes, (name, reason) in zip(panels[len(schedules) :], (reasons or {}).items(), strict=True):
        write_words(axes, reason, width)
        axes.set_title(f"{name}: no schedule")
    figure.suptitle(f"{title}\nnumber: batch in order of execution; shape: type of the vertex")
    figure.legend(handles=_legend(graph), loc="outside lower center", ncols=6)
    save_picture(figure, path)


def _panels(n_panels: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A page of panels of that size in inches, and those that are used."""
    n_columns = min(n_panels, max(1, int(15 // width)))
    n_rows = math.ceil(n_panels / n_columns)
    figure, grid = plt.subplots(
        n_rows,
        n_columns,
        figsize=(n_columns * width, n_rows * height + 0.7),
        squeeze=False,
        layout="constrained",
    )
    panels = list(grid.flat)
    for axes in panels[n_panels:]:
        axes.set_visible(False)
    return figure, panels[:n_panels]


def _draw_panel(
    axes: Axes,
    graph: Graph,
    schedule: Schedule,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> None:
    """Edges behind, then vertices type by type, then numbers."""
    users = np.repeat(np.arange(graph.n_vertices), np.diff(graph.arg_start))
    ends = np.stack([np.stack([x, y], 1)[graph.args], np.stack([x, y], 1)[users]], axis=1)
    axes.add_collection(LineCollection(list(ends), colors="#999999", linewidths=0.8, zorder=1))
    batch_of = np.empty(graph.n_vertices, dtype=np.int64)
    batch_of[schedule.order] = np.repeat(np.arange(schedule.n_batches), np.diff(schedule.starts))
    shade = batch_of / max(1, schedule.n_batches - 1)
    for marker, rim, t in _looks(graph):
        members = np.flatnonzero(graph.types == t)
        axes.scatter(
            x[members],
            y[members],
            s=190,
            marker=marker,
            c=COLORS(shade[members]),
            edgecolors="#222222",
            linewidths=rim,
            zorder=2,
        )
    for v in range(graph.n_vertices):
        color = "white" if shade[v] < 0.5 else "black"
        axes.annotate(
            str(batch_of[v] + 1), (x[v], y[v]), ha="center", va="center", fontsize=7, color=color
        )
    axes.set_axis_off()
    axes.margins(0)
    axes.set_xlim(x.min() - 0.75, x.max() + 0.75)
    axes.set_ylim(y.min() - 0.75, y.max() + 0.75)


def _looks(graph: Graph) -> list[tuple[str, float, int]]:
    """Return marker, width of its rim and type, for all types that occur."""
    looks = itertools.cycle(itertools.product(RIMS, MARKERS))
    used = np.unique(graph.types).tolist()
    return [(marker, rim, t) for (rim, marker), t in zip(looks, used, strict=False)]


def _legend(graph: Graph) -> list[Line2D]:
    return [
        Line2D(
            [],
            [],
            linestyle="none",
            marker=marker,
            markersize=9,
            markerfacecolor="white",
            markeredgecolor="#222222",
            markeredgewidth=rim,
            label=graph.type_names[t],
        )
        for marker, rim, t in _looks(graph)
    ]
