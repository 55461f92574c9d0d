"""Functions for nested mappings and lists such as configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def find_texts(value: object) -> Iterator[str]:
    """Yield all strings in a value except keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from find_texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from find_texts(inner)


def flatten(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a mapping of mappings, each with its keys joined by dots."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
