"""How quantities grow with each of several sizes: a panel for each pair, with fitted exponents.

show:
  quantities: {mini_batch_ms: ms per mini-batch}   # a row of panels each, and its unit
  axes:                                            # a column each
    batch_size: {label: batch size, at: [{hidden_size: 128}]}   # settings of its points: the first
                                                   # of these for which the scale has several x
  systems: [vertex, torch_levels]                  # a curve each
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from plots.drawing.frame import (
    draw_all_series,
    head_and_foot,
    legend_below,
    legend_height_in,
    limits_of,
    log_x,
    log_y,
    panel_looks,
    write_statuses,
)
from plots.drawing.rows import Room, frame, placed
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.points import Point, measure_of
from plots.numbers.power_law import PowerLaw, fitted
from plots.numbers.series import SYSTEMS, Mark, Panel, Series, all_x
from plots.numbers.tidy import Row, write_rows
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import numbers_of, points_with

AXES_IN, TEXT_PT = 1.55, 6.0


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_scaling(artefact), results_dir / stem)
    write_rows(results_dir / f"{stem}.csv", [*rows_of(artefact)])


def draw_scaling(artefact: Artefact) -> Figure:
    """A row of panels for each quantity, which share no axis: all are logarithmic."""
    show = artefact.presentation.show
    rows = {
        unit: [panel_of(artefact, quantity, axis) for axis in show["axes"]]
        for quantity, unit in show["quantities"].items()
    }
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", notes_of(artefact))
    first = next(iter(rows.values()))
    figure = frame(text, len(rows), len(first), Room(AXES_IN, legend_height_in(first)))
    labels = [axis["label"] for axis in show["axes"].values()]
    units = [*rows]
    for axes, panel, row, column in placed(figure, rows):
        draw_all_series(axes, panel)
        _draw_laws(axes, panel)
        axes.set_title(panel.title if row == 0 else "")
        log_x(axes, all_x([panel]), labels[column] if row == len(rows) - 1 else "")
        low, high = limits_of([panel])
        log_y(axes, (low, high * (high / low) ** (0.13 * len(panel.series))))
        write_statuses(axes, panel)
        if column == 0:
            axes.set_ylabel(units[row])
        if row == len(rows) - 1 and column == 0:
            legend_below(axes)
    head_and_foot(figure, text)
    return figure


def panel_of(artefact: Artefact, quantity: str, axis: str) -> Panel:
    """A series for each system, a mark for each x of the axis."""
    show = artefact.presentation.show
    series = (_series(artefact, quantity, axis, system) for system in show["systems"])
    label = show["axes"][axis]["label"]
    return Panel(SYSTEMS, f"against {label}", tuple(one for one in series if one.marks))


def points_along(artefact: Artefact, axis: str, system: str) -> list[Point]:
    """The points of a system that differ along an axis and in nothing else."""
    at: Sequence[Mapping[str, Any]] = artefact.presentation.show["axes"][axis]["at"]
    for settings in at:
        along = [p for p in points_with(artefact, settings) if axis in p.settings]
        if len({p.settings[axis] for p in along}) > 1:
            return [p for p in along if p.settings["system"] == system]
    return []


def _series(artefact: Artefact, quantity: str, axis: str, system: str) -> Series:
    marks = {}
    for point in points_along(artefact, axis, system):
        x, found = float(point.settings[axis]), measure_of(point, quantity)
        marks[x] = Mark(x, found.status, found.summary, found.warnings)
    return Series(system, artefact.label(system), tuple(marks[x] for x in sorted(marks)))


def law_of(series: Series) -> PowerLaw | None:
    """How its medians grow."""
    drawn = [(mark.x, mark.summary.median) for mark in series.drawn if mark.summary is not None]
    return fitted([x for x, _ in drawn], [y for _, y in drawn])


def _draw_laws(axes: Axes, panel: Panel) -> None:
    """Each law as a thin line where it was fitted, and its exponent in the upper corner."""
    looks, n_lines = panel_looks(panel), 0
    for series in panel.series:
        law = law_of(series)
        if law is None:
            continue
        color = looks[series.system].color
        xs = (law.start, law.end)
        axes.plot(xs, [law.at(x) for x in xs], color=color, linewidth=0.6, linestyle=":")
        axes.annotate(
            f"exponent {law.words}",
            (0.02, 0.98),
            xycoords="axes fraction",
            xytext=(0, -n_lines * (TEXT_PT + 1.5)),
            textcoords="offset points",
            va="top",
            fontsize=TEXT_PT,
            color=color,
        )
        n_lines += 1


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """A row for each number, then one for each exponent."""
    show = artefact.presentation.show
    for quantity, unit in show["quantities"].items():
        for axis in show["axes"]:
            for series in panel_of(artefact, quantity, axis).series:
                named = {"quantity": quantity, "unit": unit, "axis": axis, "system": series.system}
                for point in points_along(artefact, axis, series.system):
                    found = numbers_of(measure_of(point, quantity))
                    yield {**named, "x": point.settings.get(axis), **found}
                law = law_of(series)
                if law is not None:
                    exponent = {"value": law.exponent, "low": law.low, "high": law.high}
                    over = {"x": f"{law.start:g} to {law.end:g}", "interval": "95 % of the fit"}
                    yield named | {"quantity": f"exponent of {quantity}"} | over | exponent
