"""Answers: the engine next to the fastest framework and C++ by hand, on every headline workload.

A workload is a setting of a headline's declared table. Baselines are systems whose kind in
conf/system is `framework`; systems of kind `strategy` are presets of the shared engine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.grid import EXPERIMENT
from dynbatch.harness.records.numbers import NOT_PLANNED, RATIO, numbers, ratios
from dynbatch.plots.captions import FRAMEWORK, build_only_table, find_unplanned
from dynbatch.plots.declaration import SYSTEMS, TableDeclaration, read_declaration
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import DAGGER, EN_DASH, Table, format_ratio, format_significant
from dynbatch.plots.tables.claims import widen_intervals
from dynbatch.plots.tables.declared import select_settings

THROUGHPUT, STRATEGY = "throughput", "strategy"
WORKLOAD = ["experiment", "workload"]
KEYS = [*WORKLOAD, "hidden_size", "batch_size", "system", "is_engine"]
SPEEDUP_COLUMNS = ["value", "low", "high", "n_rounds", "status", "warnings"]
# Printed names of the packages dynbatch.systems.on_NAME.
FRAMEWORKS = {
    "on_dynet": "DyNet",
    "on_jax": "JAX",
    "on_tensorflow": "TensorFlow",
    "on_torch": "PyTorch",
    "native": "C++ by hand",
}
BY_HAND = FRAMEWORKS["native"]  # programs without a framework
ENDS = ("", "_low", "_high", "_warnings")  # of the columns of a speedup
# Columns of a baseline in the tables.
SHOWN = ["label", "value", "warnings", "speedup_n_rounds", *(f"speedup{end}" for end in ENDS)]


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per workload; its CSV ranks all baselines of each."""
    experiment.declaration.read_keys("table")
    answers = evaluate_answers(experiment)
    every = pd.concat([answers, list_unplanned(experiment)], ignore_index=True)
    every["label"] = every.system.map(experiment.label)
    note = (
        "1/s: instances per second. Fastest framework: the one with the smallest speedup over it;"
        f" {EN_DASH}: not measured, or no program in C++. The CSV has all baselines."
    )
    return build_only_table(experiment, every, arrange(answers), first=note)


def evaluate_answers(experiment: Experiment) -> pd.DataFrame:
    """Rank the engine and all baselines on every workload, the fastest first.

    Returns:
        A row per workload and system, with NUMBER_COLUMNS of its throughput, and speedup,
        speedup_low, ..., speedup_warnings of the engine over it. n_baselines and n_frameworks count
        the workload's baselines that have a speedup, and their frameworks.
    """
    results = compare_with_engine(experiment, FRAMEWORK)
    baselines = results[(results.speedup_status == "ok") & ~results.is_engine]
    groups = baselines.groupby("workload")
    return results.assign(
        is_fastest_baseline=results.index.isin(groups.head(1).index),
        n_baselines=results.workload.map(groups.system.nunique()).fillna(0).astype(int),
        n_frameworks=results.workload.map(groups.framework.nunique()).fillna(0).astype(int),
    )


def evaluate_strategies(experiment: Experiment) -> pd.DataFrame:
    """Compare the engine with each paper's strategy on every workload."""
    results = compare_with_engine(experiment, STRATEGY)
    return results[~results.is_engine].reset_index(drop=True)


def find_certain(results: pd.DataFrame) -> pd.Series[bool]:
    """Return whether the interval of each speedup, widened for few rounds, does not contain 1."""
    columns = {f"speedup_{name}": name for name in ("low", "high", "n_rounds")}
    columns["speedup"] = "value"
    low, high = widen_intervals(results[list(columns)].rename(columns=columns))
    return pd.Series((low > 1) | (high < 1), index=results.index)


def compare_with_engine(experiment: Experiment, kind: str) -> pd.DataFrame:
    """Compute throughputs of the engine and all systems of a kind, and the engine's speedups."""
    rows = select_workloads(experiment)
    rows = rows[rows.is_engine | (rows.system.map(experiment.kinds) == kind)]
    results = numbers(rows, KEYS, THROUGHPUT).drop(columns="quantity")
    speedups = numbers(ratios(rows, rows[rows.is_engine], WORKLOAD), KEYS, RATIO)
    speedups = speedups.set_index(KEYS)[SPEEDUP_COLUMNS].add_prefix("speedup_")
    speedups = speedups.rename(columns={"speedup_value": "speedup"})
    results = results.join(speedups, on=KEYS, validate="1:1")
    paired = results.speedup.fillna(np.inf)  # ratios within rounds rank better than throughputs
    order = np.lexsort((-results.value, paired, pd.factorize(results.workload)[0]))
    results = results.iloc[order].reset_index(drop=True)
    packages = {system.name: system.framework.rpartition(".")[2] for system in experiment.systems}
    labels = results.system.map(experiment.label)
    frameworks = results.system.map(packages).map(FRAMEWORKS).fillna(labels)
    return results.assign(label=labels, framework=frameworks)


