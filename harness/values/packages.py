"""Names of this project's package and of modules in it."""

from __future__ import annotations

from collections.abc import Collection

PACKAGE = __name__.partition(".")[0]


def is_part_of(module: str, directories: Collection[str]) -> bool:
    """Return whether a module is in one of these top-level directories of this project."""
    package, _, inner = module.partition(".")
    return package == PACKAGE and inner.partition(".")[0] in directories


def find_adapter_package(adapter: str) -> str:
    """Return an adapter's package: on_torch for dynbatch.systems.on_torch.levels, or my_system.

    Older records have names without the first package: systems.on_torch.levels.
    """
    return strip_package(adapter).partition(".")[0]


def strip_package(adapter: str) -> str:
    """Return an adapter's name without our package: on_torch.levels, or my_system.fast."""
    return adapter.removeprefix(f"{PACKAGE}.").removeprefix("systems.")
