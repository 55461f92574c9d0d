"""Runs the programs of all instances as fibers: each to its next need of a value, then a round.

What is recorded until no fiber can go on is one round. A fork inside an instance makes fibers, too,
and its own waits for them. Results do not depend on which fiber goes first.

Source: ACRoBat, MLSys 2024, section 4.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

from harness.errors import ProgramError
from harness.programs.counter import phase_of
from harness.programs.recorder import MOST_VERTICES, Recorder
from harness.programs.writer import Body, Fork, Wait

DEEPEST_CALLS = 5_000  # Python's own stack; forks do not use it
MOST_FIBERS = 100_000  # of one instance, at one time
Program = Callable[[Any, Any], Any]
Pick = Callable[[int], int]  # which of n ready fibers goes on


@dataclass(slots=True, eq=False)
class Fiber:
    """One branch of one instance: where it is, and who waits for it.

    counter: its depth. deepest: of its branches that have ended. results: of its branches.
    """

    body: Body
    instance: int
    counter: int
    parent: Fiber | None = None
    place: int = 0
    deepest: int = 0
    n_branches: int = 0
    results: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A fiber and the number that it waits for."""

    fiber: Fiber
    wait: Wait

    @property
    def instance(self) -> int:
        """Which instance's it is."""
        return self.fiber.instance


Answer = Callable[[Recorder, Sequence[Waiting]], Sequence[float]]


def last_made(n: int) -> int:
    """Go on with the newest fiber: as few as can be are there at one time."""
    return n - 1


class Fibers:
    """All programs of one mini-batch.

    answer: computes the numbers that fibers wait for, when a round is over.
    """

    def __init__(self, recorder: Recorder, answer: Answer, pick: Pick = last_made) -> None:
        self._recorder, self._answer, self._pick = recorder, answer, pick
        self._ready: list[tuple[Fiber, Any]] = []
        self._waiting: list[Waiting] = []
        self._at_stage: list[Fiber] = []
        self._results: dict[int, Any] = {}
        self._n_alive = self._n_instances = 0

    def run(self, program: Program, instances: Sequence[Any]) -> list[Any]:
        """Results of all programs, in the order of the instances.

        Raises ProgramError for a program that breaks the rules.
        """
        recorder, self._n_instances = self._recorder, len(instances)
        with deep_calls():
            for k, instance in enumerate(instances):
                recorder.counter = recorder.base
                result = program(recorder, instance)
                if type(result) is GeneratorType:
                    self._start(Fiber(result, k, recorder.counter))
                else:
                    self._results[k] = result
            self._run_all()
        recorder.check_joined()
        return [self._results[k] for k in range(len(instances))]

    def _run_all(self) -> None:
        while self._ready or self._waiting or self._at_stage:
            while self._ready:
                self._advance(*self._ready.pop(self._pick(len(self._ready))))
            if self._waiting:
                self._next_round()
            elif self._at_stage:
                self._next_stage()

    def _start(self, fiber: Fiber) -> None:
        self._n_alive += 1
        if self._n_alive > MOST_FIBERS * self._n_instances:
            raise ProgramError(
                f"{fiber.body.__name__} is forked without end: {self._n_alive} fibers are alive;"
                f" allowed are {MOST_FIBERS} an instance"
            )
        self._ready.append((fiber, None))

    def _advance(self, fiber: Fiber, answer: Any) -> None:
        """Run one fiber until it ends or asks for what is not there yet."""
        recorder = self._recorder
        recorder.counter = recorder.caught_up(fiber.counter)
        send = fiber.body.send
        while True:
            try:
                request = recorder.taken(send(answer))
            except StopIteration as ended:
                self._end(fiber, ended.value)
                return
            answer = None
            if isinstance(request, Wait):
                if self._waits(fiber, request):
                    break
                answer = self._numbers([Waiting(fiber, request)])[0]
            elif isinstance(request, Fork):
                if request.branches:
                    self._branch(fiber, request)
                    break
                answer = []
            elif recorder.options.phases:
                self._at_stage.append(fiber)
                break
        fiber.counter = recorder.counter

    def _waits(self, fiber: Fiber, request: Wait) -> bool:
        """Whether the value is of this round, so that the fiber has to wait."""
        of, recorder = request.of, self._recorder
        if type(of) is not int or not 0 <= of < len(recorder.types):
            raise ProgramError(
                f"{request.made_at} waits for a value of {of!r}, which no block computed; give what"
                " a block returned"
            )
        if recorder.is_computed(of):
            return False
        self._waiting.append(Waiting(fiber, request))
        return True

    def _branch(self, fiber: Fiber, request: Fork) -> None:
        n = len(request.branches)
        fiber.results, fiber.n_branches, fiber.deepest = [None] * n, n, self._recorder.counter
        for place in reversed(range(n)):  # the first one ends up on top
            body = request.branches[place]
            self._start(Fiber(body, fiber.instance, fiber.deepest, fiber, place))

    def _end(self, fiber: Fiber, result: Any) -> None:
        self._n_alive -= 1
        parent = fiber.parent
        if parent is None:
            self._results[fiber.instance] = result
            return
        parent.results[fiber.place] = result
        parent.deepest = max(parent.deepest, self._recorder.counter)
        parent.n_branches -= 1
        if parent.n_branches == 0:
            parent.counter = parent.deepest
            self._ready.append((parent, parent.results))

    def _next_round(self) -> None:
        """Compute what is recorded, and go on with everyone who waited."""
        # In one order, whichever fibers came first.
        waiting, self._waiting = self._waiting, []
        numbers = self._numbers(waiting)
        self._recorder.round += 1
        self._ready = [(one.fiber, n) for one, n in zip(waiting, numbers, strict=True)][::-1]

    def _numbers(self, waiting: Sequence[Waiting]) -> Sequence[float]:
        return self._answer(self._recorder, waiting)

    def _next_stage(self) -> None:
        """All have ended or come to a stage: those at the earliest go on."""
        counters = [self._recorder.caught_up(fiber.counter) for fiber in self._at_stage]
        phases = [phase_of(counter) for counter in counters]
        earliest, fibers = min(phases), self._at_stage
        self._at_stage = [f for f, p in zip(fibers, phases, strict=True) if p > earliest]
        going = [f for f, p in zip(fibers, phases, strict=True) if p == earliest]
        self._ready = [(fiber, None) for fiber in reversed(going)]


@contextmanager
def deep_calls() -> Iterator[None]:
    """Let programs recurse as deep as DEEPEST_CALLS, and say so where they go deeper."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST_CALLS))
    try:
        yield
    except RecursionError as error:
        raise ProgramError(
            f"a program recurses deeper than {DEEPEST_CALLS} calls; let its recursion end, or fork"
            f" it, which needs no stack (at most {MOST_VERTICES} blocks an instance)"
        ) from error
    finally:
        sys.setrecursionlimit(before)
