"""Control flow of programs, read from their source code, next to a paper's classification.

    table:
      kind: control_flow
      code: # a row each: a model, and the paper's properties of its family
        - {model: tree_lstm, paper: "REC, IFP, ICF, TCF"}

A program consists of its class's methods and the functions that they use, in the model's file and
in the parts that models share. Source of the properties: ACRoBat (Fegade et al., MLSys 2024), Table
2.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.declaration import Keys
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.tables.cells import Table
from dynbatch.plots.tables.code_lines import list_names, parse_module

SHARED = "dynbatch.harness.models.parts"
PROGRAM = "self.program"
# Methods of the writer `p` that programs call.
WAITS, BRANCHES, LOOPS = {"p.chance", "p.value"}, {"p.concurrent", "p.map", "p.fork"}, {"p.chain"}
HEADERS = {
    "iterates": "iterates (ITE)",
    "recurses": "recurses (REC)",
    "waits": "waits for values (TDC)",
    "is_parallel": "parallel in an instance (IFP)",
    "varies": "instances differ (ICF)",
    "varies_in_training": "also in training (TCF)",
}


@dataclass(frozen=True, slots=True)
class ClassifiedModel(Keys):
    """A model, and the paper's properties of its family."""

    model: str
    paper: str


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per model, yes or no per property, and the paper's letters."""
    (code,) = experiment.declaration.read_keys("table", code=list[ClassifiedModel])
    rows = pd.DataFrame(code)
    properties = [read_control_flow(experiment.conf_dir, model) for model in rows.model]
    results = pd.concat([rows.model, pd.DataFrame(properties), rows.paper], axis=1)
    cells = results.drop(columns="model").replace({True: "yes", False: "no"})
    cells = cells.rename(columns={**HEADERS, "paper": "paper: family"})
    cells.index = pd.Index(results.model.map(experiment.label), name="model")
    return build_only_table(experiment, results, cells)


def read_control_flow(conf_dir: Path, model: str) -> dict[str, bool]:
    """Return whether a model's program has each property of HEADERS."""
    module = read_mapping(conf_dir / "model" / f"{model}.yaml", "model")["model"]
    functions = _list_functions(module)
    if PROGRAM not in functions:
        raise ConfigError(f"model {model} has no program; remove it from table.code")
    names = {key: list_names(function) for key, function in functions.items()}
    used = {PROGRAM} | _collect_used(names, PROGRAM)
    called = set().union(*(names[key] for key in used))
    nodes = [node for key in used for node in ast.walk(functions[key])]
    has_loop = any(isinstance(node, ast.For | ast.While) for node in nodes)
    properties = {
        "iterates": has_loop or bool(called & LOOPS),
        "recurses": any(key in _collect_used(names, key) for key in used),
        "waits": bool(called & WAITS),
        "is_parallel": bool(called & BRANCHES),
    }
    # A program that neither loops nor recurses nor waits makes the same calls for all instances.
    properties["varies"] = properties["iterates"] or properties["recurses"] or properties["waits"]
    return {**properties, "varies_in_training": find_model_class(module).is_trainable}


def _collect_used(names: Mapping[str, set[str]], key: str) -> set[str]:
    """Collect the functions that one uses, directly or indirectly; itself only if it recurses."""
    used, waiting = set[str](), [key]
    while waiting:
        new = (names[waiting.pop()] & names.keys()) - used
        used |= new
        waiting += new
    return used


def _list_functions(module: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a module and of the parts that it imports; methods as self.NAME."""
    functions: dict[str, ast.FunctionDef] = {}
    for node in ast.walk(parse_module(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SHARED):
            functions |= _list_functions(str(node.module))
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            functions |= {f"self.{method.name}": method for method in methods}
        elif isinstance(node, ast.FunctionDef) and node not in functions.values():
            functions[node.name] = node
    return functions
