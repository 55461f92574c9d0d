"""Interleaved segments in machine code: the same results, a bounded number of calls, no leaks."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.contracts.model import Model, ModelSizes
from dynbatch.harness.engine import live
from dynbatch.harness.engine.backends.compiled import live_segments
from dynbatch.harness.engine.backends.compiled.live_segments import CompiledSegments, divide_ticks
from dynbatch.harness.engine.cpu_kernels.context import TICKS_READABLE
from dynbatch.harness.engine.cpu_kernels.team import Team
from dynbatch.harness.measuring.clock import check_shares
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.compiling import programs as compiled_programs
from dynbatch.harness.programs.compiling.programs import CompiledPrograms
from dynbatch.harness.programs.model import make_recorded_model, uses_arrays
from dynbatch.systems.on_core.acrobat import Adapter
from tests.support.engine_runs import run
from tests.support.fake_time import NullClock
from tests.support.instances import build, random_instances
from tests.support.processes import count_given_out
from tests.support.run_programs import MADE_BY_PYTHON, OwnArrays, check_result, infer_adapter

Patch = pytest.MonkeyPatch
SIZES = ModelSizes(4, {"words": 7, "classes": 3})
SENTENCES = random_instances("chain", (1, 5, 2, 5, 3, 9, 12, 7), SIZES, seed=1)
MODELS: list[Model] = [build("drnn", SIZES, p_child=0.9, generations=4), build("stack_rnn", SIZES)]
# Python's own memory per mini-batch: fibers, requests, boxed numbers, and layouts of outputs.
PYTHONS_BYTES = 64 * 2**10

# Compiled code runs consecutive segments only if the time of each phase can be determined.
needs_cycles = pytest.mark.skipif(not TICKS_READABLE, reason="the counter needs an x86 processor")


def warm(model: Model, threads: int = 1) -> Adapter:
    adapter = infer_adapter(model, threads, execution="interleaved")
    for _ in range(3):
        run(adapter, SENTENCES)
    return adapter


TICKS = st.integers(-(2**62), 2**62)


@given(TICKS, TICKS, TICKS)
@example(-5, -3, -8)  # reset in the middle of a segment
def test_phases_divide_any_ticks_into_parts_of_a_whole(
    planning: int, running: int, elapsed: int
) -> None:
    check_shares(divide_ticks(planning, running, elapsed))


def test_phases_take_their_own_part_of_the_ticks() -> None:
    assert divide_ticks(10, 30, 80) == {"schedule": 0.125, "forward": 0.375}


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "execution"), [(1, "auto"), (2, "auto"), (1, "interleaved")])
def test_whole_run_continues_interleaved_in_the_same_memory(threads: int, execution: str) -> None:
    """The first mini-batch is a single segment, because one word is shifted without a decision.

    That is only known once its graph exists, which arrays make; programs run nevertheless.
    """
    model, one_word = OwnArrays(SIZES), SENTENCES[:1]
    assert uses_arrays(model)
    adapter = infer_adapter(model, threads, execution=execution)
    was_live = []
    for batch in (one_word, SENTENCES, one_word, SENTENCES[::-1]):
        check_result(run(adapter, batch), model, batch)
        was_live.append(adapter.running is not None)
    assert was_live == [False, True, True, True]
    assert len(adapter.running.engine.seen) > 1
    assert adapter.effective_options()["execution"] == "interleaved"


def counted(monkeypatch: Patch, owner: Any, name: str) -> Any:
    """Count all calls from Python."""
    function = getattr(owner, name)
    spy = create_autospec(function, side_effect=function)
    monkeypatch.setattr(owner, name, spy)
    return spy


@needs_cycles
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda one: one.name)
def test_all_segments_are_one_call(model: Model, monkeypatch: Patch) -> None:
    adapter = warm(model)
    programs = counted(monkeypatch, CompiledPrograms, "go_on")
    segments = counted(monkeypatch, CompiledSegments, "run")
    runs = counted(monkeypatch, Team, "run_table")
    layouts = counted(monkeypatch, live, "plan_layout")
    adapter.run(NullClock())
    assert programs.call_count == 1
    assert segments.call_count == 1, "of what is left behind the last segment"
    assert runs.call_count == layouts.call_count == 1, "of the outputs"
    assert len(adapter.live.engine.seen) > 5


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", MODELS, ids=lambda one: one.name)
def test_segments_by_themselves_are_those_that_python_makes(
    model: Model, threads: int, monkeypatch: Patch
) -> None:
    """Also if memory has to be reallocated in the middle of a mini-batch."""
    small, large = SENTENCES[:1], SENTENCES * 9
    results = []
    for makes_all in (True, False):
        if makes_all:
            monkeypatch.setattr(CompiledSegments, "maker", MADE_BY_PYTHON)
        else:
            monkeypatch.undo()
        adapter = infer_adapter(model, threads)
        for batch in (small, large, small, large[::-1]):
            found = run(adapter, batch)  # checks all schedules and row positions
            results.append((found.loss, found.outputs.tobytes(), found.counters))
        assert adapter.effective_options()["program_execution"] == "compiled code"
    assert results[:4] == results[4:]


@needs_cycles
@pytest.mark.slow
def test_a_clock_hears_of_all_phases(monkeypatch: Patch) -> None:
    """Each phase takes a fraction of one call, and none takes all of it."""
    adapter, shares = warm(MODELS[0]), list[dict[str, float]]()
    clock = NullClock()
    monkeypatch.setattr(clock, "divide", shares.append)
    adapter.run(clock)
    (found,) = [one for one in shares if one]
    assert found.keys() == {"schedule", "forward"}
    assert 0 < found["schedule"] < 1
    assert 0 < found["forward"] < 1
    assert sum(found.values()) < 1, "programs and decoding"


def test_unknown_exit_code_raises() -> None:
    with pytest.raises(RuntimeError, match="unknown exit code -99"):
        CompiledSegments._settle(None, -99, None)  # type: ignore[arg-type]


@needs_cycles
@pytest.mark.slow
def test_python_comes_by_after_many_segments(monkeypatch: Patch) -> None:
    """Python handles signals then."""
    monkeypatch.setattr(compiled_programs, "MANY", 3)
    adapter = warm(make_recorded_model(MODELS[0], RecordingOptions()))
    programs = counted(monkeypatch, CompiledPrograms, "go_on")
    adapter.run(NullClock())
    n_segments = len(adapter.live.engine.seen)
    # Of four segments, three run by themselves, and one by Python.
    assert programs.call_count == -(-(n_segments + 1) // 4)


@needs_cycles
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_a_segment_by_itself_is_raised(threads: int, monkeypatch: Patch) -> None:
    """The next mini-batch must not be affected."""
    adapter = warm(MODELS[0], threads)
    truth = adapter.result()
    monkeypatch.setattr(live_segments, "plan_next", fails)
    with pytest.raises(RuntimeError, match="a segment is not planned"):
        adapter.run(NullClock())
    monkeypatch.undo()
    adapter.run(NullClock())
    assert adapter.result().outputs.tobytes() == truth.outputs.tobytes()


@compiled
def fails(table: int, reorder: int) -> int:
    """Raise an error in place of planning a segment."""
    if table != 0:
        raise RuntimeError("a segment is not planned")
    return reorder


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda one: one.name)
def test_many_mini_batches_do_not_leak_memory(model: Model) -> None:
    adapter = warm(model)
    segments, memory = adapter.live.engine._current, adapter.engine.backend._memory
    tables, n_grown = segments.kept.table.copy(), memory.n_grown
    buffers = {key: id(array) for key, array in memory.buffers.items()}
    gc.collect()
    tracemalloc.start()
    try:
        adapter.run(NullClock())
        gc.collect()  # a recorder's functions refer to each other
        (before, _), given_out = tracemalloc.get_traced_memory(), count_given_out()
        tracemalloc.reset_peak()
        for _ in range(20):
            adapter.run(NullClock())
            gc.collect()
        (after, peak), n_more = tracemalloc.get_traced_memory(), count_given_out() - given_out
    finally:
        tracemalloc.stop()
    assert n_more < PYTHONS_BYTES, "compiled code gives back what it takes"
    assert after - before < PYTHONS_BYTES / 16
    assert peak - before < PYTHONS_BYTES
    assert memory.n_grown == n_grown
    assert {key: id(array) for key, array in memory.buffers.items()} == buffers
    same = np.flatnonzero((segments.kept.table != tables).any(axis=1)).tolist()
    assert len(same) <= 1, "depths of types, which a recording has anew"
