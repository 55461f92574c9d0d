"""Figures with one quantity against one axis: a panel per group, curves per system."""

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
    shared_limits,
    wrapped_notes,
    write_statuses,
)
from plots.numbers.series import Panel, all_x
from plots.words.figure_text import FigureText

AXES_HEIGHT_IN = 2.3


def draw_curves(panels: Sequence[Panel], text: FigureText) -> Figure:
    """One row of panels: ours share their y axis, published ones have their own."""
    width = PANEL_WIDTH_IN * len(panels) + 0.35
    foot = LINE_IN * len(wrapped_notes(text.notes, width)) + 0.1
    legend = legend_height_in(panels)
    height = HEAD_IN + AXES_HEIGHT_IN + legend + foot
    figure = plt.figure(figsize=(width, height))
    grid = figure.add_gridspec(
        1,
        len(panels),
        left=0.62 / width,
        right=1 - 0.12 / width,
        top=1 - (HEAD_IN + 0.2) / height,
        bottom=(foot + legend) / height,
        wspace=0.24,
    )
    for column, (panel, limits) in enumerate(zip(panels, shared_limits(panels), strict=True)):
        axes = figure.add_subplot(grid[0, column])
        draw_panel(axes, panel, text.x_label, limits)
        if column == 0:
            axes.set_ylabel(text.y_label)
    head_and_foot(figure, text)
    return figure


def draw_panel(axes: Axes, panel: Panel, x_label: str, limits: tuple[float, float]) -> None:
    """Curves, status words of what is missing, legend."""
    draw_all_series(axes, panel)
    axes.set_title(panel.title)
    log_x(axes, all_x([panel]), x_label)
    log_y(axes, limits)
    write_statuses(axes, panel)
    legend_below(axes)
