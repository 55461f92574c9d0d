"""Figures of a cost and of its share of the whole: curves above, grouped bars below."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.drawing.frame import (
    HEAD_IN,
    LINE_IN,
    PANEL_WIDTH_IN,
    draw_all_series,
    head_and_foot,
    legend_below,
    legend_height_in,
    log_x,
    log_y,
    panel_looks,
    shared_limits,
    wrapped_notes,
    write_statuses,
)
from plots.numbers.series import Panel, all_x
from plots.numbers.table import plain
from plots.words.figure_text import FigureText

CURVES_IN, BARS_IN, GAP_IN = 1.9, 1.25, 0.32
HATCHES = {"--": "////", "-.": "....", ":": "xxxx"}  # bars tell systems apart without colour, too


def draw_shares(costs: Sequence[Panel], shares: Sequence[Panel], text: FigureText) -> Figure:
    """Above: the cost (log y); below: its share in percent, from 0 to 100."""
    width = PANEL_WIDTH_IN * len(costs) + 0.35
    foot = LINE_IN * len(wrapped_notes(text.notes, width)) + 0.1
    legend = legend_height_in(costs)
    height = HEAD_IN + CURVES_IN + GAP_IN + BARS_IN + legend + foot
    figure = plt.figure(figsize=(width, height))
    grid = figure.add_gridspec(
        2,
        len(costs),
        left=0.62 / width,
        right=1 - 0.12 / width,
        top=1 - (HEAD_IN + 0.2) / height,
        bottom=(foot + legend) / height,
        height_ratios=(CURVES_IN, BARS_IN),
        hspace=0.2,
        wspace=0.24,
    )
    for column, (cost, limits) in enumerate(zip(costs, shared_limits(costs), strict=True)):
        above = figure.add_subplot(grid[0, column])
        below = figure.add_subplot(grid[1, column])
        draw_cost(above, cost, limits)
        draw_bars(below, shares[column], text.x_label)
        if column == 0:
            above.set_ylabel(text.y_label)
            below.set_ylabel("share of epoch (%)")
    head_and_foot(figure, text)
    return figure


def draw_cost(axes: Axes, panel: Panel, limits: tuple[float, float]) -> None:
    """Curves of the cost itself."""
    draw_all_series(axes, panel)
    axes.set_title(panel.title)
    log_x(axes, all_x([panel]), "")
    log_y(axes, limits)
    write_statuses(axes, panel)


def draw_bars(axes: Axes, panel: Panel, x_label: str) -> None:
    """A group of bars per x, a bar per system."""
    ticks = all_x([panel])
    shown = [series for series in panel.series if series.drawn]
    bar = 0.8 / max(1, len(shown))
    looks = panel_looks(panel)
    for place, series in enumerate(shown):
        offset = (place - (len(shown) - 1) / 2) * bar
        centres = [ticks.index(mark.x) + offset for mark in series.drawn]
        heights = [mark.summary.median for mark in series.drawn if mark.summary is not None]
        look = looks[series.system]
        axes.bar(
            centres,
            heights,
            width=bar * 0.9,
            color=look.color,
            hatch=HATCHES.get(look.line),
            edgecolor="white",
            linewidth=0,
            label=series.label,
        )
        for centre, height in zip(centres, heights, strict=True):
            label = f"{height:.0f}" if height >= 1 else "<1"
            axes.annotate(
                label,
                (centre, height),
                xytext=(0, 1.5),
                textcoords="offset points",
                ha="center",
                fontsize=5.5,
                rotation=90 if len(shown) * len(ticks) > 12 else 0,
                color="#444444",
            )
    axes.set_xticks(range(len(ticks)), [plain(x) for x in ticks])
    axes.set_ylim(0, 100)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel(x_label)
    legend_below(axes)
