"""Lines of code of each model in each system, and their ratio to the first system's.

    table:
      kind: code_lines
      models: [var_lstm, tree_lstm]         # a group of columns each
      code:                                 # a row each; the first is the base of ratios
        vertex: {networks: dynbatch.harness.models}  # keys: see CodeOf
        torch_levels: {networks: "dynbatch.systems.on_torch.models:LEVELS"}
      published: cavs_lines_of_code         # ratios of a paper (plots/published)

A line is a statement, regardless of line breaks; imports, docstrings and comments do not count. A
model's lines are the definitions that its network uses, directly or through others.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from dynbatch.harness.contracts.networks import find_network_modules, read_table_entry
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.source_code import find_module_file
from dynbatch.harness.planning.kinds import SystemFile
from dynbatch.plots.captions import build_only_table
from dynbatch.plots.declaration import Keys, check_name
from dynbatch.plots.experiment import Experiment
from dynbatch.plots.published import read_published
from dynbatch.plots.tables.cells import EN_DASH, TIMES, Table, format_plain, pivot_numbers

RATIO = "ratio"
NOT_WRITTEN = "not written"  # status of a model that a system does not have
KEYS = ["system", "model", "status", "modules"]


@dataclass(frozen=True, slots=True)
class CodeOf(Keys):
    """Location of a system's models.

    Attributes:
        networks: a table (dynbatch.harness.contracts.networks), or a package with a file for each
            model.
        shared: packages and modules with parts of models, whose definitions also count.
        also: definitions that a model receives without naming them.
        without: modules that do not count, because another system uses them.
    """

    networks: str
    shared: Sequence[str] = ()
    also: Sequence[str] = ()
    without: Sequence[str] = ()


def build(experiment: Experiment) -> list[Table]:
    """Build the table: a row per system; own lines, all lines and their ratio per model."""
    models, code, source = experiment.declaration.read_keys(
        "table", models=list[str], code=dict[str, CodeOf], published=str
    )
    published = read_published(source)
    results = pd.concat([count_lines(experiment, models, code), published], ignore_index=True)
    texts = results.assign(
        row=results.system.map(experiment.label),
        group=results.model.fillna(results.short).map(experiment.label),
        header=results.quantity.replace(RATIO, TIMES),
    )
    cells = pivot_numbers(texts, {"row": "system"}, ["group", "header"], _format)
    last = f"{published.short[0]}: {published.source[0]}"
    return build_only_table(experiment, results, cells, last=last)


def _format(number: pd.Series) -> str:
    if pd.isna(number.value):
        return EN_DASH
    return f"{number.value:.1f}" if number.quantity == RATIO else format_plain(number.value)


def count_lines(
    experiment: Experiment, models: Sequence[str], code: Mapping[str, CodeOf]
) -> pd.DataFrame:
    """Count lines for each system and model; return a row per number, with modules and status."""
    rows = []
    for name, location in code.items():
        system = find_system(experiment, name, "table.code")
        for model in models:
            # A package that systems share may have models that this system does not run.
            can_run = system.can_run(model)
            own, lines = count_model(location, model) if can_run else (0, Counter[str]())
            status, modules = "ok" if lines else NOT_WRITTEN, " ".join(sorted(lines))
            rows.append((name, model, status, modules, own, lines.total()))
    results = pd.DataFrame(rows, columns=[*KEYS, "own", "all"])
    results = results.replace({"own": 0, "all": 0}, np.nan)
    base = results[results.system == next(iter(code))].set_index("model")["all"]
    results[RATIO] = results["all"] / results.model.map(base)
    return results.melt(KEYS, var_name="quantity")


def find_system(experiment: Experiment, name: str, location: str) -> SystemFile:
    known = {system.name: system for system in experiment.systems}
    check_name(experiment.declaration.file, f"system in {location}", name, known)
    return known[name]


def count_model(code: CodeOf, model: str) -> tuple[int, Counter[str]]:
    """Count the lines of a model; none if it is not written for the system.

    Returns:
        Lines of the model's own definitions, and of all definitions that it uses, by module.

    Raises:
        ConfigError: for an undefined name in `code`, which would lower the count.
    """
    home, _, table = code.networks.partition(":")
    for name in (home, *code.shared, *code.without):
        if find_module_file(name) is None:
            raise ConfigError(f"{name} is not a module of this repository; fix table.code")
    if table and not find_network_modules(code.networks):
        raise ConfigError(f"{code.networks} is not a table of networks; fix table.code")
    own = _list_own(code.networks, model)
    used = _collect_used([*own, *code.also] if own else [], (home, *code.shared), code.without)
    for path in code.also if own else ():
        if path not in used:
            raise ConfigError(f"{path} is not defined; fix table.code")
    lines, n_own = Counter[str](), 0
    for path, statements in used.items():
        nodes = (node for statement in statements for node in ast.walk(statement))
        n = sum(map(_is_line, nodes))
        lines[path.rpartition(".")[0]] += n
        n_own += n * (path in own)
    return n_own, lines


def _list_own(networks: str, model: str) -> list[str]:
    """List a model's own definitions: those of its file, or those named by its table entry."""
    if ":" not in networks:
        module = f"{networks}.{model}"
        names = set(_read_module(module)[0])
    elif model in (modules := find_network_modules(networks)):
        module = modules[model]
        names = list_names(ast.parse(read_table_entry(networks, model)))
    else:
        return []
    _, paths = _read_module(module)
    return sorted(paths[name] for name in names & set(paths))


