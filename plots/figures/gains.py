"""What each optimisation is worth by itself, and all together: the time without any over the time.

show:
  quantity: execution_ms         # the smaller, the better; see plots/numbers/points.py
  axis: hidden_size
  axis_label: hidden size
  base: {system: cavs, system.options.fusion: false}   # the settings of the trials without any
  gains:                         # in words, what is changed in the base
    fusion: {system.options.fusion: true}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from plots.drawing.frame import (
    draw_all_series,
    head_and_foot,
    legend_below,
    legend_height_in,
    log_x,
    write_statuses,
)
from plots.drawing.rows import Room, frame, placed
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.points import NOT_PLANNED, Measured, speedup_of
from plots.numbers.series import GROUP_TITLES, STRATEGIES, Mark, Panel, Series, all_x
from plots.numbers.tidy import Row, write_rows
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import listed, numbers_of, points_with

AXES_IN, WIDTH_IN = 2.0, 5.6
LEAST_TOP = 1.25  # of the y axis, so that noise does not look like a gain


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_gains(artefact), results_dir / stem)
    write_rows(results_dir / f"{stem}.csv", [*rows_of(artefact)])


def draw_gains(artefact: Artefact) -> Figure:
    """One panel: speed-ups over the base, which is the line at 1."""
    show = artefact.presentation.show
    panel = panel_of(artefact)
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", notes_of(artefact))
    room = Room(AXES_IN, legend_height_in([panel]), between=0.55)
    figure = frame(text, 1, 1, room)
    width, height = WIDTH_IN, figure.get_size_inches()[1]
    figure.set_size_inches(width, height)  # for the words around a single panel
    figure.subplots_adjust(left=0.62 / width, right=1 - 0.15 / width)
    for axes, one, _, _ in placed(figure, {"": [panel]}):
        axes.axhline(1.0, color="#888888", linewidth=0.8, zorder=0)
        draw_all_series(axes, one)
        axes.set_title(one.title)
        log_x(axes, all_x([one]), show["axis_label"])
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.95), max(high, LEAST_TOP))
        axes.set_ylabel("speed-up over none (x)")
        write_statuses(axes, one)
        legend_below(axes)
    head_and_foot(figure, text)
    return figure


def panel_of(artefact: Artefact) -> Panel:
    """A series for each gain that the grid has, a mark for each of its x."""
    gains: Mapping[str, Any] = artefact.presentation.show["gains"]
    series = []
    for words in gains:
        found = {x: gain_of(artefact, words, x) for x in xs_of(artefact)}
        marks = [
            Mark(x, m.status, m.summary, m.warnings)
            for x, m in found.items()
            if m.status != NOT_PLANNED
        ]
        series.append(Series(words, words, tuple(marks)))
    shown = tuple(one for one in series if one.marks)
    return Panel(STRATEGIES, GROUP_TITLES[STRATEGIES], shown)


def xs_of(artefact: Artefact) -> list[float]:
    """Every x of the grid, ascending."""
    return sorted({float(x) for x in listed(artefact, artefact.presentation.show["axis"])})


def gain_of(artefact: Artefact, words: str, x: float) -> Measured:
    """The base's time over that with the gain, both of the same round."""
    show = artefact.presentation.show
    at = {show["axis"]: int(x)}
    base, gained = show["base"] | at, show["base"] | show["gains"][words] | at
    without, with_it = (next(iter(points_with(artefact, one)), None) for one in (base, gained))
    return speedup_of(without, with_it, show["quantity"])


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """A row for each gain at each x."""
    show = artefact.presentation.show
    for words in show["gains"]:
        for x in xs_of(artefact):
            named = {"gain": words, show["axis"]: x, "quantity": f"{show['quantity']} speed-up"}
            yield {**named, **numbers_of(gain_of(artefact, words, x))}
