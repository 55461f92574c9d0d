"""Random programs: recorded and interpreted ones agree under every option and policy."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import draw_initial_weights
from dynbatch.harness.contracts.policy import list_policy_names
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.model import make_recorded_model
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import check_schedule
from tests.support.engine_runs import BOTH, prepared, run
from tests.support.engine_runs import SWITCHES as COMPILED
from tests.support.interpreter import interpret
from tests.support.pairwise import pairwise_choices
from tests.support.policies import schedule_by
from tests.support.run_programs import SEED, check_result
from tests.support.scripted_programs import (
    OPTIONS,
    Branches,
    Call,
    Choose,
    Loop,
    NextStage,
    Script,
    Scripted,
    ScriptedModel,
    instances,
)

MODELS = [make_recorded_model(ScriptedModel(), options) for options in OPTIONS]
WEIGHTS = draw_initial_weights(MODELS[0], SEED)
# Other options are tested on random graphs in tests/policies; they take a minute to compile.
EVERY = settings(deadline=None, max_examples=80)


@functools.cache
def model_of(how: RecordingOptions, seed: int = 0) -> ScriptedModel:
    return make_recorded_model(ScriptedModel(seed), how)


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_recorded_graph_matches_direct_interpretation(
    batch: list[Scripted], model: ScriptedModel
) -> None:
    truth = interpret(model, WEIGHTS, batch)
    found = run_reference(model, WEIGHTS, batch, "infer")
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-12)
    assert found.loss == pytest.approx(truth.loss)


@EVERY
@given(instances(), st.integers(0, 2**32), st.sampled_from(MODELS))
def test_results_depend_on_neither_the_order_of_fibers_nor_other_instances(
    batch: list[Scripted], seed: int, model: ScriptedModel
) -> None:
    together, alone = described(model.mini_batch(batch)), list[Any]()
    assert described(model.recording.mini_batch(batch, random.Random(seed).randrange)) == together
    for one in batch:
        alone += described(model.mini_batch([one]))
    # A stage waits for all instances, so later segments are those of the slowest instance.
    assert [one[:-1] for one in together] == [one[:-1] for one in alone]


def described(mini_batch: MiniBatch) -> list[Any]:
    """Return every output as the tree of its computation, and its segment."""
    graph, pulls = mini_batch.graph, mini_batch.pulls
    known: list[int] = []
    numbers: dict[Any, int] = {}  # one number per computation: trees would grow exponentially
    for v in range(graph.n_vertices):
        below = tuple(known[a] for a in graph.select_args(v).tolist())
        words = tuple(int(values[v]) for values in pulls.values())
        one = (graph.type_names[graph.types[v]], words, below)
        known.append(hash((one, *below)) if one not in numbers else numbers[one])
        numbers[one] = known[-1]
    segments = np.zeros(graph.n_vertices) if graph.segments is None else graph.segments
    return [(known[v], int(segments[v])) for v in mini_batch.outputs.tolist()]


@EVERY
@given(instances())
def test_ghosts_make_branches_meet(batch: list[Scripted]) -> None:
    """After a join the depth is the same on every path; test_ghosts.py has the opposite."""
    for one in batch:
        assert len({depths_behind(one.script, seed) for seed in range(6)}) == 1


def depths_behind(script: Script, seed: int) -> tuple[int, ...]:
    model = model_of(RecordingOptions(hoisting=False), seed)
    mini_batch = model.mini_batch([Scripted(script, 0)])
    return tuple(mini_batch.graph.depths[mini_batch.outputs].tolist())


def test_consumer_of_block_without_operands_is_not_hoisted_before_it() -> None:
    """A block `many` called without operands counts depth, and so does everything that it feeds.

    It takes any number of operands, so the blocks that feed it are not known yet.
    """
    for options in OPTIONS:
        model = make_recorded_model(ScriptedModel(), options)
        for script in ((Call("many", (), 0),), (Call("many", (0,), 0),)):
            graph = model.mini_batch([Scripted(script, 0)]).graph
            check_schedule(graph, schedule_by("inline_depth", graph))


RECORDING = {field.name: BOTH for field in fields(RecordingOptions)}
SWITCHES: dict[str, tuple[Any, ...]] = {**COMPILED, "backend": ("compiled", "stepwise")}
# Options of other backends, or of matmul libraries; see tests/engine.
OF_OTHERS = {"blas", "precision", "profile"}
OF_GRAPHS = ("granularity", "outputs", "deduplicate_inputs")
# Settings that determine graphs and schedules, and those that determine how these run.
PLANS = pairwise_choices({
    "policy": list_policy_names(),
    **{name: SWITCHES[name] for name in OF_GRAPHS},
    **{f"recording_{name}": values for name, values in RECORDING.items()},
})  # fmt: skip
EXECUTIONS = pairwise_choices({
    "threads": (1, 2),
    **{name: values for name, values in SWITCHES.items() if name not in OF_GRAPHS},
})  # fmt: skip
CHOICES = [plan | way for plan, way in zip(PLANS, itertools.cycle(EXECUTIONS), strict=False)]
FEW = settings(
    deadline=None, max_examples=4, derandomize=True, suppress_health_check=list(HealthCheck)
)
# Forks inside loops and loops inside forks, decisions in all of them, and a stage: hypothesis
# starts with the shortest programs.
NESTED: Script = (
    Call("leaf", (), 1),
    Branches((
        (Call("binary", (0, 1), 2), Choose(0, 1, (0, 3))),
        (Loop(2, (Call("many", (0, 1, 2), 3), Choose(1, 2, (1, 2)))),),
    )),
    Call("project", (), 2),
    NextStage(),
    Loop(2, (Branches(((Call("unary_a", (0,), 1),), (Choose(3, 4, (2, 0)),))),)),
    Call("binary", (5, 2), 0),
)  # fmt: skip
PLAIN: Script = (
    Loop(3, (Call("binary", (0, 1), 0), Branches(((Call("unary_b", (1,), 1),), ())))),
    Call("many", (1, 2, 3), 4),
)
BATCH = [Scripted(NESTED, 0), Scripted(PLAIN, 1), Scripted(NESTED, 2), Scripted((), 3)]


def test_every_switch_is_there() -> None:
    """Pairs of a plan and its execution are, too: see tests/engine/test_against_reference.py."""
    assert {field.name for field in fields(Switches)} == {*SWITCHES, *OF_OTHERS}
    assert len(EXECUTIONS) <= len(PLANS) < 50, "pairs, and not everything with everything"


@pytest.mark.parametrize("place", range(len(CHOICES)))
@FEW
@example(BATCH)
@given(instances())
def test_engine_matches_direct_interpretation(place: int, batch: list[Scripted]) -> None:
    chosen = dict(CHOICES[place])
    how = RecordingOptions(**{name: chosen.pop(f"recording_{name}") for name in RECORDING})
    policy, threads = chosen.pop("policy"), chosen.pop("threads")
    model = model_of(how)
    switches = Switches(**chosen)
    adapter = prepared(model, WEIGHTS, switches, policy, mode="infer", threads=threads)
    if adapter.learns:
        adapter.learn(batch)
    check_result(run(adapter, batch), model, batch)  # `run` checks the schedule
