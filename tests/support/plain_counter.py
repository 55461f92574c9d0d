"""Recorder that counts depths while programs run, as in ACRoBat: the reference for decoded logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.programs.blocks import TAINTED, BlockShape
from dynbatch.harness.programs.decode import (
    DEPTH_BITS,
    MAX_PHASES,
    ONE_PHASE,
    ONE_SEGMENT,
    extract_phase,
)
from dynbatch.harness.programs.decoder import RecordedPiece
from dynbatch.harness.programs.fibers import Fibers, Pick
from dynbatch.harness.programs.log import END, FORK, NO_NUMBER, SEGMENT
from dynbatch.harness.programs.recording import Decisions, Recording, collect_outputs
from dynbatch.harness.programs.writer import Block, CallWriter, StageRequest, require_result
from dynbatch.harness.values.arrays import IntArray, as_int_array


class PlainCounter(CallWriter):
    """Writer with a few lists and a counter that each call increments. All calls must be valid."""

    def __init__(self, recording: Recording, n_instances: int) -> None:
        super().__init__(is_checked=True)
        self._rules, self.options = recording.rules, recording.options
        self._base = self._rules.base
        self.first_of_segment = self.n_segments = self._fiber = self._floor = self._n_given = 0
        self._counter = self._base
        self._counter_of = dict.fromkeys(range(n_instances), self._base)
        self._types: list[int] = []
        self._counters: list[int] = []
        self._operands: list[Sequence[int]] = []
        self._pulled: dict[str, dict[int, int]] = {name: {} for name in self._rules.names}
        self.__dict__ |= {name: self._block(shape) for name, shape in self._rules.shapes.items()}

    @property
    def n(self) -> int:
        return len(self._types)

    def _block(self, shape: BlockShape) -> Block:
        def call(*operands: Any, **numbers: int) -> Any:
            static, vertex = self._rules.static[shape.type_id], self.n
            own = self._counter if static == TAINTED else self._floor + static
            assert all(self._counters[operand] < own for operand in operands)
            self._counters.append(own)
            self._counter += static == TAINTED
            self._types.append(shape.type_id)
            self._operands.append(operands)
            for name, number in numbers.items():
                self._pulled[name][vertex] = number
            return vertex

        return call

    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        start = deepest = self._counter
        results = []
        for branch in branches:
            self._counter = start
            results.append(require_result(branch()))
            deepest = max(deepest, self._counter)
        self._counter = deepest
        return results

    def stage(self) -> StageRequest:
        if self.options.phases:
            self._counter = (self._counter | (ONE_PHASE - 1)) + 1 + self._base
        return StageRequest("")

    def ghosts(self, n: int) -> None:
        self._counter += n if self.options.ghosts else 0

    def note(self, event: tuple[int, ...]) -> None:
        kind, *numbers = event
        of_fiber = self._counter_of
        of_fiber[self._fiber] = self._counter
        if kind == SEGMENT:
            self._floor = self.n_segments * ONE_SEGMENT
        elif kind == END:
            (parent,) = numbers
            of_fiber[parent] = max(of_fiber[parent], self._counter)
        elif kind == FORK:
            first, n = numbers
            of_fiber |= dict.fromkeys(range(first, first + n), self._counter)
            self._fiber = first
        else:
            (self._fiber,) = numbers
            self._counter = self._caught_up(of_fiber[self._fiber])

    def _caught_up(self, counter: int) -> int:
        """Convert a fiber's counter of an earlier segment to the segment that is recorded now."""
        if counter >= self._floor:
            return counter
        depth = self._base if self.options.restart else counter & (ONE_PHASE - 1)
        return self._floor + extract_phase(counter) * ONE_PHASE + depth

    def start_next_segment(self) -> None:
        self.n_segments += 1
        self.first_of_segment = self.n
        self.note((SEGMENT,))

    def find_phases(self, fibers: Sequence[int]) -> list[int]:
        self._counter_of[self._fiber] = self._counter
        return [extract_phase(self._counter_of[fiber]) for fiber in fibers]

    def find_numbers(self, name: str, vertices: Sequence[int]) -> list[int]:
        return [self._pulled[name].get(vertex, NO_NUMBER) for vertex in vertices]

    def cut(self) -> RecordedPiece:
        base, self._n_given = self._n_given, self.n
        counters = np.array(self._counters[base:], dtype=np.int64)
        operands, vertices = self._operands[base:], range(base, self.n)
        return RecordedPiece(
            base=base,
            types=as_int_array(self._types[base:]),
            arg_start=as_int_array(np.cumsum([0, *map(len, operands)])),
            args=as_int_array([arg for one in operands for arg in one]),
            segments=as_int_array(counters // ONE_SEGMENT),
            phases=as_int_array((counters >> DEPTH_BITS) & (MAX_PHASES - 1)),
            depths=as_int_array(counters & (ONE_PHASE - 1)),
            pulls={name: as_int_array(self.find_numbers(name, vertices)) for name in self._pulled},
        )


def count(
    recording: Recording, batch: Sequence[Any], pick: Pick | None = None
) -> tuple[RecordedPiece, IntArray]:
    """Return the calls of a mini-batch's programs, and their results."""
    counter = PlainCounter(recording, len(batch))
    fibers = Fibers(counter, Decisions(recording.draw_decisions(batch)), pick)
    results = fibers.run(recording.program, batch)
    return counter.cut(), collect_outputs(results, counter.n)
