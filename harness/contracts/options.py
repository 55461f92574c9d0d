"""Options of a system: typed fields of a frozen dataclass, checked in one place.

A field is a bool, int, float, str, or a Literal of texts; any of them may be `| None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from harness.errors import ConfigError

Options = TypeVar("Options")
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
    for name, value in values.items():
        if name not in names:
            known = ", ".join(names) or "no options"
            raise ConfigError(f"system.options.{name} is unknown to {owner}; it takes {known}")
        if not _fits(value, hints[name]):
            words = _words(hints[name])
            quotes = " (in quotes: YAML takes a bare off for false)" if "off" in words else ""
            raise ConfigError(
                f"system.options.{name}={value} is not allowed; give {' or '.join(words)}{quotes}"
            )
    return kind(**values)


def _fits(value: object, hint: Any) -> bool:
    if _is_union(hint):
        return any(_fits(value, part) for part in get_args(hint))
    if get_origin(hint) is Literal:
        return any(value == allowed and type(value) is type(allowed) for allowed in get_args(hint))
    if hint is float:
        return type(value) in (int, float)
    return hint not in _WORDS or type(value) is hint


def _words(hint: Any) -> list[str]:
    if _is_union(hint):
        return [word for part in get_args(hint) for word in _words(part)]
    if get_origin(hint) is Literal:
        return [str(allowed) for allowed in get_args(hint)]
    return [_WORDS[hint]]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)
