"""Whole models: symbolic gradients of every parameter against finite differences in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dynbatch.harness import reference
from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.reference import run_reference
from dynbatch.harness.vertex.autodiff import differentiate
from dynbatch.harness.vertex.tracing import VertexTracer, trace
from tests.support.engine_models import EXAMPLES
from tests.support.one_body import STEP, Array
from tests.support.random_programs import RandomModel, models, sketches
from tests.support.sketch_models import Sketch


def check_along(
    model: Model,
    instances: list[Any],
    weights: Mapping[str, Array],
    gradients: Mapping[str, Array],
    direction: Mapping[str, Array],
) -> None:
    """Compare all entries of gradients along a direction, which almost never meets a kink."""
    terms = [gradients[k] * d for k, d in direction.items()]
    scale = sum(float(np.abs(term).sum()) for term in terms)

    def loss(step: float) -> float:
        moved = {k: weights[k] + step * d for k, d in direction.items()}
        return run_reference(model, {**weights, **moved}, instances, "infer").loss

    expected = (loss(STEP) - loss(-STEP)) / (2 * STEP)
    np.testing.assert_allclose(
        sum(float(term.sum()) for term in terms), expected, rtol=1e-5, atol=1e-6 * scale + 1e-7
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_of_whole_models(name: str) -> None:
    model, instances = EXAMPLES[name]
    # Larger than the models' own initial weights, so that all gates are clearly nonlinear.
    weights = {k: 2.0 * w.astype(np.float64) for k, w in draw_initial_weights(model, 1).items()}
    gradients = run_reference(model, weights, instances, "train").gradients
    assert gradients.keys() == weights.keys()
    stream = np.random.default_rng(0)
    for key, weight in weights.items():
        direction = {key: stream.choice([-1.0, 1.0], weight.shape)}
        check_along(model, instances, weights, gradients, direction)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(models, st.lists(sketches(), min_size=1, max_size=2), st.integers(0, 99))
def test_gradients_of_random_programs(
    model: RandomModel, instances: list[Sketch], seed: int
) -> None:
    weights = {k: w.astype(np.float64) for k, w in draw_initial_weights(model, seed).items()}
    gradients = run_reference(model, weights, instances, "train").gradients
    stream = np.random.default_rng(seed)
    direction = {k: stream.uniform(-1, 1, w.shape) for k, w in weights.items()}
    assume(sum(float(np.abs(gradients[k]).sum()) for k in weights) < 2e3)
    check_along(model, instances, weights, gradients, direction)


@pytest.mark.parametrize("n_products", [1, 2, 3])
def test_outer_products_are_added_in_groups(
    n_products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last group of a parameter may be smaller than others, or there may be none."""
    model, instances = EXAMPLES["tree_fc_cavs"]
    weights = draw_initial_weights(model, 1)
    at_once = run_reference(model, weights, instances, "train").gradients
    monkeypatch.setattr(reference, "N_AT_ONCE", n_products)
    in_groups = run_reference(model, weights, instances, "train").gradients
    for name, gradient in at_once.items():
        np.testing.assert_allclose(in_groups[name], gradient, rtol=1e-12, atol=1e-12)


def test_unneeded_values_have_no_gradient() -> None:
    class Unused:
        vertex_types = ("vertex",)
        state = {"h": 4}  # noqa: RUF012

        def vertex(self, v: VertexTracer) -> None:
            v.gather(0).h @ v.parameter("A")
            v.scatter(h=v.gather(1).h)

    gradient = differentiate(trace(Unused(), "vertex", {"A": (4, 4)}))
    assert gradient.sinks == ()
    ((source, given_back),) = gradient.gathers
    assert gradient.nodes[source].index == 1
    assert gradient.nodes[given_back].op == "state_gradient"
