"""Forest plot: the engine's speedup over each framework's fastest baseline, a row per workload.

figure:
  kind: forest
  also: [heat]
  band: 1.17         # medians of unchanged code differed by less between earlier and later rounds
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dynbatch.plots import captions
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.figures.bars import add_key
from dynbatch.plots.tables.answers import evaluate_answers
from dynbatch.plots.tables.cells import DAGGER, format_ratio

ROW_IN, REST_IN, SPEEDUP_PT, NAME_PT = 0.265, 0.8, 8, 112  # points: offsets from the axes


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

    Its speedup and name are on the right; bold if the interval is outside the band.
    """
    marks = select_marks(numbers)
    best = marks[marks.is_best].sort_values("speedup", kind="stable")
    rows, frameworks = list(best.workload), sorted(set(marks.framework))
    looks = page.find_looks(frameworks)
    figure = page.start_figure(ROW_IN * max(1, len(rows)) + REST_IN)
    axes = figure.subplots()
    axes.axvspan(1 / band, band, color="#dcdcdc", zorder=0.5, linewidth=0)
    axes.axvline(1, color=page.INK, linewidth=0.8, zorder=1)
    for _, row in marks.iterrows():
        shift = (len(frameworks) - 1) / 2 - frameworks.index(row.framework)
        y, look = rows.index(row.workload) + 0.8 * shift / len(frameworks), looks[row.framework]
        width, size, inside = (1.7, 4.8, look.color) if row.is_best else (0.9, 3.7, "white")
        axes.hlines(y, row.speedup_low, row.speedup_high, color=look.color, linewidth=width)
        axes.plot(row.speedup, y, mfc=inside, markersize=size, zorder=3, **look.mark)
    heads = {SPEEDUP_PT: "speedup (interval)", NAME_PT: "fastest baseline"}
    texts = [(len(rows) - 0.1, x_pt, head, "bold", page.INK) for x_pt, head in heads.items()]
    for y, (_, row) in enumerate(best.iterrows()):
        is_beyond = row.speedup_low > band or row.speedup_high < 1 / band
        text = format_ratio(row.speedup, row.speedup_low, row.speedup_high, row.speedup_warnings)
        texts.append((y, SPEEDUP_PT, text, "bold" if is_beyond else "normal", page.INK))
        texts.append((y, NAME_PT, row.label, "normal", looks[row.framework].color))
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color="#f5f5f5", zorder=0, linewidth=0)
    for y, x_pt, text, weight, color in texts:
        axes.annotate(
            text, (1, y), (x_pt, 0), axes.get_yaxis_transform(), "offset points",
            va="center_baseline", fontweight=weight, color=color,
        )  # fmt: skip
    axes.set(xscale="log", ylim=(-0.5, max(1, len(rows)) - 0.5))
    axes.set_xlabel("speedup of the engine (log scale)")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0, labelsize=page.TEXT_PT)
    axes.grid(visible=False, axis="y")
    page.set_ticks(axes.xaxis, page.choose_log_ticks(*axes.get_xlim()))
    add_key(figure, {name: Line2D([], [], **looks[name].mark) for name in frameworks})
    return figure


def select_marks(numbers: pd.DataFrame) -> pd.DataFrame:
    """Select each framework's fastest baseline; `is_best` marks the fastest on its workload."""
    baselines = numbers[~numbers.is_engine.astype(bool) & numbers.speedup.notna()]
    ranked = baselines.sort_values("speedup", kind="stable")
    marks = ranked.drop_duplicates(["workload", "framework"])
    return marks.assign(is_best=~marks.duplicated("workload")).sort_index()


def describe_forest(numbers: pd.DataFrame, band: float, conditions: str) -> str:
    """Return the caption, which explains marks and band and gives statistics."""
    marks = select_marks(numbers)
    missing = numbers.workload.nunique() - marks.workload.nunique()
    rounds = [int(n) for n in marks.speedup_n_rounds]
    several = f"ratios within rounds, {captions.describe_ends(rounds)}"
    return captions.join_sentences(
        "right of 1 the engine is faster; filled, and in numbers: the fastest of all baselines",
        f"median of {captions.format_range(rounds)} {several}" if rounds else "",
        f"gray band: a factor of {band}, more than unchanged code differed between earlier and"
        " later rounds; bold: beyond it",
        f"workloads without a number: {missing}" if missing else "",
        f"{DAGGER} measured with warnings" if marks.speedup_warnings.any() else "",
        conditions,
    )
