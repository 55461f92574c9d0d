"""What a program holds beside its corpus: read of every instance once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Once(Generic[R]):
    """A function of an instance, called once for each; mini-batches are loaded between passes."""

    def __init__(self, read: Callable[[Any], R]) -> None:
        self._read = read
        self._found: dict[int, tuple[Any, R]] = {}  # with the instance, whose id stays its own

    def __call__(self, instance: Any) -> R:
        if id(instance) not in self._found:
            self._found[id(instance)] = (instance, self._read(instance))
        return self._found[id(instance)][1]
