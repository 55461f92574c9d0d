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

from dynbatch.harness.records.numbers import NOT_MEASURED, RATIO, numbers, ratios
from dynbatch.plots.captions import build_caption, build_title
from dynbatch.plots.declaration import GROUP_TITLES, PER_INSTANCE, PublishedTable, check_quantity
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.figures.curve_panels import Panel, draw_panels
from dynbatch.plots.published import PUBLISHED, read_published
from dynbatch.plots.tables.cells import format_plain
from dynbatch.plots.tables.declared import merge_variants, select
from dynbatch.plots.write import Picture

EXPONENT_POINTS, T_95 = 4, 4.303  # 97.5% quantile of Student's t with 4 - 2 degrees of freedom
LABELS = {"dataset.options.n_leaves": "leaves per tree"}  # of keys with unclear names
CURVE, GROUP, AXIS = "curve", "group", "axis"  # columns of the CSV next to keys and numbers


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

    @property
    def keys(self) -> list[str]:
        """Settings that identify a point of a curve and its panel."""
        return [key for key in (self.rows, self.x) if key]


def draw(experiment: Experiment) -> list[Picture]:
    options = experiment.declaration.read_options("figure", Options)
    for value in options.values:
        check_quantity(experiment.declaration.file, value)
    evaluate = evaluate_settings if options.settings else evaluate_groups
    results, x = (evaluate_axes if options.axes else evaluate)(experiment), options.x
    unmeasured = find_unmeasured(results, x) if x else []
    shown = results[~results[x].isin(unmeasured) | (results.status == PUBLISHED)] if x else results
    figure = draw_panels(arrange(experiment, shown))
    page.add_title(figure, build_title(experiment))
    sentences = [options.caption] if options.caption else []
    for sentence in describe_points(shown, x, unmeasured):
        if page.fits_caption(build_caption(experiment, *sentences, sentence)):
            sentences.append(sentence)
    page.add_caption(figure, build_caption(experiment, *sentences))
    return [Picture(experiment.declaration.figures["curves"], figure, results)]


def evaluate_groups(experiment: Experiment) -> pd.DataFrame:
    """Compute a curve for each system of each comparison; of variants the fastest at each x."""
    options = experiment.declaration.read_options("figure", Options)
    keys, best_over = options.keys, options.best_over
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


def evaluate_settings(experiment: Experiment) -> pd.DataFrame:
    """Compute the speedup of each setting over the base, within rounds."""
    options = experiment.declaration.read_options("figure", Options)
    base, x, parts = select(experiment.rows, options.base), options.x, []
    for label, change in options.settings.items():
        changed = select(experiment.rows, {**options.base, **change})
        for quantity in options.values if len(changed) else ():
            at = base[base[x].isin(changed[x])]
            speedups = numbers(ratios(at, changed, [x], quantity), [x], RATIO)
            parts.append(
                speedups.assign(quantity=f"{quantity} over setting", curve=label, group="")
            )
    return pd.concat(parts, ignore_index=True)


def evaluate_axes(experiment: Experiment) -> pd.DataFrame:
    """Compute all quantities along each axis, and the exponents with which they grow."""
    options = experiment.declaration.read_options("figure", Options)
    rows = experiment.rows[experiment.rows.system.isin(options.systems)]
    parts = []
    for axis, choices in options.axes.items():
        selected = [select(rows, settings) for settings in choices]
        usable = [
            part for part in selected if axis in part and len(part[axis].dropna().unique()) > 1
        ]
        along = usable[0][usable[0][axis].notna()] if usable else rows[:0]
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


def arrange(experiment: Experiment, shown: pd.DataFrame) -> list[list[Panel]]:
    """Arrange panels in columns: one for each axis, quantity or comparison."""
    options = experiment.declaration.read_options("figure", Options)
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
    return LABELS.get(key, key.rpartition(".")[2].replace("_", " "))


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
