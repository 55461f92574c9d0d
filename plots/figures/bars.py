"""Bars: stacked parts of a time, a bar per system; or the time after each step of a walk.

figure:
  kind: bars
  unit: ms per mini-batch
  parts: {construct_ms: construction, execution_ms: execution}    # quantities, in order
  sections: {Batched by hand: [dynet_manual]}  # panels of systems; by default a panel per model
  published: {table: dynet_fig2, columns: {cpu_ms: "Paper, CPU"}}   # totals; optional

figure:
  kind: bars
  unit: "% of the time at the start"
  steps: {fusion: kernel fusion}               # a label for each step of the experiment's walk
  settings: {Tree-LSTM: {model: tree_lstm}}    # a panel each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dynbatch.harness.planning.grid import read_experiment, read_walks
from dynbatch.harness.records.numbers import NOT_SEPARABLE, RATIO, numbers, ratios
from dynbatch.plots.captions import build_caption, build_title, describe_conditions, join_sentences
from dynbatch.plots.declaration import GROUP_TITLES, Keys, check_quantity
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.published import read_published
from dynbatch.plots.tables.cells import DAGGER, format_plain, format_significant
from dynbatch.plots.tables.declared import select_settings

BAR_IN, PANEL_IN, KEY_IN, N_COLUMNS = 0.17, 0.42, 0.22, 3
TIME, OVER_START = "mini_batch_ms", "mini_batch_ms over start"
SCHEDULE, TOTAL, JOINED, HATCH = "scheduling", "total", "includes scheduling", "//////"
LATE = "dynbatch.systems.on_dynet"  # schedules while it computes; others schedule in construction
WARNED = f"{DAGGER} measured with warnings, which the CSV lists"
COLORS = {  # neighbors differ in lightness, so that gray prints are readable
    "construction": "#E69F00",
    SCHEDULE: "#004C80",
    "execution": "#A6CBE3",
    "forward": "#A6CBE3",
    "backward": "#5587A2",
    "update": "#222222",
    TOTAL: "#C4C4C4",
}


@dataclass(frozen=True, slots=True)
class PublishedTotals(Keys):
    """Totals of a paper.

    Attributes:
        table: name of a file of plots/published.
        columns: title of the panel of each quantity.
    """

    table: str
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Options:
    """Keys of the figure: `parts`, or `steps` with `settings`."""

    unit: str
    parts: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    published: PublishedTotals | None = None
    steps: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.parts) == bool(self.steps and self.settings):
            raise ValueError("expected either parts, or steps and settings")


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar of stacked parts with a text after it, and the interval of the whole bar.

    Attributes:
        joined: part that includes scheduling, if that is not separable.
    """

    label: str
    lengths: Mapping[str, float]
    text: str
    ends: tuple[float, float] | None = None
    joined: str = ""


Panel = tuple[str, Sequence[Bar]]  # title and bars


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    options = experiment.declaration.read_options("figure", Options)
    if options.steps:
        results = evaluate_steps(experiment)
        panels = arrange_steps(results)
        figure = draw_bars(panels, N_COLUMNS, options.unit, sharex=True, sharey=True)
        caption = build_caption(experiment, "each step adds to those above it", WARNED)
    else:
        results = evaluate_parts(experiment)
        figure = draw_bars(*arrange_parts(experiment, results), options.unit, sharex="row")
        n_rounds = experiment.rows["round"].nunique()
        sums = f"parts: medians of up to {n_rounds} rounds; number: their sum, {options.unit};"
        sums += " scales differ by row"
        caption = join_sentences(sums, WARNED, describe_conditions(experiment))
    page.add_title(figure, build_title(experiment))
    page.add_caption(figure, caption)
    return figure, results


