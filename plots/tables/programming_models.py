"""Programming models for dynamic networks, with a row for each example system.

    table:
      kind: programming_models
      ways: # entries in the paper's words; a row for each of `systems`
        - {way: Fold, systems: [fold], expresses: any, batches: by depth, optimizes: whole graph}

The kinds of instances that run here follow from the models of each system (conf/system). The
percentage of graph construction is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.planning.kinds import SystemFile
from dynbatch.harness.planning.yaml_files import read_choices
from dynbatch.harness.records.numbers import NOT_PLANNED, numbers
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.declaration import Keys
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import Table, format_number
from dynbatch.plots.tables.code_lines import find_system

RUN_HERE = {"chain": "sequences", "tree": "trees", "lattice": "lattices"}
PROGRAMS, EXECUTION = "programs", "execution"
HEADERS = {
    "expresses": (PROGRAMS, "paper: expresses"),
    **{name: (PROGRAMS, f"here: {name}") for name in RUN_HERE.values()},
    "batches": (EXECUTION, "batches graphs"),
    "share": (EXECUTION, "graph construction (%)"),
    "optimizes": (EXECUTION, "optimizes ahead"),
}


@dataclass(frozen=True, slots=True)
class ProgrammingModel(Keys):
    """Programming model, in the words of the paper."""

    way: str
    expresses: str
    systems: Sequence[str]
    batches: str
    optimizes: str


def build(experiment: Experiment) -> list[Table]:
    """Build the table: the paper's words, runnable instances and graph construction by system."""
    results = evaluate(experiment)
    texts = results.assign(share=[format_number(row) for _, row in results.iterrows()])
    cells = texts[[*HEADERS]].set_axis(pd.MultiIndex.from_tuples(HEADERS.values()), axis=1)
    heads = results.way + ": " + results.system.map(experiment.label)
    cells.index = pd.Index(heads, name="programming model")
    return build_only_table(experiment, results, cells)


def evaluate(experiment: Experiment) -> pd.DataFrame:
    """Compute a row per system: the paper's words, runnable instances, graph construction (%)."""
    (ways,) = experiment.declaration.read_keys("table", ways=list[ProgrammingModel])
    results = pd.DataFrame(ways).explode("systems", ignore_index=True)
    results = results.rename(columns={"systems": "system"})
    systems = [find_system(experiment, name, "table.ways") for name in results.system]
    kinds = [list_kinds(system, experiment.conf_dir) for system in systems]
    for kind, name in RUN_HERE.items():
        results[name] = ["yes" if kind in runs else "no" for runs in kinds]
    shares = numbers(experiment.rows, ["system"], "construction_percent")
    results = results.merge(shares, on="system", how="left", validate="1:1")
    return results.fillna({"status": NOT_PLANNED})


def list_kinds(system: SystemFile, conf_dir: Path) -> frozenset[str]:
    """Return the instance kinds of a system's models, without importing its framework."""
    models = read_choices("model", conf_dir, "model")
    modules = (content["model"] for name, content in models.items() if system.can_run(name))
    return frozenset(find_model_class(module).instance_kind for module in modules)
