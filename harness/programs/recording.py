"""Recording of programs: run them, and build one mini-batch of their calls.

A program that waits is compiled if that is requested and possible; otherwise Python runs it
(dynbatch.harness.programs.compiling).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dynbatch.harness.errors import CompileError, ConfigError, ProgramError, ScheduleError
from dynbatch.harness.programs.blocks import (
    TAINTED,
    BlockShape,
    Feeds,
    Fitting,
    RecordingOptions,
    Rules,
    build_block_shapes,
    compute_static_depths,
)
from dynbatch.harness.programs.compiling.programs import CompiledPrograms
from dynbatch.harness.programs.compiling.writer import translate_program
from dynbatch.harness.programs.decisions import Drawn, NumberAskedFor
from dynbatch.harness.programs.decode import check_fault
from dynbatch.harness.programs.decoder import Decoder, RecordedPiece, pack_numbers
from dynbatch.harness.programs.fibers import Fibers, Pick, Program, Waiting
from dynbatch.harness.programs.ghosts import BranchAnalysis, GhostCounts, insert_ghosts
from dynbatch.harness.programs.log import generate_call_text
from dynbatch.harness.programs.recorder import OWN_NAMES, CheckedRecorder, Recorder
from dynbatch.harness.programs.writer import Wait
from dynbatch.harness.values.arrays import IntArray
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.vertex.program import VertexFunction

# Errors that an invalid call can raise before its check.
FAULTS = (
    *(ProgramError, ScheduleError, LookupError, TypeError, ValueError, AttributeError),
    *(ArithmeticError, MemoryError, NameError, AssertionError),
)
Key = Callable[[Any], int]
# Decisions by the instance's id, with the instance, which keeps its id in use.
KeptNumbers = dict[int, tuple[Any, Drawn]]
MAX_KEPT = 10_000  # instances; 5 KB each if a program waits thirty times
BY_COMPILED_CODE = "compiled code"


class Recording:
    """Recorder of the mini-batches of one model's programs.

    Args:
        functions: by name, including `output`.
        key_of: returns the number of an instance, which determines its decisions.
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
        for name in sorted(OWN_NAMES & {*types}):
            raise ConfigError(
                f"vertex type {name} cannot be a block: p.{name} is reserved; rename it"
            )
        self.shapes: dict[str, BlockShape] = build_block_shapes(functions, types)
        self.type_names = ("unbatchable", *types)
        nodes = (node for function in functions.values() for node in function.nodes)
        of_output = functions["output"].nodes
        self.output_pulls = tuple({node.name: 0 for node in of_output if node.op == "pull"})
        self.pulls = tuple(dict.fromkeys(node.name for node in nodes if node.op == "pull"))
        self._given, self.key_of, self.seed, self.options = program, key_of, seed, options
        n_types = len(self.type_names)
        self._text = generate_call_text(self.shapes, self.pulls)
        self._fitting = Fitting(self.shapes.values(), n_types, self.pulls)
        self._translates: bool | None = None  # None: not requested
        self._programs: CompiledPrograms | None = None
        self._python_reason = ""
        self._kept: KeptNumbers = {} if kept is None else kept
        self._drawn: dict[int, Drawn] = {}  # by the instance's number
        self.feeds = np.zeros((n_types, n_types), dtype=np.bool_)
        self.static = self._compute_static_depths()
        self._ghosts_by: list[int] | None = None  # static depths by which ghosts were inserted
        self._ghosts: GhostCounts = {}
        self._program = program

    @property
    def program(self) -> Program:
        """The program of one instance, with the missing ghost operators of its branches.

        Calls of blocks that are hoisted count no depth, so another program may follow from new
        edges between blocks.
        """
        if self.options.ghosts and self._ghosts_by != self.static:
            self._ghosts_by = self.static
            counted = [s.name for s in self.shapes.values() if self.static[s.type_id] == TAINTED]
            analysis = BranchAnalysis(self._given, frozenset(counted))
            if analysis.missing != self._ghosts:
                self._ghosts, self._programs = analysis.missing, None
                self._program = insert_ghosts(self._given, analysis)
        return self._program

    def translate(self, *, is_wanted: bool | None = None) -> None:
        """Allow compiled code to run the program, if it can be compiled; for timed systems.

        Recordings stay the same.

        Args:
            is_wanted: None leaves an earlier decision unchanged.
        """
        if self._translates is None or is_wanted not in (None, self._translates):
            self._translates, self._programs = is_wanted is not False, None
            self._python_reason = "" if self._translates else "it was asked to"

    @property
    def programs(self) -> CompiledPrograms | None:
        """Compiled programs; None if Python runs them."""
        program = self.program
        if self._translates and self._programs is None and not self._python_reason:
            try:
                model = getattr(program, "__self__", None)
                translation = translate_program(program, self._text)
                self._programs = CompiledPrograms(translation, model)
            except CompileError as reason:
                self._python_reason = str(reason)
            except Exception as error:  # Python can run whatever breaks the compilation
                name = type(error).__name__
                self._python_reason = f"its translation met {name}, an internal error: {error}"
        return self._programs

    @property
    def run_by(self) -> str:
        """Runner of the programs, and the reason for it."""
        return BY_COMPILED_CODE if self.programs else f"Python, since {self._python_reason}"

    def facts(self) -> dict[str, str]:
        """Return the runner of the programs, for records; empty if none was requested."""
        return {} if self._translates is None else {"program_execution": self.run_by}

    def give_up(self, fault: Exception) -> None:
        """Let Python run the programs from now on, after compiled code failed and Python did not.

        A shortage of memory is temporary and changes nothing.
        """
        if self._programs is not None and not isinstance(fault, MemoryError):
            self._programs = None
            self._python_reason = f"compiled code met {type(fault).__name__}: {fault}"

    def _compute_static_depths(self) -> list[int]:
        """Return the static depth of every type, TAINTED for types without one.

        Types that read others and have not occurred yet are tainted, and so is whatever they feed.
        """
        if not self.options.hoisting:
            return [TAINTED] * len(self.feeds)
        feeds = self.feeds.copy()
        for shape in self.shapes.values():
            reads = bool(shape.operands) or shape.of_each is not None
            if reads and not self.feeds[:, shape.type_id].any():
                feeds[shape.type_id, shape.type_id] = True
        return compute_static_depths(feeds)

    def mini_batch(self, instances: Sequence[Any], pick: Pick | None = None) -> MiniBatch:
        """Record the programs of all instances.

        After an error they are run once more, so that the message names the line.
        """
        try:
            if pick is None and self.programs is not None:
                return self._record_with_compiled_code(instances)
            return self.record_with_python(instances, pick)
        except FAULTS as fault:
            mini_batch = self.record_with_python(instances, pick, is_checked=True)
            self.give_up(fault)
            return mini_batch

    def _record_with_compiled_code(self, instances: Sequence[Any]) -> MiniBatch:
        """Record with compiled code, again as long as new edges between blocks appear."""
        drawn = self.draw_decisions(instances)
        while (programs := self.programs) is not None:
            decoder = self.make_decoder(len(instances))
            programs.begin(instances, drawn, self.options)
            programs.go_on()
            decoder.take(programs.log)
            try:
                check_fault(decoder.fault)
            except ProgramError:
                if not self.update_feeds(decoder.feeds):
                    raise
                continue
            if not self.update_feeds(decoder.feeds):
                n, n_segments = len(instances), programs.n_segments
                return self._mini_batch(decoder.cut(), programs.outputs(), n_segments, n)
        return self.record_with_python(instances)

    def record_with_python(
        self, instances: Sequence[Any], pick: Pick | None = None, *, is_checked: bool = False
    ) -> MiniBatch:
        """Record with Python, again as long as new edges between blocks appear."""
        drawn = self.draw_decisions(instances)
        while True:
            recorder = self.make_recorder(len(instances), is_checked=is_checked)
            try:
                results = Fibers(recorder, Decisions(drawn), pick).run(self.program, instances)
                piece = recorder.cut()
            except FAULTS:
                if not self.update_feeds(recorder.feeds):
                    raise
                continue
            if not self.update_feeds(recorder.feeds):
                outputs = collect_outputs(results, piece.n)
                return self._mini_batch(piece, outputs, recorder.n_segments, len(instances))

    def draw_decisions(self, instances: Sequence[Any]) -> list[Drawn]:
        """Return the decisions of instances; those already drawn are reused.

        A copy of an instance has the same decisions, drawn once for both.
        """
        decisions, known = [], self._kept
        if len(known) > MAX_KEPT:
            known.clear()
            self._drawn.clear()
        for instance in instances:
            if id(instance) not in known:
                key = self.key_of(instance)
                drawn = self._drawn.setdefault(key, Drawn(self.seed, key))
                known[id(instance)] = (instance, drawn)
            decisions.append(known[id(instance)][1])
        return decisions

    def make_decoder(self, n_instances: int, decoder: Decoder | None = None) -> Decoder:
        """Return an empty decoder; it reuses the memory of a given one."""
        if decoder is None:
            decoder = Decoder(self.rules, self._text, self._fitting, n_instances)
        else:
            decoder.begin(self.rules, n_instances)
        return decoder

    def make_recorder(
        self, n_instances: int, decoder: Decoder | None = None, *, is_checked: bool = False
    ) -> Recorder:
        """Return an empty recorder.

        Args:
            decoder: an empty decoder for its log.
        """
        kind = CheckedRecorder if is_checked else Recorder
        decoder = self.make_decoder(n_instances) if decoder is None else decoder
        return kind(self.rules, self._text, n_instances, decoder)

    @property
    def rules(self) -> Rules:
        """Rules from the edges known so far."""
        return Rules(self.shapes, self.pulls, self.static, self.options)

    def update_feeds(self, feeds: Feeds) -> bool:
        """Add edges between blocks; return True if they change what can be hoisted."""
        if not (feeds & ~self.feeds).any():
            return False
        self.feeds |= feeds
        before, self.static = self.static, self._compute_static_depths()
        return before != self.static

    def _mini_batch(
        self, piece: RecordedPiece, outputs: IntArray, n_segments: int, n_instances: int
    ) -> MiniBatch:
        """Build one graph of all calls.

        Args:
            n_segments: number of graph segments before the last one.
        """
        graph = Graph.from_valid_arrays(
            types=piece.types,
            arg_start=piece.arg_start,
            args=piece.args,
            type_names=self.type_names,
            segments=piece.segments if n_segments else None,
            phases=piece.phases,
            depths=piece.depths,
        )
        return MiniBatch(graph, piece.pulls, outputs, n_instances=n_instances)