def evaluate_parts(experiment: Experiment) -> pd.DataFrame:
    """Compute every part of every trial, and read the totals of a paper."""
    options = experiment.declaration.read_options("figure", Options)
    keys = ["model", "system", "batch_size", "hidden_size"]
    for quantity in options.parts:
        check_quantity(experiment.declaration.file, quantity)
    frames = [numbers(experiment.rows, keys, quantity) for quantity in options.parts]
    if options.published:
        frames.append(read_published(options.published.table))
    return pd.concat(frames, ignore_index=True)


def arrange_parts(experiment: Experiment, results: pd.DataFrame) -> tuple[list[Panel], int]:
    """Arrange numbers as panels; also return the number of comparisons, a column each."""
    options = experiment.declaration.read_options("figure", Options)
    sections = {name: title for title, names in options.sections.items() for name in names}
    titles = results.system.map(sections) if sections else results.model.map(experiment.label)
    columns = options.published.columns if options.published else {}
    titles = results.quantity.map(columns).astype(object).fillna(titles)
    named = results.assign(title=titles, part=results.quantity.map(options.parts).fillna(TOTAL))
    groups = {group: names for group, names in experiment.compare.items() if len(names) > 1}
    late = {system.name for system in experiment.systems if system.framework == LATE}
    panels: list[Panel] = []
    for title, shown in named.groupby("title", sort=False):
        for group, names in groups.items():
            systems = shown[shown.system.isin(names)].groupby("system", sort=False)
            bars = [build_bar(experiment.label(name), part, name in late) for name, part in systems]
            suffix = f", {GROUP_TITLES[group]}" if len(groups) > 1 else ""
            panels.append((f"{title}{suffix}", bars))
    return panels, len(groups)


def build_bar(label: str, rows: pd.DataFrame, is_late: bool) -> Bar:
    """Stack the parts of a system's time.

    Args:
        is_late: whether scheduling that is not separable is in the part after it, or before it.
    """
    rows = rows.set_index("part")
    lengths = {str(part): value for part, value in rows.value.dropna().items()}
    if not lengths:
        return Bar(label, {}, rows.status.iloc[0])
    total = sum(lengths.values())
    text = format_plain(total) if TOTAL in lengths else format_significant(total)
    joined = ""
    if rows.status.get(SCHEDULE) == NOT_SEPARABLE:
        parts = list(rows.index)
        at = parts.index(SCHEDULE)
        # The nearest part that has a time; the one before may not be separable, either.
        near = parts[at + 1 :] if is_late else [*reversed(parts[:at]), *parts[at + 1 :]]
        joined = next((part for part in near if part in lengths), "")
    return Bar(label, lengths, text + DAGGER * any(rows.warnings), joined=joined)


def evaluate_steps(experiment: Experiment) -> pd.DataFrame:
    """Compute the time after each step of the walk, and its ratio to the time before all steps."""
    options = experiment.declaration.read_options("figure", Options)
    content = read_experiment(experiment.name, experiment.conf_dir)
    (walk,) = read_walks(experiment.name, content, experiment.conf_dir).values()
    switches = [f"+ {options.steps[step.option]}" for step in walk.steps]
    switches.insert(0, experiment.label(walk.start))
    trials, keys = list(walk.follow_steps()), {"system", *(step.key for step in walk.steps)}
    planned = [{key: trial[key] for key in keys & trial.keys()} for trial in experiment.settings]
    rows = select_settings(experiment.rows, options.settings)
    rows = rows.assign(step=rows.point.map(lambda point: trials.index(planned[point])))
    rows["switch"] = rows.step.map(dict(enumerate(switches)))
    by = ["setting", "step", "switch"]
    relative = ratios(rows, rows[rows.step == 0], ["setting"], TIME)
    frames = [numbers(rows, by, TIME), numbers(relative, by, RATIO).assign(quantity=OVER_START)]
    return pd.concat(frames, ignore_index=True)


