"""Random vertex functions on random graphs: whatever the compiler does to them, results stay.

The generated kernels run as plain Python here, since compiling each takes a second;
tests/engine/test_engine.py runs compiled ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness.contracts.model import initial_weights
from harness.engine.switches import Switches
from harness.oracle import run_reference
from tests.support.engine_runs import (
    all_switches,
    disagreements,
    interpreted_kernels,
    prepared,
    run,
)
from tests.support.random_programs import RandomModel, models, sketches
from tests.support.sketches import Sketch

EXAMPLES = int(os.environ.get("BENCH_TEST_EXAMPLES", "200"))


@pytest.fixture(scope="module", autouse=True)
def _interpreted_kernels() -> Iterator[None]:
    with interpreted_kernels():
        yield


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    models,
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
