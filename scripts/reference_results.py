"""Results in the committed records that README.md and docs/results.md quote, as frames."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pandas as pd

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.records.numbers import RATIO, numbers, ratios
from dynbatch.harness.records.store import RecordSet, read_all_records
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from dynbatch.plots.captions import FRAMEWORK
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.drawable import select_drawable
from dynbatch.plots.experiment import Experiment, load_held
from dynbatch.plots.tables.answers import (
    KEYS,
    WORKLOAD,
    evaluate_answers,
    evaluate_strategies,
    select_frameworks,
    select_workloads,
)
from dynbatch.plots.tables.claims import NOT_MEASURABLE, judge

REFERENCE = ROOT / "results" / "reference"
FIRST_CPU = REFERENCE / "amd-epyc-zen5-2cpu-2026-11-29" / "paper"
CPUS = {
    "AMD Zen 5": FIRST_CPU,
    "Intel Xeon": REFERENCE / "intel-xeon-2cpu-2026-11-29" / "paper",
    "AMD Zen 4": REFERENCE / "amd-epyc-zen4-2cpu-2026-11-30" / "paper",
}
# Older code, which measured all others, made some strategies slower than they had to be.
STRATEGIES = REFERENCE / "amd-epyc-zen4-2cpu-2026-12-01" / "paper"
GPU, GPU_NAME = REFERENCE / "nvidia-h200-2026-11-27" / "medium", "NVIDIA H200"
# More than a ratio of unchanged code changes from one run to another, see describe_repeatability.
BETWEEN_RUNS = float(read_declaration("answers", CONF_DIR).figure["band"])
MANUAL = "native_levels"  # C++ by hand
OPENBLAS = "vertex_openblas"  # the engine with OpenBLAS for all matmuls


@cache
def load_answers(folder: Path) -> pd.DataFrame:
    """Evaluate the answers of a directory: its workloads with an engine and a baseline."""
    answers = evaluate_answers(load_results_of("answers", folder))
    workloads = answers.groupby(["experiment", "workload"], sort=False)
    return workloads.filter(has_answer).sort_values("experiment", kind="stable", ignore_index=True)


@cache
def load_strategies() -> pd.DataFrame:
    """Return the engine's speedups over the strategies, see plots/tables/answers.py."""
    rows = evaluate_strategies(load_results_of("answers", STRATEGIES))
    return rows[rows.speedup_status == "ok"].reset_index(drop=True)


@cache
def load_results_of(name: str, folder: Path) -> Experiment:
    """Load the results of one experiment from committed records."""
    held = read_reference(folder)
    return load_held(name, select_drawable({"records": folder}, os.environ, [name], held))


@cache
def read_reference(folder: Path) -> RecordSet:
    """Read the records of a committed directory."""
    return read_all_records([folder])


def has_answer(rows: pd.DataFrame) -> bool:
    return bool(rows.is_fastest_baseline.any() and (rows.status[rows.is_engine] == "ok").any())


def compare_by_openblas() -> pd.Series[float]:
    """Compute the speedup of the engine with OpenBLAS over the fastest framework, by workload.

    Raises:
        ConfigError: if it was not measured next to the framework that is fastest next to the
            engine: the fastest of the others would be taken.
    """
    rows = load_workloads()
    base = rows[rows.system == OPENBLAS]
    speedups = numbers(ratios(rows[rows.is_framework], base, WORKLOAD), KEYS, RATIO)
    speedups = speedups[speedups.status == "ok"]
    measured = set(zip(speedups.workload, speedups.system, strict=True))
    fastest = select_frameworks(load_answers(FIRST_CPU))
    for pair in zip(fastest.workload, fastest.system, strict=True):
        if pair not in measured:
            raise ConfigError(f"{': '.join(pair)} was not measured next to {OPENBLAS}; do so")
    return speedups.groupby(WORKLOAD).value.min()


@cache
def load_workloads() -> pd.DataFrame:
    """Load the rounds of all systems on the first CPU, by workload; is_framework excludes C++."""
    experiment = load_results_of("answers", FIRST_CPU)
    rows = select_workloads(experiment)
    is_framework = (rows.system.map(experiment.kinds) == FRAMEWORK) & (rows.system != MANUAL)
    return rows.assign(is_framework=is_framework)


def compare_graph_work() -> pd.DataFrame:
    """Compare the engine's work on graphs with that of C++ by hand, on the first CPU.

    Returns:
        A row per workload that C++ by hand runs: percent of the engine's and percent_manual of its
        time for construction and scheduling, and the quotient of their remaining times.
    """
    rows = load_workloads()
    values = {q: numbers(rows, KEYS, q) for q in ("instance_s", "construction_percent")}
    engine, manual = (
        {q: table[chosen(table)].set_index(WORKLOAD).value for q, table in values.items()}
        for chosen in (lambda table: table.is_engine, lambda table: table.system == MANUAL)
    )
    computing_s, manual_s = (
        side["instance_s"] * (1 - side["construction_percent"] / 100) for side in (engine, manual)
    )
    columns = {
        "percent": engine["construction_percent"],
        "percent_manual": manual["construction_percent"],
        "quotient": computing_s / manual_s,
    }
    return pd.DataFrame(columns).dropna().reset_index()


def select_policies(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Select the rounds of an experiment in training with our policy, and those with the agenda."""
    rows = load_results_of(name, FIRST_CPU).rows
    rows = rows[(rows["mode"] == "train") & (rows.status == "ok")]
    return rows[rows.policy == "critical_share"], rows[rows.policy == "agenda"]


def compare_merging() -> pd.DataFrame:
    """Compare the engine with TorchFold on Tree-FC, all vertices: both merge equals, or neither.

    Returns:
        A row per pair, with the engine, and value, low and high of its speedup.
    """
    rows = load_workloads()
    rows = rows[rows["model.options.variant"] == "cavs"]
    pairs = [("vertex_shared", "torchfold"), ("vertex", "torchfold_unshared")]
    speedups = []
    for engine, fold in pairs:
        both = ratios(rows[rows.system == fold], rows[rows.system == engine], WORKLOAD)
        speedups.append(numbers(both, KEYS, RATIO).assign(engine=engine))
    return pd.concat(speedups, ignore_index=True)


def compare_with_learned() -> pd.DataFrame:
    """Compare critical_share with the fewest batches of all learned state machines and seeds.

    Returns:
        A row per counted graph: n_batches of the policy, n_fewest, and the granularity.
    """
    counts = read_reference(FIRST_CPU).counts
    rows = pd.DataFrame([row.to_dict() for row in counts if row.status == "ok"])
    rows["model_options"] = rows.model_options.map(str)
    keys = ["model", "model_options", "dataset", "split", "batch_size", "granularity", "offset"]
    own = rows[rows.policy == "critical_share"].groupby(keys).n_batches.min()
    learned = rows[rows.policy.str.startswith("fsm_")].groupby(keys).n_batches.min()
    return pd.DataFrame({"n_batches": own, "n_fewest": learned}).dropna().reset_index()


@cache
def judge_claims() -> pd.DataFrame:
    """Return a row for each claim that committed records decide, in the order of conf/claims."""
    experiment = load_results_of("claims", FIRST_CPU)
    judged = pd.DataFrame([judge(claim, experiment)[0] for claim in experiment.claims])
    return judged[judged.verdict != NOT_MEASURABLE]
