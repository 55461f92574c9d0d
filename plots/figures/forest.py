"""Forest plot: the engine's speedup over each framework and over C++, a row per workload.

figure:
  kind: forest
  also: [heat]
  band: 1.17         # medians of unchanged code differed by less between earlier and later rounds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dynbatch.plots import captions
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.figures.bars import add_key
from dynbatch.plots.tables.answers import BY_HAND, evaluate_answers
from dynbatch.plots.tables.cells import DAGGER, EN_DASH, format_ratio

ROW_IN, REST_IN = 0.265, 0.8
HEADS = ("fastest framework", "speedup over it", "over C++")
GAP_PT, RATIO_PT = 8, 80  # in front of each column; width of a ratio with its interval


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    (band,) = experiment.declaration.read_keys("figure", band=float)
    results = evaluate_answers(experiment)
    figure = draw_forest(results, band)
    page.add_title(figure, captions.build_title(experiment))
    conditions = captions.describe_conditions(experiment)
    page.add_caption(figure, describe_forest(results, band, conditions))
    return figure, results


def draw_forest(numbers: pd.DataFrame, band: float) -> Figure:
    """Draw a mark for the speedup over each framework's fastest baseline; the fastest is filled.

    On the right are its name and the speedups over it and over C++ by hand, in bold if the interval
    is outside the band.
    """
    marks = select_marks(numbers)
    fastest = marks[marks.is_fastest].set_index("workload").sort_values("speedup", kind="stable")
    manual = marks[marks.framework == BY_HAND].set_index("workload")
    rows = [*manual.index.difference(fastest.index), *fastest.index]
    looks = page.find_looks(sorted(set(marks.framework)))
    figure = page.start_figure(ROW_IN * max(1, len(rows)) + REST_IN)
    axes = figure.subplots()
    axes.axvspan(1 / band, band, color="#dcdcdc", zorder=0.5, linewidth=0)
    axes.axvline(1, color=page.INK, linewidth=0.8, zorder=1)
    _draw_marks(axes, marks, rows, looks)
    for y in range(1, len(rows), 2):
        axes.axhspan(y - 0.5, y + 0.5, color="#f5f5f5", zorder=0, linewidth=0)
    name_in = max(map(page.measure_text, [HEADS[0], *fastest.label]))
    name_pt, *ratios_pt = np.cumsum([GAP_PT, 72 * name_in + GAP_PT, RATIO_PT + GAP_PT])
    for head, x_pt in zip(HEADS, (name_pt, *ratios_pt), strict=True):
        _write(axes, len(rows) - 0.1, x_pt, head, "bold")
    for y, workload in enumerate(rows):
        if workload in fastest.index:
            label, framework = fastest.loc[workload, ["label", "framework"]]
            _write(axes, y, name_pt, label, color=looks[framework].color)
        for side, x_pt in zip((fastest, manual), ratios_pt, strict=True):
            _write(axes, y, x_pt, *_describe_speedup(side, workload, band))
    axes.set(xscale="log", ylim=(-0.5, max(1, len(rows)) - 0.5))
    axes.set_xlabel("speedup of the engine (log scale)")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0, labelsize=page.TEXT_PT)
    axes.grid(visible=False, axis="y")
    page.set_ticks(axes.xaxis, page.choose_log_ticks(*axes.get_xlim()))
    add_key(figure, {name: Line2D([], [], **look.mark) for name, look in looks.items()})
    return figure


def _draw_marks(
    axes: Axes, marks: pd.DataFrame, rows: Sequence[str], looks: Mapping[str, page.Look]
) -> None:
    """Draw each framework's mark and interval at its own height within the workload's row."""
    frameworks = list(looks)
    for _, row in marks.iterrows():
        shift = (len(frameworks) - 1) / 2 - frameworks.index(row.framework)
        y, look = rows.index(row.workload) + 0.8 * shift / len(frameworks), looks[row.framework]
        width, size, inside = (1.7, 4.8, look.color) if row.is_fastest else (0.9, 3.7, "white")
        axes.hlines(y, row.speedup_low, row.speedup_high, color=look.color, linewidth=width)
        axes.plot(row.speedup, y, mfc=inside, markersize=size, zorder=3, **look.mark)


def _write(
    axes: Axes, y: float, x_pt: float, text: str, weight: str = "normal", color: str = page.INK
) -> None:
    """Write a text to the right of the axes, `x_pt` points from them."""
    axes.annotate(
        text, (1, y), (x_pt, 0), axes.get_yaxis_transform(), "offset points",
        va="center_baseline", fontweight=weight, color=color,
    )  # fmt: skip


def _describe_speedup(side: pd.DataFrame, workload: str, band: float) -> tuple[str, str]:
    """Return the speedup over one side as text, over C++ without interval, and its weight."""
    if workload not in side.index:
        return EN_DASH, "normal"
    row: Any = side.loc[workload]
    is_beyond = row.speedup_low > band or row.speedup_high < 1 / band
    low, high = (row.speedup_low, row.speedup_high) if row.is_fastest else (np.nan, np.nan)
    text = format_ratio(row.speedup, low, high, row.speedup_warnings)
    return text, "bold" if is_beyond else "normal"


def select_marks(numbers: pd.DataFrame) -> pd.DataFrame:
    """Select each framework's fastest baseline, and C++ by hand.

    Returns:
        A row per workload and framework; `is_fastest` marks the workload's fastest framework.
    """
    baselines = numbers[~numbers.is_engine.astype(bool) & numbers.speedup.notna()]
    ranked = baselines.sort_values("speedup", kind="stable")
    marks = ranked.drop_duplicates(["workload", "framework"])
    fastest = marks[marks.framework != BY_HAND].drop_duplicates("workload").index
    return marks.assign(is_fastest=marks.index.isin(fastest)).sort_index()


def describe_forest(numbers: pd.DataFrame, band: float, conditions: str) -> str:
    """Return the caption, which explains marks and band and gives statistics.

    With a long name of a processor, it omits what else would not fit.
    """
    marks = select_marks(numbers)
    missing = numbers.workload.nunique() - marks.workload.nunique()
    printed = marks[marks.is_fastest | (marks.framework == BY_HAND)]
    rounds = [int(n) for n in printed.speedup_n_rounds]
    others = [int(n) for n in marks.speedup_n_rounds.drop(printed.index)]
    ends = captions.describe_ends(rounds)
    several = f"median of {captions.format_range(rounds)} ratios within rounds" if rounds else ""
    optional = [  # the least important first
        f"other marks: {captions.format_range(others)} rounds" if others and ends else "",
        f"workloads without a number: {missing}" if missing else "",
    ]
    for n in range(len(optional) + 1):
        caption = captions.join_sentences(
            "right of 1 the engine is faster; filled: the fastest framework",
            f"numbers: {several}, {ends} (not shown for C++)" if ends else "",
            f"numbers: {captions.ONE_ROUND}" if rounds and not ends else "",
            *optional[n:],
            f"gray band: unchanged code drifts by less than {band}; bold: beyond it",
            f"{DAGGER} measured with warnings" if marks.speedup_warnings.any() else "",
            conditions,
        )
        if len(page.wrap_caption(caption)) <= page.CAPTION_LINES:
            break
    return caption
