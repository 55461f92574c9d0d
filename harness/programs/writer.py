"""The interface of programs, whoever runs them: recorded for a mini-batch, or interpreted.

A program gets a writer `p` and one instance. `p.NAME(operands, pull=number)` calls the block NAME
of its model and returns a value, of which nothing is known but that other blocks take it. Branches
that wait for nothing go through `concurrent` and `map`; a function that waits is a generator:
`yield p.value(...)`, `yield p.chance(...)`, and `a, b = yield p.fork(f(p), g(p))`, any of whose
branches may wait.

Source: ACRoBat, MLSys 2024, Listings 1 and 2 and section 4.2.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.errors import ProgramError

_OWN = f"{Path(__file__).parent}{os.sep}"
_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
Body = Generator[Any, Any, Any]
Block = Callable[..., Any]


class Fork(NamedTuple):
    """Branches that run side by side, joined where this is yielded; answered by their results."""

    branches: Sequence[Body]
    made_at: str


class Wait(NamedTuple):
    """For a number, once `of` is computed: state[column], or what a generator decides.

    key: of harness.programs.decisions; None where the number itself is asked for. (A recorder that
    looks at nothing has a plain pair of `of` and the key for these.)
    """

    of: Any
    key: tuple[int, ...] | None
    state: str
    column: int
    made_at: str


class Stage(NamedTuple):
    """Until every instance is through with the stage; answered by nothing."""

    made_at: str


Request = Fork | Wait | Stage


class Writer(ABC):
    """Makes requests.

    is_checked: whether all is checked at once, and the program's lines are known; else only as much
    as tells that something is wrong, since programs are run again where it is.
    n_open: requests that were made and not yielded.
    """

    def __init__(self, *, is_checked: bool) -> None:
        self.is_checked, self.n_open = is_checked, 0
        self._made: dict[int, Request] = {}

    if TYPE_CHECKING:  # a class that has it looks up all of its attributes four times as slowly

        def __getattr__(self, name: str) -> Block:
            """Return the block of that name."""

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
            *(lambda one=one: function(*one) for one in zip(*lists, strict=True))
        )

    def chain(self, block: Block, first: Any, n: int, **numbers: Sequence[int]) -> Sequence[Any]:
        """Call a block n times, each on what the one before returned, the first on `first`.

        numbers: of each call. A loop whose length is known, of which a recorder makes one step.
        Raises ProgramError where there are not n numbers.
        """
        for name, of_all in numbers.items():
            if len(of_all) != n:
                raise ProgramError(
                    f"{place_of(sys._getframe(1))} chains {n} calls with {len(of_all)} numbers"
                    f" {name}; give one a call"
                )
        found, value = [], first
        for k in range(n):
            value = block(value, **{name: of_all[k] for name, of_all in numbers.items()})
            found.append(value)
        return found

    def fork(self, *branches: Body) -> Any:
        """To be yielded: run branches that may wait side by side, and join them."""
        self.n_open += 1
        return self._checked(Fork(branches, "")) if self.is_checked else Fork(branches, "")

    def value(self, of: Any, state: str, column: int = 0) -> Any:
        """To be yielded: a number of what a block computed."""
        self.n_open += 1
        wait = Wait(of, None, state, column, "")
        return self._checked(wait) if self.is_checked else wait

    def chance(self, of: Any, *key: int) -> Any:
        """To be yielded: once `of` is computed, a number in [0, 1) that its key alone decides."""
        self.n_open += 1
        wait = Wait(of, key, "", 0, "")
        return self._checked(wait) if self.is_checked else wait

    def _checked(self, request: Fork | Wait) -> Request:
        """Return the same request with its line, which is also that of its branches."""
        known = request._replace(made_at=place_of(sys._getframe(2)))
        if isinstance(known, Fork):
            for branch in known.branches:
                if type(branch) is not GeneratorType:
                    raise ProgramError(
                        f"{known.made_at} forks a {type(branch).__name__}; fork takes generators"
                        " (functions that yield), for others there are concurrent and map"
                    )
        self._made[id(known)] = known
        return known

    def taken(self, request: Any) -> None:
        """Take a request that was yielded; raise ProgramError for anything else, or one twice."""
        if type(request) is not Stage:
            self.n_open -= 1
            is_wrong = self.is_checked and self._made.pop(id(request), None) is None
            if is_wrong or type(request) not in (Fork, Wait):
                raise ProgramError(
                    f"a program yields a {type(request).__name__}; yield what fork, value, chance"
                    " or stage return, each once"
                )

    def check_joined(self) -> None:
        """Raise ProgramError for a request that no program yielded."""
        if self.n_open == 0:
            return
        for request in self._made.values():
            what = "forks branches" if isinstance(request, Fork) else "asks for a value"
            raise ProgramError(f"{request.made_at} {what} and never waits for it; yield it")
        raise ProgramError(f"{self.n_open} forks or values are never waited for; yield them")


def finished(result: Any, how: str) -> Any:
    """Return the result of a branch; raise ProgramError for one that has to be waited for."""
    if type(result) is GeneratorType:
        raise ProgramError(
            f"{result.gi_code.co_filename.rpartition('/')[2]}:{result.gi_code.co_firstlineno}"
            f" {result.__name__} waits for values, but runs in {how}; yield p.fork(...) instead"
        )
    return result


def place_of(frame: FrameType | None) -> str:
    """Return file and line of a program, whatever of this package it has called."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    if frame is None:
        return "somewhere"
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def fault_of_program(error: Exception) -> ProgramError:
    """Return an error that names the line of a program on which another one was raised."""
    place = "a program"
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith((_OWN, *_LIBRARIES)):
            place = f"{file.rpartition('/')[2]}:{line}"
    hint = "; yield what chance and value return" if "'Wait'" in str(error) else ""
    return ProgramError(f"{place} raises {type(error).__name__}: {error}{hint}")