def select_workloads(experiment: Experiment) -> pd.DataFrame:
    """Select the rows of all workloads, with the columns workload and is_engine."""
    parts = []
    for name, rows in experiment.rows.groupby(EXPERIMENT, sort=False):
        headline = read_declaration(str(name), experiment.conf_dir)
        table = headline.read_options("table", TableDeclaration)
        if not table.settings or THROUGHPUT not in table.values:
            raise ConfigError(
                f"{headline.file}: a headline's table needs settings and {THROUGHPUT}; add them"
            )
        selected = select_settings(rows, table.settings)
        selected = selected.assign(
            workload=headline.title.partition(":")[0] + ", " + selected.setting,
            is_engine=selected.system == headline.compare[SYSTEMS][0],
        )
        parts.append(selected)
    return pd.concat(parts, ignore_index=True)


def list_unplanned(experiment: Experiment) -> pd.DataFrame:
    """List baselines that run a workload's model, but have no trial of it at this scale."""
    listed = [
        {"experiment": name, "workload": workload, "system": system.name, "status": NOT_PLANNED}
        for (name, workload), rows in select_workloads(experiment).groupby(WORKLOAD, sort=False)
        for system in find_unplanned(experiment, rows)
    ]
    return pd.DataFrame(listed, columns=[*WORKLOAD, "system", "status"])


def select_answers(answers: pd.DataFrame) -> pd.DataFrame:
    """Return a row per workload: the engine, its speedups over the fastest framework and over C++.

    Returns:
        Columns of the workload; value, warnings and status of the engine; label, value and warnings
        of the framework, and speedup, speedup_low, speedup_high and speedup_warnings over it, which
        all end in _framework; the same columns of C++ by hand end in _manual.
    """
    engine = answers[answers.is_engine]
    rows = engine[[*WORKLOAD, "hidden_size", "batch_size", "value", "warnings", "status"]]
    sides = select_frameworks(answers), select_fastest(answers[answers.framework == BY_HAND])
    for side, suffix in zip(sides, ("_framework", "_manual"), strict=True):
        measured = side.set_index(WORKLOAD)
        rows = rows.join(measured[SHOWN].add_suffix(suffix), on=WORKLOAD, validate="1:1")
    return rows.reset_index(drop=True)


def select_frameworks(answers: pd.DataFrame) -> pd.DataFrame:
    """Select the fastest framework of each workload; C++ by hand is none."""
    return select_fastest(answers[~answers.is_engine & (answers.framework != BY_HAND)])


def select_fastest(baselines: pd.DataFrame) -> pd.DataFrame:
    """Select the baseline of each workload with the smallest speedup over it."""
    measured = baselines[baselines.speedup_status == "ok"]
    return measured.sort_values("speedup", kind="stable").drop_duplicates(WORKLOAD)


def arrange(answers: pd.DataFrame) -> pd.DataFrame:
    """Arrange answers as cells: a row per workload, the engine next to framework and C++."""
    rows = select_answers(answers).set_index("workload")
    engine = format_speeds(rows.value, rows.warnings)
    cells = {
        "hidden, batch": rows.hidden_size.astype(str) + ", " + rows.batch_size.astype(str),
        "engine (1/s)": engine.where(rows.status == "ok", rows.status),
        "fastest framework": rows.label_framework.fillna(EN_DASH),
        "its 1/s": format_speeds(rows.value_framework, rows.warnings_framework),
        "speedup over it": format_speedups(rows, "framework"),
        "speedup over C++": format_speedups(rows, "manual"),
    }
    return pd.DataFrame(cells)


def format_speeds(
    values: pd.Series[float],
    warnings: pd.Series[str],
    form: Callable[[float], str] = format_significant,
) -> pd.Series[str]:
    """Format numbers with a dagger for warnings, and a dash where there is none."""
    pairs = zip(values, warnings.fillna(""), strict=True)
    texts = [form(value) + DAGGER * bool(warned) for value, warned in pairs]
    return pd.Series(texts, values.index).where(values.notna(), EN_DASH)


def format_speedups(rows: pd.DataFrame, side: str) -> pd.Series[str]:
    """Format speedups of `select_answers` over one side, "framework" or "manual"."""
    ends = [rows[f"speedup{end}_{side}"] for end in ENDS]
    texts = pd.Series(list(map(format_ratio, *ends)), rows.index)
    return texts.where(ends[0].notna(), EN_DASH)
