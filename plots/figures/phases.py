"""Where the time of a pass goes: construction, scheduling, execution as stacked bars.

show: {rows: model, daggers: true}   # a row of panels for each of its values; daggers warn
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from plots.drawing.frame import head_and_foot
from plots.drawing.rows import Room, frame, placed
from plots.drawing.style import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.points import Point, measure_of
from plots.numbers.series import GROUP_TITLES, Panel
from plots.numbers.table import DAGGER, three_digits
from plots.numbers.tidy import write_rows
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import find, listed, rows_of_trials

QUANTITIES = ("construct_ms", "schedule_ms", "execution_ms")
# Name, colour and hatch of each part, and of what a system cannot tell apart.
LOOKS = {
    "construct_ms": ("construction", "#E69F00", "////"),
    "schedule_ms": ("scheduling", "#0072B2", "...."),
    "execution_ms": ("execution", "#BBBBBB", ""),
    "both": ("scheduling and execution, not told apart", "#BBBBBB", "xxxx"),
}
BAR_IN, LEGEND_IN = 0.24, 0.78


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_phases(artefact), results_dir / stem)
    keys = (artefact.presentation.show["rows"], "system", "batch_size", "hidden_size")
    write_rows(results_dir / f"{stem}.csv", rows_of_trials(artefact, keys, QUANTITIES))


def draw_phases(artefact: Artefact) -> Figure:
    """A row of panels per workload, a bar per system; one row shares its x axis."""
    key = artefact.presentation.show["rows"]
    groups = artefact.compare
    values = {artefact.label(value): value for value in listed(artefact, key)}
    rows = {label: [Panel(g, GROUP_TITLES[g], ()) for g in groups] for label in values}
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", notes_of(artefact))
    n_bars = max(map(len, groups.values()))
    figure = frame(text, len(rows), len(groups), Room(BAR_IN * n_bars + 0.1, LEGEND_IN, 1.3, 1.1))
    for axes, panel, row, _ in placed(figure, rows):
        value = list(values.values())[row]
        _draw_bars(axes, artefact, key, value, groups[panel.group])
        axes.set_xlim(0, 1.22 * _longest(artefact, key, value))
        if row == len(rows) - 1:
            axes.set_xlabel("ms per mini-batch")
    figure.legend(
        handles=[Patch(fc=c, hatch=h, ec="white", label=name) for name, c, h in LOOKS.values()],
        loc="lower center",
        bbox_to_anchor=(0.5, figure.axes[-1].get_position().y0 - 0.68 / figure.get_figheight()),
        ncols=len(LOOKS),
        columnspacing=1.2,
    )
    head_and_foot(figure, text)
    return figure


def parts_of(point: Point) -> dict[str, float]:
    """Milliseconds by part, what is not told apart as one; empty where nothing was measured."""
    measured = {name: measure_of(point, name).summary for name in QUANTITIES}
    parts = {name: one.median for name, one in measured.items() if one is not None}
    if "execution_ms" in parts and "schedule_ms" not in parts:
        parts["both"] = parts.pop("execution_ms")
    return parts


def _draw_bars(
    axes: Axes, artefact: Artefact, key: str, value: str, systems: Sequence[str]
) -> None:
    for place, system in enumerate(systems):
        point = find(artefact, system=system, **{key: value})
        parts = parts_of(point) if point else {}
        left = 0.0
        for name, width in parts.items():
            _, color, hatch = LOOKS[name]
            axes.barh(
                place, width, left=left, height=0.7, color=color, hatch=hatch, ec="white", lw=0
            )
            left += width
        axes.annotate(
            _words(point, left) if parts else _status(point),
            (left, place),
            xytext=(2, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axes.set_yticks(range(len(systems)), [artefact.label(system) for system in systems])
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(systems) - 0.4, -0.6)


def _words(point: Point | None, total: float) -> str:
    warned = point is not None and point.warnings
    return three_digits(total) + (DAGGER if warned else "")


def _status(point: Point | None) -> str:
    return "not run" if point is None else point.status


def _longest(artefact: Artefact, key: str, value: str) -> float:
    points = [point for point in artefact.points if str(point.settings[key]) == value]
    return max((sum(parts_of(point).values()) for point in points), default=1.0) or 1.0
