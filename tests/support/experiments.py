"""Experiments with invented records, and the command that draws them."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from dynbatch.harness.commands import draw
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, plan_artifact, plan_counts
from dynbatch.harness.planning.config import Composer
from dynbatch.plots.declaration import read_declaration
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import Table
from tests.support.made_up_counts import write_made_up_counts, write_real_counts
from tests.support.records import Change, write_made_up_records

FIGURE, TABLE = "cavs_fig8d", "cavs_table1_tree_lstm"
KEYS = ("scale", "device", "data-root", "results-dir", "conf-dir")


Load = Callable[..., Experiment]


def change_systems(changes: Mapping[str, dict[str, Any] | None], **others: Any) -> Change:
    """Return a change of the records of some systems (None for no record), and of all others."""
    return lambda trial, _: changes.get(trial.settings["system"], others)


@cache
def plan_once(name: str, choices: Choices, composer: Composer) -> tuple[PlannedTrial, ...]:
    """Plan the trials of an experiment, which do not depend on the results directory."""
    return plan_artifact(name, choices, composer)


def write_measured(
    name: str, choices: Choices, composer: Composer, change: Change | None = None
) -> tuple[PlannedTrial, ...]:
    """Plan an experiment, and write invented records and counts for it."""
    trials = plan_once(name, replace(choices, results_dir=Path()), composer)
    write_made_up_records(trials, choices, change)
    is_graph = read_declaration(name, choices.conf_dir).draws_mini_batch
    write_counts = write_real_counts if is_graph else write_made_up_counts
    write_counts(plan_counts(name, choices), choices.results_dir)
    return trials


def build_tables(experiment: Experiment) -> list[Table]:
    table = experiment.declaration.table
    module = importlib.import_module(f"dynbatch.plots.tables.{table['kind']}")
    return list(module.build(experiment))


def select_number(numbers: pd.DataFrame, **wanted: object) -> pd.Series:
    """Return the only row of numbers with these values (`__` for a dot in a key)."""
    rows = numbers
    for key, value in wanted.items():
        rows = rows[rows[key.replace("__", ".")] == value]
    assert len(rows) == 1, f"{len(rows)} numbers have {wanted}"
    return rows.iloc[0]


def run_draw(name: str, choices: Choices, *others: str) -> int:
    """Run the command that draws experiments, and return its exit code."""
    values = {key: getattr(choices, key.replace("-", "_")) for key in KEYS}
    return draw.main([name, *others, *(f"--{key}={value}" for key, value in values.items())])


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
