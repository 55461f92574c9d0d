"""Options of systems, models and data sets: typed, checked in one place.

A type is a bool, int, float, str, or a Literal of texts; any of them may be `| None`. Nothing is
converted: what stands in a record is what was said, and what ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from harness.errors import ConfigError

Options = TypeVar("Options")
LARGEST = 2**32  # of a whole number; what is counted or drawn with it stays within 64 bits
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    NoneType: "null",
}


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of a system that takes none."""


def read_options(kind: type[Options], values: Mapping[str, Any], owner: str) -> Options:
    """Build a system's options from what its YAML and the command line say.

    owner: the module that takes them. Raises ConfigError for an unknown name, and for a value that
    its field does not allow.
    """
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]  # a dataclass
    check_options("system", {name: hints[name] for name in names}, values, owner)
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
    is none of those above is its owner's to check.
    """
    for name, value in values.items():
        key = f"{group}.options.{name}"
        if name not in allowed:
            known = ", ".join(allowed) or "no options"
            raise ConfigError(f"{key} is unknown to {owner}; it takes {known}")
        hint = allowed[name]
        if not _fits(value, hint):
            words = words_of(hint)
            quotes = " (in quotes: YAML takes a bare off for false)" if "off" in words else ""
            raise ConfigError(f"{key}={value} is not allowed; give {' or '.join(words)}{quotes}")
        if isinstance(value, int | float) and not _is_counted(value):
            raise ConfigError(f"{key}={value} is not allowed; give a number of at most {LARGEST}")


def _fits(value: object, hint: Any) -> bool:
    if _is_union(hint):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return any(value == allowed and type(value) is type(allowed) for allowed in get_args(hint))
    if get_origin(hint) is not None:  # a Mapping, say
        return isinstance(value, get_origin(hint))
    if hint is float:
        return type(value) in (int, float)
    return hint not in _WORDS or type(value) is hint


def _is_counted(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= LARGEST


def words_of(hint: Any) -> list[str]:
    """Say in words what a type allows."""
    if _is_union(hint):
        return [word for part in get_args(hint) for word in words_of(part)]
    if get_origin(hint) is Literal:
        return [str(allowed) for allowed in get_args(hint)]
    if get_origin(hint) is not None:
        return ["a mapping of names to values"]
    return [_WORDS[hint]]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)
