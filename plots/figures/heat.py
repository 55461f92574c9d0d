"""Heat map: the engine's speedup over each paper's strategy, a cell per workload and strategy."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dynbatch.harness.records.stats import INTERVAL_ROUNDS
from dynbatch.plots.captions import ONE_ROUND, describe_conditions, format_range, join_sentences
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.tables.answers import evaluate_strategies, find_certain
from dynbatch.plots.tables.cells import DAGGER

ROW_IN, TOP_IN, REACH = 0.235, 0.3, 2.3  # REACH: speedup of the strongest color
TITLE = "Speedup of the engine over the strategy of each paper, on the same kernels"


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    results = evaluate_strategies(experiment)
    figure = draw_heat(results)
    page.add_title(figure, TITLE)
    page.add_caption(figure, describe_heat(results, describe_conditions(experiment)))
    return figure, results


def draw_heat(numbers: pd.DataFrame) -> Figure:
    """Draw a cell for each workload and strategy, colored by the logarithm of the speedup."""
    shown = numbers[numbers.speedup.notna()]
    largest = shown.groupby("workload").speedup.max().sort_values(kind="stable")
    medians = shown.groupby("label").speedup.median().sort_values(kind="stable")
    rows, columns = list(largest.index), list(medians.index)
    figure = page.start_figure(TOP_IN + ROW_IN * max(1, len(rows)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    shares = np.full((len(rows), len(columns)), np.nan)  # 1 at REACH; 0 if 1 is possible
    for (_, row), is_certain in zip(shown.iterrows(), find_certain(shown), strict=True):
        y, x = rows.index(row.workload), columns.index(row.label)
        shares[y, x] = np.log(row.speedup) / np.log(REACH) * is_certain
        ink = "white" if abs(shares[y, x]) > 0.72 else page.INK if is_certain else page.GRAY
        mark = DAGGER if row.speedup_warnings else ""
        axes.text(x, y, f"{row.speedup:.2f}{mark}", ha="center", va="center_baseline", color=ink)
    if len(shown):
        places = (range(len(columns)), range(len(rows)))
        axes.pcolormesh(*places, shares, cmap="PuOr_r", vmin=-1, vmax=1, ec="white", lw=1.2)
    axes.set_xticks(range(len(columns)), [label.removesuffix(" strategy") for label in columns])
    axes.set_yticks(range(len(rows)), rows)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=page.TEXT_PT)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return figure


def describe_heat(numbers: pd.DataFrame, conditions: str) -> str:
    """Return the caption, which explains digits and colors and gives statistics."""
    rounds = [int(n) for n in numbers.speedup_n_rounds.dropna()]
    several = f"median of {format_range(rounds)} ratios, each within a round" if rounds else ""
    widened = (
        " (intervals of few rounds are widened)" if min(rounds, default=0) < INTERVAL_ROUNDS else ""
    )
    return join_sentences(
        ONE_ROUND if set(rounds) == {1} else several,
        f"above 1 the engine is faster; gray digits: 1 is possible{widened}",
        "blank: no number" if numbers.speedup.isna().any() else "",
        f"{DAGGER} measured with warnings" if numbers.speedup_warnings.any() else "",
        conditions,
    )
