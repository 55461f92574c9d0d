"""From programs to a mini-batch: run them, and make one graph of what they called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.errors import ProgramError, ScheduleError
from harness.programs.blocks import BlockShape, block_shapes
from harness.programs.counter import taken_apart
from harness.programs.decisions import chance_from, mixed
from harness.programs.fibers import Fibers, Pick, Program, Waiting, last_made
from harness.programs.recorder import Recorder, RecordingOptions
from harness.programs.taint import TAINTED, Feeds, fed_in, static_depths
from harness.programs.verify import Fitting
from harness.values.arrays import IntArray, int_array
from harness.values.graph import Graph, MiniBatch
from harness.vertex.program import VertexFunction

# What a call that is wrong can raise before it is known to be.
FAULTS = (ProgramError, ScheduleError, LookupError, TypeError, ValueError, AttributeError)
Key = Callable[[Any], int]
Calls = tuple[IntArray, IntArray, IntArray]


class Recording:
    """Records mini-batches of one model's programs.

    functions: by name, `output` among them. types: names of those that are blocks. program: of one
    instance. key_of: the number of an instance, by which it decides.
    """

    def __init__(
        self,
        functions: Mapping[str, VertexFunction],
        types: Sequence[str],
        program: Program,
        key_of: Key,
        seed: int,
        options: RecordingOptions,
    ) -> None:
        self.shapes: dict[str, BlockShape] = block_shapes(functions, types)
        self.type_names = ("unbatchable", *types)
        nodes = (node for function in functions.values() for node in function.nodes)
        of_output = functions["output"].nodes
        self.output_pulls = tuple({node.name: 0 for node in of_output if node.op == "pull"})
        self.pulls = tuple(dict.fromkeys(node.name for node in nodes if node.op == "pull"))
        self.program, self.key_of, self.seed, self.options = program, key_of, seed, options
        n_types = len(self.type_names)
        self.fitting = Fitting(self.shapes.values(), n_types)
        self.feeds = np.zeros((n_types, n_types), dtype=np.bool_)
        self.static = self._static()

    def _static(self) -> list[int]:
        """Depth of every type that does not count; types not yet met count if they read any, as
        does whatever they feed.
        """
        if not self.options.hoisting:
            return [TAINTED] * len(self.feeds)
        feeds = self.feeds.copy()
        for shape in self.shapes.values():
            reads = bool(shape.operands) or shape.of_each is not None
            if reads and not self.feeds[:, shape.type_id].any():
                feeds[shape.type_id, shape.type_id] = True
        return static_depths(feeds)

    def mini_batch(self, instances: Sequence[Any], pick: Pick = last_made) -> MiniBatch:
        """Record the programs of all instances.

        Where something is wrong they are run once more, so that the error names the line.
        """
        try:
            return self._recorded(instances, pick, is_checked=False)
        except FAULTS:
            return self._recorded(instances, pick, is_checked=True)

    def _recorded(self, instances: Sequence[Any], pick: Pick, *, is_checked: bool) -> MiniBatch:
        """Record, and again as long as blocks feed each other in new ways."""
        states = self.states_of(instances)
        while True:
            recorder = self.recorder(len(instances), is_checked=is_checked)
            fibers = Fibers(recorder, Decisions(states), pick)
            try:
                results = fibers.run(self.program, instances)
                calls = calls_of(recorder)
            except FAULTS:
                if not self.learns(recorder):
                    raise
            else:
                if not self.widens(fed_in(*calls, len(self.type_names))):
                    return self._joined(recorder, calls, results)

    def states_of(self, instances: Sequence[Any]) -> list[int]:
        """State of the generator for each instance."""
        return [mixed(0, self.seed, self.key_of(instance)) for instance in instances]

    def recorder(self, n_instances: int, *, is_checked: bool) -> Recorder:
        """An empty one."""
        given = (self.shapes, self.pulls, self.static, self.options, n_instances)
        return Recorder(*given, is_checked=is_checked)

    def learns(self, recorder: Recorder) -> bool:
        """Whether blocks feed each other in a way that changes what may be hoisted."""
        n_types = len(self.type_names)
        return self.widens(fed_in(recorder.types, recorder.arg_ends, recorder.args, n_types))

    def widens(self, feeds: Feeds) -> bool:
        """Take in which block feeds which; whether that changes what may be hoisted."""
        if not (feeds & ~self.feeds).any():
            return False
        self.feeds |= feeds
        before, self.static = self.static, self._static()
        return before != self.static

    def _joined(self, recorder: Recorder, calls: Calls, results: Sequence[Any]) -> MiniBatch:
        """One graph of all calls, which are looked at together."""
        types, arg_start, args = calls
        rounds, phases, depths = taken_apart(recorder.counters)
        graph = Graph(
            types=types,
            arg_start=arg_start,
            args=args,
            type_names=self.type_names,
            rounds=rounds if recorder.round else None,
            phases=phases,
            depths=depths,
        )
        n = len(types)
        pulls = {name: _pulled(n, *given) for name, given in recorder.pulled.items()}
        self.fitting.check(types, arg_start, types[args], pulls)
        return MiniBatch(graph, pulls, outputs_of(results, n), n_instances=len(results))


def calls_of(recorder: Recorder) -> Calls:
    """Types of all calls, and where the operands of each begin among those that follow."""
    return int_array(recorder.types), int_array(recorder.arg_ends), int_array(recorder.args)


class Decisions:
    """What a generator decides, beforehand.

    states: of the generator, for each instance.
    """

    def __init__(self, states: Sequence[int]) -> None:
        self._states = states

    def end_round(self) -> None:
        """Nothing is computed."""

    def numbers(self, waiting: Sequence[Waiting]) -> list[float]:
        """Raises ProgramError where the number itself is asked for."""
        found, states = [], self._states
        for fiber, wait in waiting:
            if wait.key is None:
                raise ProgramError(
                    f"{wait.made_at} waits for a number that must be computed first; let p.chance"
                    " decide, which can be recorded beforehand, or run it with system=acrobat"
                    " system.options.rounds=live"
                )
            found.append(chance_from(states[fiber.instance], wait.key))
        return found


def _pulled(n: int, vertices: list[int], values: list[int]) -> IntArray:
    found = np.full(n, -1, dtype=np.int32)
    found[vertices] = values
    return found


def outputs_of(results: Sequence[Any], n: int) -> IntArray:
    """What programs returned: a vertex, or a list of them, in its own order."""
    found: list[int] = []
    for result in results:
        found += result if isinstance(result, list) else [result]
    if any(type(vertex) is not int or not 0 <= vertex < n for vertex in found):
        raise ProgramError("a program returns what no block computed; return a value, or a list")
    return int_array(found)
