"""Models that an engine must support, each with instances: EXAMPLES by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, Weights, draw_initial_weights
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import Tree
from tests.support.instances import ALL_SIZES, LATTICES, build, random_instances
from tests.support.sketch_models import (
    SIZES,
    ChainLSTM,
    ChildSum,
    GatesApart,
    Matrices,
    MatrixSum,
    PassesOn,
    SeveralWidths,
    SharedChildren,
    SharedSums,
    Sketch,
    TwoPulls,
)


def chain(length: int) -> Sketch:
    return Sketch([("first", [])] + [("step", [k]) for k in range(length - 1)])


CHAINS = [chain(n) for n in (3, 1, 4, 2)]
BINARY = [
    Sketch([("leaf", []), ("leaf", []), ("inner", [0, 1]), ("inner", [2, 2]), ("inner", [2, 0])]),
    Sketch([("leaf", [])]),
    Sketch([("leaf", []), ("inner", [0, 0]), ("inner", [1, 0]), ("inner", [2, 1])], read=(3, 1)),
]
FORESTS = [
    Sketch([("vertex", a) for a in ([], [], [], [0, 1, 2], [], [3, 4], [5])], read=(6,)),
    Sketch([("vertex", [])]),
    Sketch([("vertex", a) for a in ([], [0], [1], [], [2, 3])]),
]
TWO_INNER = [("narrow", []), ("wide", []), ("inner", [0, 1]), ("inner", [2, 1])]
WIDTHS = [
    Sketch([*TWO_INNER, ("wide", []), ("narrow", [])]),
    Sketch([("wide", []), ("narrow", []), ("inner", [1, 0])], read=(2,)),
]


def tree(words: Sequence[int], left: Sequence[int], right: Sequence[int]) -> Tree:
    """Build a tree whose labels follow from the positions of its vertices."""
    labels = (np.arange(len(words)) * 2 + 1) % SIZES.get_size("classes")
    return Tree(*map(as_int_array, (words, labels, left, right)))


TREES = [
    tree([1, 2, -1, 2, -1], [-1, -1, 0, -1, 2], [-1, -1, 1, -1, 3]),
    tree([5], [-1], [-1]),
    tree([0, 6, 3, -1, -1], [-1, -1, -1, 1, 0], [-1, -1, -1, 2, 3]),
]

SEQUENCE_SIZES = ModelSizes(6, ALL_SIZES, embedding_size=4)
SEQUENCE_MODELS: dict[str, Model] = {
    "var_lstm": build("var_lstm", SEQUENCE_SIZES),
    "var_lstm_3": build("var_lstm", SEQUENCE_SIZES, layers=3),
    "bilstm": build("bilstm", SEQUENCE_SIZES, mlp_size=5),
    "bilstm_2": build("bilstm", SEQUENCE_SIZES, layers=2),
    "bilstm_char": build("bilstm_char", SEQUENCE_SIZES),
    "seq2seq": build("seq2seq", SEQUENCE_SIZES),
    "seq2seq_at_once": build("seq2seq_at_once", SEQUENCE_SIZES),
    "parser": build("parser", SEQUENCE_SIZES, tag_size=3, mlp_size=5),
}
LENGTHS = (1, 5, 2, 5, 3)  # of sentences: the shortest first, and two of equal length
EXAMPLES: dict[str, tuple[Model, list[Any]]] = {
    "tree_lstm": (build("tree_lstm", SIZES), TREES),
    "tree_fc_fold": (build("tree_fc", SIZES, variant="fold"), TREES),
    "tree_fc_cavs": (build("tree_fc", SIZES, variant="cavs"), TREES),
    "mv_rnn": (build("mv_rnn", ModelSizes(4, {"words": 7, "classes": 3})), TREES),
    "matrices": (Matrices(SIZES), BINARY),
    "matrix_sum": (MatrixSum(SIZES), FORESTS),
    "child_sum": (ChildSum(SIZES), FORESTS),
    "chain_lstm": (ChainLSTM(SIZES), CHAINS),
    "gates_apart": (GatesApart(SIZES), CHAINS),
    "shared_children": (SharedChildren(SIZES), BINARY),
    "shared_sums": (SharedSums(SIZES), BINARY),
    "several_widths": (SeveralWidths(SIZES), WIDTHS),
    "passes_on": (PassesOn(SIZES), BINARY),
    "two_pulls": (TwoPulls(SIZES), BINARY),
    "tree_gru": (build("tree_gru", replace(SIZES, embedding_size=SIZES.hidden_size)), TREES),
    "tree_lstm_2type": (build("tree_lstm_2type", SIZES), TREES),
    "tree_lstm_child_sum": (build("tree_lstm_child_sum", SIZES), TREES),
    "lattice_lstm": (build("lattice_lstm", SIZES), list(LATTICES)),
    "lattice_gru": (build("lattice_gru", SIZES), list(LATTICES)),
    "gated_lattice_lstm": (build("gated_lattice_lstm", SIZES), list(LATTICES)),
    **{
        name: (model, random_instances(model.instance_kind, LENGTHS, model.sizes, seed=1))
        for name, model in SEQUENCE_MODELS.items()
    },
}


def example(name: str) -> tuple[Model, list[Any], Weights]:
    """Return a model, instances, and weights that are large enough to affect results."""
    model, instances = EXAMPLES[name]
    weights = {k: np.float32(2) * w for k, w in draw_initial_weights(model, 7).items()}
    return model, instances, weights