def arrange_steps(results: pd.DataFrame) -> list[Panel]:
    """Arrange numbers as panels with a bar for the time after each step, in percent."""
    panels: list[Panel] = []
    for setting, part in results.groupby("setting", sort=False):
        bars = []
        for _, row in part[part.quantity == OVER_START].iterrows():
            lengths = {TOTAL: 100 * row.value} if row.status == "ok" else {}
            text = f"{100 * row.value:.0f}{DAGGER * bool(row.warnings)}" if lengths else row.status
            ends = (100 * row.low, 100 * row.high) if pd.notna(row.low) else None
            bars.append(Bar(row.switch, lengths, text, ends))
        start = format_significant(part[part.quantity == TIME].value.iloc[0])
        panels.append((f"{setting} (100: {start} ms)", bars))
    return panels


def draw_bars(panels: Sequence[Panel], n_columns: int, unit: str, **shared: Any) -> Figure:
    """Draw panels with stacked bars, and a legend if there are several parts."""
    figure, placed = place_bars(panels, n_columns, unit, **shared)
    handles: dict[str, Any] = {}
    for axes, position, bar in placed:
        left = 0.0
        for part, length in bar.lengths.items():
            color, hatch = COLORS[part], HATCH if part == bar.joined else ""
            handles[part] = Patch(fc=color)
            axes.barh(position, length, 0.72, left, color=color, hatch=hatch, ec="white", lw=0.4)
            left += length
    if any(bar.joined for _, _, bar in placed):
        handles[JOINED] = Patch(fc=COLORS[TOTAL], ec="white", hatch=HATCH)
    if len(handles) > 1:
        add_key(figure, handles)
    return figure


def place_bars(
    panels: Sequence[Panel], n_columns: int, unit: str, **shared: Any
) -> tuple[Figure, list[tuple[Axes, int, Bar]]]:
    """Draw panels with labels, texts and intervals, but without the bars themselves.

    Returns:
        The figure; axes and row of each bar.
    """
    n_columns = min(n_columns, len(panels))
    rows = [panels[n : n + n_columns] for n in range(0, len(panels), n_columns)]
    heights = [max(len(bars) for _, bars in row) for row in rows]
    figure = page.start_figure(BAR_IN * sum(heights) + PANEL_IN * len(rows) + 0.4)
    figure.set_layout_engine("constrained")
    figure.supxlabel(unit, fontsize=page.TEXT_PT)
    shared |= {"squeeze": False, "height_ratios": heights}
    grid = list(figure.subplots(len(rows), n_columns, **shared).flat)
    placed = []
    for n, (axes, (title, bars)) in enumerate(zip(grid, panels, strict=False)):
        axes.set(title=title, ylim=(heights[n // n_columns] - 0.5, -0.5))
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
        axes.tick_params(axis="y", length=0)
        axes.tick_params(axis="x", labelbottom=True)
        axes.grid(visible=False, axis="y")
        for position, bar in enumerate(bars):
            placed.append((axes, position, bar))
            end = bar.ends[1] if bar.ends else sum(bar.lengths.values())
            axes.hlines(position, *(bar.ends or (end, end)), color=page.INK, zorder=2)
            axes.annotate(
                bar.text, (end, position), xytext=(4, 0), textcoords="offset points",
                va="center_baseline", fontsize=page.SMALL_PT,
            )  # fmt: skip
    for axes in grid:
        axes.set_visible(bool(axes.texts))
    return figure, placed


def add_key(figure: Figure, handles: Mapping[str, Any]) -> None:
    """Add a legend in one line above the panels of a constrained layout."""
    top = 1 - KEY_IN / figure.get_size_inches()[1]
    figure.set_layout_engine("constrained", rect=(0, 0, 1, top))
    figure.legend(
        handles.values(), handles.keys(), ncols=len(handles), loc="upper left",
        bbox_to_anchor=(0, 1), bbox_transform=figure.transFigure, frameon=False,
        borderaxespad=0, handlelength=1.4, handletextpad=0.5, columnspacing=1.5,
    )  # fmt: skip
