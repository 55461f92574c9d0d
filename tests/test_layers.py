"""Layers of the code: a file imports only from lower layers, and no file imports a command."""

from __future__ import annotations

import ast

from dynbatch.harness.values.paths import is_part_of
from tests.support.layers import (
    LAYERS,
    MODULES,
    PACKAGES,
    imported_at_run_time,
    imported_by,
    layer_of,
    reachable,
    tree_of,
)


def names_in(tree: ast.AST) -> set[str]:
    """Return the modules that are imported in a tree, ours or not."""
    nodes = list(ast.walk(tree))
    plain = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    return plain | {node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)}


def late_imports_of(module: str) -> set[str]:
    """Return the modules that are imported inside functions of a module."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = (node for node in ast.walk(tree_of(module)) if isinstance(node, kinds))
    return set().union(*map(names_in, functions))


def test_reachable_finds_circles_only_where_they_are() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert [m for m in graph if m in reachable(graph, m)] == ["b", "c"]


def test_examples_stand_in_the_expected_layers() -> None:
    low = ("errors", "values.instances", "machine.facts", "compiler.compiled", "vertex.tracing")
    middle = ("contracts.corpus", "policies.levels", "granularity.operators")
    high = ("engine.lowering.plan", "reference", "trials.spec", "records.record")
    chain = [f"dynbatch.harness.{name}" for name in (*low, *middle, *high)]
    chain += ["dynbatch.systems.on_core.vertex", "dynbatch.harness.measuring.worker"]
    chain += ["dynbatch.harness.counts.counting", "dynbatch.harness.terminal.reporting"]
    chain += ["dynbatch.plots.figures.page", "dynbatch.harness.commands.bench"]
    assert set(chain) <= set(MODULES)
    layers = [layer_of(module) for module in chain]
    assert layers == sorted(set(layers))


def test_every_module_has_a_layer_of_its_own_folder() -> None:
    prefixes = {prefix for layer in LAYERS for prefix in layer}
    for module in MODULES:
        parts = module.split(".")
        folders = {".".join(parts[:depth]) + "." for depth in (2, 3)}
        assert ({module} | folders) & prefixes, module
        assert module in PACKAGES or layer_of(module) > 0 or module == "dynbatch.harness.errors", (
            module
        )


def test_harness_does_not_import_user_extensions() -> None:
    """Only commands import datasets, and systems are loaded by name through their contract."""
    for module in (m for m in MODULES if m.startswith("dynbatch.harness.")):
        more = ("datasets", "plots") if module.startswith("dynbatch.harness.commands.") else ()
        wrong = [name for name in imported_by(module) if not is_part_of(name, ("harness", *more))]
        assert not wrong, f"{module} imports {', '.join(sorted(wrong))}"


def test_a_module_imports_from_its_left_only() -> None:
    wrong = sorted(
        f"{module}: {name}"
        for module in MODULES
        for name in imported_by(module)
        if layer_of(name) > layer_of(module)
    )
    assert not wrong, f"imported from a layer to the right: {', '.join(wrong)}"


def test_nothing_imports_an_entry_point() -> None:
    entry = {name for name in MODULES if name.startswith("dynbatch.harness.commands.")}
    importers = {module: imported_by(module) & entry for module in MODULES}
    assert {module: names for module, names in importers.items() if names} == {}


def test_imports_stand_at_the_top() -> None:
    late = {f"{module}: {name}" for module in MODULES for name in late_imports_of(module)}
    assert not late, f"imported inside a function: {', '.join(sorted(late))}"


def test_there_are_no_import_cycles() -> None:
    graph = {module: imported_at_run_time(module) for module in MODULES}
    circular = sorted(module for module in graph if module in reachable(graph, module))
    assert not circular, f"modules that import themselves in a circle: {', '.join(circular)}"


def test_a_system_imports_one_framework_only() -> None:
    frameworks = {"torch", "dynet", "_dynet", "tensorflow", "jax"}
    for name in (m for m in MODULES if m.startswith("dynbatch.systems.")):
        tops = {imported.split(".")[0] for imported in names_in(tree_of(name))}
        used = {"dynet" if top == "_dynet" else top for top in tops & frameworks}
        assert len(used) <= 1, f"{name} imports {', '.join(sorted(used))}; one framework an adapter"
