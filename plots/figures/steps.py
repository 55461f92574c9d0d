"""From one preset to another, a switch at a time, as bars: how a mini-batch's time falls.

show:
  settings:                      # words of a group of bars: what its trials have
    Tree-LSTM: {model: tree_lstm}
  words: {fusion: kernel fusion} # of each step by its option; or left out
  daggers: true                  # daggers warn, here as in tables

The walk is the experiment's own (harness/planning/walks.py), whose trials are `along` it. Bars are
the median time over that of the start, by round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.planning.grid import read_experiment
from harness.planning.walks import Walk, read_walks
from plots.drawing.frame import head_and_foot
from plots.drawing.rows import Room, frame
from plots.drawing.saving import save_figure
from plots.numbers.artefact import Artefact
from plots.numbers.points import Measured, Point, measure_of, speedup_of
from plots.numbers.table import three_digits
from plots.numbers.tidy import Row, write_rows
from plots.tables.walks import find_step, settings_of
from plots.words.figure_text import FigureText
from plots.words.notes import notes_of, subtitle_of, title_of
from plots.words.trial_cells import numbers_of

TIME = "mini_batch_ms"
AXES_IN, LEGEND_IN, WIDTH_IN = 2.3, 0.62, 0.5
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "", "oooo")


@dataclass(frozen=True, slots=True)
class Bar:
    """After some steps of a walk in one group. relative: of the start's time, in percent."""

    n_steps: int
    time: Measured
    relative: Measured


def make(artefact: Artefact, results_dir: Path) -> None:
    """Write figures/<name>.pdf, .png and .csv."""
    (stem,) = artefact.presentation.stems
    save_figure(draw_steps(artefact), results_dir / stem)
    write_rows(results_dir / f"{stem}.csv", [*rows_of(artefact)])


def walk_of(artefact: Artefact) -> Walk:
    """The walk of the experiment; the first, where it has several."""
    content = read_experiment(artefact.name, artefact.conf_dir)
    return next(iter(read_walks(artefact.name, content, artefact.conf_dir).values()))


def words_of_steps(artefact: Artefact, walk: Walk) -> list[str]:
    """Of the start, and of what each step adds."""
    said = artefact.presentation.show.get("words", {})
    return ["none", *(f"+ {said.get(step.option, step.option)}" for step in walk.steps)]


def bars_of(artefact: Artefact, walk: Walk, group: str) -> list[Bar]:
    """The bars of a group that its scale has trials for."""
    settings = settings_of(artefact)[group]
    points: dict[int, Point] = {}
    for n in range(len(walk.steps) + 1):
        point = find_step(artefact, walk.walked(n), settings)
        if point is not None:
            points[n] = point
    start = points.get(0)
    return [
        Bar(n, measure_of(point, TIME), speedup_of(point, start, TIME))
        for n, point in points.items()
    ]


def draw_steps(artefact: Artefact) -> Figure:
    """A group of bars for each workload; below it what the time was, and what it became."""
    walk, groups = walk_of(artefact), [*settings_of(artefact)]
    words = words_of_steps(artefact, walk)
    text = FigureText(title_of(artefact), subtitle_of(artefact), "", "", notes_of(artefact))
    n_rows = -(-len(words) // 3)
    figure = frame(text, 1, 1, Room(AXES_IN, LEGEND_IN + 0.165 * n_rows))
    width = max(7.2, 1.2 * len(groups) + 1.0)
    figure.set_size_inches(width, figure.get_size_inches()[1])
    figure.subplots_adjust(left=0.62 / width, right=1 - 0.15 / width)
    (axes,) = figure.axes
    colors = mpl.colormaps["cividis"]
    ticks = []
    for place, group in enumerate(groups):
        bars = bars_of(artefact, walk, group)
        for bar in bars:
            color = colors(bar.n_steps / max(1, len(words) - 1))
            _draw_bar(axes, place, len(words), bar, color)
        ticks.append(f"{group}\n{_from_to(bars)}")
    shown = {bar.n_steps for group in groups for bar in bars_of(artefact, walk, group)}
    for n, label in enumerate(words):
        if n not in shown:
            continue
        color = colors(n / max(1, len(words) - 1))
        axes.bar(0, 0, color=color, hatch=HATCHES[n], edgecolor="white", linewidth=0, label=label)
    axes.set_xticks(range(len(groups)), ticks)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.axhline(100, color="#888888", linewidth=0.8, zorder=0)
    axes.set_ylabel("time of a mini-batch\n(% of that with none)")
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.4 / AXES_IN), ncols=3)
    head_and_foot(figure, text)
    return figure


def _draw_bar(axes: Axes, place: int, n_bars: int, bar: Bar, color: object) -> None:
    width = 0.86 / n_bars
    x = place + (bar.n_steps - (n_bars - 1) / 2) * width
    summary = bar.relative.summary
    if summary is None:
        axes.annotate(bar.relative.status, (x, 0), rotation=90, ha="center", fontsize=6)
        return
    height = 100 * summary.median
    ends = [summary.low or summary.median, summary.high or summary.median]
    axes.bar(
        x,
        height,
        width=width * 0.94,
        color=color,
        hatch=HATCHES[bar.n_steps],
        edgecolor="white",
        linewidth=0,
        yerr=[[height - 100 * ends[0]], [100 * ends[1] - height]],
        error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
    )
    mark = "†" if bar.relative.warnings else ""
    axes.annotate(
        f"{height:.0f}{mark}",
        (x, 100 * ends[1]),
        xytext=(0, 1.5),
        textcoords="offset points",
        ha="center",
        fontsize=5.5,
        color="#444444",
    )


def _from_to(bars: list[Bar]) -> str:
    """What the first and the last took, in milliseconds."""
    found = [bar.time.summary for bar in (bars[0], bars[-1])]
    told = [three_digits(one.median) if one else "?" for one in found]
    return f"{told[0]} to {told[1]} ms"


def rows_of(artefact: Artefact) -> Iterator[Row]:
    """Milliseconds, and the time relative to the start's, after each step of each group."""
    walk = walk_of(artefact)
    words = words_of_steps(artefact, walk)
    for group in settings_of(artefact):
        for bar in bars_of(artefact, walk, group):
            named = {"setting": group, "step": bar.n_steps, "switch": words[bar.n_steps]}
            yield {**named, "quantity": TIME, **numbers_of(bar.time)}
            yield {**named, "quantity": "over none", **numbers_of(bar.relative)}
