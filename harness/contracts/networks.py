"""Lookup of the modules that have a framework's network of a model, without importing them.

Modules list their networks in tables, dictionaries by the name of the model:

    LEVELS = {"tree_lstm": TreeLSTM}    # in systems/on_torch/models/trees.py

"dynbatch.systems.on_torch.models:LEVELS" names all tables of that name in the modules of a package,
or the table of a single module. Adapters, the selection of systems for a model and the hash of a
trial's code read tables from source, without importing a framework.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.source_code import find_module_file, read_table_entries


def find_network_modules(name: str) -> dict[str, str]:
    """Return the module of every model in a table; empty if no module defines such a table.

    Args:
        name: A package or a module, a colon and the table's name.

    Raises:
        ConfigError: Two modules have a network of the same model, or one is not valid Python.
    """
    home, _, table = name.partition(":")
    modules: dict[str, str] = {}
    for module, path in _list_modules(home):
        for model in read_table_entries(path, table):
            if model in modules:
                raise ConfigError(
                    f"{name} has model {model} in {modules[model]} and in {module}; remove one"
                )
            modules[model] = module
    return modules


def read_table_entry(name: str, model: str) -> str:
    path = find_module_file(find_network_modules(name)[model])
    assert path is not None
    return read_table_entries(path, name.partition(":")[2])[model]


def load_network(name: str, model: str) -> Any:
    """Import the module of a model's network and return the model's entry in its table."""
    module = importlib.import_module(find_network_modules(name)[model])
    return getattr(module, name.partition(":")[2])[model]


def explain_missing_network(model: str, name: str) -> str | None:
    """Return the reason if no module has a network of a model, or None."""
    known = find_network_modules(name)
    if model in known:
        return None
    return f"{name} has no model {model}; choose one of {', '.join(sorted(known))}"


def explain_unrunnable(model: Model, name: str) -> str | None:
    """Return the reason if a table has no network for a model and its instances, or None."""
    return explain_missing_network(model.name, name) or explain_binary_only(model)


def explain_binary_only(model: Model) -> str | None:
    """Return the reason if a framework's network of binary trees gets others, or None."""
    if model.max_children is None:
        return None
    return (
        f"networks of frameworks run binary trees, but these have up to {model.max_children}"
        " children; set dataset.options.binarize=right for all systems"
    )


def _list_modules(home: str) -> list[tuple[str, Path]]:
    """Return a module, or the modules of a package, by name."""
    path = find_module_file(home)
    if path is None:
        return []
    if path.name != "__init__.py":
        return [(home, path)]
    return [(f"{home}.{own.stem}", own) for own in sorted(path.parent.glob("[!_]*.py"))]
