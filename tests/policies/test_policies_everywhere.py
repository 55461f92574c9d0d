"""Every policy on every model's graphs, at either granularity: valid, and not below the bound.

Models and policies are found in their directories, so new ones are included automatically.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest

from dynbatch.harness.contracts import policy as policies
from dynbatch.harness.contracts.corpus import load_corpus
from dynbatch.harness.contracts.model import Model, draw_initial_weights, trace_functions
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError, ScheduleError
from dynbatch.harness.granularity.operators import OperatorModel
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.granularity.vertices import add_output_vertices, cut_output
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from dynbatch.harness.planning.yaml_files import list_choices
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.segments import schedule_in_segments, select_first_segment
from dynbatch.harness.reference import run_reference
from dynbatch.harness.trials.workload import build_model
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import check_schedule
from tests.support import engine_runs

MODELS = list_choices("model")
KINDS = ("vertex", "vertex with outputs", "operator", "released")
# Generated, so always available; a model uses the first whose instances it accepts.
DATASETS = (
    ("dataset=sst_synthetic",),
    ("dataset=lattice_synthetic",),
    ("dataset=complete_trees", "dataset.options.n_leaves=2"),
    ("dataset=wikiner_synthetic",),
    ("dataset=ptb_synthetic",),
    ("dataset=iwslt15_synthetic",),
    ("dataset=ud_ewt_synthetic",),
)
QUICK = policies.LearningSettings(trials=30)
composer = Composer()


@functools.cache
def workload(name: str) -> tuple[Model, Sequence[Sequence[Any]]]:
    """Return a model, and two mini-batches of three instances each."""
    for dataset in DATASETS:
        chosen = {"system": "null", "model": name, "hidden_size": 4, **read_settings(dataset)}
        try:
            spec = composer.resolve_trial(chosen)
            corpus = load_corpus(spec.loader, "train", None, **spec.dataset_options)
            model = build_model(spec, corpus.sizes)
            parts = corpus.instances[:3], corpus.instances[3:6]
            model.mini_batch(parts[0])
            return model, parts
        except ConfigError as error:
            refusal = error
    raise refusal


@functools.cache
def graphs(name: str, kind: str) -> Sequence[Graph]:
    model, parts = workload(name)
    mini_batches = [model.mini_batch(part) for part in parts]
    if kind == "operator":
        operators = OperatorModel(model)
        return [operators.expand(mini_batch).graph for mini_batch in mini_batches]
    if kind == "released":
        return [build_released_graph(model, mini_batch) for mini_batch in mini_batches]
    if kind == "vertex":
        return [mini_batch.graph for mini_batch in mini_batches]
    has_loss = len(cut_output(trace_functions(model)["output"])) > 1
    return [add_output_vertices(mini_batch, has_loss).graph for mini_batch in mini_batches]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS)
def test_schedules_are_valid_and_not_below_the_bound(model: str, kind: str) -> None:
    first, second = graphs(model, kind)
    bounds = {id(graph): compute_lower_bound(graph) for graph in (first, second)}
    wrong = []
    for policy in policies.list_policy_names():
        schedule_of = (
            policies.learn_policy(policy, [select_first_segment(first)], QUICK)
            if policies.is_learned(policy)
            else policies.load_policy(policy)
        )
        for graph in (first, second):
            schedule = schedule_in_segments(schedule_of, graph)
            try:
                check_schedule(graph, schedule)
            except ScheduleError as error:
                wrong.append(f"{policy}: {error}")
            most = graph.n_vertices - (policy != "unbatched")
            if not bounds[id(graph)] <= schedule.n_batches <= most:
                wrong.append(f"{policy}: {schedule.n_batches} batches")
    assert wrong == []


@pytest.mark.parametrize("name", MODELS)
def test_the_engine_runs_every_model_at_either_granularity(name: str) -> None:
    model, (instances, _) = workload(name)
    weights = draw_initial_weights(model, 3)
    mode = "train" if model.is_trainable else "infer"
    reference = run_reference(model, weights, instances, mode)
    for granularity in ("vertex", "operator"):
        switches = Switches(granularity=granularity, backend="stepwise")
        engine = engine_runs.prepared(model, weights, switches, "agenda", mode)
        result = engine_runs.run(engine, instances)
        assert engine_runs.disagreements(result, reference, 1e-4) == [], granularity
