"""Roofline plot: operations per second against operations per byte, and the machine's limits.

    figure:
      kind: scatter
      trials: {"Tree-LSTM training": {system: vertex, model: tree_lstm}}   # a mark each
      bounds: [products, products_cut]       # systems; the fastest of their trials is the flat roof
      bandwidths: {copies in memory: {system: copies}}                     # a sloped roof each

Bytes are those that the steps of the engine's plans read and write. Work whose operands stay in a
cache may therefore exceed the memory roof.

Source: Williams, Waterman and Patterson, "Roofline", CACM 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dynbatch.harness.records.numbers import numbers
from dynbatch.plots.captions import build_caption, build_title
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.tables.cells import format_significant
from dynbatch.plots.tables.declared import select

FLOPS, BYTES, INTENSITY = MARK = ("gflop_per_s", "gbyte_per_s", "flop_per_byte")
ROOF, TRIAL, BOUND = "roof", "trial", "matmuls only"
ROOFS = "lines: upper bounds of the machine for matmuls and copies; the CSV lists warnings"
AXES_IN, LEFT_IN = 3.3, 0.45
Selections = dict[str, dict[str, Any]]  # settings by label


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    trials, bounds, bandwidths = experiment.declaration.read_keys(
        "figure", trials=Selections, bounds=list[str], bandwidths=Selections
    )
    results = evaluate_roofline(experiment.rows, trials, bounds, bandwidths)
    figure = draw_roofline(experiment, results, trials)
    page.add_title(figure, build_title(experiment))
    page.add_caption(figure, build_caption(experiment, ROOFS, axis=("hidden_size",)))
    return figure, results


def evaluate_roofline(
    rows: pd.DataFrame, trials: Selections, bounds: Sequence[str], bandwidths: Selections
) -> pd.DataFrame:
    """Compute the roofs, and speed, bandwidth and intensity of each planned trial."""
    parts = []
    for what, names, selections in ((ROOF, [BYTES], bandwidths), (TRIAL, MARK, trials)):
        for label, wanted in selections.items():
            chosen = select(rows, wanted).assign(what=what, of=label)
            first = chosen[chosen.point == chosen.point.min()]
            parts += [numbers(first, ["what", "of"], name) for name in names if len(first)]
    flat = numbers(rows[rows.system.isin(bounds)], ["point"], FLOPS)
    fastest = flat.sort_values("value", ascending=False, kind="stable").head(1)
    parts.append(fastest.drop(columns="point").assign(what=ROOF, of=BOUND))
    return pd.concat(parts, ignore_index=True)


def draw_roofline(experiment: Experiment, results: pd.DataFrame, trials: Selections) -> Figure:
    """Draw roofs as lines and trials as marks with intervals, all with labels."""
    looks = page.find_looks((trial["system"] for trial in trials.values()), experiment.systems)
    looks = {label: looks[trial["system"]] for label, trial in trials.items()}
    shown = results[results["what"] == TRIAL]
    texts = shown["of"] + (": " + shown.status).where(shown.value.isna(), "")
    names = dict(zip(shown["of"], texts, strict=True))
    figure = page.start_figure(AXES_IN + 0.45)
    names_in = page.NAME_IN + max(map(page.measure_text, names.values()))
    axes = page.place_axes(figure, LEFT_IN, 0.05, page.WIDTH_IN - LEFT_IN - names_in, AXES_IN)
    axes.set(xscale="log", yscale="log", ylabel="GFLOP/s in forward and backward")
    axes.set_xlabel("floating-point operations per byte that a step reads or writes")
    ends = {}
    for label, rows in shown[shown.value.notna()].groupby("of", sort=False):
        by, look = rows.set_index("quantity"), looks[str(label)]
        x, y = ends[str(label)] = (by.value[INTENSITY], by.value[FLOPS])
        axes.vlines(x, by.low[FLOPS], by.high[FLOPS], color=look.color, linewidth=0.9)
        axes.plot(x, y, **look.mark)
    roofs = results[results["what"] == ROOF]
    speeds = results[results.quantity == FLOPS].value
    right = shown[shown.quantity == INTENSITY].value.max() * 1.5
    left = speeds.max() / roofs[roofs.quantity == BYTES].value.max()
    for _, row in roofs[roofs.status == "ok"].iterrows():
        is_flat, unit = row.quantity == FLOPS, "GFLOP/s" if row.quantity == FLOPS else "GB/s"
        ys = np.array([row.value, row.value] if is_flat else [speeds.min() / 1.5, speeds.max()])
        xs = (left, right) if is_flat else ys / row.value
        axes.plot(xs, ys, color=page.GRAY, linewidth=1.0, zorder=1)
        axes.text(
            xs[0], ys[0], f"  {row.of}: {format_significant(row.value)} {unit}",
            rotation=0 if is_flat else np.degrees(np.arctan(row.value)), va="bottom",
            rotation_mode="anchor", transform_rotates_text=True, color=page.DIM,
            fontsize=page.SMALL_PT,
        )  # fmt: skip
    page.set_ticks(axes.xaxis, page.choose_log_ticks(*axes.get_xlim()))
    page.set_ticks(axes.yaxis, page.choose_log_ticks(*axes.get_ylim()))
    page.add_names(axes, list(names.items()), looks, ends)
    return figure
