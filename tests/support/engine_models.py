"""Models that an engine must support, each with instances: EXAMPLES by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, ModelSizes, Weights, draw_initial_weights
from dynbatch.harness.models.bilstm import BiLSTM
from dynbatch.harness.models.bilstm_char import BiLSTMChar
from dynbatch.harness.models.gated_lattice_lstm import GatedLatticeLSTM
from dynbatch.harness.models.lattice_gru import LatticeGRU
from dynbatch.harness.models.lattice_lstm import LatticeLSTM
from dynbatch.harness.models.mv_rnn import MVRNN
from dynbatch.harness.models.parser import Parser
from dynbatch.harness.models.seq2seq import Seq2Seq
from dynbatch.harness.models.seq2seq_at_once import Seq2SeqAtOnce
from dynbatch.harness.models.tree_fc import TreeFC
from dynbatch.harness.models.tree_gru import TreeGRU
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.models.tree_lstm_2type import TreeLSTM2Type
from dynbatch.harness.models.tree_lstm_child_sum import TreeLSTMChildSum
from dynbatch.harness.models.var_lstm import VarLSTM
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import Tree
from tests.support.awkward_models import (
    Matrices,
    MatrixSum,
    PassesOn,
    SeveralWidths,
    SharedChildren,
    SharedSums,
    TwoPulls,
)
from tests.support.instances import ALL_SIZES, LATTICES, random_instances
from tests.support.sketch_models import SIZES, ChainLSTM, ChildSum, GatesApart
from tests.support.sketches import Sketch

EQUAL_SIZES = replace(SIZES, embedding_size=SIZES.hidden_size)


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
    "var_lstm": VarLSTM(SEQUENCE_SIZES),
    "var_lstm_3": VarLSTM(SEQUENCE_SIZES, layers=3),
    "bilstm": BiLSTM(SEQUENCE_SIZES, mlp_size=5),
    "bilstm_2": BiLSTM(SEQUENCE_SIZES, layers=2),
    "bilstm_char": BiLSTMChar(SEQUENCE_SIZES),
    "seq2seq": Seq2Seq(SEQUENCE_SIZES),
    "seq2seq_at_once": Seq2SeqAtOnce(SEQUENCE_SIZES),
    "parser": Parser(SEQUENCE_SIZES, tag_size=3, mlp_size=5),
}
LENGTHS = (1, 5, 2, 5, 3)  # of sentences: the shortest first, and two of equal length
EXAMPLES: dict[str, tuple[Model, list[Any]]] = {
    "tree_lstm": (TreeLSTM(SIZES), TREES),
    "tree_fc_fold": (TreeFC(SIZES, variant="fold"), TREES),
    "tree_fc_cavs": (TreeFC(SIZES, variant="cavs"), TREES),
    "mv_rnn": (MVRNN(ModelSizes(4, {"words": 7, "classes": 3})), TREES),
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
    "tree_gru": (TreeGRU(EQUAL_SIZES), TREES),
    "tree_lstm_2type": (TreeLSTM2Type(SIZES), TREES),
    "tree_lstm_child_sum": (TreeLSTMChildSum(SIZES), TREES),
    "lattice_lstm": (LatticeLSTM(SIZES), list(LATTICES)),
    "lattice_gru": (LatticeGRU(SIZES), list(LATTICES)),
    "gated_lattice_lstm": (GatedLatticeLSTM(SIZES), list(LATTICES)),
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
