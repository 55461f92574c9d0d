"""Models that are programs: interpreted, recorded, and made of arrays, they compute the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.contracts.model import Model, ModelSizes, initial_weights
from harness.contracts.policy import load_policy
from harness.engine.switches import Switches
from harness.errors import ConfigError
from harness.interpreter import interpret
from harness.models.birnn import BiRNN
from harness.models.drnn import DRNN, Place
from harness.models.mv_rnn import MVRNN
from harness.models.nested_rnn import NestedRNN
from harness.models.stack_rnn import StackRNN
from harness.models.tree_lstm import TreeLSTM
from harness.models.tree_lstm_2type import TreeLSTM2Type
from harness.oracle import run_reference
from harness.policies.parts.bound import lower_bound
from harness.policies.parts.rounds import schedule_in_rounds
from harness.programs.model import ProgramModel, recording_of
from harness.programs.recorder import RecordingOptions
from harness.values.graph import Graph, MiniBatch
from harness.values.instances import Chain
from tests.support.engine_models import TREES
from tests.support.engine_runs import interpreted_kernels, prepared, run
from tests.support.sentences import random_sentences

SIZES = ModelSizes(4, {"words": 7, "classes": 3})
SENTENCES: list[Chain] = random_sentences("chain", (1, 5, 2, 5, 3, 9), SIZES, seed=1)
DECIDED: list[ProgramModel] = [
    StackRNN(SIZES),
    NestedRNN(SIZES, fewest=2, most=4),
    DRNN(SIZES, p_child=0.9, generations=3),
]
WITH_ARRAYS: list[tuple[Model, Sequence[Any]]] = [
    (BiRNN(SIZES), SENTENCES),
    (TreeLSTM(SIZES), TREES),
    (TreeLSTM2Type(SIZES, type_seed=3), TREES),
    (MVRNN(SIZES), TREES),
]


@pytest.mark.parametrize("model", [*DECIDED, WITH_ARRAYS[0][0]], ids=lambda model: model.name)
def test_a_graph_computes_what_its_program_does(model: ProgramModel) -> None:
    weights = initial_weights(model, 3)
    truth = interpret(model, weights, SENTENCES)
    found = run_reference(model, weights, SENTENCES, "infer")
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-12)
    assert found.loss == pytest.approx(truth.loss)


@pytest.mark.parametrize("policy", ["inline_depth", "critical_share"])
@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_the_engine_trains_them(model: ProgramModel, policy: str) -> None:
    weights = initial_weights(model, 3)
    truth = run_reference(model, weights, SENTENCES, "train")
    with interpreted_kernels():
        found = run(prepared(model, weights, Switches(), policy), SENTENCES)
    np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
    for name, gradient in truth.gradients.items():
        scale = float(np.abs(gradient).max())
        np.testing.assert_allclose(found.gradients[name], gradient, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.parametrize(("model", "batch"), WITH_ARRAYS, ids=lambda one: getattr(one, "name", ""))
def test_arrays_and_programs_make_one_graph(model: Model, batch: Sequence[Any]) -> None:
    """Equal vertices, and equal batches, too, by inline depth."""
    recorded, made = (
        recording_of(model, RecordingOptions()).mini_batch(batch),
        model.mini_batch(batch),
    )
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
    """Every vertex as the text of what it is computed from."""
    graph, words = mini_batch.graph, mini_batch.pulls["word"]
    known: list[str] = []
    for v in range(graph.n_vertices):
        below = ",".join(known[a] for a in graph.args_of(v).tolist())
        name = graph.type_names[graph.types[v]]
        word = int(words[v])
        known.append(f"{name}{word}({below})")
    return known


def test_others_can_ask_what_a_program_decides() -> None:
    """What peers follow is what the program does."""
    stack, nested, grown = DECIDED
    assert isinstance(stack, StackRNN)
    assert isinstance(nested, NestedRNN)
    assert isinstance(grown, DRNN)
    for sentence in SENTENCES:
        graph = stack.mini_batch([sentence]).graph
        actions = stack.actions(sentence)
        assert n_of(graph, "compose") == len(actions) - sum(actions) == sentence.n_words - 1
        assert n_of(graph, "push") == 1 + len(actions)
        graph, loops = nested.mini_batch([sentence]).graph, nested.loops(sentence)
        assert n_of(graph, "outer") == len(loops)
        assert n_of(graph, "inner") == sum(loops)
        graph = grown.mini_batch([sentence]).graph
        assert graph.n_vertices == n_grown(grown, sentence, Place())


def n_of(graph: Graph, name: str) -> int:
    return int((graph.types == graph.type_names.index(name)).sum())


def n_grown(model: DRNN, sentence: Chain, place: Place) -> int:
    has_child, has_next = model.decides(sentence, place)
    n = n_grown(model, sentence, place.child) if has_child else 0
    return 1 + n + (n_grown(model, sentence, place.next) if has_next else 0)


@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_every_decision_is_waited_for(model: ProgramModel) -> None:
    graph = model.mini_batch(SENTENCES).graph
    assert graph.rounds is not None
    longest = {
        "stack_rnn": 2 * max(sentence.n_words for sentence in SENTENCES) - 2,
        "nested_rnn": max(len(DECIDED[1].loops(s)) for s in SENTENCES),  # type: ignore[attr-defined]
    }
    expected = longest.get(model.name, graph.rounds.max())
    assert graph.rounds.max() == expected > 0


@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_inline_depth_is_near_the_bound(model: ProgramModel) -> None:
    graph = model.mini_batch(SENTENCES).graph
    n_batches = schedule_in_rounds(load_policy("inline_depth"), graph).n_batches
    assert n_batches <= 1.3 * lower_bound(graph)


def test_sizes_and_options_that_do_not_fit_are_told() -> None:
    other = ModelSizes(4, SIZES.data, embedding_size=3)
    for kind in (DRNN, NestedRNN):
        with pytest.raises(ConfigError, match="embedding_size=3 is not allowed with hidden_size=4"):
            kind(other)
    with pytest.raises(ConfigError, match="most=3 is below fewest=4"):
        NestedRNN(SIZES, fewest=4, most=3)
    with pytest.raises(ConfigError, match=r"p_child=1\.5 is not allowed; give 0 to 1"):
        DRNN(SIZES, p_child=1.5)
