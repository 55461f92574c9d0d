"""Random vertex functions on random graphs: whatever the compiler does to them, results stay."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness.contracts.model import initial_weights
from harness.engine.cpu_kernels import memory_kernels
from harness.engine.switches import Switches
from harness.oracle import run_reference
from systems.on_core.vertex import Adapter
from tests.support.engine_runs import (
    ONE_BY_ONE,
    all_switches,
    disagreements,
    prepared,
    run,
)
from tests.support.random_programs import RandomModel, Recipe, recipes, sketches
from tests.support.sketches import Sketch

EXAMPLES = int(os.environ.get("BENCH_TEST_EXAMPLES", "200"))
WIDTHS = (2, 1, 37, 300)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.builds(RandomModel, recipes, st.sampled_from(WIDTHS)),
    st.lists(sketches(), min_size=1, max_size=3),
    st.sampled_from([*all_switches("vertex"), *all_switches("operator")]),
    st.sampled_from(["frontier", "agenda"]),
    st.integers(1, 3),
)
def test_any_program_computes_what_the_oracle_does(
    model: RandomModel, instances: list[Sketch], switches: Switches, policy: str, threads: int
) -> None:
    weights = initial_weights(model, 3)
    oracle = run_reference(model, weights, instances, "train")
    values = [oracle.outputs, *oracle.gradients.values()]
    assume(max(float(np.abs(value).max()) for value in values) < 1e3)
    result = run(prepared(model, weights, switches, policy, threads=threads), instances)
    assert disagreements(result, oracle, 2e-4) == []
    inferred = run(prepared(model, weights, switches, policy, mode="infer"), instances)
    assert abs(inferred.loss - oracle.loss) <= 2e-4 * max(1.0, abs(oracle.loss))


@contextmanager
def memory_of_nan() -> Iterator[None]:
    """Let all memory of floats that the CPU's backend takes be NaN until it is written."""
    empty = memory_kernels.aligned_empty

    def poisoned(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
        found = empty(shape, dtype)
        if found.dtype == np.float32:
            found.fill(np.nan)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_kernels, "aligned_empty", poisoned)
        yield


def forget_all(adapter: Adapter) -> None:
    """Make all that the last mini-batch left NaN."""
    memory = adapter.engine.backend._memory
    for array in (*memory.buffers.values(), *memory.parameters._dense.values()):
        array.fill(np.nan)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS[1:])
@settings(max_examples=EXAMPLES // 5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    recipes=recipes,
    instances=st.lists(sketches(6), min_size=1, max_size=2),
    chosen=st.sampled_from([key for key in ONE_BY_ONE if key not in ("outputs", "none")]),
    threads=st.integers(1, 2),
    n_times=st.sampled_from([1, 9]),  # more rows than one thread takes
)
def test_nothing_is_read_that_was_not_written(
    width: int, recipes: Mapping[str, Recipe], instances: list[Sketch], chosen: str, threads: int,
    n_times: int,
) -> None:  # fmt: skip
    model = RandomModel(recipes, width)
    weights = initial_weights(model, 3)
    oracle = run_reference(model, weights, instances, "train")
    values = [oracle.outputs, *oracle.gradients.values()]
    assume(max(float(np.abs(value).max()) for value in values) < 1e3)
    many = run_reference(model, weights, instances * n_times, "train")
    with memory_of_nan():
        adapter = prepared(model, weights, Switches(**ONE_BY_ONE[chosen]), threads=threads)
        for part, expected in ((instances, oracle), (instances * n_times, many)):
            assert disagreements(run(adapter, part), expected, 2e-4) == []
            forget_all(adapter)
