"""Seconds per epoch of data movement and of arithmetic, in training and in inference.

    table: {kind: moving, systems: {cavs: Cavs, dynet: DyNet}, epoch: 8544, published: cavs_table2}

Counting memory operations costs time, so that trials with `profile` measure data movement only. If
a system has no number for it, the table shows all of its computation as an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from dynbatch.harness.records.numbers import numbers, ratios
from dynbatch.plots.captions import MODES, build_only_table
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.published import PUBLISHED, read_published
from dynbatch.plots.tables.cells import PAPER, Table, format_number, pivot_numbers

MOVING, ARITHMETIC, COMPUTATION = "moving_s", "arithmetic_s", "computation_s"
PARTS = {MOVING: "memory", ARITHMETIC: "computation"}
KEYS = ["batch_size", "mode", "system"]


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per batch size; a column per part, mode and system, ours first."""
    systems, epoch, source = experiment.declaration.read_keys(
        "table", systems=dict[str, str], epoch=int, published=str
    )
    results, published = evaluate(experiment, systems, epoch), read_published(source)
    every = pd.concat([results, published], ignore_index=True)
    whole = every[every.quantity == COMPUTATION].set_index(KEYS)
    shown = every[every.quantity.isin(PARTS)]
    names = shown.system.replace(systems)
    texts = shown.assign(
        group=shown.quantity.map(PARTS) + ", " + shown["mode"].map(MODES),
        label=names.where(shown.status != PUBLISHED, PAPER + names),
    )

    def format_part(number: pd.Series) -> str:
        if number.quantity != ARITHMETIC or number.status in ("ok", PUBLISHED):
            return format_number(number)
        upper = whole.loc[tuple(number[KEYS])]
        return f"{'≤ ' * (upper.status == 'ok')}{format_number(upper)}"

    rows = {"batch_size": "batch size"}
    cells = pivot_numbers(texts, rows, ["group", "label"], format_part).sort_index()
    last = f"{PAPER.capitalize()}{published.source.iloc[0]}."
    return build_only_table(experiment, every, cells, last=last)


def evaluate(experiment: Experiment, systems: Mapping[str, str], epoch: int) -> pd.DataFrame:
    """Compute data movement, arithmetic and all of the computation, in seconds per epoch."""
    rows = experiment.rows[experiment.rows.system.isin(systems)]
    is_profiled = rows["system.options.profile"].isin([True])
    plain, moving = rows[~is_profiled], rows[is_profiled]
    # `ratios` pairs rounds: `base` is the data movement in the same round.
    parts = ratios(
        plain.assign(part=plain[COMPUTATION]), moving.assign(part=moving[MOVING]), KEYS, "part"
    )
    parts[ARITHMETIC] = (parts.part - parts.base).clip(lower=0)
    sources = {MOVING: moving, ARITHMETIC: parts, COMPUTATION: plain}
    frames = [numbers(source, KEYS, quantity) for quantity, source in sources.items()]
    every = pd.concat(frames, ignore_index=True)
    every[["value", "low", "high"]] *= epoch
    return every
