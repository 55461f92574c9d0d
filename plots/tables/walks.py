"""Steps from one preset of the engine to another, and the speedup of each.

    table: {kind: walks, settings: {TITLE OF COLUMNS: {model: tree_lstm, mode: train}, ...}}

The walks are a key of the experiment (harness/planning/grid.py). A speedup above 1 is a gain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from dynbatch.harness.planning.grid import Walk, read_experiment, read_walks
from dynbatch.harness.records.numbers import NOT_PLANNED, RATIO, numbers, ratios, select_fastest
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.declaration import CEILING
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import Table, format_number, format_ratio, pivot_numbers
from dynbatch.plots.tables.declared import EXTRA_KINDS, EXTRA_LABELS, select_settings

TIME, SHARE = "mini_batch_ms", "of_ceiling_percent"
LABELS = {SHARE: "% of matmul bound"}
VALUES = {True: "on", False: "off"}
KEYS = ["setting", "walk", "step", "switch", "shown"]


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per step of each walk, a group of columns per setting.

    Times vary more than their ratios, as rounds can be hours apart: only the CSV has them.
    """
    results = evaluate(experiment)
    texts = results[~results.quantity.isin((TIME, CEILING))]
    texts = texts.assign(column=texts.quantity.replace(LABELS).str.replace("_", " "))

    def format_cell(number: pd.Series) -> str:
        if number.status != "ok" or number.quantity == SHARE:
            return format_number(number)
        return format_ratio(number.value, number.low, number.high, number.warnings)

    rows = {"walk": "walk", "step": "number", "switch": "step"}
    cells = pivot_numbers(texts, rows, ["setting", "column"], format_cell)
    return build_only_table(experiment, results, cells.droplevel(["walk", "number"]))


def evaluate(experiment: Experiment) -> pd.DataFrame:
    """Compute times and speedups of all planned steps, and times of the matmul bound.

    Returns:
        A row per number: setting, walk (its start), step (0 at the start), switch (the printed
        name of the step), quantity and columns of `numbers`.
    """
    content = read_experiment(experiment.name, experiment.conf_dir)
    walks = read_walks(experiment.name, content, experiment.conf_dir)
    planned = [walks[start] for start in walks if start in set(experiment.rows.system)]
    entries = [entry for walk in planned for entry in _plan_walk(walk, experiment)]
    bound = {"walk": "", "switch": EXTRA_LABELS[CEILING], "shown": CEILING, "trial": CEILING}
    plan = pd.DataFrame([*entries, bound]).convert_dtypes()
    (settings,) = experiment.declaration.read_keys("table", settings=dict[str, dict[str, Any]])
    rows = select_settings(experiment.rows, settings)
    trials = list(map(_build_key, experiment.settings))
    rows = rows.assign(trial=[trials[point] for point in rows.point])
    is_bound = rows.system.map(experiment.kinds) == EXTRA_KINDS[CEILING]
    bounds = select_fastest(rows[is_bound], ["setting"])
    rows = pd.concat([rows[~is_bound], bounds.assign(trial=CEILING)])
    is_time, pairs = plan.base.isna(), plan[plan.base.notna()]
    # A trial belongs to several steps and has several rounds; `numbers` rejects ambiguous ones.
    above, below = (
        pairs.merge(rows, left_on=side, right_on="trial", validate="m:m")
        for side in ("trial", "base")
    )
    speedups = numbers(ratios(above, below, KEYS), KEYS, RATIO)
    times = numbers(plan[is_time].merge(rows, on="trial", validate="m:m"), KEYS, TIME)
    results = pd.concat([times, speedups[speedups.status != NOT_PLANNED]], ignore_index=True)
    results = results.drop(columns="quantity").rename(columns={"shown": "quantity"})
    results.loc[results.quantity == SHARE, ["value", "low", "high"]] *= 100
    return results


def _build_key(trial: Mapping[str, Any]) -> str:
    """Return the system and the changed options of a trial as one text."""
    keys = [key for key in trial if key == "system" or key.startswith("system.options.")]
    return json.dumps({key: trial[key] for key in keys}, sort_keys=True)


def _plan_walk(walk: Walk, experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Yield the numbers of a walk, each with its trial; ratios of times also have a base."""
    trials, switch = list(map(_build_key, walk.follow_steps())), experiment.label(walk.start)
    start, end = trials[0], trials[-1]
    for number, here in enumerate(trials):
        entries = [(TIME, here, None), (SHARE, CEILING, here)]
        if number:
            step, index = walk.steps[number - 1], number - 1
            before, after = (VALUES.get(value, value) for value in (step.before, step.after))
            ending = f" = {experiment.label(walk.end)}" if number == len(walk.steps) else ""
            switch = f"{step.option}: {before} to {after}{ending}"
            entries += [
                ("so_far", start, here),
                ("added_first", start, _build_key(walk.add_first(index))),
                ("removed_last", _build_key(walk.remove_last(index)), end),
            ]
        where = {"walk": walk.start, "step": number, "switch": switch}
        for shown, trial, base in entries:
            yield {**where, "shown": shown, "trial": trial, "base": base}
