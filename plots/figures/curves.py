"""Curves: quantities against a size, a panel per comparison.

figure:
  kind: curves
  x: batch_size
  values: {instance_s: seconds per epoch}
  epoch: 8544
  caption: An epoch is 8,544 trees.
  published: {table: dynet_fig3, model: tree_lstm}

Options describes these keys and all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynbatch.harness.records.numbers import NOT_MEASURED, RATIO, numbers, ratios
from dynbatch.plots.captions import build_caption, build_title, spell_key
from dynbatch.plots.declaration import GROUP_TITLES, PER_INSTANCE, PublishedTable, check_quantity
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.published import PUBLISHED, read_published
from dynbatch.plots.tables.cells import format_plain
from dynbatch.plots.tables.declared import merge_variants, select

EXPONENT_POINTS, T_95 = 4, 4.303  # 97.5% quantile of Student's t with 4 - 2 degrees of freedom
LABELS = {"dataset.options.n_leaves": "leaves per tree"}  # of keys with unclear names
CURVE, GROUP, AXIS = "curve", "group", "axis"  # columns of the CSV next to keys and numbers
LEFT_IN, TITLE_IN, BELOW_IN, LABEL_IN = 0.6, 0.24, 0.22, 0.15
NARROW_IN, LOW_IN, HIGH_IN, PAGE_IN = 1.0, 0.9, 2.0, 4.8  # bounds of axes; of a column
PAD_IN, SHIFT_IN = 0.13, 0.035  # from marks to the ends of an axis; between curves
TICK_IN = 0.28  # minimum distance of y ticks
TILTED: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}


@dataclass(frozen=True, slots=True)
class Options:
    """Keys of the figure.

    Attributes:
        values: label of each quantity.
        x: setting along the x axis of all panels.
        epoch: number of instances by which times are multiplied.
        caption: sentence below the figure.
        published: numbers of a paper, which get a panel.
        settings: changes of settings by label: a curve each, of speedups over the base.
        base: settings of that base.
        rows: setting with a row of panels for each value. With a single x, there is one row of
            panels, in which these values are the ticks.
        best_over: setting; each point is the best over its values, and over the systems that
            `merge` maps to one name.
        merge: common names of systems.
        labels: printed names of curves.
        axes: instead of x: a column of panels for each setting, with the first of its selections
            in which the setting has several values.
        systems: systems with a curve along `axes`.
    """

    values: Mapping[str, str]
    x: str = ""
    epoch: int = 1
    caption: str = ""
    published: PublishedTable | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base: Mapping[str, Any] = field(default_factory=dict)
    rows: str = ""
    best_over: str = ""
    merge: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    systems: Sequence[str] = ()
    axes: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.x) == bool(self.axes):
            raise ValueError("expected either x or axes")


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves in one pair of axes.

    Attributes:
        points: `curve`, `name`, `x`, `tick` (text at x), `is_shown` (whether the curve has any
            value) and the columns of numbers.
        looks: look of each curve.
        scale: panels with equal scales share their limits.
        marked: y values with a horizontal line.
        is_joined: True if lines join the points of a curve.
    """

    title: str
    x_label: str
    y_label: str
    points: pd.DataFrame
    looks: Mapping[str, page.Look]
    scale: tuple[object, ...]
    marked: tuple[float, ...]
    is_joined: bool

    @property
    def lost(self) -> pd.DataFrame:
        """Points without a value, of curves that have others."""
        return self.points[self.points.is_shown & self.points.value.isna()]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Curves and their names; those without any value come last, after their status."""
        heads = self.points.drop_duplicates("curve")
        shown, absent = heads[heads.is_shown], heads[~heads.is_shown]
        names = list(zip(shown.curve, shown["name"], strict=True))
        for status, group in absent.groupby("status", sort=False):
            names += [("", f"{status}:"), *zip(group.curve, group["name"], strict=True)]
        return names


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    options = experiment.declaration.read_options("figure", Options)
    for value in options.values:
        check_quantity(experiment.declaration.file, value)
    evaluate = evaluate_settings if options.settings else evaluate_groups
    results, x = (evaluate_axes if options.axes else evaluate)(experiment, options), options.x
    unmeasured = find_unmeasured(results, x) if x else []
    shown = results[~results[x].isin(unmeasured) | (results.status == PUBLISHED)] if x else results
    figure = draw_panels(arrange(experiment, options, shown))
    page.add_title(figure, build_title(experiment))
    sentences = [options.caption] if options.caption else []
    for sentence in describe_points(shown, x, unmeasured):
        caption = build_caption(experiment, *sentences, sentence)
        if len(page.wrap_caption(caption)) <= page.CAPTION_LINES:
            sentences.append(sentence)
    page.add_caption(figure, build_caption(experiment, *sentences))
    return figure, results


def evaluate_groups(experiment: Experiment, options: Options) -> pd.DataFrame:
    """Compute a curve for each system of each comparison; of variants the fastest at each x."""
    keys, best_over = [*filter(None, (options.rows, options.x))], options.best_over
    parts = []
    for group, systems in experiment.compare.items():
        rows = experiment.rows[experiment.rows.system.isin(systems)]
        rows = rows if best_over else merge_variants(experiment, rows, keys)
        curves = rows.get("family", rows.system).replace(options.merge)
        rows = rows.assign(curve=curves, group=group)
        by = [GROUP, CURVE, "system", *keys, *([best_over] if best_over else [])]
        parts += [numbers(rows, by, quantity) for quantity in options.values if len(rows)]
    results = pd.concat(parts, ignore_index=True)
    is_time = results.quantity.isin(PER_INSTANCE)
    results.loc[is_time, ["value", "low", "high"]] *= options.epoch
    if best_over:
        order = results.value.fillna(-1).sort_values(ascending=False, kind="stable").index
        best = results.loc[order].drop_duplicates([GROUP, CURVE, *keys]).index
        results["is_best"] = results.index.isin(best)
    if options.published:
        printed = read_published(options.published.table, options.published.model)
        printed = printed[printed.quantity.isin(list(options.values))]
        printed = printed.assign(group=PUBLISHED, curve=printed.system)
        results = pd.concat([results, printed], ignore_index=True)
    return results


def evaluate_settings(experiment: Experiment, options: Options) -> pd.DataFrame:
    """Compute the speedup of each setting over the base, within rounds."""
    base, x, parts = select(experiment.rows, options.base), options.x, []
    for label, change in options.settings.items():
        changed = select(experiment.rows, {**options.base, **change})
        for quantity in options.values if len(changed) else ():
            at = base[base[x].isin(changed[x])]
            speedups = numbers(ratios(at, changed, [x], quantity), [x], RATIO)
            speedups["quantity"] = f"{quantity} over setting"
            parts.append(speedups.assign(curve=label, group=""))
    return pd.concat(parts, ignore_index=True)


def evaluate_axes(experiment: Experiment, options: Options) -> pd.DataFrame:
    """Compute all quantities along each axis, and the exponents with which they grow."""
    rows = experiment.rows[experiment.rows.system.isin(options.systems)]
    parts = []
    for axis, choices in options.axes.items():
        selected = (select(rows, settings) for settings in choices if axis in rows)
        usable = (part.dropna(subset=axis) for part in selected)
        along = next((part for part in usable if len(part[axis].unique()) > 1), rows[:0])
        keys = [key for key in ("model", *options.axes) if key in along]
        for quantity in options.values:
            results = numbers(along, [*keys, "system"], quantity)
            results = results.assign(axis=axis, curve=results.system, group="")
            parts += [results, *fit_exponents(results, axis)]
    return pd.concat(parts, ignore_index=True)


def fit_exponents(results: pd.DataFrame, axis: str) -> Iterable[pd.DataFrame]:
    """Yield the exponent of each curve of at least four points, fitted to its largest four x.

    With fewer points the interval is meaningless. At small x, fixed costs hide the growth.
    """
    for curve, points in results[results.value > 0].groupby(CURVE, sort=False):
        largest = points.sort_values(axis).tail(EXPONENT_POINTS)
        if len(largest) < EXPONENT_POINTS:
            continue
        x, y = (np.log(largest[name].astype(float)) for name in (axis, "value"))
        (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
        reach = T_95 * covariance[0, 0] ** 0.5
        row = {"value": slope, "low": slope - reach, "high": slope + reach, "status": "exponent"}
        row |= {"interval": "95% of the fit", "system": curve, CURVE: curve, AXIS: axis, GROUP: ""}
        row |= {"quantity": f"exponent of {points.quantity.iloc[0]}"}
        yield pd.DataFrame([row])


def find_unmeasured(results: pd.DataFrame, x: str) -> list[float]:
    """Return the x values without a measurement of ours; none if no x has one."""
    ours = results[results.status != PUBLISHED]
    is_lost = (ours.status == NOT_MEASURED).groupby(ours[x]).all()
    return [] if is_lost.all() else list(is_lost.index[is_lost])


def arrange(experiment: Experiment, options: Options, shown: pd.DataFrame) -> list[list[Panel]]:
    """Arrange panels in columns: one for each axis, quantity or comparison."""
    labels, keys = options.labels, [GROUP, *([options.rows] if options.rows else [])]
    axes, is_joined = list(options.axes) or [options.x], True
    if options.rows and len(shown[options.x].unique()) == 1:
        axes, is_joined = [keys.pop()], False
    best = shown[shown.is_best] if "is_best" in shown else shown
    columns: dict[str, list[Panel]] = {}
    for quantity, y_label in options.values.items():
        for axis in axes:
            part = best[best.quantity.isin((quantity, f"{quantity} over setting"))]
            part = part[part[AXIS] == axis] if AXIS in part else part
            for key, points in part.groupby(keys, sort=False):
                group, *row = map(experiment.label, key)
                curves, xs = points[CURVE], points[axis]
                panel = Panel(
                    title=_write_title(experiment, points, axis, group, *row),
                    x_label=format_key(axis) if is_joined else "",
                    y_label=y_label,
                    points=points.assign(
                        x=xs.astype(float) if is_joined else 2.0 ** pd.factorize(xs)[0],
                        tick=xs.map(format_plain if is_joined else experiment.label),
                        name=[labels.get(curve, experiment.label(curve)) for curve in curves],
                        is_shown=points.value.notna().groupby(curves).transform("any"),
                    ),
                    looks=page.find_looks(shown[CURVE][shown[GROUP] == group], experiment.systems),
                    scale=(quantity, *row, group == PUBLISHED),
                    marked=(1.0,) if options.settings else (),
                    is_joined=is_joined,
                )
                column = axis if len(axes) > 1 else quantity if len(options.values) > 1 else group
                if column == PUBLISHED or not is_joined:  # in the first column
                    column = next(iter(columns), column)
                columns.setdefault(column, []).append(panel)
    return list(columns.values())


def _write_title(
    experiment: Experiment, points: pd.DataFrame, axis: str, group: str, row: str = ""
) -> str:
    """Write the title of a panel: a comparison, or settings ("Tree-LSTM, hidden size 256")."""
    first = points.iloc[0]
    if group == PUBLISHED:
        return f"As published ({first.device})"
    if AXIS in points:
        keys = [key for key in ("batch_size", "hidden_size") if key != axis and key in points]
        sizes = [f"{format_key(key)} {first[key]}" for key in keys if len(set(points[key])) == 1]
        return ", ".join([experiment.label(first.model), *sizes])
    return ", ".join(filter(None, (row, GROUP_TITLES.get(group, "").capitalize())))


def format_key(key: str) -> str:
    return LABELS.get(key, spell_key(key))


def describe_points(shown: pd.DataFrame, x: str, unmeasured: Sequence[float]) -> Iterable[str]:
    """Yield facts about the points of a figure, the most important first."""
    measured = shown[shown.status == "ok"]
    if unmeasured:
        yield f"Not measured: {format_key(x)} {', '.join(map(format_plain, unmeasured))}."
    if x and len(measured):
        keys = [key for key in (GROUP, "model") if key in measured]
        sizes = measured.groupby([*keys, CURVE])[x].agg(frozenset)
        if any(len(set(group)) > 1 for _, group in sizes.groupby(keys)):
            yield "Systems were measured at different points."
    if "system" in measured and (measured.system != measured[CURVE]).any():
        yield "Of the variants of a system, the fastest is shown; the CSV names it."
    n_doubted = int((measured.warnings.fillna("") != "").sum())
    if n_doubted:
        yield f"{n_doubted} of {len(measured)} numbers have warnings, see the CSV."


def draw_panels(columns: Sequence[Sequence[Panel]]) -> Figure:
    """Draw columns of panels side by side.

    If all columns have the same curves and names make axes too narrow, only the last has names.
    """
    texts = [[text for panel in column for _, text in panel.names] for column in columns]
    widths = [page.NAME_IN + 0.05 + max(map(page.measure_text, column)) for column in texts]
    for first in (0, len(columns) - 1):  # first column with names
        rights = [PAD_IN] * first + widths[first:]
        width = (page.WIDTH_IN - sum(rights)) / len(columns) - LEFT_IN
        if width >= NARROW_IN or columns[0][0].looks != columns[-1][0].looks:
            break
    width = max(width, NARROW_IN)
    panels = [panel for column in columns for panel in column]
    n_rows = max(map(len, columns))
    names_in = page.LINE_IN * max(len(panel.names) for panel in panels)
    height = max(LOW_IN, min(HIGH_IN, PAGE_IN / n_rows), names_in)
    tilted = [text for panel in panels if not panel.is_joined for text in panel.points.tick]
    below = BELOW_IN + 0.5 * max(map(page.measure_text, tilted), default=0.0)
    step = TITLE_IN + height + below
    total_width = sum(rights) + (LEFT_IN + width) * len(columns)
    figure = page.start_figure(n_rows * step + LABEL_IN, total_width)
    for n, column in enumerate(columns):
        left = LEFT_IN + sum(rights[:n]) + (LEFT_IN + width) * n
        for row, panel in enumerate(column):
            axes = page.place_axes(figure, left, row * step + TITLE_IN, width, height)
            _set_axes(axes, panel, [other for other in panels if other.scale == panel.scale])
            ends = _draw_curves(axes, panel)
            add_statuses(axes, panel.lost, panel.looks)
            page.add_names(axes, panel.names if n >= first else (), panel.looks, ends)
            axes.set_xlabel(panel.x_label if panel is column[-1] else "")
            axes.set_ylabel(panel.y_label)
    return figure


def _set_axes(axes: Axes, panel: Panel, alike: Sequence[Panel]) -> None:
    """Set ticks, and limits that all panels of a scale share, with space for marks and statuses."""
    width, height = page.measure_axes(axes)
    side = PAD_IN + min(SHIFT_IN * len(panel.looks) / 2, width / 6)
    xs = [x for other in alike if other.x_label == panel.x_label for x in other.points.x]
    xlim = _pad(xs, width, side, side)
    statuses = [text for other in alike for text in other.lost.status]
    room = max((page.measure_text(f"9 {text}", page.SMALL_PT) for text in statuses), default=0.0)
    ys = pd.concat([other.points[["value", "low", "high"]] for other in alike]).to_numpy(float)
    ylim = _pad([*ys[ys > 0], *panel.marked], height, PAD_IN + min(room, height / 2), PAD_IN)
    axes.set(xscale="log", yscale="log", xlim=xlim, ylim=ylim, title=panel.title)
    page.set_ticks(axes.yaxis, page.choose_log_ticks(*ylim, round(height / TICK_IN)))
    texts = dict(sorted(zip(panel.points.x, panel.points.tick, strict=True), reverse=True))
    style = {} if panel.is_joined else TILTED
    room = page.LINE_IN if style else 0.06 + max(page.measure_text(text) for text in texts.values())
    ticks: list[float] = []  # from the largest down, without overlap of texts
    for x in texts:
        if not ticks or ticks[-1] > x * (xlim[1] / xlim[0]) ** (room / width):
            ticks.append(x)
    axes.set_xticks(ticks, [texts[x] for x in ticks], **style)
    axes.xaxis.minorticks_off()
    for y in panel.marked:
        axes.axhline(y, color=page.GRAY, linewidth=0.8, zorder=1)


def _pad(ends: Sequence[float], size: float, before: float, after: float) -> tuple[float, float]:
    """Return limits of a logarithmic axis with margins before and after all numbers, in inches."""
    low, high = min(ends, default=1.0), max(ends, default=10.0)
    if high < low * 1.2:
        low, high = low / 1.1, high * 1.1
    per_inch = (high / low) ** (1 / (size - before - after))
    return float(low / per_inch**before), float(high * per_inch**after)


def _draw_curves(axes: Axes, panel: Panel) -> dict[str, tuple[float, float]]:
    """Draw marks, error bars and lines; return the last point of each curve.

    Curves are shifted so that no mark hides another, by at most a third of the way to the next x.
    """
    points = panel.points.dropna(subset="value")
    curves = list(dict.fromkeys(points.curve))
    low, high = np.log(axes.get_xlim())
    gaps = np.diff(np.log(np.sort(points.x.unique())))
    shift = (high - low) * SHIFT_IN * (1 if panel.is_joined else 2) / page.measure_axes(axes)[0]
    shift = min(shift, 0.35 * gaps.min(initial=np.inf) / max(1, len(curves) - 1))
    ends = {}
    for n, curve in enumerate(curves):
        part, look = points[points.curve == curve].sort_values("x"), panel.looks[curve]
        x = part.x * np.exp(shift * (n - (len(curves) - 1) / 2))
        line = look.line if panel.is_joined and len(part) > 1 else "none"
        axes.plot(x, part.value, zorder=3, **{**look.mark, "linestyle": line})
        axes.vlines(x, part.low, part.high, color=look.color, linewidth=0.9, zorder=2)
        ends[curve] = (float(x.iloc[-1]), float(part.value.iloc[-1]))
    return ends


def add_statuses(axes: Axes, lost: pd.DataFrame, looks: Mapping[str, page.Look]) -> None:
    """Write the statuses of points without a value vertically at the x axis."""
    width, height = page.measure_axes(axes)
    groups = [points for _, points in lost.groupby(["x", "status"])]
    low, high = np.log(axes.get_xlim())
    wanted = [(np.log(points.x.iloc[0]) - low) / (high - low) for points in groups]
    for position, points in zip(
        page.spread(wanted, page.LINE_IN / width, 0, 1), groups, strict=True
    ):
        text, color = str(points.status.iloc[0]), looks[points.curve.iloc[0]].color
        if len(points) > 1:
            text, color = f"{len(points)} {text}", page.DIM
        axes.text(
            position, 0.03 / height, text, transform=axes.transAxes,
            rotation=90, ha="center", va="bottom", color=color, fontsize=page.SMALL_PT,
        )  # fmt: skip
