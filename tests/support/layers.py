"""Layers of the packages, and the imports of their modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dynbatch.harness.values.paths import PACKAGE, ROOT

FOLDERS = ("harness", "systems", "datasets", "plots", "conf")
PACKAGES = (PACKAGE, *(f"{PACKAGE}.{folder}" for folder in FOLDERS))
# From lowest to highest. Modules of one layer may import each other (cycles have their own test).
# A module belongs to the longest matching prefix.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("dynbatch.harness.errors", *PACKAGES),  # bare packages: empty
    ("dynbatch.harness.values.",),
    ("dynbatch.harness.machine.",),
    ("dynbatch.harness.compiler.",),
    ("dynbatch.harness.vertex.",),
    ("dynbatch.harness.contracts.",),
    ("dynbatch.harness.programs.",),
    ("dynbatch.datasets.", "dynbatch.harness.policies.", "dynbatch.harness.models."),
    ("dynbatch.harness.granularity.",),
    ("dynbatch.harness.engine.",),
    ("dynbatch.harness.reference",),
    ("dynbatch.harness.trials.",),
    ("dynbatch.harness.records.", "dynbatch.harness.planning."),
    ("dynbatch.systems.",),
    ("dynbatch.harness.measuring.",),
    ("dynbatch.harness.counts.",),
    ("dynbatch.harness.terminal.",),
    ("dynbatch.harness.api",),
    ("dynbatch.plots.",),
    ("dynbatch.harness.commands.",),
)


def modules() -> dict[str, Path]:
    """Return every module of the project's packages by its dotted name."""
    found = {PACKAGE: ROOT / PACKAGE / "__init__.py"}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def layer_of(module: str) -> int:
    """Return the index of a module's layer."""
    fits = [
        (len(prefix), index)
        for index, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if module == prefix.rstrip(".") or f"{module}.".startswith(prefix.rstrip(".") + ".")
        if module in PACKAGES or prefix not in PACKAGES
    ]
    return max(fits)[1]


def imports_in(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield names of the project's modules that these nodes import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else node.module for name in names]
        else:
            continue
        yield from (name for name in names if name in MODULES)


@cache
def tree_of(module: str) -> ast.Module:
    """Parse a module once for all tests, which must not change the result."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@cache
def imported_by(module: str) -> frozenset[str]:
    return frozenset(imports_in(ast.walk(tree_of(module)))) - {module}


def imported_at_run_time(module: str) -> set[str]:
    """Return what a module imports outside of `if TYPE_CHECKING:`."""
    nodes = list(ast.walk(tree_of(module)))
    conditions = [node for node in nodes if isinstance(node, ast.If)]
    guards = [node for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING"]
    guarded = {id(node) for guard in guards for node in ast.walk(guard)}
    return set(imports_in(node for node in nodes if id(node) not in guarded)) - {module}


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that `start` imports, directly or through others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen
