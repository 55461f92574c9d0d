"""Records what the programs of a mini-batch call, and the depth at which they do.

Recording is most of what a program costs: a call appends to a few lists and adds one to a number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from harness.errors import ProgramError
from harness.programs.blocks import BlockShape
from harness.programs.counter import (
    MOST_PHASES,
    ONE_PHASE,
    ONE_ROUND,
    depth_of,
    next_phase,
    phase_of,
)
from harness.programs.taint import TAINTED
from harness.programs.writer import Block, Stage, Writer, finished, place_of

SOMEWHERE = Stage("")
MOST_VERTICES = 1_000_000  # of one instance: a program that calls more is taken for endless


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """What is counted while a program runs.

    phases: the program's stages part its depths; else all of it is one. ghosts: counted, or left
    out. hoisting: blocks that no recurrent value reaches have a static depth. restart: depths begin
    anew with every round, or go on.
    """

    phases: bool = True
    ghosts: bool = True
    hoisting: bool = True
    restart: bool = True


class Recorder(Writer):
    """Values are numbers of vertices, in the order of recording.

    shapes: of the blocks, by name. pulls: names of the numbers that any function needs. static:
    depth of every type that does not count (harness.programs.taint).
    """

    def __init__(
        self,
        shapes: Mapping[str, BlockShape],
        pulls: Iterable[str],
        static: Sequence[int],
        options: RecordingOptions,
        n_instances: int,
        *,
        is_checked: bool,
    ) -> None:
        super().__init__(is_checked=is_checked)
        self.options, self.most_vertices = options, MOST_VERTICES * max(1, n_instances)
        self.base = 1 + max(static, default=TAINTED)  # hoisted blocks come before all others
        self.counter, self.round, self.floor = self.base, 0, 0
        self.types: list[int] = []
        self.counters: list[int] = []
        self.arg_ends: list[int] = [0]
        self.args: list[int] = []
        self.pulled: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name in pulls}
        self._names, self._static = sorted(shapes), static
        self._shape_of: dict[Block, BlockShape] = {}
        for name, shape in shapes.items():
            block = (self._checked_block if is_checked else self._block)(shape)
            self.__dict__[name] = block
            self._shape_of[block] = shape

    def __getattr__(self, name: str) -> Block:
        raise ProgramError(
            f"{place_of(sys._getframe(1))} calls the block {name}; blocks of this model are"
            f" {', '.join(self.__dict__['_names'])}"
        )

    def _block(self, shape: BlockShape) -> Block:
        """A function that records calls of a block; all that it needs is bound, to be fast."""
        types, args, pulled, type_id = self.types, self.args, self.pulled, shape.type_id
        add_type, add_args, add_end = types.append, args.extend, self.arg_ends.append
        add_counter, most = self.counters.append, self.most_vertices
        static = self._static[type_id]
        counts = static == TAINTED

        def call(*operands: int, **numbers: int) -> int:
            vertex = len(types)
            if vertex >= most:
                self._refuse(shape, operands, numbers)
            add_type(type_id)
            add_args(operands)
            add_end(len(args))
            if counts:
                counter = self.counter
                add_counter(counter)
                self.counter = counter + 1
            else:
                add_counter(self.floor + static)
            for name in numbers:
                vertices, values = pulled[name]
                vertices.append(vertex)
                values.append(numbers[name])
            return vertex

        return call

    def _checked_block(self, shape: BlockShape) -> Block:
        """The same, with a look at every operand."""
        plain = self._block(shape)

        def call(*operands: Any, **numbers: int) -> Any:
            fitting = shape.allowed(len(operands)) or ()
            is_right = len(fitting) == len(operands) and shape.pulls <= numbers.keys()
            is_right = is_right and numbers.keys() <= self.pulled.keys()
            is_right = is_right and len(self.types) < self.most_vertices
            counter = self._counter_of(shape)
            for operand, fits in zip(operands, fitting, strict=False):
                is_vertex = type(operand) is int and 0 <= operand < len(self.types)
                is_right = is_right and is_vertex and self.types[operand] in fits
                is_right = is_right and self.counters[operand] < counter
            if not is_right:
                self._refuse(shape, operands, numbers)
            return plain(*operands, **numbers)

        return call

    def _counter_of(self, shape: BlockShape) -> int:
        """The counter that a call of a block would have now."""
        static = self._static[shape.type_id]
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
        given = ", ".join(sorted(numbers or ())) or "none"
        raise ProgramError(
            f"{where} with the numbers {given}; it needs"
            f" {', '.join(sorted(shape.pulls)) or 'none'}, allowed are"
            f" {', '.join(self.pulled) or 'none'}"
        )

    def chain(self, block: Block, first: Any, n: int, **numbers: Sequence[int]) -> Sequence[Any]:
        """All calls at once, unless each is to be looked at."""
        shape, begin = self._shape_of.get(block), len(self.types)
        is_odd = shape is None or n < 1 or begin + n > self.most_vertices
        is_odd = is_odd or any(len(of_all) != n for of_all in numbers.values())
        if self.is_checked or is_odd:
            return super().chain(block, first, n, **numbers)
        assert shape is not None
        self.types.extend([shape.type_id] * n)
        self.args.append(first)
        self.args.extend(range(begin, begin + n - 1))
        ends = self.arg_ends[-1]
        self.arg_ends.extend(range(ends + 1, ends + n + 1))
        static = self._static[shape.type_id]
        if static == TAINTED:
            self.counters.extend(range(self.counter, self.counter + n))
            self.counter += n
        else:
            self.counters.extend([self.floor + static] * n)
        vertices = range(begin, begin + n)
        for name, of_all in numbers.items():
            pulled_by, values = self.pulled[name]
            pulled_by.extend(vertices)
            values.extend(of_all)
        return vertices

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
        if self.options.phases:
            if phase_of(self.counter) + 1 >= MOST_PHASES:
                place = place_of(sys._getframe(1))
                raise ProgramError(f"{place} begins stage {MOST_PHASES}; use fewer")
            self.counter = next_phase(self.counter) + self.base
        return Stage(place_of(sys._getframe(1))) if self.is_checked else SOMEWHERE

    def ghosts(self, n: int) -> None:
        """They advance the counter, and nothing runs."""
        if n < 0:
            raise ProgramError(f"{place_of(sys._getframe(1))} asks for {n} ghosts; give at least 0")
        if self.options.ghosts:
            self.counter += n

    def next_round(self) -> None:
        """What is recorded from now on runs behind all that was."""
        self.round += 1
        self.floor = self.round * ONE_ROUND

    def caught_up(self, counter: int) -> int:
        """A fiber's counter of an earlier round in the one that is recorded now."""
        if counter >= self.floor:
            return counter
        depth = self.base if self.options.restart else depth_of(counter)
        return self.floor + phase_of(counter) * ONE_PHASE + depth