def _collect_used(
    waiting: list[str], followed: Sequence[str], without: Sequence[str]
) -> dict[str, list[ast.stmt]]:
    """Collect the definitions in followed modules that given ones use, directly or indirectly."""
    used: dict[str, list[ast.stmt]] = {}
    while waiting:
        path = waiting.pop()
        home, _, name = path.rpartition(".")
        is_followed = any(f"{home}.".startswith(f"{top}.") for top in followed)
        if path in used or not is_followed or home in without:
            continue
        definitions, names = _read_module(home)
        if name in definitions:
            used[path] = definitions[name]
            for text in list_names(*used[path]):
                first, _, rest = text.partition(".")
                if first in names:
                    waiting.append(f"{names[first]}.{rest}".rstrip("."))
        elif name in names:  # re-exported by an __init__.py
            waiting.append(names[name])
    return used


def list_names(*nodes: ast.AST) -> set[str]:
    """Return all names and attributes in code: {"p", "p.chain"} for `p.chain(1)`."""
    descendants = (node for top in nodes for node in ast.walk(top))
    return {ast.unparse(node) for node in descendants if isinstance(node, ast.Name | ast.Attribute)}


@cache
def parse_module(name: str) -> ast.Module:
    """Parse the file of a module; return an empty module without one."""
    path = find_module_file(name)
    return ast.parse("" if path is None else path.read_bytes())


@cache
def _read_module(module: str) -> tuple[dict[str, list[ast.stmt]], dict[str, str]]:
    """Return the statements that define each name of a module, and the full path of each name."""
    definitions, paths = defaultdict[str, list[ast.stmt]](list), dict[str, str]()
    for statement in parse_module(module).body:
        match statement:
            case ast.ImportFrom(module=str(home), names=names, level=0):
                paths |= {alias.asname or alias.name: f"{home}.{alias.name}" for alias in names}
            case ast.Import(names=names):
                paths |= {alias.asname: alias.name for alias in names if alias.asname}
            case _ if name := _find_defined(statement):
                definitions[name].append(statement)
    return definitions, paths | {name: f"{module}.{name}" for name in definitions}


def _find_defined(statement: ast.stmt) -> str:
    """Return the name that a top-level statement defines or extends, as in f.defvjp(...)."""
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return name
        case (
            ast.Assign(targets=[target, *_])
            | ast.AnnAssign(target=target)
            | ast.Expr(ast.Call(ast.Attribute() as target))
        ):
            return next((n.id for n in ast.walk(target) if isinstance(n, ast.Name)), "")
    return ""


def _is_line(node: ast.AST) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant(str())):
            return False
    return isinstance(node, ast.stmt)
