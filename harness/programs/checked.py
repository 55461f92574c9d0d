"""The recorder that looks at every call as it comes, and says on which line a wrong one stands.

It counts depths while programs run, as ACRoBat does: what the fast one has decoded is proved by it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, NoReturn

import numpy as np

from harness.errors import ProgramError
from harness.programs.blocks import BlockShape
from harness.programs.counter import (
    MOST_PHASES,
    ONE_PHASE,
    ONE_ROUND,
    depth_of,
    next_phase,
    phase_of,
    taken_apart,
)
from harness.programs.log import END, FORK, NO_NUMBER, ROUND
from harness.programs.pieces import Piece
from harness.programs.recorder import MOST_VERTICES, Recorder, Rules
from harness.programs.taint import TAINTED, Feeds, fed_in
from harness.programs.writer import Block, Stage, finished, place_of
from harness.values.arrays import int_array

SMALLEST, LARGEST = -(2**31), 2**31 - 1  # of the numbers that calls are given


class CheckedRecorder(Recorder):
    """A few lists, and a number that each call adds one to."""

    def __init__(self, rules: Rules, n_instances: int) -> None:
        super().__init__(rules, n_instances, is_checked=True)
        self.base = rules.base
        self.fiber, self.counter, self.floor = 0, self.base, 0
        self._counter_of_fiber = dict.fromkeys(range(n_instances), self.base)
        self.types: list[int] = []
        self.counters: list[int] = []
        self.arg_ends: list[int] = [0]
        self.args: list[int] = []
        self.pulled: dict[str, dict[int, int]] = {name: {} for name in rules.names}
        self._n_given = 0
        n_types = len(rules.static)  # refused: what would feed what, had its depth not gone back
        self._refused: Feeds = np.zeros((n_types, n_types), dtype=np.bool_)
        for name, shape in rules.shapes.items():
            self.__dict__[name] = self._block(shape)

    def __getattr__(self, name: str) -> Block:
        raise ProgramError(
            f"{place_of(sys._getframe(1))} calls the block {name}; blocks of this model are"
            f" {', '.join(sorted(self.__dict__['rules'].shapes))}"
        )

    @property
    def n(self) -> int:
        """Vertices so far."""
        return len(self.types)

    def _block(self, shape: BlockShape) -> Block:
        """A function that looks at all operands of a call, and records it."""

        def call(*operands: Any, **numbers: int) -> Any:
            fitting = shape.allowed(len(operands)) or ()
            is_right = len(fitting) == len(operands) and shape.pulls <= numbers.keys()
            is_right = is_right and numbers.keys() <= self.pulled.keys()
            is_right = is_right and len(self.types) < self.most_vertices
            is_right = is_right and all(map(_is_kept, numbers.values()))
            counter = self._counter_of(shape)
            for operand, fits in zip(operands, fitting, strict=False):
                is_vertex = type(operand) is int and 0 <= operand < len(self.types)
                is_right = is_right and is_vertex and self.types[operand] in fits
                is_right = is_right and self.counters[operand] < counter
            if not is_right:
                self._refuse(shape, operands, numbers)
            return self._add(shape, operands, numbers)

        return call

    def _add(self, shape: BlockShape, operands: Sequence[int], numbers: Mapping[str, int]) -> int:
        vertex = len(self.types)
        self.counters.append(self._counter_of(shape))
        self.counter += self.rules.static[shape.type_id] == TAINTED
        self.types.append(shape.type_id)
        self.args.extend(operands)
        self.arg_ends.append(len(self.args))
        for name, number in numbers.items():
            self.pulled[name][vertex] = number
        return vertex

    def _counter_of(self, shape: BlockShape) -> int:
        """The counter that a call of a block would have now."""
        static = self.rules.static[shape.type_id]
        return self.counter if static == TAINTED else self.floor + static

    def _refuse(
        self, shape: BlockShape, operands: Sequence[Any], numbers: Mapping[str, int]
    ) -> NoReturn:
        """Say what is wrong with a call, and on which line it stands."""
        counter = self._counter_of(shape)
        where = f"{place_of(sys._getframe(2))} calls {shape.name}"
        allowed = shape.allowed(len(operands))
        if allowed is None:
            n = len(shape.operands)
            raise ProgramError(f"{where} with {len(operands)} operands; it was traced with {n}")
        for k, (operand, fits) in enumerate(zip(operands, allowed, strict=True)):
            if type(operand) is not int or not 0 <= operand < len(self.types):
                raise ProgramError(
                    f"{where} with operand {k} {operand!r}; give what a block returned"
                )
            if self.types[operand] not in fits:
                raise ProgramError(
                    f"{where} with other shapes than traced: operand {k} lacks a state that it"
                    " reads; give it the value of a block that scatters all of them"
                )
            if self.counters[operand] >= counter:
                self._refused[self.types[operand], shape.type_id] = True
                raise ProgramError(
                    f"{where} at depth {depth_of(counter)} of phase {phase_of(counter)}, but"
                    f" operand {k} is of depth {depth_of(self.counters[operand])} of phase"
                    f" {phase_of(self.counters[operand])}: the depth goes back; read what runs"
                    " concurrently behind its join only"
                )
        if len(self.types) >= self.most_vertices:
            raise ProgramError(
                f"{where} when {len(self.types)} blocks are recorded; a program that calls more"
                f" than {MOST_VERTICES} an instance is taken for endless: let its loop end"
            )
        for name, number in numbers.items():
            if not _is_kept(number):
                raise ProgramError(
                    f"{where} with {name}={number!r}; give a whole number of at most 32 bits"
                )
        given = ", ".join(sorted(numbers or ())) or "none"
        raise ProgramError(
            f"{where} with the numbers {given}; it needs"
            f" {', '.join(sorted(shape.pulls)) or 'none'}, allowed are"
            f" {', '.join(self.pulled) or 'none'}"
        )

    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        """All start at the same depth; afterwards it is that of the deepest."""
        start = deepest = self.counter
        results = []
        for branch in branches:
            self.counter = start
            results.append(finished(branch(), "concurrent"))
            deepest = max(deepest, self.counter)
        self.counter = deepest
        return results

    def stage(self) -> Stage:
        """Depths begin anew in the next phase."""
        place = place_of(sys._getframe(1))
        if self.options.phases:
            if phase_of(self.counter) + 1 >= MOST_PHASES:
                raise ProgramError(f"{place} begins stage {MOST_PHASES}; use fewer")
            self.counter = next_phase(self.counter) + self.base
        return Stage(place)

    def ghosts(self, n: int) -> None:
        """They advance the counter, and nothing runs."""
        if n < 0:
            raise ProgramError(f"{place_of(sys._getframe(1))} asks for {n} ghosts; give at least 0")
        if self.options.ghosts:
            self.counter += n

    def note(self, event: tuple[int, ...]) -> None:
        """See Recorder."""
        kind, *numbers = event
        of_fiber = self._counter_of_fiber
        of_fiber[self.fiber] = self.counter
        if kind == ROUND:
            self.floor = self.n_rounds * ONE_ROUND
        elif kind == END:
            (parent,) = numbers
            of_fiber[parent] = max(of_fiber[parent], self.counter)
        elif kind == FORK:
            first, n = numbers
            of_fiber |= dict.fromkeys(range(first, first + n), self.counter)
            self.fiber = first
        else:
            (self.fiber,) = numbers
            self.counter = self._caught_up(of_fiber[self.fiber])

    def _caught_up(self, counter: int) -> int:
        """A fiber's counter of an earlier round in the one that is recorded now."""
        if counter >= self.floor:
            return counter
        depth = self.base if self.options.restart else depth_of(counter)
        return self.floor + phase_of(counter) * ONE_PHASE + depth

    def phases_of(self, fibers: Sequence[int]) -> list[int]:
        """The phase that each fiber is in."""
        self._counter_of_fiber[self.fiber] = self.counter
        return [phase_of(self._counter_of_fiber[fiber]) for fiber in fibers]

    def cut(self) -> Piece:
        """All calls since the last time that this was asked for."""
        base, self._n_given = self._n_given, self.n
        rounds, phases, depths = taken_apart(self.counters[base:])
        ends = np.array(self.arg_ends[base:], dtype=np.int32)
        vertices = range(base, self.n)
        return Piece(
            base=base,
            types=int_array(self.types[base:]),
            arg_start=int_array(ends - ends[0]),
            args=int_array(self.args[self.arg_ends[base] :]),
            rounds=rounds,
            phases=phases,
            depths=depths,
            pulls={name: int_array(self.numbers_of(name, vertices)) for name in self.pulled},
        )

    def feeds(self) -> Feeds:
        """Which type's vertices are arguments of which type's."""
        return self._refused | fed_in(self.types, self.arg_ends, self.args, len(self.rules.static))

    def numbers_of(self, name: str, vertices: Sequence[int]) -> list[int]:
        """External numbers of any vertices, -1 where there is none."""
        known = self.pulled[name]
        return [known.get(vertex, NO_NUMBER) for vertex in vertices]


def _is_kept(number: object) -> bool:
    """Whether it is a number as graphs have them."""
    return isinstance(number, Integral) and SMALLEST <= int(number) <= LARGEST
