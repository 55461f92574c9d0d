"""A grid of panels: a row per workload, a column per group of systems that may be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.drawing.frame import HEAD_IN, LINE_IN, PANEL_WIDTH_IN, wrapped_notes
from plots.numbers.series import Panel
from plots.words.figure_text import FigureText

TITLE_IN = 0.52  # between two rows: ticks of the upper, title of the lower


@dataclass(frozen=True, slots=True)
class Room:
    """Inches for what is around the panels, and for each of them."""

    axes: float
    legend: float
    left: float = 0.62
    between: float = 0.55


def frame(text: FigureText, n_rows: int, n_columns: int, room: Room) -> Figure:
    """A figure with room for its words, and axes in the order of rows."""
    panel = PANEL_WIDTH_IN - 0.5
    width = room.left + n_columns * panel + (n_columns - 1) * room.between + 0.15
    foot = LINE_IN * len(wrapped_notes(text.notes, width)) + 0.1
    body = n_rows * room.axes + (n_rows - 1) * TITLE_IN
    height = HEAD_IN + 0.35 + body + room.legend + foot
    figure, _ = plt.subplots(
        n_rows,
        n_columns,
        figsize=(width, height),
        squeeze=False,
        gridspec_kw={
            "left": room.left / width,
            "right": 1 - 0.15 / width,
            "top": 1 - (HEAD_IN + 0.35) / height,
            "bottom": (foot + room.legend) / height,
            "hspace": TITLE_IN / room.axes,
            "wspace": room.between / panel,
        },
    )
    return figure


def placed(
    figure: Figure, rows: Mapping[str, Sequence[Panel]]
) -> Iterator[tuple[Axes, Panel, int, int]]:
    """Each panel with its axes, its row and its column; titles are set."""
    n_columns = len(next(iter(rows.values())))
    for row, (label, panels) in enumerate(rows.items()):
        for column, panel in enumerate(panels):
            axes = figure.axes[row * n_columns + column]
            axes.set_title(f"{panel.title}\n{label}" if row == 0 else label)
            yield axes, panel, row, column
