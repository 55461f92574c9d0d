"""Lookup of the modules that have a framework's network of a model, without importing them.

Modules list their networks in tables, dictionaries by the name of the model:

    LEVELS = {"tree_lstm": TreeLSTM}    # in systems/on_torch/models/trees.py

"systems.on_torch.models:LEVELS" names all tables of that name in the modules of a package, or the
table of a single module. Adapters, the selection of systems for a model and the hash of a trial's
code read tables from source, without importing a framework.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.machine.source_code import module_file, table_entries


def modules_of(name: str) -> dict[str, str]:
    """Return the module of every model in a table; empty if no module defines such a table.

    Args:
        name: A package or a module, a colon and the table's name.

    Raises:
        ConfigError: Two modules have a network of the same model, or one is not valid Python.
    """
    home, _, table = name.partition(":")
    found: dict[str, str] = {}
    for module, path in _modules_in(home):
        for model in table_entries(path, table):
            if model in found:
                raise ConfigError(
                    f"{name} has model {model} in {found[model]} and in {module}; remove one"
                )
            found[model] = module
    return found


def entry_of(name: str, model: str) -> str:
    """Return the source of a model's entry in its table."""
    path = module_file(modules_of(name)[model])
    assert path is not None
    return table_entries(path, name.partition(":")[2])[model]


def load_network(name: str, model: str) -> Any:
    """Import the module of a model's network and return the model's entry in its table."""
    module = importlib.import_module(modules_of(name)[model])
    return getattr(module, name.partition(":")[2])[model]


def why_not_written(model: str, name: str) -> str | None:
    """Return the reason if no module has a network of a model, or None."""
    known = modules_of(name)
    if model in known:
        return None
    return f"model {model} is not written for it in {name}; it runs {', '.join(sorted(known))}"


def _modules_in(home: str) -> list[tuple[str, Path]]:
    """Return a module, or the modules of a package, by name."""
    path = module_file(home)
    if path is None:
        return []
    if path.name != "__init__.py":
        return [(home, path)]
    return [(f"{home}.{own.stem}", own) for own in sorted(path.parent.glob("[!_]*.py"))]
