"""What a program is written with, whoever runs it: recorded for a mini-batch, or interpreted.

A program gets a writer `p` and one instance. `p.NAME(operands, pull=number)` calls the block NAME
of its model and returns a value, of which nothing is known but that other blocks take it. Branches
that wait for nothing go through `concurrent` and `map`; a function that waits is a generator:
`yield p.value(...)`, `yield p.chance(...)`, and `a, b = yield p.fork(f(p), g(p))`, any of whose
branches may wait.

Source: ACRoBat, MLSys 2024, Listings 1 and 2 and section 4.2.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from types import FrameType, GeneratorType
from typing import Any

from harness.errors import ProgramError

Body = Generator[Any, Any, Any]
Block = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Fork:
    """Branches that run side by side, joined where this is yielded; answered by their results."""

    branches: Sequence[Body]
    made_at: str

    def __post_init__(self) -> None:
        for branch in self.branches:
            if not isinstance(branch, GeneratorType):
                raise ProgramError(
                    f"{self.made_at} forks a {type(branch).__name__}; fork takes generators"
                    " (functions that yield), for others there are concurrent and map"
                )


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """For a number, once `of` is computed: state[column], or what a generator decides.

    key: of harness.programs.decisions; None where the number itself is asked for.
    """

    of: Any
    made_at: str
    key: tuple[int, ...] | None = None
    state: str = ""
    column: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Until every instance is through with the stage; answered by nothing."""

    made_at: str


Request = Fork | Wait | Stage


class Writer(ABC):
    """Makes requests, and remembers those that a program has not yielded yet."""

    def __init__(self) -> None:
        self._made: dict[int, Fork | Wait] = {}

    @abstractmethod
    def __getattr__(self, name: str) -> Block:
        """Return the block of that name; raises ProgramError where the model has none."""

    @abstractmethod
    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        """Results of functions that may run side by side and wait for nothing."""

    @abstractmethod
    def stage(self) -> Stage:
        """Begin the program's next stage; all instances together where this is yielded."""

    @abstractmethod
    def ghosts(self, n: int) -> None:
        """Count n blocks that are not there, so that a branch ends as deep as a longer one."""

    def map(self, function: Callable[..., Any], *lists: Iterable[Any]) -> list[Any]:
        """Results of one function for all elements, which may run side by side."""
        return self.concurrent(
            *(lambda one=one: function(*one) for one in zip(*lists, strict=True))  # type: ignore[misc]
        )

    def fork(self, *branches: Body) -> Fork:
        """To be yielded: run branches that may wait side by side, and join them."""
        return self._remembered(Fork(branches, place_of(sys._getframe(1))))

    def value(self, of: Any, state: str, column: int = 0) -> Wait:
        """To be yielded: a number of what a block computed."""
        return self._remembered(Wait(of, place_of(sys._getframe(1)), None, state, column))

    def chance(self, of: Any, *key: int) -> Wait:
        """To be yielded: once `of` is computed, a number in [0, 1) that its key alone decides."""
        return self._remembered(Wait(of, place_of(sys._getframe(1)), key))

    def _remembered(self, request: Any) -> Any:
        self._made[id(request)] = request
        return request

    def taken(self, request: Any) -> Request:
        """A request that was yielded; raises ProgramError for anything else."""
        if isinstance(request, Stage):
            return request
        if self._made.pop(id(request), None) is None:
            raise ProgramError(
                f"a program yields a {type(request).__name__}; yield what fork, value, chance or"
                " stage return, each once"
            )
        found: Fork | Wait = request
        return found

    def check_joined(self) -> None:
        """Raise ProgramError for a request that no program yielded."""
        for request in self._made.values():
            what = "forks branches" if isinstance(request, Fork) else "asks for a value"
            raise ProgramError(f"{request.made_at} {what} and never waits for it; yield it")


def finished(result: Any, how: str) -> Any:
    """The result of a branch; raises ProgramError for one that would have to be waited for."""
    if type(result) is GeneratorType:
        raise ProgramError(
            f"{result.gi_code.co_filename.rpartition('/')[2]}:{result.gi_code.co_firstlineno}"
            f" {result.__name__} waits for values, but runs in {how}; yield p.fork(...) instead"
        )
    return result


def place_of(frame: FrameType | None) -> str:
    """Where a program is: file and line."""
    if frame is None:
        return "somewhere"
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
