"""Fibers: run the programs of all instances, each until it waits for a value.

Everything recorded until all fibers wait is one graph segment. A fork inside an instance creates
further fibers, and the forking fiber waits for them. Results do not depend on the order of fibers.

Source: ACRoBat, MLSys 2024, section 4.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import GeneratorType
from typing import Any, Protocol

from dynbatch.harness.errors import BenchError, ProgramError
from dynbatch.harness.machine.process import disable_collector
from dynbatch.harness.programs.log import END, FORK, RESUME
from dynbatch.harness.programs.recorder import MAX_VERTICES, Recorder
from dynbatch.harness.programs.writer import Body, Fork, StageRequest, Wait, locate_program_error

DEEPEST_CALLS = 5_000  # Python's own stack; forks do not use it
MAX_FIBERS = 100_000  # of one instance, at the same time
REPORTED = (BenchError, RecursionError, MemoryError)  # as they are; others with their line
NOBODY = -1
NOT_YET = object()  # the answer to a request that has to wait
Program = Callable[[Any, Any], Any]
Pick = Callable[[int], int]  # returns the index of the next of n ready fibers


class Join:
    """Results that a fiber waits for after a fork."""

    __slots__ = ("fiber", "n_left", "results")

    def __init__(self, fiber: Fiber, n: int) -> None:
        self.fiber, self.n_left, self.results = fiber, n, [None] * n


# One branch of one instance. A plain tuple, as thousands are created per mini-batch: the function
# that resumes its body, its number, its instance, its join, and its index among the branches.
Fiber = tuple[Callable[[Any], Any], int, int, Join | None, int]
# Request for a number once `of` is computed: (of, key) from p.chance, or any other Wait.
Waiting = tuple[Any, tuple[int, ...]] | Wait


class NumberSource(Protocol):
    """Source of the numbers that fibers wait for."""

    def end_segment(self) -> None:
        """End a segment: everything recorded and not yet computed can be computed now."""

    def read_numbers(self, instances: Sequence[int], waits: Sequence[Waiting]) -> Sequence[float]:
        """Return the requested numbers, all of which belong to segments that have ended."""


class Fibers:
    """All programs of one mini-batch.

    Attributes:
        pick: chooses the next of n ready fibers; by default the newest, which minimizes the number
            of live fibers.
    """

    def __init__(self, recorder: Recorder, answers: NumberSource, pick: Pick | None = None) -> None:
        self._recorder, self._answers, self._pick = recorder, answers, pick
        self._ready: list[tuple[Fiber, Any]] = []
        self._waiting: list[Fiber] = []
        self._waits: list[Waiting] = []
        self._at_stage: list[Fiber] = []
        self._results: dict[int, Any] = {}
        self._n_alive = self._n_fibers = self._most_alive = 0
        self._n_taken = 0  # waiting requests that were already counted when they were taken
        self._running = NOBODY  # the fiber whose calls are recorded now

    def run(self, program: Program, instances: Sequence[Any]) -> list[Any]:
        """Return the results of all programs, in the order of the instances.

        Raises:
            ProgramError: for a program that breaks the rules.
        """
        recorder = self._recorder
        self._n_alive = self._n_fibers = len(instances)
        self._most_alive = MAX_FIBERS * len(instances)
        # Thousands of fibers, generators and requests are created and freed, none of them in a
        # cycle. Without this, garbage collection took a sixth of the time to record DRNN's trees.
        with allow_deep_calls(), disable_collector():
            for k, instance in enumerate(instances):
                recorder.note((RESUME, k))
                result = self._start_program(program, instance)
                if type(result) is GeneratorType:
                    self._ready.append(((result.send, k, k, None, 0), None))
                else:
                    self._n_alive -= 1
                    self._results[k] = result
            self._run_all()
            self._answers.end_segment()
        recorder.check_joined()
        return [self._results[k] for k in range(len(instances))]

    def _run_all(self) -> None:
        while self._ready or self._waiting or self._at_stage:
            self._run_ready()
            if self._waiting:
                self._start_next_segment()
            elif self._at_stage:
                self._start_next_stage()

    def _run_ready(self) -> None:
        """Run fibers until each has ended or requested a value that is not yet available.

        The most frequent request, for a value that was just recorded, is tested first.
        """
        ready, pick, recorder = self._ready, self._pick, self._recorder
        note, first_of_segment = recorder.note, recorder.first_of_segment
        now_waiting, now_waited = self._waiting.append, self._waits.append
        is_plain = not recorder.is_checked
        while ready:
            fiber, answer = ready.pop() if pick is None else ready.pop(pick(len(ready)))
            send, number = fiber[0], fiber[1]
            if number != self._running:
                note((RESUME, number))
                self._running = number
            try:
                request = send(answer)
                while type(request) is not tuple or request[0] < first_of_segment:
                    if is_plain and type(request) is Fork and request.branches:
                        recorder.n_open -= 1
                        self._branch(fiber, request.branches)
                        break
                    answer = self._answer_request(fiber, request)
                    if answer is NOT_YET:
                        break
                    request = send(answer)
                else:
                    now_waiting(fiber)
                    now_waited(request)
            except StopIteration as ended:
                self._end(fiber, ended.value)
            except REPORTED:
                raise
            except Exception as error:
                raise locate_program_error(error) from error

    def _start_program(self, program: Program, instance: Any) -> Any:
        try:
            return program(self._recorder, instance)
        except REPORTED:
            raise
        except Exception as error:
            raise locate_program_error(error) from error

    def _answer_request(self, fiber: Fiber, request: Any) -> Any:
        """Return the answer to any request, or NOT_YET if the fiber has to wait for it."""
        recorder = self._recorder
        if type(request) is tuple or (not recorder.is_checked and type(request) is Fork):
            recorder.n_open -= 1
        else:
            recorder.accept_request(request)
        if type(request) is Fork:
            if not request.branches:
                return []
            self._branch(fiber, request.branches)
        elif type(request) is StageRequest:
            if not recorder.options.phases:
                return None
            self._at_stage.append(fiber)
        else:
            self._check_known(request)
            if request[0] < recorder.first_of_segment:
                return self._answers.read_numbers([fiber[2]], [request])[0]
            self._n_taken += 1
            self._waiting.append(fiber)
            self._waits.append(request)
        return NOT_YET

    def _check_known(self, wait: Waiting) -> None:
        """Raise ProgramError unless a block computed the value that is waited for."""
        vertex = wait[0]
        if type(vertex) is not int or not 0 <= vertex < self._recorder.n:
            made_at = wait.made_at if isinstance(wait, Wait) else "a program"
            raise ProgramError(
                f"{made_at} waits for a value of {vertex!r}, which no block computed; pass the"
                " result of a block"
            )

    def _branch(self, fiber: Fiber, branches: Sequence[Body]) -> None:
        n, first = len(branches), self._n_fibers
        self._n_alive += n
        if self._n_alive > self._most_alive:
            raise ProgramError(
                f"{getattr(branches[0], '__name__', 'a program')} forks endlessly: expected at most"
                f" {MAX_FIBERS} fibers per instance, got {self._n_alive}"
            )
        self._n_fibers += n
        self._recorder.note((FORK, first, n))
        self._running = first
        join, instance, ready = Join(fiber, n), fiber[2], self._ready
        for index in range(n - 1, -1, -1):  # the first one ends up on top
            ready.append(((branches[index].send, first + index, instance, join, index), None))

    def _end(self, fiber: Fiber, result: Any) -> None:
        self._n_alive -= 1
        _, _, instance, join, index = fiber
        if join is None:
            self._results[instance] = result
            return
        self._recorder.note((END, join.fiber[1]))
        join.results[index] = result
        join.n_left -= 1
        if join.n_left == 0:
            self._ready.append((join.fiber, join.results))

    def _start_next_segment(self) -> None:
        """Compute all recorded vertices, and resume all waiting fibers."""
        waiting, waits, recorder = self._waiting, self._waits, self._recorder
        self._waiting, self._waits = [], []
        recorder.n_open -= len(waits) - self._n_taken
        self._n_taken = 0
        values = [wait[0] for wait in waits]
        if {*map(type, values)} != {int} or max(values) >= recorder.n:
            raise ProgramError("a program waits for a value that no block computed")
        self._answers.end_segment()
        numbers = self._answers.read_numbers([fiber[2] for fiber in waiting], waits)
        recorder.start_next_segment()
        self._running = NOBODY
        self._ready = list(zip(waiting, numbers, strict=True))
        self._ready.reverse()

    def _start_next_stage(self) -> None:
        """Resume the fibers at the earliest stage, once all others have ended or wait, too."""
        fibers = self._at_stage
        phases = self._recorder.find_phases([fiber[1] for fiber in fibers])
        earliest = min(phases)
        self._at_stage = [f for f, p in zip(fibers, phases, strict=True) if p > earliest]
        going = [f for f, p in zip(fibers, phases, strict=True) if p == earliest]
        self._ready = [(fiber, None) for fiber in reversed(going)]


@contextmanager
def allow_deep_calls() -> Iterator[None]:
    """Allow programs to recurse up to DEEPEST_CALLS, and report deeper recursion."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST_CALLS))
    try:
        yield
    except RecursionError as error:
        raise ProgramError(
            f"a program recurses deeper than {DEEPEST_CALLS} calls; end the recursion, or fork it,"
            f" which needs no stack (at most {MAX_VERTICES} blocks per instance)"
        ) from error
    finally:
        sys.setrecursionlimit(before)
