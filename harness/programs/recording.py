"""From programs to a mini-batch: run them, and make one graph of what they called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np

from harness.errors import ProgramError, ScheduleError
from harness.programs.blocks import BlockShape, block_shapes
from harness.programs.checked import CheckedRecorder
from harness.programs.decisions import Drawn, NumberAskedFor
from harness.programs.fibers import Fibers, Pick, Program, Waiting
from harness.programs.packing import packed
from harness.programs.pieces import Piece
from harness.programs.recorder import Recorder, RecordingOptions, Rules
from harness.programs.taint import TAINTED, Feeds, static_depths
from harness.programs.writer import Wait
from harness.values.arrays import IntArray
from harness.values.graph import Graph, MiniBatch
from harness.vertex.program import VertexFunction

# What a call that is wrong can raise before it is known to be.
FAULTS = (
    *(ProgramError, ScheduleError, LookupError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, MemoryError, NameError, AssertionError),
)
Key = Callable[[Any], int]
# Numbers that instances decide by, by the instance's id, with the instance, so that it stays its.
KeptNumbers = dict[int, tuple[Any, Drawn]]
MOST_KEPT = 10_000  # instances; 5 KB each where a program waits thirty times


Widens = Callable[[Feeds], bool]  # see Recording.widens


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """All that the programs of a mini-batch called. outputs: vertices that they returned, in the
    order of the instances. n_rounds: that others followed.
    """

    piece: Piece
    outputs: IntArray
    n_rounds: int


class Quick(Protocol):
    """Compiled code that records: see harness.programs.quick.QuickRecorders."""

    def __call__(self, rules: Rules, n_instances: int) -> Recorder: ...

    def can_record(self) -> bool: ...

    def recorded(
        self,
        rules: Rules,
        instances: Sequence[Any],
        drawn: Sequence[Drawn],
        options: RecordingOptions,
        widens: Widens,
    ) -> Recorded | None: ...

    def give_up(self, fault: Exception) -> None: ...


class Recording:
    """Records mini-batches of one model's programs.

    functions: by name, `output` among them. types: names of those that are blocks. program: of one
    instance. key_of: the number of an instance, by which it decides. kept: what is known of these.
    """

    def __init__(
        self,
        functions: Mapping[str, VertexFunction],
        types: Sequence[str],
        program: Program,
        key_of: Key,
        seed: int,
        options: RecordingOptions,
        kept: KeptNumbers | None = None,
    ) -> None:
        self.shapes: dict[str, BlockShape] = block_shapes(functions, types)
        self.type_names = ("unbatchable", *types)
        nodes = (node for function in functions.values() for node in function.nodes)
        of_output = functions["output"].nodes
        self.output_pulls = tuple({node.name: 0 for node in of_output if node.op == "pull"})
        self.pulls = tuple(dict.fromkeys(node.name for node in nodes if node.op == "pull"))
        self.program, self.key_of, self.seed, self.options = program, key_of, seed, options
        n_types = len(self.type_names)
        self.quick: Quick | None = None
        self._kept: KeptNumbers = {} if kept is None else kept
        self._drawn: dict[int, Drawn] = {}  # by the instance's number
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

    def mini_batch(self, instances: Sequence[Any], pick: Pick | None = None) -> MiniBatch:
        """Record the programs of all instances.

        Where something is wrong they are run once more, so that the error names the line.
        """
        try:
            return self._mini_batch(self._recorded(instances, pick), len(instances))
        except FAULTS as fault:
            mini_batch = self.recorded(instances, pick, is_checked=True)
            if self.quick is not None:
                self.quick.give_up(fault)
            return mini_batch

    def _recorded(self, instances: Sequence[Any], pick: Pick | None) -> Recorded:
        if self.quick is None or pick is not None or not self.quick.can_record():
            return self._by_python(instances, pick, is_checked=False)
        drawn, found = self.drawn(instances), None
        while found is None:
            found = self.quick.recorded(self.rules, instances, drawn, self.options, self.widens)
        return found

    def recorded(
        self, instances: Sequence[Any], pick: Pick | None, *, is_checked: bool
    ) -> MiniBatch:
        """Let Python run the programs of all instances."""
        found = self._by_python(instances, pick, is_checked=is_checked)
        return self._mini_batch(found, len(instances))

    def _by_python(
        self, instances: Sequence[Any], pick: Pick | None, *, is_checked: bool
    ) -> Recorded:
        """Record, and again as long as blocks feed each other in new ways."""
        drawn = self.drawn(instances)
        while True:
            recorder = self.recorder(len(instances), is_checked=is_checked)
            fibers = Fibers(recorder, Decisions(drawn), pick)
            try:
                results = fibers.run(self.program, instances)
                piece = recorder.cut()
            except FAULTS:
                if not self.widens(recorder.feeds()):
                    raise
            else:
                if not self.widens(recorder.feeds()):
                    return Recorded(piece, outputs_of(results, piece.n), recorder.n_rounds)

    def drawn(self, instances: Sequence[Any]) -> list[Drawn]:
        """The numbers that instances decide by: those that were asked for are kept.

        A copy of an instance has the same ones, drawn once for both.
        """
        found, known = [], self._kept
        if len(known) > MOST_KEPT:
            known.clear()
            self._drawn.clear()
        for instance in instances:
            if id(instance) not in known:
                key = self.key_of(instance)
                drawn = self._drawn.setdefault(key, Drawn(self.seed, key))
                known[id(instance)] = (instance, drawn)
            found.append(known[id(instance)][1])
        return found

    def recorder(self, n_instances: int, *, is_checked: bool) -> Recorder:
        """An empty one."""
        if is_checked or self.quick is None:
            return CheckedRecorder(self.rules, n_instances)
        return self.quick(self.rules, n_instances)

    @property
    def rules(self) -> Rules:
        """As they are by what is known so far."""
        return Rules(self.shapes, self.pulls, self.static, self.options)

    def widens(self, feeds: Feeds) -> bool:
        """Take in which block feeds which; whether that changes what may be hoisted."""
        if not (feeds & ~self.feeds).any():
            return False
        self.feeds |= feeds
        before, self.static = self.static, self._static()
        return before != self.static

    def _mini_batch(self, recorded: Recorded, n_instances: int) -> MiniBatch:
        """One graph of all calls."""
        piece = recorded.piece
        graph = Graph.proved(
            types=piece.types,
            arg_start=piece.arg_start,
            args=piece.args,
            type_names=self.type_names,
            rounds=piece.rounds if recorded.n_rounds else None,
            phases=piece.phases,
            depths=piece.depths,
        )
        return MiniBatch(graph, piece.pulls, recorded.outputs, n_instances=n_instances)


class Decisions:
    """What a generator decides, beforehand: see harness.programs.fibers.Answers."""

    def __init__(self, drawn: Sequence[Drawn]) -> None:
        self._drawn = drawn

    def end_round(self) -> None:
        """Nothing is computed."""

    def numbers(self, instances: Sequence[int], waits: Sequence[Waiting]) -> list[float]:
        """Raises ProgramError where the number itself is asked for."""
        drawn = self._drawn
        try:
            return [drawn[k][wait[1]] for k, wait in zip(instances, waits, strict=True)]
        except NumberAskedFor:
            wait = next(wait for wait in waits if isinstance(wait, Wait) and wait.key is None)
            raise ProgramError(
                f"{wait.made_at} waits for a number that must be computed first; let p.chance"
                " decide, which can be recorded beforehand, or run it with system=acrobat"
                " system.options.rounds=live"
            ) from None


def outputs_of(results: Sequence[Any], n: int) -> IntArray:
    """What programs returned: a vertex, or a list of them, in its own order."""
    found = list(chain.from_iterable(r if isinstance(r, list) else [r] for r in results))
    if {*map(type, found)} <= {int}:
        vertices = packed(found)
        if not len(found) or 0 <= vertices.min() <= vertices.max() < n:
            return vertices
    raise ProgramError("a program returns what no block computed; return a value, or a list")
