"""Models with programs: interpreted, recorded, and built from arrays, they compute the same."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.corpus import load_corpus
from dynbatch.harness.contracts.model import (
    Model,
    ModelSizes,
    draw_initial_weights,
    trace_functions,
)
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.drnn import Place
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.programs.blocks import RecordingOptions
from dynbatch.harness.programs.model import ProgramModel, make_recording
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex.operators import OPERATORS
from dynbatch.systems.on_core import acrobat, reference, vertex
from tests.support.engine_runs import prepared, run
from tests.support.instances import build, random_instances
from tests.support.interpreter import interpret
from tests.support.program_models import BERXIT, DECIDED, SENTENCES, SIZES, TRAINED, WITH_ARRAYS
from tests.support.refusals import expect_refusal


@pytest.mark.parametrize("model", [*DECIDED, WITH_ARRAYS[0][0]], ids=lambda model: model.name)
def test_graph_computes_the_same_as_its_program(model: ProgramModel) -> None:
    weights = draw_initial_weights(model, 3)
    truth = interpret(model, weights, SENTENCES)
    found = run_reference(model, weights, SENTENCES, "infer")
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-12)
    assert found.loss == pytest.approx(truth.loss)


@pytest.mark.parametrize(
    ("switches", "policy"),
    [
        (Switches(granularity="operator", backend="stepwise"), "inline_depth"),
        (Switches(backend="stepwise"), "agenda"),
        (Switches(layout="pq", fusion=False), "agenda"),
    ],
)
def test_the_engine_runs_an_encoder(switches: Switches, policy: str) -> None:
    """In ways that no shipped system has: tests/systems/test_systems_agree.py has theirs."""
    weights = draw_initial_weights(BERXIT, 3)
    truth = interpret(BERXIT, weights, SENTENCES)
    found = run(prepared(BERXIT, weights, switches, policy, mode="infer"), SENTENCES)
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
    assert found.loss == pytest.approx(truth.loss, rel=1e-5)


def test_model_without_gradients_is_skipped_in_training() -> None:
    for model in DECIDED:
        functions = trace_functions(model).values()
        operators = [OPERATORS[node.op] for function in functions for node in function.nodes]
        lacking = any(one.gradient is None and one.shape is not None for one in operators)
        assert lacking != model.is_trainable
    settings = RunSettings("train", "cpu", 1, 2, 0.1, 0, policy="agenda")
    for adapter in (vertex.Adapter, acrobat.Adapter, reference.Adapter):
        reason = adapter.skip(BERXIT, settings)
        assert "mode=train; set mode=infer" in reason
        assert adapter.skip(BERXIT, replace(settings, mode="infer")) is None
        assert adapter.skip(TRAINED[0], settings) is None


def test_encoder_ends_after_the_decided_exit_layer() -> None:
    """Cut and padded sentences have the same length."""
    sentences = random_instances("chain", (1, 5, 3, 2, 9, 4), SIZES, seed=1)
    n_layers = {BERXIT.count_layers(sentence) for sentence in sentences}
    assert len(n_layers) > 2
    for sentence in sentences:
        words = BERXIT.pad_words(sentence)
        assert words[: sentence.n_words] == sentence.words[:3].tolist()
        assert words[sentence.n_words :] == [0] * (3 - sentence.n_words)
        graph = BERXIT.mini_batch([sentence]).graph
        assert n_of(graph, "layer") == n_of(graph, "exit") == BERXIT.count_layers(sentence)
        assert n_of(graph, "token") == 3


@pytest.mark.parametrize(("model", "batch"), WITH_ARRAYS, ids=lambda one: getattr(one, "name", ""))
def test_arrays_and_programs_make_one_graph(model: Model, batch: Sequence[Any]) -> None:
    """Vertices are equal, and so are the batches by inline depth."""
    recorded = make_recording(model, RecordingOptions()).mini_batch(batch)
    made = model.mini_batch(batch)
    assert recorded.graph.phases is not None
    assert made.graph.phases is None
    ours, theirs = computations(recorded), computations(made)
    assert [ours[v] for v in recorded.outputs] == [theirs[v] for v in made.outputs]
    assert sorted(ours) == sorted(theirs)
    policy = load_policy("inline_depth")
    batches = [
        [sorted(of[v] for v in one) for one in np.split(s.order, s.starts[1:-1])]
        for of, s in ((ours, policy(recorded.graph)), (theirs, policy(made.graph)))
    ]
    assert batches[0] == batches[1]


def computations(mini_batch: MiniBatch) -> list[str]:
    """Return every vertex as the text of its computation."""
    graph, words = mini_batch.graph, mini_batch.pulls["word"]
    known: list[str] = []
    for v in range(graph.n_vertices):
        below = ",".join(known[a] for a in graph.select_args(v).tolist())
        name = graph.type_names[graph.types[v]]
        word = int(words[v])
        known.append(f"{name}{word}({below})")
    return known


def test_reported_program_decisions_match_the_graph() -> None:
    """Baselines use these decisions; they must be those of the program."""
    stack, nested, grown = TRAINED
    for sentence in SENTENCES:
        graph = stack.mini_batch([sentence]).graph
        actions = stack.replay_actions(sentence)
        assert n_of(graph, "compose") == len(actions) - sum(actions) == sentence.n_words - 1
        assert n_of(graph, "push") == 1 + len(actions)
        graph, loops = nested.mini_batch([sentence]).graph, nested.list_inner_counts(sentence)
        assert n_of(graph, "outer") == len(loops)
        assert n_of(graph, "inner") == sum(loops)
        graph = grown.mini_batch([sentence]).graph
        assert graph.n_vertices == n_grown(grown, sentence, Place())


def n_of(graph: Graph, name: str) -> int:
    return int((graph.types == graph.type_names.index(name)).sum())


def n_grown(model: Any, sentence: Chain, place: Place) -> int:
    has_child, has_next = model.replay_decisions(sentence, place)
    n = n_grown(model, sentence, place.child) if has_child else 0
    return 1 + n + (n_grown(model, sentence, place.next) if has_next else 0)


@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_every_decision_is_waited_for(model: ProgramModel) -> None:
    graph = model.mini_batch(SENTENCES).graph
    longest = {
        "stack_rnn": 2 * max(sentence.n_words for sentence in SENTENCES) - 2,
        "nested_rnn": max(len(DECIDED[1].list_inner_counts(s)) for s in SENTENCES),  # type: ignore[attr-defined]
        "berxit": max(BERXIT.count_layers(s) for s in SENTENCES) - 1,
    }
    expected = longest.get(model.name, graph.segments.max())
    assert graph.segments.max() == expected > 0


def test_incompatible_sizes_and_options_are_reported() -> None:
    other = ModelSizes(4, SIZES.data, embedding_size=3)
    for name in ("drnn", "nested_rnn", "berxit"):
        with pytest.raises(ConfigError, match="embedding_size=3 is not allowed with hidden_size=4"):
            build(name, other)
    with pytest.raises(ConfigError, match="expected most >= fewest, got most=3"):
        build("nested_rnn", SIZES, fewest=4, most=3)
    with pytest.raises(ConfigError, match="hidden_size=4 is not divisible"):
        build("berxit", SIZES, head_size=3)
    with expect_refusal("p_exit=-1 is not allowed: expected a value of at least 0"):
        build("berxit", SIZES, p_exit=-1)
    with expect_refusal("p_child=1.5 is not allowed: ", " at least 0 and at most 1"):
        build("drnn", SIZES, p_child=1.5)


BATCH_SIZE = 64
ALLOWED = 1.3  # as a multiple of the lower bound
# Lower bound, inline_depth, critical_share, and inline_depth without phases, ghosts and hoisting.
COUNTS: dict[str, tuple[int, int, int, int]] = {
    "tree_lstm": (22, 22, 22, 22),
    "mv_rnn": (22, 22, 22, 22),
    "birnn": (95, 95, 95, 117),
    "nested_rnn": (1626, 1626, 1626, 2271),
    "drnn": (39, 39, 39, 39),
    "stack_rnn": (322, 366, 322, 514),
    "berxit": (26, 26, 26, 26),
}
ALL, NONE = RecordingOptions(), RecordingOptions(phases=False, ghosts=False, hoisting=False)


@functools.cache
def graph_of(name: str, how: RecordingOptions) -> Graph:
    dataset = "sst_synthetic" if name in ("tree_lstm", "mv_rnn") else "xnli_synthetic"
    corpus = load_corpus(f"dynbatch.datasets.{dataset}", "train", None)
    model = build(name, ModelSizes(64 if name == "berxit" else 4, corpus.sizes))
    return make_recording(model, how).mini_batch(corpus.instances[:BATCH_SIZE]).graph


def n_batches(policy: str, graph: Graph) -> int:
    return schedule_in_segments(load_policy(policy), graph).n_batches


@pytest.mark.parametrize("name", COUNTS)
def test_batch_counts_match_expectations(name: str) -> None:
    graph, plain = graph_of(name, ALL), graph_of(name, NONE)
    assert COUNTS[name] == (
        compute_lower_bound(graph),
        n_batches("inline_depth", graph),
        n_batches("critical_share", graph),
        n_batches("inline_depth", plain),
    )
    bound, inline, critical, without = COUNTS[name]
    assert bound <= critical <= inline <= without
    assert inline <= ALLOWED * bound


@pytest.mark.parametrize("name", COUNTS)
def test_matmuls_of_one_vector_are_written_as_one(name: str) -> None:
    """Horizontal fusion would change nothing; Berxit's q, k and v multiply a matrix."""
    model = build(name, ModelSizes(64, {"words": 7, "classes": 3}))
    for function in trace_functions(model).values():
        vectors = (
            node.inputs[0]
            for node in function.nodes
            if node.op == "matmul" and len(node.shape) == 1
        )
        assert max(Counter(vectors).values(), default=1) == 1
