"""Batches of the seven programs at batch 64, exactly, against what no schedule can beat."""

from __future__ import annotations

import functools

import pytest

from harness.contracts.corpus import load_corpus
from harness.contracts.model import Model, ModelSizes
from harness.contracts.policy import load_policy
from harness.models.berxit import Berxit
from harness.models.birnn import BiRNN
from harness.models.drnn import DRNN
from harness.models.mv_rnn import MVRNN
from harness.models.nested_rnn import NestedRNN
from harness.models.stack_rnn import StackRNN
from harness.models.tree_lstm import TreeLSTM
from harness.policies.parts.bound import lower_bound
from harness.policies.parts.rounds import schedule_in_rounds
from harness.programs.blocks import RecordingOptions
from harness.programs.model import recording_of
from harness.values.graph import Graph

BATCH_SIZE = 64
ALLOWED = 1.3  # times the lower bound
# Lower bound, inline_depth, critical_share, and inline_depth without phases, ghosts and hoisting.
COUNTS: dict[type[Model], tuple[int, int, int, int]] = {
    TreeLSTM: (22, 22, 22, 22),
    MVRNN: (22, 22, 22, 22),
    BiRNN: (95, 95, 95, 117),
    NestedRNN: (1626, 1626, 1626, 2271),
    DRNN: (39, 39, 39, 39),
    StackRNN: (322, 366, 322, 514),
    Berxit: (26, 26, 26, 26),
}
ALL, NONE = RecordingOptions(), RecordingOptions(phases=False, ghosts=False, hoisting=False)


@functools.cache
def graph_of(kind: type[Model], how: RecordingOptions) -> Graph:
    dataset = "sst_synthetic" if kind in (TreeLSTM, MVRNN) else "xnli_synthetic"
    corpus = load_corpus(f"datasets.{dataset}", "train", None)
    model = kind(ModelSizes(64 if kind is Berxit else 4, corpus.sizes))
    return recording_of(model, how).mini_batch(corpus.instances[:BATCH_SIZE]).graph


def n_batches(policy: str, graph: Graph) -> int:
    return schedule_in_rounds(load_policy(policy), graph).n_batches


@pytest.mark.parametrize("kind", COUNTS, ids=lambda kind: kind.name)
def test_batches_are_as_many_as_told(kind: type[Model]) -> None:
    graph, plain = graph_of(kind, ALL), graph_of(kind, NONE)
    assert COUNTS[kind] == (
        lower_bound(graph),
        n_batches("inline_depth", graph),
        n_batches("critical_share", graph),
        n_batches("inline_depth", plain),
    )


def test_inline_depth_is_near_the_bound_on_each_of_the_seven() -> None:
    for kind, (bound, inline, critical, without) in COUNTS.items():
        assert bound <= critical <= inline <= without, kind.name
        assert inline <= ALLOWED * bound, kind.name
