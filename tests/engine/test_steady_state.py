"""Once a mini-batch of its size was seen, forward and backward allocate nothing that grows.

Nor do threads allocate at all: while tracemalloc looks on, that would wait for Python's lock.
"""

from __future__ import annotations

import faulthandler
import gc
import re
import tracemalloc
from typing import Any

import pytest
from numba.core.runtime import _nrt_python, rtsys

from harness.engine.backends.compiled.source import write_loop
from harness.engine.cpu_kernels import team as teams
from harness.engine.switches import Switches
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import ONE_BY_ONE, prepared, run

# Python's own: boxed numbers, tuples of a call, views of a few losses.
PYTHONS_BYTES = 16 * 2**10


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_forward_and_backward_work_in_memory_that_is_there(threads: int) -> None:
    model, instances, weights = example("tree_lstm")
    many = list(instances) * 200
    adapter = prepared(model, weights, threads=threads)
    for _ in range(3):
        run(adapter, many)
    engine = adapter.engine
    memory = engine.backend._memory
    buffers = {key: id(array) for key, array in memory.buffers.items()}
    n_grown, n_programs = memory.n_grown, adapter.n_compilations()
    smallest = min(array.nbytes for array in memory.buffers.values() if array.nbytes)
    gc.collect()
    tracemalloc.start()
    faulthandler.dump_traceback_later(120, exit=True)
    try:
        engine.take(engine.laid_out)
        for _ in range(5):
            engine.forward()
            engine.backward()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        faulthandler.cancel_dump_traceback_later()
    assert peak < PYTHONS_BYTES
    assert sum(array.nbytes for array in memory.buffers.values()) > 20 * PYTHONS_BYTES
    assert smallest > 0
    assert memory.n_grown == n_grown
    assert adapter.n_compilations() == n_programs
    assert {key: id(array) for key, array in memory.buffers.items()} == buffers


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_machine_code_allocates_nothing(threads: int) -> None:
    model, instances, weights = example("tree_lstm")
    adapter = prepared(model, weights, threads=threads)
    for _ in range(2):
        run(adapter, instances)
    team, counted, made = adapter.engine.backend._team, _nrt_python, []
    call, n_calls = teams._run, []

    def count(*arguments: Any) -> None:
        before = rtsys.get_allocation_stats().alloc
        call(*arguments)
        made.append(rtsys.get_allocation_stats().alloc - before)
        n_calls.append(arguments[2])

    counted.memsys_enable_stats()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(teams, "_run", count)
            adapter.engine.forward()
            adapter.engine.backward()
    finally:
        counted.memsys_disable_stats()
    assert team.n == threads
    assert sum(n_calls) >= 4, "stages ran"
    assert made == [1, 1], "numba's own note of the one array that Python hands over"


STAGES = ("eager", "batch", "lazy", "backward", "backward_lazy")


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_line_of_a_loop_makes_an_array(name: str) -> None:
    """It could not be compiled: memory is taken by kernels' callers (source.NATIVE)."""
    model, _, weights = example(name)
    for chosen in (one for one in ONE_BY_ONE.values() if "outputs" not in one):
        switches = Switches(**chosen)
        adapter = prepared(model, weights, switches)
        plans = {**adapter.engine.plans}
        for stage in STAGES:
            having = {t: plan for t, plan in plans.items() if plan.steps(stage)}
            body = write_loop(having, stage).body
            assert not re.findall(r"\ba\d+\[a\d+\]|np\.\w+\(", body), (chosen, stage)
