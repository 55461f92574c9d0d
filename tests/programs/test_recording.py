"""Random programs, recorded: the same answers as interpreted under every switch and policy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts.model import initial_weights
from harness.engine.switches import Switches
from harness.interpreter import interpret
from harness.oracle import run_reference
from harness.programs.blocks import RecordingOptions
from harness.programs.model import recorded, translate_programs
from harness.values.graph import MiniBatch
from harness.values.schedule import check_schedule
from tests.support.engine_runs import prepared, run
from tests.support.learned import schedule_by
from tests.support.scripted_programs import (
    OPTIONS,
    Call,
    Choose,
    Script,
    Scripted,
    ScriptedModel,
    instances,
)

# Recorded call by call, and by compiled code.
MODELS = [recorded(ScriptedModel(), options) for options in OPTIONS * 2]
for one in MODELS[len(OPTIONS) :]:
    translate_programs(one)
WEIGHTS = initial_weights(MODELS[0], 3)
# All others meet random graphs in tests/policies, and compile for a minute.
POLICIES = ("inline_depth", "agenda", "depth", "critical_share", "unbatched")
EVERY = settings(deadline=None, max_examples=80)


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_a_recorded_graph_computes_what_the_program_does(
    batch: list[Scripted], model: ScriptedModel
) -> None:
    truth = interpret(model, WEIGHTS, batch)
    found = run_reference(model, WEIGHTS, batch, "infer")
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-12)
    assert found.loss == pytest.approx(truth.loss)


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_policies_schedule_what_is_recorded(batch: list[Scripted], model: ScriptedModel) -> None:
    graph = model.mini_batch(batch).graph
    for name in POLICIES:
        check_schedule(graph, schedule_by(name, graph))


@EVERY
@given(instances(), st.integers(0, 2**32), st.sampled_from(MODELS))
def test_results_do_not_depend_on_the_order_of_fibers(
    batch: list[Scripted], seed: int, model: ScriptedModel
) -> None:
    generator = random.Random(seed)
    mixed = model.recording.mini_batch(batch, generator.randrange)
    plain = model.mini_batch(batch)
    assert described(mixed) == described(plain)


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_results_do_not_depend_on_what_else_is_in_the_mini_batch(
    batch: list[Scripted], model: ScriptedModel
) -> None:
    together, alone = described(model.mini_batch(batch)), list[Any]()
    for one in batch:
        alone += described(model.mini_batch([one]))
    # A stage waits for all instances, so that rounds behind it are those of the slowest.
    assert [one[:-1] for one in together] == [one[:-1] for one in alone]


def described(mini_batch: MiniBatch) -> list[Any]:
    """Every output as the tree of what it was computed from, and its round."""
    graph, pulls = mini_batch.graph, mini_batch.pulls
    known: list[int] = []
    numbers: dict[Any, int] = {}  # equal computations have one number: trees would explode
    for v in range(graph.n_vertices):
        below = tuple(known[a] for a in graph.args_of(v).tolist())
        words = tuple(int(values[v]) for values in pulls.values())
        one = (graph.type_names[graph.types[v]], words, below)
        known.append(hash((one, *below)) if one not in numbers else numbers[one])
        numbers[one] = known[-1]
    rounds = np.zeros(graph.n_vertices) if graph.rounds is None else graph.rounds
    return [(known[v], int(rounds[v])) for v in mini_batch.outputs.tolist()]


@EVERY
@given(instances())
def test_ghosts_make_branches_meet(batch: list[Scripted]) -> None:
    """What is behind a join is as deep, whichever way a value led; without ghosts it is not."""
    for one in batch:
        assert len({depths_behind(one.script, seed) for seed in range(6)}) == 1


def depths_behind(script: Script, seed: int) -> tuple[int, ...]:
    model = recorded(ScriptedModel(seed), RecordingOptions(hoisting=False))
    mini_batch = model.mini_batch([Scripted(script, 0)])
    assert mini_batch.graph.depths is not None
    return tuple(mini_batch.graph.depths[mini_batch.outputs].tolist())


CHOICE = (Choose(0, 1, (0, 3)),)


def test_without_ghosts_branches_do_not_meet() -> None:
    options = RecordingOptions(ghosts=False, hoisting=False)
    models = [recorded(ScriptedModel(seed), options) for seed in range(8)]
    graphs = [model.mini_batch([Scripted(CHOICE, 0)]).graph for model in models]
    assert len({int(graph.depths[-1]) for graph in graphs if graph.depths is not None}) == 2


def test_what_reads_a_block_without_operands_is_not_hoisted_before_it() -> None:
    """`many` takes any number of operands; of one that was given none it is not known what feeds
    it, so that it counts, and whatever it feeds must count, too."""
    for options in OPTIONS:
        model = recorded(ScriptedModel(), options)
        for script in ((Call("many", (), 0),), (Call("many", (0,), 0),)):
            graph = model.mini_batch([Scripted(script, 0)]).graph
            check_schedule(graph, schedule_by("inline_depth", graph))


@EVERY
@given(instances(), st.sampled_from(MODELS))
def test_no_operand_is_of_a_later_round_phase_or_depth(
    batch: list[Scripted], model: ScriptedModel
) -> None:
    """Rounds, phases and depths are an order of execution in which every dependency points back."""
    graph = model.mini_batch(batch).graph
    assert graph.phases is not None
    assert graph.depths is not None
    rounds = np.zeros_like(graph.phases) if graph.rounds is None else graph.rounds
    place = list(zip(rounds.tolist(), graph.phases.tolist(), graph.depths.tolist(), strict=True))
    for v in range(graph.n_vertices):
        assert all(place[a] < place[v] for a in graph.args_of(v).tolist())


SWITCHES = (
    {},
    {"hoisting": False, "fusion": False, "lazy_batching": False},
    {"layout": "policy", "outputs": "vertices"},
    {"granularity": "operator"},
    {"backend": "stepwise"},
)


@settings(deadline=None, max_examples=20)
@given(instances(), st.sampled_from(MODELS), st.sampled_from(SWITCHES), st.data())
def test_the_engine_computes_what_programs_do(
    batch: list[Scripted], model: ScriptedModel, switches: Any, data: st.DataObject
) -> None:
    policy = data.draw(st.sampled_from(POLICIES))
    truth = interpret(model, WEIGHTS, batch)
    adapter = prepared(model, WEIGHTS, Switches(**switches), policy, mode="infer")
    found = run(adapter, batch)
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
    assert found.loss == pytest.approx(truth.loss, rel=1e-4)
