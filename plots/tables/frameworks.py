"""Properties of frameworks in a paper's words, next to what runs and is measured here.

table:
  kind: frameworks
  models: [tree_lstm, drnn] # how many of them a system runs shows how general it is
  frameworks: # a row each, in the paper's words; without `system`, nothing of it runs here
    - {framework: Fold, system: fold, batches: "yes", analysis: dynamic, libraries: high,
       generality: medium, effort: low, performance: low}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from dynbatch.harness.planning.yaml_files import list_choices
from dynbatch.harness.records.numbers import NOT_PLANNED, numbers
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.declaration import Keys, check_name
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import EN_DASH, Table, format_number
from dynbatch.plots.tables.code_lines import find_system

PAPER, HERE, SPEED = "paper", "here", "throughput"
HEADERS = {
    "batches": (PAPER, "batches by itself"),
    "analysis": (PAPER, "analysis"),
    "libraries": (PAPER, "use of vendor libraries"),
    "generality": (PAPER, "generality"),
    "effort": (PAPER, "user effort"),
    "performance": (PAPER, "performance"),
    "label": (HERE, "system"),
    "runs": (HERE, "models that run"),
    "speed": (HERE, "instances/s"),
}


@dataclass(frozen=True, slots=True)
class Framework(Keys):
    """Framework, in the words of the paper, and the system that represents it here."""

    framework: str
    batches: str
    analysis: str
    libraries: str
    generality: str
    effort: str
    performance: str
    system: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Keys of the table."""

    frameworks: Sequence[Framework]
    models: Sequence[str]


def build(experiment: Experiment) -> list[Table]:
    """Build the table: the paper's words, then the models and the speed of each system."""
    results = evaluate(experiment)
    texts = results.assign(speed=[format_number(row) for _, row in results.iterrows()])
    cells = texts[[*HEADERS]].set_axis(pd.MultiIndex.from_tuples(HEADERS.values()), axis=1)
    cells.index = pd.Index(results.framework, name="framework")
    return build_only_table(experiment, results, cells, is_text=True)


def evaluate(experiment: Experiment) -> pd.DataFrame:
    """Compute a row per framework: the paper's words, models that run, and throughput."""
    options = experiment.declaration.read_options("table", Options)
    known = list_choices("model", experiment.conf_dir)
    for model in options.models:
        check_name(experiment.declaration.file, "model in table.models", model, known)
    results = pd.DataFrame(options.frameworks)
    runs, labels = [], []
    for name in (framework.system for framework in options.frameworks):
        system = find_system(experiment, name, "table.frameworks") if name else None
        n_run = sum(map(system.can_run, options.models)) if system else 0
        runs.append(f"{n_run} of {len(options.models)}" if system else EN_DASH)
        labels.append(system.label if system else EN_DASH)
    speeds = numbers(experiment.rows, ["system"], SPEED)
    results = results.assign(label=labels, runs=runs).merge(
        speeds, on="system", how="left", validate="1:1"
    )
    return results.fillna({"status": NOT_PLANNED, "quantity": SPEED, "warnings": ""})
