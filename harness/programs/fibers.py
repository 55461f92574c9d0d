"""Runs the programs of all instances as fibers: each to its next need of a value, then a round.

What is recorded until no fiber can go on is one round. A fork inside an instance makes fibers, too,
and its own waits for them. Results do not depend on which fiber goes first.

Source: ACRoBat, MLSys 2024, section 4.2.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import GeneratorType
from typing import Any, Protocol

from harness.errors import ProgramError
from harness.programs.counter import phase_of
from harness.programs.recorder import MOST_VERTICES, Recorder
from harness.programs.writer import Body, Fork, Wait

DEEPEST_CALLS = 5_000  # Python's own stack; forks do not use it
MOST_FIBERS = 100_000  # of one instance, at one time
Program = Callable[[Any, Any], Any]
Pick = Callable[[int], int]  # which of n ready fibers goes on


class Fiber:
    """One branch of one instance: where it is, and who waits for it.

    send: goes on with its body. counter: its depth. deepest: of its branches that have ended.
    results: of its branches. (A plain class: thousands are made for every mini-batch.)
    """

    __slots__ = (
        *("body", "send", "instance", "counter", "parent"),
        *("place", "deepest", "n_branches", "results"),
    )

    def __init__(
        self, body: Body, instance: int, counter: int, parent: Fiber | None, place: int
    ) -> None:
        self.body, self.send, self.instance, self.counter = body, body.send, instance, counter
        self.parent, self.place = parent, place
        self.deepest = self.n_branches = 0
        self.results: list[Any] = []


Waiting = tuple[Fiber, Wait]


class Answers(Protocol):
    """Computes what fibers wait for."""

    def end_round(self) -> None:
        """All that is recorded and not yet computed is a round: it may be computed now."""

    def numbers(self, waiting: Sequence[Waiting]) -> Sequence[float]:
        """The numbers that these fibers wait for, all of rounds that have ended."""


def last_made(n: int) -> int:
    """Go on with the newest fiber: as few as can be are there at one time."""
    return n - 1


class Fibers:
    """All programs of one mini-batch."""

    def __init__(self, recorder: Recorder, answers: Answers, pick: Pick = last_made) -> None:
        self._recorder, self._answers, self._pick = recorder, answers, pick
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
        with deep_calls(), no_collection():
            for k, instance in enumerate(instances):
                recorder.counter = recorder.base
                result = program(recorder, instance)
                if type(result) is GeneratorType:
                    self._start(Fiber(result, k, recorder.counter, None, 0))
                else:
                    self._results[k] = result
            self._run_all()
            self._answers.end_round()
        recorder.check_joined()
        return [self._results[k] for k in range(len(instances))]

    def _run_all(self) -> None:
        while self._ready or self._waiting or self._at_stage:
            ready, pick = self._ready, self._pick  # rounds and stages make new lists
            while ready:
                self._advance(*(ready.pop() if pick is last_made else ready.pop(pick(len(ready)))))
            if self._waiting:
                self._next_round()
            elif self._at_stage:
                self._next_stage()

    def _start(self, fiber: Fiber) -> None:
        self._n_alive += 1
        if self._n_alive > MOST_FIBERS * self._n_instances:
            raise ProgramError(
                f"{getattr(fiber.body, '__name__', 'a program')} is forked without end:"
                f" {self._n_alive} fibers are alive; allowed are {MOST_FIBERS} an instance"
            )
        self._ready.append((fiber, None))

    def _advance(self, fiber: Fiber, answer: Any) -> None:
        """Run one fiber until it ends or asks for what is not there yet.

        What nearly all do, to wait for what they have just recorded, is found out first.
        """
        recorder, counters, floor = self._recorder, self._recorder.counters, self._recorder.floor
        counter = fiber.counter
        recorder.counter = counter if counter >= floor else recorder.caught_up(counter)
        send, is_plain = fiber.send, not recorder.is_checked
        while True:
            try:
                request = send(answer)
            except StopIteration as ended:
                self._end(fiber, ended.value)
                return
            kind = type(request)
            if is_plain and kind is Wait:
                recorder.n_open -= 1
            else:
                recorder.taken(request)
            answer = None
            if kind is Wait:
                of = request.of
                if type(of) is not int or not 0 <= of < len(counters):
                    raise ProgramError(
                        f"{request.made_at} waits for a value of {of!r}, which no block computed;"
                        " give what a block returned"
                    )
                if counters[of] >= floor:
                    self._waiting.append((fiber, request))
                    break
                answer = self._answers.numbers([(fiber, request)])[0]  # of an earlier round
            elif kind is Fork:
                if request.branches:
                    self._branch(fiber, request)
                    break
                answer = []
            elif recorder.options.phases:
                self._at_stage.append(fiber)
                break
        fiber.counter = recorder.counter

    def _branch(self, fiber: Fiber, request: Fork) -> None:
        n, counter = len(request.branches), self._recorder.counter
        fiber.results, fiber.n_branches, fiber.deepest = [None] * n, n, counter
        for place in range(n - 1, -1, -1):  # the first one ends up on top
            self._start(Fiber(request.branches[place], fiber.instance, counter, fiber, place))

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
        waiting, self._waiting = self._waiting, []
        self._answers.end_round()
        numbers = self._answers.numbers(waiting)
        self._recorder.next_round()
        self._ready = [(fiber, n) for (fiber, _), n in zip(waiting, numbers, strict=True)]
        self._ready.reverse()

    def _next_stage(self) -> None:
        """All have ended or come to a stage: those at the earliest go on."""
        counters = [self._recorder.caught_up(fiber.counter) for fiber in self._at_stage]
        phases = [phase_of(counter) for counter in counters]
        earliest, fibers = min(phases), self._at_stage
        self._at_stage = [f for f, p in zip(fibers, phases, strict=True) if p > earliest]
        going = [f for f, p in zip(fibers, phases, strict=True) if p == earliest]
        self._ready = [(fiber, None) for fiber in reversed(going)]


@contextmanager
def no_collection() -> Iterator[None]:
    """Leave Python's search for cycles until all programs have ended.

    Fibers, generators and requests come and go by thousands, none of them in a cycle: looking at
    them again and again took a sixth of the time that DRNN's trees were recorded in.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
