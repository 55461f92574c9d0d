"""Dots: batches by policy as multiples of the lower bound, a panel for each workload.

figure:
  kind: dots
  graph: released          # or plain
  batch_size: 32
  families:                # policies of one idea: name, system with the same look, policies
    - {name: DyNet, look: dynet_policy, policies: [depth, agenda]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dynbatch.harness.records.numbers import NOT_MEASURED, merge_seeds, numbers
from dynbatch.harness.records.tidy import SEED, TYPE_SEED
from dynbatch.plots.captions import build_title, describe_processor, join_sentences
from dynbatch.plots.declaration import Keys
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.figures import page
from dynbatch.plots.figures.bars import N_COLUMNS, Bar, Panel, add_key, place_bars
from dynbatch.plots.tables.cells import format_plain

KEYS = ["model", "dataset", "batch_size", "policy"]
COUNT, BOUND, OVER_BOUND = "n_batches", "lower_bound", "over_bound"


@dataclass(frozen=True, slots=True)
class Family(Keys):
    """Policies of one idea, and the system whose color and marker their dots have."""

    name: str
    look: str
    policies: Sequence[str]


def draw(experiment: Experiment) -> tuple[Figure, pd.DataFrame]:
    graph, batch_size, families = experiment.declaration.read_keys(
        "figure", graph=Literal["plain", "released"], batch_size=int, families=list[Family]
    )
    results = evaluate_counts(experiment.counts, graph, batch_size)
    merged = merge_seeds(results)
    models = dict.fromkeys(m for sweep in experiment.sweeps for m in sweep.get_values("model"))
    panels = [
        build_panel(experiment.label(model), families, merged[merged.model == model])
        for model in models
    ]
    looks = page.find_looks((family.look for family in families), experiment.systems)
    unit = "batches over the lower bound"
    figure, placed = place_bars(panels, N_COLUMNS, unit, sharex=True, sharey=True)
    for axes, position, bar in placed:
        axes.axvline(1, color=page.INK, linewidth=0.8, zorder=1)
        for look, value in bar.lengths.items():
            axes.hlines(position, 1, value, color=looks[look].color, linewidth=0.8, alpha=0.5)
            axes.plot(value, position, zorder=3, **looks[look].mark)
    marks = {group.name: Line2D([], [], **looks[group.look].mark) for group in families}
    add_key(figure, marks)
    page.add_title(figure, build_title(experiment))
    caption = join_sentences(
        "numbers: batches of one mini-batch; dots: ratio to the lower bound (in parentheses)",
        "learned policies, drawn types: median of all seeds, line: smallest to largest",
        f"batch size {batch_size}, training split",
        describe_processor(experiment.counts),
    )
    page.add_caption(figure, caption)
    return figure, results


def evaluate_counts(rows: pd.DataFrame, graph: str, batch_size: int) -> pd.DataFrame:
    """Select the counts of one graph and batch size, for each seed of a learned policy."""
    is_shown = (rows.graph == graph) & (rows.mini_batch == 0)
    is_shown &= (rows.batch_size == batch_size) & (rows["split"] == "train")
    seeds = [key for key in (SEED, TYPE_SEED) if key in rows]
    parts = [numbers(rows[is_shown], [*KEYS, *seeds], name) for name in (COUNT, BOUND, OVER_BOUND)]
    return pd.concat(parts, ignore_index=True)


def build_panel(name: str, families: Sequence[Family], results: pd.DataFrame) -> Panel:
    """Build a panel: a row for each policy, with its number of batches next to its dot."""
    by_policy = {key: rows.iloc[0] for key, rows in results.groupby(["policy", "quantity"])}
    bars = []
    for family in families:
        for policy in family.policies:
            label, row = policy.replace("_", " "), by_policy.get((policy, OVER_BOUND))
            if row is None or row.status != "ok":
                bars.append(Bar(label, {}, NOT_MEASURED if row is None else row.status, (1, 1)))
                continue
            ends = (row.low, row.high) if row.high > row.low else None
            text = format_plain(by_policy[policy, COUNT].value)
            bars.append(Bar(label, {family.look: row.value}, text, ends))
    bound = results[results.quantity == BOUND].value.max()
    shown = "" if pd.isna(bound) else f" ({format_plain(bound)})"
    return name + shown, bars
