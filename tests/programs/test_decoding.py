"""A decoded log equals the recording of a recorder that counts while programs run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.errors import ProgramError
from dynbatch.harness.models.stack_rnn import StackRNN
from dynbatch.harness.programs import recording as recording_module
from dynbatch.harness.programs.blocks import TAINTED, BlockShape, RecordingOptions
from dynbatch.harness.programs.decisions import draw_chance
from dynbatch.harness.programs.decode import (
    DEPTH_BITS,
    MAX_PHASES,
    ONE_PHASE,
    ONE_SEGMENT,
    extract_phase,
)
from dynbatch.harness.programs.decoder import RecordedPiece
from dynbatch.harness.programs.fibers import Fibers, Pick, Waiting
from dynbatch.harness.programs.log import END, FORK, NO_NUMBER, SEGMENT
from dynbatch.harness.programs.model import make_recorded_model, make_recording, translate_programs
from dynbatch.harness.programs.recorder import Recorder
from dynbatch.harness.programs.recording import Decisions, Recording, collect_outputs
from dynbatch.harness.programs.writer import Block, CallWriter, StageRequest, require_result
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from tests.support.bad_programs import Given
from tests.support.program_models import DECIDED, SENTENCES, SIZES, WITH_ARRAYS
from tests.support.scripted_programs import OPTIONS, Scripted, ScriptedModel, instances

# Recorder that counts depths while programs run, as in ACRoBat: the reference for decoded logs.


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


EVERY = settings(deadline=None, max_examples=80)

MODELS = [make_recorded_model(ScriptedModel(), options) for options in OPTIONS]


def same(ours: Any, theirs: Any) -> None:
    """Check that all arrays of both are equal, whatever their containers."""
    for name in ("types", "arg_start", "args", "segments", "phases", "depths"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


def same_as_counted(
    recording: Recording, batch: Sequence[Any], pick_of: Callable[[], Pick | None] = lambda: None
) -> MiniBatch:
    """Check that logs of both recorders decode to the counted values, without errors."""
    recording.record_with_python(batch)  # edges between blocks determine the counting
    counter = PlainCounter(recording, len(batch))
    fibers = Fibers(counter, Decisions(recording.draw_decisions(batch)), pick_of())
    outputs = collect_outputs(fibers.run(recording.program, batch), counter.n)
    piece = counter.cut()
    for is_checked in (False, True):
        ours = recording.record_with_python(batch, pick_of(), is_checked=is_checked)
        graph = ours.graph
        if graph.segments is None:
            assert not piece.segments.any()
            graph = replace(graph, segments=piece.segments)
        same(graph, piece)
        same_pulls(ours, piece)
        np.testing.assert_array_equal(ours.outputs, outputs)
    return ours


def same_pulls(ours: MiniBatch | RecordedPiece, theirs: MiniBatch | RecordedPiece) -> None:
    assert ours.pulls.keys() == theirs.pulls.keys()
    for name, values in ours.pulls.items():
        np.testing.assert_array_equal(values, theirs.pulls[name], err_msg=name)


@EVERY
@given(instances(), st.integers(0, 2**32), st.sampled_from(MODELS))
def test_decoded_log_equals_call_by_call_counting(
    batch: list[Scripted], seed: int, model: ScriptedModel
) -> None:
    model.mini_batch(batch)  # new edges between blocks require a second recording
    recording = model.recording
    same_as_counted(recording, batch, pick_of=lambda: random.Random(seed).randrange)


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_a_graph_that_is_taken_as_proved_passes_every_check(
    batch: list[Scripted], model: ScriptedModel
) -> None:
    taken = model.mini_batch(batch).graph
    names = ("types", "arg_start", "args", "type_names", "segments", "phases", "depths")
    checked = Graph(**{name: getattr(taken, name) for name in names})
    for name in ("follows", "cheap"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(checked, name))
    assert not any(getattr(taken, name).flags.writeable for name in ("types", "args", "depths"))


class Cutting(Decisions):
    """Answers that take a piece of the recording at the end of each segment."""

    def __init__(
        self, recording: Recording, recorder: Recorder | PlainCounter, batch: Sequence[Any]
    ) -> None:
        super().__init__(recording.draw_decisions(batch))
        self.recorder = recorder
        self.pieces: list[RecordedPiece] = []

    def end_segment(self) -> None:
        self.pieces.append(self.recorder.cut())

    def read_numbers(self, of: Sequence[int], waits: Sequence[Waiting]) -> list[float]:
        assert max(wait[0] for wait in waits) < sum(piece.n for piece in self.pieces)
        return super().read_numbers(of, waits)


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_segments_are_decoded_one_by_one(batch: list[Scripted], model: ScriptedModel) -> None:
    recording = model.recording
    whole = model.mini_batch(batch)
    found = []
    recorders = recording.make_recorder(len(batch)), PlainCounter(recording, len(batch))
    for recorder in recorders:
        cutting = Cutting(recording, recorder, batch)
        Fibers(recorder, cutting).run(recording.program, batch)
        found.append(cutting.pieces)
    np.testing.assert_array_equal(recorders[0].feeds & ~recording.feeds, False)
    for ours, theirs in zip(*found, strict=True):
        assert ours.base == theirs.base
        same(ours, theirs)
        same_pulls(ours, theirs)
    np.testing.assert_array_equal(np.concatenate([p.types for p in found[0]]), whole.graph.types)
    np.testing.assert_array_equal(np.concatenate([p.args for p in found[0]]), whole.graph.args)
    for name, values in whole.pulls.items():
        np.testing.assert_array_equal(np.concatenate([p.pulls[name] for p in found[0]]), values)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(("concurrent", "map", "call", "stage", "ghosts")), max_size=12))
def test_nested_branches_are_as_deep_as_counted(steps: list[str]) -> None:
    def nest(p: CallWriter, left: Sequence[str], value: Any) -> Any:
        for k, step in enumerate(left):
            behind = left[k + 1 :]
            if step == "call":
                value = p.unary_a(value, label=k % 4)
            elif step == "ghosts":
                p.ghosts(k)
            elif step == "stage":
                p.stage()
            elif step == "map":
                found = p.map(lambda part, v=value, more=behind: nest(p, more[part:], v), (0, 1))
                return p.binary(*found, label=0)
            else:
                found = p.concurrent(
                    lambda v=value, more=behind: nest(p, more[1:], v),
                    lambda v=value, more=behind: nest(p, more[2:], p.unary_b(v, label=1)),
                )
                return p.binary(*found, label=0)
        return p.unary_a(value, label=3)

    model = Given(lambda p: nest(p, steps, p.leaf(word=1, label=2)))
    for options in (RecordingOptions(), RecordingOptions(phases=False, hoisting=False)):
        recording = make_recorded_model(model, options).recording
        same_as_counted(recording, [Scripted((), 0)] * 2)


def test_a_chain_takes_any_numbers_that_its_block_may_be_given() -> None:
    def program(p: CallWriter) -> Any:
        value = p.leaf(word=1, label=2)
        plain = p.chain(p.unary_a, value, 3)
        labelled = p.chain(p.unary_b, plain[-1], 2, label=np.array([1, 3], dtype=np.int32))
        single = p.chain(p.unary_a, labelled[-1], 1, label=[2])
        many = p.chain(p.many, single[-1], 2, word=[1, 2], label=[0, 1])
        nothing = p.chain(p.unary_a, many[-1], 0)
        assert list(nothing) == []
        return [*labelled, *single, *many]

    ours = same_as_counted(Given(program).recording, [Scripted((), 0)])
    assert ours.pulls["label"][ours.outputs].tolist() == [1, 3, 2, 0, 1]


@pytest.mark.parametrize(
    ("model", "batch"),
    [*((model, SENTENCES) for model in DECIDED), *WITH_ARRAYS],
    ids=lambda one: getattr(one, "name", ""),
)
def test_models_are_recorded_as_counted(model: Model, batch: Sequence[Any]) -> None:
    recording = make_recording(model, RecordingOptions())
    for pick in (None, random.Random(3).randrange):
        recording.mini_batch(batch, pick)
        same_as_counted(recording, batch)


@pytest.mark.parametrize("is_quick", [True, False])
def test_blocks_that_feed_each_other_in_a_new_way_are_no_fault(is_quick: bool) -> None:
    """The first sentence has one word, so no buffer reads another one, unlike in later ones."""
    model = StackRNN(SIZES)
    if is_quick:
        translate_programs(model)
    for sentence in SENTENCES:
        ours = model.mini_batch([sentence])
        theirs = make_recording(StackRNN(SIZES), RecordingOptions()).mini_batch([sentence])
        np.testing.assert_array_equal(ours.graph.types, theirs.graph.types)
        np.testing.assert_array_equal(ours.graph.args, theirs.graph.args)


def test_numbers_are_drawn_once_and_kept_with_their_instance() -> None:
    model = StackRNN(SIZES)
    model.mini_batch(SENTENCES)
    drawn = model.recording.draw_decisions(SENTENCES)
    before = [dict(numbers) for numbers in drawn]
    assert [len(numbers) for numbers in before] == [2 * s.n_words - 2 for s in SENTENCES]
    for numbers, sentence in zip(before, SENTENCES, strict=True):
        for key, number in numbers.items():
            assert number == draw_chance(model.seed, model.key_of(sentence), *key)
    other = make_recorded_model(model, RecordingOptions(ghosts=False))
    other.mini_batch(SENTENCES[::-1])
    assert model.recording.draw_decisions(SENTENCES) == before
    assert all(
        a is b for a, b in zip(other.recording.draw_decisions(SENTENCES), drawn, strict=True)
    )


def test_numbers_of_many_instances_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "MAX_KEPT", 4)
    model = StackRNN(SIZES)
    for sentence in [*SENTENCES, *SENTENCES]:
        model.mini_batch([sentence])
        assert len(model.kept) <= 5


@pytest.mark.parametrize("place", range(4))
def test_invalid_number_is_reported_anywhere_in_a_chain(place: int) -> None:
    def program(p: CallWriter) -> Any:
        words = [1, 2, 0, 3]
        words[place] = -1
        return p.chain(p.many, p.leaf(word=1), 4, word=words)[-1]

    with pytest.raises(ProgramError, match="without a required number"):
        Given(program).recording.record_with_python([Scripted((), 0)])
