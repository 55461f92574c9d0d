"""Typed options of systems, models and datasets, and their checks.

A type is a bool, int, float, str, or a Literal of strings; any of them may be `| None`, or have the
annotations of harness/values/checked.py. Values are not converted, so that records have the values
as given and as used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any, TypeVar

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.checked import check_value, find_field_types

Options = TypeVar("Options")
LARGEST = 2**32  # largest number; results of counting or drawing with it fit in 64 bits


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Options of a system that takes none."""


def import_named(key: str, name: str, example: str) -> ModuleType:
    """Import the module that a key of the configuration names.

    Raises:
        ConfigError: It does not exist.
        ModuleNotFoundError: A module that it imports does not exist.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{key}={name} is not a module; set one such as {example}") from None


def import_complete(key: str, name: str, example: str) -> ModuleType:
    """Import a model or a loader, which needs all of its own imports, as `import_named` does.

    Raises:
        ConfigError: It does not exist, or cannot be imported.
    """
    try:
        return import_named(key, name, example)
    except (ConfigError, MemoryError):
        raise
    except Exception as error:
        raise ConfigError(
            f"{key}={name} cannot be imported ({type(error).__name__}: {error}); fix the module"
        ) from error


def read_options(kind: type[Options], values: Mapping[str, Any], owner: str) -> Options:
    """Build a system's options from the values in its YAML and on the command line.

    Raises:
        ConfigError: An option is unknown, or its field does not allow the value.
    """
    check_options("system", find_field_types(kind), values, owner)
    return kind(**values)


def format_options(options: Any) -> dict[str, str]:
    """Format all options, including defaults, for a record."""
    return {item.name: format_value(getattr(options, item.name)) for item in fields(options)}


def format_value(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_options(
    group: str, allowed: Mapping[str, Any], values: Mapping[str, Any], owner: str
) -> None:
    """Check that options are known and have allowed values.

    Args:
        allowed: Type of each option by name; the owner checks values of other types than those of
            this module.

    Raises:
        ConfigError: An option is unknown, or its type does not allow the value.
    """
    for name, value in values.items():
        key = f"{group}.options.{name}"
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            raise ConfigError(f"unknown option {key} for {owner}; valid options: {known}")
        check_value(key, value, allowed[name])
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise ConfigError(f"{key}={value} is not allowed: expected at most {LARGEST}")
