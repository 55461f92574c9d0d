"""Interface of programs, which can be recorded for a mini-batch or interpreted.

A program gets a writer `p` and one instance. `p.NAME(operands, pull=number)` calls the block NAME
of its model and returns an opaque value, which other blocks take. Branches that do not wait go
through `concurrent` and `map`. A function that waits is a generator: `yield p.value(...)`, `yield
p.chance(...)`, and `a, b = yield p.fork(f(p), g(p))`, whose branches may wait, too.

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

from dynbatch.harness.errors import ProgramError

_OWN = f"{Path(__file__).parent}{os.sep}"
_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
Body = Generator[Any, Any, Any]
Block = Callable[..., Any]


class Fork(NamedTuple):
    """Request to run branches concurrently and join them; the answer is their results."""

    branches: Sequence[Body]
    made_at: str


class Wait(NamedTuple):
    """Request for a number once `of` is computed: state[column], or a drawn decision.

    An unchecked recorder uses a plain pair of `of` and the key for decisions.

    Attributes:
        key: key of dynbatch.harness.programs.decisions; None if the computed number itself is
            requested.
    """

    of: Any
    key: tuple[int, ...] | None
    state: str
    column: int
    made_at: str


class StageRequest(NamedTuple):
    """Request to wait until every instance has completed the stage; it has no answer."""

    made_at: str


Request = Fork | Wait | StageRequest


class CallWriter(ABC):
    """Writer of requests.

    Attributes:
        is_checked: check everything immediately and know the program's lines; otherwise check only
            enough to detect an error, after which programs are run again.
        n_open: number of requests that were made and not yielded.
    """

    def __init__(self, *, is_checked: bool) -> None:
        self.is_checked, self.n_open = is_checked, 0
        self._made: dict[int, Request] = {}

    if TYPE_CHECKING:  # a class that defines it looks up all attributes four times as slowly

        def __getattr__(self, name: str) -> Block:
            """Return the block of that name."""

    @abstractmethod
    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        """Return the results of functions that may run concurrently and do not wait."""

    @abstractmethod
    def stage(self) -> StageRequest:
        """Start the program's next stage, for all instances together if this is yielded."""

    @abstractmethod
    def ghosts(self, n: int) -> None:
        """Count n ghost operators, so that a branch ends at the depth of a longer one.

        The analysis of a program's branches inserts such calls (dynbatch.harness.programs.ghosts);
        a program needs them only where that analysis cannot count.
        """

    def map(self, function: Callable[..., Any], *lists: Iterable[Any]) -> list[Any]:
        """Return the results of one function for all elements; the calls may run concurrently."""
        return self.concurrent(
            *(lambda items=items: function(*items) for items in zip(*lists, strict=True))
        )

    def chain(self, block: Block, first: Any, n: int, **numbers: Sequence[int]) -> Sequence[Any]:
        """Call a block n times, each on the previous result, the first time on `first`.

        This is a loop of known length, which a recorder handles as one step.

        Args:
            numbers: external numbers, one per call.

        Raises:
            ProgramError: if a list does not have n numbers.
        """
        for name, of_all in numbers.items():
            if len(of_all) != n:
                raise ProgramError(
                    f"{find_location(sys._getframe(1))} chain: expected {n} numbers {name}, one per"
                    f" call, got {len(of_all)}"
                )
        results, value = [], first
        for k in range(n):
            value = block(value, **{name: of_all[k] for name, of_all in numbers.items()})
            results.append(value)
        return tuple(results)  # no list, as the range of a recorder is none

    def fork(self, *branches: Body) -> Any:
        """Return a request, to be yielded: run branches, which may wait, and join them."""
        return self._open_request(Fork(branches, ""))

    def value(self, source: Any, state: str, column: int = 0) -> Any:
        """Return a request, to be yielded: a number that a block computed."""
        return self._open_request(Wait(source, None, state, column, ""))

    def chance(self, source: Any, *key: int) -> Any:
        """Return a request, to be yielded: a random number in [0, 1) once `source` is computed.

        Only the key determines the number.
        """
        return self._open_request(Wait(source, key, "", 0, ""))

    def _open_request(self, request: Fork | Wait) -> Request:
        """Return a new request; if checked, with its line, which is also that of its branches."""
        self.n_open += 1
        if not self.is_checked:
            return request
        known = request._replace(made_at=find_location(sys._getframe(2)))
        if isinstance(known, Fork):
            for branch in known.branches:
                if type(branch) is not GeneratorType:
                    raise ProgramError(
                        f"{known.made_at} forks a {type(branch).__name__}; expected a generator;"
                        " use concurrent or map for other functions"
                    )
        self._made[id(known)] = known
        return known

    def accept_request(self, request: Any) -> None:
        """Accept a yielded request; raise ProgramError for anything else, or a repeated one."""
        if type(request) is not StageRequest:
            self.n_open -= 1
            is_wrong = self.is_checked and self._made.pop(id(request), None) is None
            if is_wrong or type(request) not in (Fork, Wait):
                raise ProgramError(
                    f"a program yields a {type(request).__name__}; yield each result of fork,"
                    " value, chance or stage once"
                )

    def check_joined(self) -> None:
        """Raise ProgramError for a request that no program yielded."""
        if self.n_open == 0:
            return
        for request in self._made.values():
            what = "forks branches" if isinstance(request, Fork) else "requests a value"
            raise ProgramError(f"{request.made_at} {what} without waiting; yield it")
        raise ProgramError(f"{self.n_open} forks or values have no yield; yield them")


def require_result(result: Any) -> Any:
    """Return the result of a branch; raise ProgramError for one that waits."""
    if type(result) is GeneratorType:
        raise ProgramError(
            f"{result.gi_code.co_filename.rpartition('/')[2]}:{result.gi_code.co_firstlineno}"
            f" {result.__name__} waits for values, but runs in concurrent; yield p.fork(...)"
            " instead"
        )
    return result


def find_location(frame: FrameType | None) -> str:
    """Return file and line of the program's innermost frame outside this package."""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    if frame is None:
        return "somewhere"
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def locate_program_error(error: Exception) -> ProgramError:
    """Return an error that names the line of the program that raised another error."""
    location = "a program"
    for raised in filter(None, (error.__cause__, error)):  # of a generator's StopIteration, too
        for frame, line in traceback.walk_tb(raised.__traceback__):
            file = frame.f_code.co_filename
            if not file.startswith((_OWN, *_LIBRARIES)):
                location = f"{file.rpartition('/')[2]}:{line}"
    hint = "; yield the results of chance and value" if "'Wait'" in str(error) else ""
    return ProgramError(f"{location} raises {type(error).__name__}: {error}{hint}")
