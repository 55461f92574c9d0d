"""Which code may read a time: the harness alone measures, and no system knows when."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.machine.remembered import remembered
from harness.trials.sources import imported_files

MODULES = ("time", "timeit")
# The stopwatch of PyTorch's CUDA events.
NAMES = ("elapsed_time", "enable_timing")
HARMLESS = ("time.sleep",)  # as an import from the module


def clock_fault(adapter: str) -> str | None:
    """Say that a system reads the time, or None.

    Looked at are its module and all that it imports of the same package and ours, but the harness.
    """
    for name, path in sorted(imported_files([adapter]).items()):
        if name.partition(".")[0] not in ("harness", "datasets"):
            found = _readings(path, "")
            if found:
                return f"{name} reads the time ({found[0]}), which only the harness may"
    return None


@remembered
def _readings(content: bytes, _: str) -> list[str]:
    return list(readings(content.decode()))


def readings(source: str) -> Iterator[str]:
    """Everything in a file that may read a time, by the name under which it is found."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES and not node.level:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if name not in HARMLESS)
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in NAMES:
            yield node.arg
