"""`policy=auto` compared with every fixed choice of policy and granularity.

    table: {kind: choices, settings: {LABEL OF A ROW: {model: tree_lstm, mode: train}, ...}}

The best fixed choice is that with the highest throughput. The excess time is the percentage by
which auto takes longer than the best fixed choice, paired by round; below 0, auto is faster.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from dynbatch.harness.contracts.choice import Choice
from dynbatch.harness.contracts.policy import AUTO
from dynbatch.harness.records.numbers import numbers, ratios, select_fastest
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import DAGGER, EN_DASH, Table, format_number
from dynbatch.plots.tables.declared import select_settings

TIME, EXCESS = "mini_batch_ms", "excess_percent"
GRANULARITY = "system.options.granularity"
PLURALS = {"vertex": "vertices", "operator": "operators"}


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per setting."""
    results = evaluate(experiment)
    texts = [_format_cell(number) for _, number in results.iterrows()]
    shown = results.assign(text=texts).set_index("setting")
    auto, best = shown[shown.policy == AUTO], shown[shown.is_best]
    columns = {
        "chosen by auto": auto.chosen,
        "auto (ms)": auto.text,
        "best fixed choice": best.policy + ", " + best.granularity.map(PLURALS),
        "best fixed (ms)": best.text,
        "excess time of auto (%)": shown.text[shown.quantity == EXCESS],
    }
    index = pd.Index(results.setting.unique(), name="workload")
    cells = pd.DataFrame(columns, index=index).replace("", EN_DASH)
    return build_only_table(experiment, results, cells, is_text=True)


def evaluate(experiment: Experiment) -> pd.DataFrame:
    """Compute the times of all choices, and the excess time of auto in each setting.

    Returns:
        A row per number: setting, policy, granularity, is_best (of fixed choices), chosen (by
        auto), policy_search_s (median seconds of auto's search) and columns of `numbers`.
    """
    (settings,) = experiment.declaration.read_keys("table", settings=dict[str, dict[str, Any]])
    rows = select_settings(experiment.rows, settings)
    rows = rows.assign(granularity=rows[GRANULARITY].mask(rows.policy == AUTO, ""))
    fixed, auto = rows[rows.policy != AUTO], rows[rows.policy == AUTO]
    best = select_fastest(fixed, ["setting"])
    times = numbers(rows, ["setting", "policy", "granularity", "point"], TIME)
    searches = auto.assign(chosen=auto.get("policy_choice", "")).groupby("point")
    searched = searches.agg({"chosen": describe_chosen, "policy_search_s": "median"})
    times = times.assign(is_best=times.point.isin(best.point))
    times = times.join(searched, on="point", validate="1:1")
    slower = ratios(auto, best, ["setting"], TIME)
    slower[EXCESS] = 100 * (slower.ratio - 1)
    excess = numbers(slower, ["setting"], EXCESS).assign(is_best=False)
    return pd.concat([times.drop(columns="point"), excess], ignore_index=True)


def describe_chosen(choices: pd.Series[str]) -> str:
    """Describe the choices of auto, each with its number of rounds."""
    texts = [text for text in choices.fillna("") if text]
    chosen = [TypeAdapter(Choice).validate_json(text).chosen for text in texts]
    counts = Counter(f"{choice.policy}, {PLURALS[choice.granularity]}" for choice in chosen)
    return "; ".join(f"{name} ({n} of {len(texts)})" for name, n in counts.most_common())


def _format_cell(number: pd.Series) -> str:
    if number.quantity != EXCESS or number.status != "ok":
        return format_number(number)
    ends = "" if pd.isna(number.low) else f" ({number.low:+.1f} to {number.high:+.1f})"
    return f"{number.value:+.1f}{ends}" + DAGGER * bool(number.warnings)
