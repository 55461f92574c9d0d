"""A sequence of instances, each built when it is first asked for.

A short trial touches a few hundred of a corpus's thousands of instances; building the rest would
cost more than the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

from harness.values.instances import Instance

T = TypeVar("T", bound=Instance)


class LazyInstances(Sequence[T], Generic[T]):
    """`size` instances; `build(index)` is called once per index, a slice is a tuple."""

    __slots__ = ("_build", "_built")

    def __init__(self, size: int, build: Callable[[int], T]) -> None:
        self._build = build
        self._built: list[T | None] = [None] * size

    def __len__(self) -> int:
        return len(self._built)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        instance = self._built[index]
        if instance is None:
            instance = self._build(index % len(self))
            self._built[index] = instance
        return instance
