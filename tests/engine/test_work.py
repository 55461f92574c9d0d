"""FLOPs and bytes of a mini-batch are those of its operators, independent of switches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynbatch.harness.contracts.model import ModelSizes, trace_functions
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.plan import (
    STAGES,
    MatmulStep,
    OperatorStep,
    Plan,
    SinkStep,
    Step,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.engine.work import compute_arranged_work, compute_work
from dynbatch.harness.models.berxit import Berxit
from dynbatch.systems import products
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import prepared


def scheduled(name: str, policy: str, mode: str = "train", **switches: Any) -> Adapter:
    model, instances, weights = example(name)
    adapter = prepared(model, weights, Switches(**switches), policy, mode=mode)
    adapter.load(instances)
    adapter.compile_for(instances)
    return adapter


def product_flop(adapter: Adapter) -> int:
    """Return the operations of matmuls with parameters only."""

    def products_of(plan: Plan, stage: str) -> list[Step]:
        return [
            step
            for step in plan.steps[stage]
            if isinstance(step, MatmulStep)
            or (isinstance(step, SinkStep) and plan.nodes[step.node].op == "outer_sum")
        ]

    only = {
        t: replace(plan, steps={stage: products_of(plan, stage) for stage in STAGES})
        for t, plan in adapter.engine.plans.items()
    }
    return compute_arranged_work(only, adapter.engine.arrangement).n_flop


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_products_are_counted_as_the_calibration_counts_them(name: str, mode: str) -> None:
    """The two counts share no code: one uses a model's functions, the other lowered plans.

    Shared products are fewer than those of the model.
    """
    model, instances, weights = example(name)
    system = products.Adapter(RunSettings(mode, "cpu", 1, len(instances), 0.1, 0))
    system.prepare(model, weights)
    system.load(instances)
    adapter = scheduled(name, "agenda", mode, share_products=False)
    assert product_flop(adapter) == system.counters().n_flop


@pytest.mark.parametrize("name", ["tree_lstm", "lattice_lstm"])
def test_a_policy_changes_no_flop_and_more_batches_read_more_parameters(name: str) -> None:
    policies = ("unbatched", "agenda", "critical_share")
    unbatched, agenda, critical = (scheduled(name, policy).counters() for policy in policies)
    assert unbatched.n_flop == agenda.n_flop == critical.n_flop
    assert unbatched.bytes_touched > agenda.bytes_touched >= critical.bytes_touched


def test_fusion_saves_bytes_and_no_flop() -> None:
    fused, plain = (scheduled("tree_lstm", "agenda", fusion=fusion) for fusion in (True, False))
    assert fused.counters().bytes_touched < plain.counters().bytes_touched
    assert product_flop(fused) == product_flop(plain)


def test_counters_tell_them() -> None:
    adapter = scheduled("tree_lstm", "agenda")
    work = compute_arranged_work(adapter.engine.plans, adapter.engine.arrangement)
    counters = adapter.counters()
    assert (counters.n_flop, counters.bytes_touched) == (work.n_flop, work.n_bytes)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("granularity", ["vertex", "operator"])
def test_every_step_of_every_model_has_work(name: str, granularity: str) -> None:
    model, _, weights = example(name)
    adapter = prepared(model, weights, Switches(granularity=granularity), "agenda")
    for plan in adapter.engine.plans.values():
        for stage in STAGES:
            for step in plan.steps[stage]:
                work = compute_work(plan, step)
                assert min(work.n_flop, work.n_bytes, work.n_bytes_a_batch) >= 0
                assert work.n_flop + work.n_bytes + work.n_bytes_a_batch > 0


def test_heads_meet_their_own_columns_only() -> None:
    n, h = 3, 4  # tokens, and columns of two heads
    model = Berxit(ModelSizes(h, {"words": 7, "classes": 3}), tokens=n, head_size=2)
    plan = lower(trace_functions(model)["layer"], Switches(), Backend.abilities, train=False)
    steps = {
        plan.nodes[step.node].op: compute_work(plan, step).n_flop
        for step in plan.steps["batch"]
        if isinstance(step, OperatorStep)
    }
    assert steps["score_heads"] == steps["mix_heads"] == 2 * n * n * h
    assert steps["softmax"] == 4 * 2 * n * n
    assert steps["layer_norm"] == 6 * n * h
