"""Tree models in TensorFlow: the vertices of a tree one after the other, leaves first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_tensorflow.cells import (
    CellFunctions,
    ChildSumCell,
    LSTMCell,
    apply_layer,
    apply_layer_to_children,
)
from dynbatch.systems.on_tensorflow.layers import compute_cross_entropy, look_up_vectors
from dynbatch.systems.on_tensorflow.runtime import Feeds, Network, Variables


class OneTree(Network):
    """Base class of the models of trees, whose program reads one tree."""

    signature = (tf.TensorSpec([None], tf.int32),) * 5

    def __init__(self, model: Model) -> None:
        self.h = model.sizes.hidden_size

    def construct(self, instances: Sequence[Tree]) -> Feeds:
        """Return the arrays of each tree: words of its leaves; left, right, places and labels.

        places (n,) has the row of each vertex's state. left and right have such rows for the
        children of each internal vertex.
        """
        feeds = []
        for tree in instances:
            is_leaf = tree.words >= 0
            words, inner = tree.words[is_leaf], ~is_leaf
            inner_places = len(words) + np.cumsum(inner) - 1
            places = np.where(is_leaf, np.cumsum(is_leaf) - 1, inner_places).astype(np.int32)
            children = places[tree.left[inner]], places[tree.right[inner]]
            feeds.append((words, *children, places, tree.labels))
        return tuple(feeds)


def compute_states(
    leaf: Callable[[Any], Any],
    internal: Callable[[Any, Any], Any],
    x: Any,
    left: Any,
    right: Any,
) -> Any:
    """Return the states of all vertices (n, width), leaves first.

    The states are in a TensorArray. One loop over all vertices with a tf.cond on the vertex type
    would be slower: the branch that is not taken has gradients of zeros, as large as its matrices,
    which are added at every vertex.

    Args:
        x: (n_leaves, n_inputs), inputs of leaves.
        left: rows of the left children of internal vertices.
        right: rows of the right children.
    """
    n_leaves = tf.shape(x)[0]
    n = n_leaves + tf.shape(left)[0]
    rows = tf.TensorArray(tf.float32, n_leaves).unstack(tf.expand_dims(x, 1))

    def visit_leaf(v: Any, states: Any) -> tuple[Any, Any]:
        return v + 1, states.write(v, leaf(rows.read(v)))

    def visit_internal(v: Any, states: Any) -> tuple[Any, Any]:
        first, second = left[v - n_leaves], right[v - n_leaves]
        return v + 1, states.write(v, internal(states.read(first), states.read(second)))

    states = tf.TensorArray(tf.float32, n, clear_after_read=False, infer_shape=False)
    for end, visit, begin in ((n_leaves, visit_leaf, 0), (n, visit_internal, n_leaves)):
        _, states = tf.while_loop(
            lambda v, _, end=end: v < end, visit, (begin, states), parallel_iterations=1
        )
    return states.concat()


class ClassifiedTree(OneTree):
    """Parameters of a cell's model; the classifier is called once, over all vertices of a tree."""

    def __init__(self, cell: CellFunctions, model: Model) -> None:
        super().__init__(model)
        self.cell = cell

    def forward(self, weights: Variables, *feeds: Any) -> tuple[Any, Any]:
        words, left, right, places, labels = feeds
        states = compute_states(
            lambda x: self.cell.leaf(weights, x),
            lambda first, second: self.cell.internal(weights, first, second),
            look_up_vectors(weights, words),
            left,
            right,
        )
        logits = tf.gather(states[:, self.h :] @ weights["W_out"], places)
        return compute_cross_entropy(logits, labels), logits


class TreeFC(OneTree):
    """Parameters of harness/models/tree_fc.py; leaves are looked up, or the layer of zeros."""

    def forward(self, weights: Variables, *feeds: Any) -> tuple[Any, Any]:
        words, left, right, _, _ = feeds
        has_table = "embedding" in weights
        nothing = tf.zeros((1, 2 * self.h))
        states = compute_states(
            tf.identity if has_table else lambda _: apply_layer(weights, nothing),
            lambda first, second: apply_layer_to_children(weights, first, second),
            look_up_vectors(weights, words) if has_table else tf.zeros((tf.shape(words)[0], 1)),
            left,
            right,
        )
        root = states[-1:]
        return tf.nn.l2_loss(root), root


ONE_TREE = {
    "tree_lstm": partial(ClassifiedTree, LSTMCell),
    "tree_lstm_child_sum": partial(ClassifiedTree, ChildSumCell),
    "tree_fc": TreeFC,
}
