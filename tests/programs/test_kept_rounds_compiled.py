"""Live rounds in machine code: the same numbers, so many calls, and nothing that grows."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numba.core.runtime import _nrt_python, rtsys

from harness.contracts.model import Model, ModelSizes, initial_weights
from harness.contracts.system import RunSettings
from harness.engine.cpu_kernels import team as teams
from harness.engine.live import LiveEngine
from harness.interpreter import interpret
from harness.models.drnn import DRNN
from harness.models.stack_rnn import StackRNN
from systems.on_core.acrobat import Adapter
from tests.support.engine_runs import NoClock
from tests.support.live_programs import OwnArrays
from tests.support.sentences import random_sentences

SIZES = ModelSizes(4, {"words": 7, "classes": 3})
SENTENCES = random_sentences("chain", (1, 5, 2, 5, 3, 9, 12, 7), SIZES, seed=1)
MODELS: list[Model] = [DRNN(SIZES, p_child=0.9, generations=4), StackRNN(SIZES)]
# Python's own of a mini-batch: fibers, requests, boxed numbers, and what outputs are laid out in.
PYTHONS_BYTES = 64 * 2**10


def warm(model: Model, threads: int = 1) -> Adapter:
    adapter = Adapter(RunSettings("infer", "cpu", threads, 1, 0.1, 0, options={"rounds": "live"}))
    adapter.prepare(model, initial_weights(model, 1))
    for _ in range(3):
        adapter.load(SENTENCES)
        adapter.run(NoClock())
    return adapter


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("model", MODELS, ids=lambda one: one.name)
def test_machine_code_plans_as_the_policy_does(
    model: Model, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = warm(model, threads)
    kept = adapter.result()
    assert adapter.live is not None
    assert adapter.live.engine._current is not None
    monkeypatch.setattr(LiveEngine, "can_keep", lambda _: False)
    adapter.run(NoClock())
    by_policy = adapter.result()
    assert adapter.live.engine._current is None
    np.testing.assert_array_equal(kept.outputs, by_policy.outputs)
    assert kept.loss == by_policy.loss
    assert kept.counters == by_policy.counters
    assert kept.counters.n_launches


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_what_was_run_as_a_whole_goes_on_live_in_the_same_memory(threads: int) -> None:
    """The first mini-batch has a single round, which shows only when its graph is there."""
    model, one_word = OwnArrays(SIZES), SENTENCES[:1]
    adapter = Adapter(RunSettings("infer", "cpu", threads, 1, 0.1, 0))
    adapter.prepare(model, initial_weights(model, 1))
    was_live = []
    for batch in (one_word, SENTENCES, one_word, SENTENCES[::-1]):
        adapter.load(batch)
        adapter.run(NoClock())
        was_live.append(adapter.running is not None)
        found, truth = adapter.result(), interpret(model, initial_weights(model, 1), batch)
        np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
        assert found.loss == pytest.approx(truth.loss, rel=1e-4)
    assert was_live == [False, True, True, True]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda one: one.name)
def test_a_round_is_run_by_one_call(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, made, run = warm(model), list[int](), teams._run

    def counted(*arguments: Any) -> None:
        made.append(arguments[2])
        run(*arguments)

    monkeypatch.setattr(teams, "_run", counted)
    adapter.run(NoClock())
    assert adapter.live is not None
    n_rounds = len(adapter.live.engine.seen)
    assert n_rounds > 5
    assert len(made) == n_rounds + 1, "and one for the outputs"
    assert max(made) <= 3, "stages"


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda one: one.name)
def test_many_mini_batches_leave_nothing_behind(model: Model) -> None:
    adapter = warm(model)
    assert adapter.live is not None
    rounds, memory = adapter.live.engine._current, adapter.engine.backend._memory
    assert rounds is not None
    tables, n_grown = rounds.kept.table.copy(), memory.n_grown
    buffers = {key: id(array) for key, array in memory.buffers.items()}
    _nrt_python.memsys_enable_stats()
    gc.collect()
    tracemalloc.start()
    try:
        adapter.run(NoClock())
        gc.collect()  # a recorder's functions hold one another
        (before, _), stats = tracemalloc.get_traced_memory(), rtsys.get_allocation_stats()
        tracemalloc.reset_peak()
        for _ in range(20):
            adapter.run(NoClock())
            gc.collect()
        (after, peak), now = tracemalloc.get_traced_memory(), rtsys.get_allocation_stats()
    finally:
        tracemalloc.stop()
        _nrt_python.memsys_disable_stats()
    assert now.alloc - stats.alloc == now.free - stats.free
    assert after - before < PYTHONS_BYTES / 16
    assert peak - before < PYTHONS_BYTES
    assert memory.n_grown == n_grown
    assert {key: id(array) for key, array in memory.buffers.items()} == buffers
    same = np.flatnonzero((rounds.kept.table != tables).any(axis=1)).tolist()
    assert len(same) <= 1, "depths of types, which a recording has anew"
