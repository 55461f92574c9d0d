"""Comparison of the engine on CUDA with the reference; needs a device, torch and Triton."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from dynbatch.harness.contracts.model import draw_initial_weights
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import (
    ON_TWO_STREAMS,
    ONE_BY_ONE,
    POLICIES,
    all_switches,
    disagreements,
    prepared,
    run,
)
from tests.support.fake_time import NullClock

if not torch.cuda.is_available():  # reporting hundreds of skipped tests takes seconds
    pytest.skip("torch sees no CUDA device here", allow_module_level=True)
pytestmark = pytest.mark.gpu
CHOICES = ONE_BY_ONE | ON_TWO_STREAMS


@pytest.mark.parametrize("granularity", ["vertex", "operator"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_switch_agrees_with_the_reference_on_cuda(name: str, granularity: str) -> None:
    model, instances, weights = example(name)
    reference = run_reference(model, weights, instances, "train")
    for switches in all_switches(granularity):
        if switches.fusion or switches.loop == "compiled":
            continue  # torch's operators ignore both switches, so the run would be the same
        switches = replace(switches, backend="stepwise")
        adapter = prepared(model, weights, switches, device="cuda")
        assert disagreements(run(adapter, instances), reference, 1e-4) == [], switches


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "lattice_lstm", "matrices", "parser"])
@pytest.mark.parametrize("switches", CHOICES.values(), ids=CHOICES)
def test_generated_kernels_agree_with_the_reference_under_every_switch(
    name: str, switches: dict[str, Any]
) -> None:
    model, instances = EXAMPLES[name]
    weights = draw_initial_weights(model, 7)
    chosen = Switches(backend="cuda", **switches)
    for mode in ("train", "infer"):
        reference = run_reference(model, weights, instances, mode)
        adapter = prepared(model, weights, chosen, mode=mode, device="cuda")
        assert disagreements(run(adapter, instances), reference, 1e-4) == [], mode


def test_a_mini_batch_is_one_upload_and_a_replay_a_pass() -> None:
    model, instances = EXAMPLES["tree_lstm"]
    weights = draw_initial_weights(model, 7)
    adapter = prepared(model, weights, Switches(backend="cuda"), device="cuda")
    for part in (instances, instances[:1], instances):
        counters = run(adapter, part, update=True).counters
        assert counters.n_launches == 2
    backend = adapter.engine.backend
    assert backend._staging.n_uploads == 3
    n_captures = backend.n_captures
    run(adapter, instances, update=True)
    assert backend.n_captures == n_captures


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_policy_and_layout_agrees_with_the_reference_on_cuda(name: str) -> None:
    model, instances = EXAMPLES[name]
    weights = draw_initial_weights(model, 7)
    reference = run_reference(model, weights, instances, "train")
    for policy in POLICIES:
        adapter = prepared(model, weights, None, policy, device="cuda")
        assert disagreements(run(adapter, instances), reference, 1e-4) == [], policy
    for layout, pre_gather in product(("pq", "dynet"), (True, False)):
        switches = Switches(layout=layout, fusion=False, pre_gather_parameters=pre_gather)
        adapter = prepared(model, weights, switches, device="cuda")
        assert disagreements(run(adapter, instances), reference, 1e-4) == [], switches


@pytest.mark.parametrize("name", EXAMPLES)
def test_mini_batches_and_updates_follow_the_reference_on_cuda(name: str) -> None:
    model, instances = EXAMPLES[name]
    weights = draw_initial_weights(model, 7)
    adapter = prepared(model, weights, device="cuda")
    expected = {k: w.astype(np.float64) for k, w in weights.items()}
    for part in (instances[1:2], instances, instances * 3, instances[:1]):
        reference = run_reference(model, expected, part, "train")
        assert disagreements(run(adapter, part, update=True), reference, 1e-4) == []
        expected = {k: w - 0.1 * reference.gradients[k] for k, w in expected.items()}
    assert (adapter.peak_memory_bytes() or 0) > 0


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "lattice_lstm"])
def test_uploads_wait_for_the_mini_batches_before(name: str) -> None:
    """Passes without a wait of the host train as those with one after each mini-batch."""
    model, instances = EXAMPLES[name]
    weights = draw_initial_weights(model, 7)
    parts = [instances[:1], instances * 3, instances, instances * 2]
    found = []
    for waits in (False, True):
        adapter = prepared(model, weights, Switches(backend="cuda"), device="cuda")
        for part in parts * 3:
            adapter.load(part)
            adapter.run(NullClock())
            if waits:
                adapter.synchronize()
        found.append(adapter.parameters())
    for key in found[0]:
        np.testing.assert_allclose(found[0][key], found[1][key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum"])
def test_the_stepwise_backend_is_captured_in_a_graph(name: str) -> None:
    """No operation of a mini-batch waits for the device, which would end the capture."""
    model, instances = EXAMPLES[name]
    weights = draw_initial_weights(model, 7)
    reference = run_reference(model, weights, instances, "train")
    adapter = prepared(model, weights, Switches(backend="stepwise"), device="cuda")
    assert disagreements(run(adapter, instances), reference, 1e-4) == []  # libraries are loaded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        adapter.engine.forward()
        adapter.engine.backward()
    graph.replay()
    assert disagreements(adapter.result(), reference, 1e-4) == []
