"""Properties of frameworks in a paper's words, next to what runs and is measured here.

table:
  kind: frameworks
  models: [tree_lstm, drnn] # how many of them a system runs shows how general it is
  frameworks: # a row each, in the paper's words; without `system`, nothing of it runs here
    - {framework: Fold, system: fold, batches: "yes", analysis: dynamic, libraries: high,
       generality: medium, effort: low, performance: low}
"""

from __future__ import annotations

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


def build(experiment: Experiment) -> list[Table]:
    """Build the table: the paper's words, then the models and the speed of each system."""
    results = evaluate(experiment)
    texts = results.assign(speed=[format_number(row) for _, row in results.iterrows()])
    cells = texts[[*HEADERS]].set_axis(pd.MultiIndex.from_tuples(HEADERS.values()), axis=1)
    cells.index = pd.Index(results.framework, name="framework")
    return build_only_table(experiment, results, cells, is_text=True)


def evaluate(experiment: Experiment) -> pd.DataFrame:
    """Compute a row per framework: the paper's words, models that run, and throughput."""
    frameworks, models = experiment.declaration.read_keys(
        "table", frameworks=list[Framework], models=list[str]
    )
    known = list_choices("model", experiment.conf_dir)
    for model in models:
        check_name(experiment.declaration.file, "model in table.models", model, known)
    results = pd.DataFrame(frameworks).assign(label=EN_DASH, runs=EN_DASH)
    for row, framework in enumerate(frameworks):
        if framework.system:
            system = find_system(experiment, framework.system, "table.frameworks")
            n_run = sum(map(system.can_run, models))
            results.loc[row, ["label", "runs"]] = system.label, f"{n_run} of {len(models)}"
    speeds = numbers(experiment.rows, ["system"], SPEED)
    results = results.merge(speeds, on="system", how="left", validate="1:1")
    return results.fillna({"status": NOT_PLANNED, "quantity": SPEED, "warnings": ""})
