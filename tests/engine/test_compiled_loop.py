"""All batches in one compiled call: the same results and counters as kernels started one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from harness.contracts.model import initial_weights
from harness.engine.backends.compiled import loop as compiled_loop
from harness.engine.cpu_kernels.blas import LIBRARY, SMALL, blas_scratch, multiply
from harness.engine.switches import Switches
from harness.oracle import run_reference
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import disagreements, interpreted_kernels, prepared, run
from tests.support.lattices import lattice
from tests.support.plain_product import multiply_arrays
from tests.support.sketches import Sketch

needs_blas = pytest.mark.skipif(LIBRARY is None, reason="neither NumPy nor torch shows an sgemm")


@needs_blas
@pytest.mark.parametrize("limit", [0, 600, SMALL])
@pytest.mark.parametrize(("transposed", "accumulate"), list(product((False, True), repeat=2)))
def test_the_compiled_product_is_numpys(transposed: bool, accumulate: bool, limit: int) -> None:
    assert LIBRARY is not None
    library = replace(LIBRARY, limit=limit)
    random = np.random.default_rng(0)
    for n, k, m in ((1, 3, 5), (7, 16, 4), (64, 5, 33), (37, 2, 300), (0, 4, 4), (50, 90, 300)):
        weight = random.standard_normal((m, k) if transposed else (k, m)).astype(np.float32)
        x = random.standard_normal((n + 3, k + 5)).astype(np.float32)
        found = random.standard_normal((n + 2, m + 7)).astype(np.float32)
        expected = found.copy()
        # Columns 2 to 2 + k of rows 1 to 1 + n; columns 6 to 6 + m of rows 2 to 2 + n.
        places = (x, k + 5 + 2, k + 5, n, weight, transposed, accumulate)
        multiply(*places, found, 2 * (m + 7) + 6, m + 7, *blas_scratch(library))
        multiply_arrays(*places, expected, 2 * (m + 7) + 6, m + 7, *blas_scratch(library))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_blas
@pytest.mark.parametrize("granularity", ["vertex", "operator"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_no_model_needs_the_slow_loop(name: str, granularity: str) -> None:
    model, instances = EXAMPLES[name]
    with interpreted_kernels():
        adapter = prepared(
            model, initial_weights(model, 0), Switches(granularity=granularity), "agenda"
        )
        run(adapter, instances)
    assert None not in adapter.engine.loops.values()


@needs_blas
@pytest.mark.parametrize("name", ["lattice_lstm", "gated_lattice_lstm", "tree_lstm", "mv_rnn"])
def test_both_loops_agree_with_the_oracle_and_count_alike(name: str) -> None:
    model, instances = EXAMPLES[name]
    weights = {k: np.float32(2.0) * w for k, w in initial_weights(model, 7).items()}
    oracle = run_reference(model, weights, instances, "train")
    counters = []
    for loop in ("compiled", "python"):
        adapter = prepared(model, weights, Switches(loop=loop), "agenda")
        result = run(adapter, instances)
        assert disagreements(result, oracle) == [], loop
        assert (adapter.engine.loops["batch"] is None) == (loop == "python")
        counters.append(result.counters)
    assert counters[0] == counters[1]


@needs_blas
def test_a_type_may_be_missing_from_a_mini_batch() -> None:
    model, instances = EXAMPLES["lattice_lstm"]
    weights = initial_weights(model, 7)
    adapter = prepared(model, weights, policy="agenda")
    characters_only = [lattice([], 5, seed=9)]
    for mini_batch in (characters_only, instances, characters_only):
        oracle = run_reference(model, weights, mini_batch, "train")
        assert disagreements(run(adapter, mini_batch), oracle) == []


def test_without_blas_kernels_are_started_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_loop, "SCRATCH", None)
    model, instances = EXAMPLES["tree_lstm"]
    weights = initial_weights(model, 7)
    with interpreted_kernels():
        adapter = prepared(model, weights)
        result = run(adapter, instances)
    assert adapter.engine.loops == {"batch": None, "backward": None}
    assert disagreements(result, run_reference(model, weights, instances, "train")) == []


@needs_blas
def test_functions_that_join_are_compiled_until_there_is_no_end_to_them() -> None:
    model, _ = EXAMPLES["child_sum"]
    weights = initial_weights(model, 7)
    with interpreted_kernels():
        adapter = prepared(model, weights, Switches(granularity="operator"), "agenda")
        compiled = []
        for n_children in range(2, 8):
            leaves = [("vertex", []) for _ in range(n_children)]
            mini_batch = [Sketch([*leaves, ("vertex", list(range(n_children)))])]
            result = run(adapter, mini_batch)
            assert disagreements(result, run_reference(model, weights, mini_batch, "train")) == []
            compiled.append(adapter.engine.loops["batch"] is not None)
    assert compiled == [True, True, True, False, False, False]