class Decisions:
    """Decisions that are drawn in advance; see dynbatch.harness.programs.fibers.NumberSource."""

    def __init__(self, drawn: Sequence[Drawn]) -> None:
        self._drawn = drawn

    def end_segment(self) -> None:
        """Do nothing, as nothing is computed."""

    def read_numbers(self, instances: Sequence[int], waits: Sequence[Waiting]) -> list[float]:
        """Return the drawn decisions.

        Raises:
            ProgramError: if a computed value is requested.
        """
        drawn = self._drawn
        try:
            return [drawn[k][wait[1]] for k, wait in zip(instances, waits, strict=True)]
        except NumberAskedFor:
            wait = next(wait for wait in waits if isinstance(wait, Wait) and wait.key is None)
            raise ProgramError(
                f"{wait.made_at} waits for a computed number; use p.chance, which is drawn in"
                " advance, or set system=acrobat system.options.execution=interleaved"
            ) from None


def collect_outputs(results: Sequence[Any], n: int) -> IntArray:
    """Return the vertices that programs returned, one or a list of them each, in order."""
    outputs = list(chain.from_iterable(r if isinstance(r, list) else [r] for r in results))
    if {*map(type, outputs)} <= {int}:
        vertices = pack_numbers(outputs)
        if not len(outputs) or 0 <= vertices.min() <= vertices.max() < n:
            return vertices
    raise ProgramError(
        "a program returns a value that no block computed; return a result of a block or a list of"
        " them"
    )
