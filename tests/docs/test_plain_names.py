"""Functions begin with a verb, a class name means one thing, and variables name what they hold."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dynbatch.harness.values.paths import ROOT

TOPS = ("dynbatch", "harness", "systems", "datasets", "plots", "scripts")
VERBS = set((Path(__file__).parent / "verbs.txt").read_text(encoding="utf-8").split())
PREDICATES = {"is", "has", "can", "should", "probe_file", "to", "from", "as"}  # and conversions
# What contracts, frameworks and commands prescribe.
CONTRACTS = {
    *("main", "forward", "backward", "leaf", "output", "outputs", "mini_batch", "result", "loss"),
    *("gradients", "parameters", "facts"),
}
# Vertex functions of models, operators, and contracts that return a fact are nouns.
MAX_NOUNS = 0.05
# Each module of its kind has one: adapters, backends, networks, and options of tables and figures.
OF_CONTRACTS = {"Adapter", "Backend", "Levels", "Network", "NoOptions", "Options", "Recursive"}
VAGUE = {"of", "one", "found", "told", "said"}
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def read_trees() -> list[tuple[Path, ast.Module]]:
    """Return the syntax tree of every module outside the tests."""
    paths = [path for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))]
    return [(path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))) for path in paths]


def has_verb(name: str) -> bool:
    """Return whether a function's name begins with a verb, or is one that Python prescribes."""
    first = name.strip("_").split("_")[0]
    return name.startswith("__") or first in VERBS | PREDICATES or name in CONTRACTS


def is_property(function: FunctionNode) -> bool:
    """Return whether a function is read like an attribute, whose name is a noun."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def find_vague_variables(tree: ast.AST) -> Iterator[str]:
    """Yield the names of parameters and variables that say nothing; fields of classes may."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in VAGUE:
            yield f"line {node.lineno}: {node.arg}"
        if not isinstance(node, ast.Name) or id(node) in fields:
            continue
        if isinstance(node.ctx, ast.Store) and node.id in VAGUE:
            yield f"line {node.lineno}: {node.id}"


def test_functions_begin_with_a_verb() -> None:
    functions = [
        (path, node)
        for path, tree in read_trees()
        for node in ast.walk(tree)
        if isinstance(node, FunctionNode) and not is_property(node)
    ]
    nouns = [f"{path}: {node.name}" for path, node in functions if not has_verb(node.name)]
    assert len(nouns) <= MAX_NOUNS * len(functions), nouns


def test_a_class_name_means_one_thing() -> None:
    """A model and its networks in frameworks, each in a directory `models`, have one name."""
    places = defaultdict(list)
    for path, tree in read_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name not in OF_CONTRACTS:
                places[node.name].append(path)
    twice = {
        name: paths
        for name, paths in places.items()
        if len(paths) > 1 and {path.parent.name for path in paths} != {"models"}
    }
    assert twice == {}


def test_variables_have_descriptive_names() -> None:
    vague = [
        f"{path}, {name}" for path, tree in read_trees() for name in find_vague_variables(tree)
    ]
    assert vague == []
