"""Batch counts of chains: ED-Batch's tagger and translation, DyNet's tagger and parser.

Sources: Chen et al., ICML 2023: agenda and state machines reach the lower bound on chains; Neubig,
Goldberg and Dyer, NIPS 2017: agenda and depth differ on the operators of their models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dynbatch.systems.on_core.vertex
from dynbatch.harness.contracts.model import Model, ModelSizes, draw_initial_weights
from dynbatch.harness.contracts.policy import LearningSettings, learn_policy
from dynbatch.harness.counts import counting
from dynbatch.harness.counts.counting import GraphPair, build_scheduler, count_batches
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.granularity.operators import build_operator_graph
from dynbatch.harness.granularity.released import build_released_graph
from dynbatch.harness.granularity.vertices import add_output_vertices
from dynbatch.harness.models.bilstm import BiLSTM
from dynbatch.harness.models.parser import Parser
from dynbatch.harness.models.seq2seq import Seq2Seq
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.segments import cut_in_segments, select_first_segment
from dynbatch.harness.records.count_row import BatchCounts
from dynbatch.harness.values.graph import UNBATCHABLE, Graph
from dynbatch.harness.values.instances import SentencePair
from tests.support.engine_runs import prepared
from tests.support.instances import ALL_SIZES, random_instances
from tests.support.policies import schedule_by

SIZES = ModelSizes(4, {k: n for k, n in ALL_SIZES.items() if k != "characters"})
TAGGER, TRANSLATION, PARSER = BiLSTM(SIZES, layers=2), Seq2Seq(SIZES), Parser(SIZES)
# Numbers of words of sentences, and of their translations including both marks.
SOURCES, TARGETS = (14, 3, 25, 9, 31, 18, 12, 22), (17, 6, 31, 12, 33, 19, 15, 32)
LEARNED = ("fsm_base", "fsm_max", "fsm_sort")
NEAR = 1.01  # times the bound: the release stops learning below it


def pairs(sources: Sequence[int], targets: Sequence[int]) -> list[SentencePair]:
    return [
        SentencePair(np.zeros(n, dtype=np.int32), np.zeros(m, dtype=np.int32))
        for n, m in zip(sources, targets, strict=True)
    ]


def instances_of(model: Model) -> list[Any]:
    if model is TRANSLATION:
        return pairs(SOURCES, TARGETS)
    return random_instances(model.instance_kind, SOURCES, SIZES, seed=3)


def graphs_of(model: Model, instances: Sequence[Any] | None = None) -> GraphPair:
    mini_batch = model.mini_batch(instances_of(model) if instances is None else instances)
    plain = add_output_vertices(mini_batch, has_loss=True).graph
    return GraphPair(plain=plain, released=build_released_graph(model, mini_batch))


def counts_of(name: str, graphs: GraphPair, following: Sequence[GraphPair] = ()) -> BatchCounts:
    one = build_scheduler(name, LearningSettings(), "chains", graphs)
    return count_batches(one, graphs, following, enough_s=0.0)


def kinds_in(graph: Graph) -> Counter[str]:
    return Counter(graph.type_names[t] for t in graph.types.tolist())


def test_the_tagger_has_the_vertices_of_the_release() -> None:
    """Each word has four LSTM blocks with a get for h and c, and a block with a get for its tag.

    Per word, our graph has 16 vertices and the release 15: the release has one more for the lookup,
    which is in our blocks, and two fewer because its last block computes the loss, which our
    classifier computes outside. Our parameters are the 8 initial states and the classifier's; the
    release has 32, including those of cells.
    """
    graph, n_words = graphs_of(TAGGER).released, sum(SOURCES)
    kinds = kinds_in(graph)
    blocks = ("forward", "forward_2", "backward", "backward_2")
    cells = [kind for block in blocks for kind in (block, f"{block}.get_h", f"{block}.get_c")]
    outputs = ["tag", "tag.get_t", "output.matmul", "output.pick_neg_log_softmax"]
    assert kinds == {**dict.fromkeys([*cells, *outputs], n_words), "parameter": 9, "sum": 1}
    assert compute_lower_bound(graph) == len(cells) * max(SOURCES) + len(outputs) + 9 + 1
    assert graph.segments is None


def test_translation_has_the_vertices_of_the_release() -> None:
    """Words have a block and two gets, distributions two vertices; losses are not summed."""
    graph, n_steps = graphs_of(TRANSLATION).released, [n - 1 for n in TARGETS]
    kinds = kinds_in(graph)
    encode = dict.fromkeys(("encode", "encode.get_h", "encode.get_c"), sum(SOURCES))
    step = ("decode", "decode.get_h", "decode.get_c", "output.matmul")
    decode = dict.fromkeys((*step, "output.pick_neg_log_softmax"), sum(n_steps))
    assert kinds == {**encode, **decode, "parameter": 3}
    assert compute_lower_bound(graph) == 3 * max(SOURCES) + 5 * max(n_steps) + 3
    first, *others = cut_in_segments(graph).graphs
    assert len(others) + 1 == max(n_steps)
    assert kinds_in(first) == {
        **encode, **dict.fromkeys(decode, len(n_steps)), "parameter": 3
    }  # fmt: skip
    for r, part in enumerate(others, start=1):
        assert kinds_in(part) == dict.fromkeys(decode, sum(n > r for n in n_steps))


@pytest.mark.parametrize("model", [TAGGER, TRANSLATION], ids=["tagger", "translation"])
@pytest.mark.parametrize("policy", ["agenda", "critical_share", *LEARNED])
def test_good_policies_reach_the_bound_on_chains(policy: str, model: Model) -> None:
    """Counts of released graphs and of vertices do, also on mini-batches after the learned one."""
    graphs = graphs_of(model)
    following = [graphs_of(model, instances_of(model)[:k]) for k in (2, 5)]
    counts = counts_of(policy, graphs, following)
    nearly = {"fsm_base", "fsm_max"}  # stop learning near the bound
    slack = NEAR if policy in nearly else 1.0
    assert counts.lower_bound <= counts.n_batches <= slack * counts.lower_bound
    assert counts.lower_bound_ed <= counts.n_batches_ed <= slack * counts.lower_bound_ed
    assert counts.following.ratio <= slack
    if policy in LEARNED:
        assert counts.n_trials is not None
        assert counts.unseen_fraction is not None


def test_depth_does_not_reach_the_bound_of_the_tagger() -> None:
    counts = counts_of("depth", graphs_of(TAGGER))
    assert counts.n_batches > counts.lower_bound
    assert counts.n_batches_ed > counts.lower_bound_ed


def test_agenda_misses_the_bound_where_one_source_is_many_times_as_long() -> None:
    """Steps of the long source are deeper on average than first decoder steps, which run early."""
    graphs = graphs_of(TRANSLATION, pairs((8,) * 7 + (100,), (9,) * 8))
    agenda, learned = counts_of("agenda", graphs), counts_of("fsm_sort", graphs)
    assert learned.n_batches <= NEAR * learned.lower_bound < agenda.n_batches


@pytest.mark.parametrize("model", [BiLSTM(SIZES), TAGGER, PARSER], ids=["one", "two", "parser"])
def test_agenda_and_depth_differ_on_operators(model: Model) -> None:
    """With one layer, as in the DyNet paper, agenda needs fewer batches than depth."""
    graph = build_operator_graph(model, model.mini_batch(instances_of(model)))
    agenda, depth = (schedule_by(name, graph).n_batches for name in ("agenda", "depth"))
    assert agenda != depth
    assert min(agenda, depth) >= compute_lower_bound(graph)
    if isinstance(model, BiLSTM) and model.layers == 1:
        assert agenda < depth


@pytest.mark.parametrize("model", [TRANSLATION, PARSER], ids=["translation", "parser"])
def test_learned_policies_learn_on_the_first_segment(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and the engine learn on the first graph segment, as the release does."""
    seen: list[Graph] = []

    def learn(name: str, given: Sequence[Graph], *settings: Any) -> Any:
        seen.extend(given)
        return learn_policy(name, given, *settings)

    monkeypatch.setattr(counting, "learn_policy", learn)
    monkeypatch.setattr(dynbatch.systems.on_core.vertex, "learn_policy", learn)
    graphs = graphs_of(model)
    few = LearningSettings(trials=2)
    build_scheduler("fsm_sort", few, "chains", graphs)
    firsts = map(select_first_segment, (graphs.plain, graphs.released))
    assert [one.n_vertices for one in seen] == [one.n_vertices for one in firsts]
    seen.clear()
    switches = Switches(backend="stepwise", outputs="vertices")
    adapter = prepared(model, draw_initial_weights(model, 1), switches, "fsm_sort", mode="infer")
    adapter.learn(instances_of(model))
    assert [one.n_vertices for one in seen] == [select_first_segment(graphs.plain).n_vertices]
    assert (graphs.released.types == UNBATCHABLE).any()
