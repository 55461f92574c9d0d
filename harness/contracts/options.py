"""Options of systems, models and data sets: typed, checked in one place.

A type is a bool, int, float, str, or a Literal of texts; any of them may be `| None`. Nothing is
converted: what stands in a record is what was said, and what ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from harness.errors import ConfigError
from harness.values.checked import check_value, types_of

Options = TypeVar("Options")
LARGEST = 2**32  # of a whole number; what is counted or drawn with it stays within 64 bits


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of a system that takes none."""


def read_options(kind: type[Options], values: Mapping[str, Any], owner: str) -> Options:
    """Build a system's options from what its YAML and the command line say.

    owner: the module that takes them. Raises ConfigError for an unknown name, and for a value that
    its field does not allow.
    """
    check_options("system", types_of(kind), values, owner)
    return kind(**values)


def in_words(options: Any) -> dict[str, str]:
    """Every option of a value of an option type, those left out included, as a record tells it."""
    return {item.name: in_word(getattr(options, item.name)) for item in fields(options)}


def in_word(value: object) -> str:
    """One value as YAML writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_options(
    group: str, allowed: Mapping[str, Any], values: Mapping[str, Any], owner: str
) -> None:
    """Raise ConfigError for an option that is unknown, or that its type does not allow.

    group: "system", "model" or "dataset". allowed: the type of each option by its name; a type that
    is none of those is its owner's to check.
    """
    for name, value in values.items():
        key = f"{group}.options.{name}"
        if name not in allowed:
            known = ", ".join(allowed) or "no options"
            raise ConfigError(f"{key} is unknown to {owner}; it takes {known}")
        check_value(key, value, allowed[name])
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise ConfigError(f"{key}={value} is not allowed; give a number of at most {LARGEST}")
