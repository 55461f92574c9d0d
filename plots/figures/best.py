"""A quantity against one axis, a row of panels per workload, each mark the best over another key.

show:
  quantity: throughput            # the larger, the better; see plots/numbers/points.py
  axis: hidden_size
  axis_label: model size
  unit: instances/s
  rows: model                     # a row of panels for each of its values
  best_over: batch_size
  merged: {dynet_depth: dynet}    # a system that counts as another, whose best is taken
  labels: {dynet: the better}     # where a system is called otherwise than usual
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from plots.drawing.frame import (
    draw_all_series,
    head_and_foot,
    legend_below,
    legend_height_in,
    log_x,
    log_y,
    shared_limits,
    write_statuses,
)
from plots.drawing.rows import Room, frame, placed
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, Point, measure_of
from plots.numbers.series import GROUP_TITLES, Mark, Panel, Series, all_x
from plots.numbers.tidy import Row, write_rows
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import listed

AXES_IN = 1.35


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_best(artefact), results_dir / stem)
    write_rows(results_dir / f"{stem}.csv", rows_of(artefact))


def draw_best(artefact: Artefact) -> Figure:
    """A row of panels per workload; ours of one row share their y axis."""
    show = artefact.presentation.show
    rows = {
        artefact.label(value): [_panel(artefact, group, value) for group in artefact.compare]
        for value in listed(artefact, show["rows"])
    }
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", notes_of(artefact))
    first = next(iter(rows.values()))
    figure = frame(text, len(rows), len(first), Room(AXES_IN, legend_height_in(first)))
    limits = [shared_limits(panels) for panels in rows.values()]
    for axes, panel, row, column in placed(figure, rows):
        draw_all_series(axes, panel)
        is_last = row == len(rows) - 1
        log_x(axes, all_x([panel]), show["axis_label"] if is_last else "")
        log_y(axes, limits[row][column])
        write_statuses(axes, panel)
        if column == 0:
            axes.set_ylabel(show["unit"])
        if is_last:
            legend_below(axes)
    head_and_foot(figure, text)
    return figure


def _panel(artefact: Artefact, group: str, row: str) -> Panel:
    merged = artefact.presentation.show.get("merged", {})
    systems = [name for name in artefact.compare[group] if name not in merged]
    series = (_series(artefact, row, system) for system in systems)
    return Panel(group, GROUP_TITLES[group], tuple(one for one in series if one.marks))


def _series(artefact: Artefact, row: str, system: str) -> Series:
    axis = artefact.presentation.show["axis"]
    marks = []
    for x in sorted({float(value) for value in listed(artefact, axis)}):
        points = points_at(artefact, row, system, x)
        if points:
            _, measured = best_of(artefact, points)
            marks.append(Mark(x, measured.status, measured.summary, measured.warnings))
    labels = artefact.presentation.show.get("labels", {})
    return Series(system, labels.get(system, artefact.label(system)), tuple(marks))


def points_at(artefact: Artefact, row: str, system: str, x: float) -> list[Point]:
    """All points of which one mark shows the best."""
    show = artefact.presentation.show
    members = {system, *(name for name, of in show.get("merged", {}).items() if of == system)}
    return [
        point
        for point in artefact.points
        if point.settings["system"] in members
        and str(point.settings[show["rows"]]) == row
        and float(point.settings[show["axis"]]) == x
    ]


def best_of(artefact: Artefact, points: Sequence[Point]) -> tuple[Point, Measured]:
    """The point with the largest median; the first where none has a number."""
    quantity = artefact.presentation.show["quantity"]
    measured = [(point, measure_of(point, quantity)) for point in points]
    return max(measured, key=lambda pair: pair[1].summary.median if pair[1].summary else -1.0)


def rows_of(artefact: Artefact) -> list[Row]:
    """Every point, and whether it is the best of its mark."""
    show = artefact.presentation.show
    merged = show.get("merged", {})
    rows: list[Row] = []
    for point in artefact.points:
        settings = point.settings
        row, x = str(settings[show["rows"]]), float(settings[show["axis"]])
        shown_as = merged.get(settings["system"], settings["system"])
        measured = measure_of(point, show["quantity"])
        best, _ = best_of(artefact, points_at(artefact, row, shown_as, x))
        summary = measured.summary
        rows.append(
            {
                show["rows"]: row,
                "system": settings["system"],
                "shown_as": shown_as,
                show["axis"]: settings[show["axis"]],
                show["best_over"]: settings[show["best_over"]],
                show["quantity"]: summary.median if summary else None,
                "low": summary.low if summary else None,
                "high": summary.high if summary else None,
                "interval": summary.ends if summary else "",
                "n_rounds": len(point.records),
                "is_best": best is point,
                "status": measured.status,
                "warnings": " ".join(measured.warnings),
            }
        )
    return rows
