"""Tree-FC in TensorFlow, a vertex at a time."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from systems.on_tensorflow.parts.classifier import word_vectors
from systems.on_tensorflow.parts.one_tree import TreeByTree, states_of
from systems.on_tensorflow.parts.tree_cells import layer, layer_of_children
from systems.on_tensorflow.runtime import Variables


class OneTree(TreeByTree):
    """Parameters of harness.models.tree_fc; leaves look a row up, or apply the layer to zeros."""

    def forward(self, weights: Variables, *feeds: Any) -> tuple[Any, Any]:
        """Loss and state of one tree's root."""
        words, left, right, _, _ = feeds
        has_table = "embedding" in weights
        nothing = tf.zeros((1, 2 * self.h))
        states = states_of(
            tf.identity if has_table else lambda _: layer(weights, nothing),
            lambda first, second: layer_of_children(weights, first, second),
            word_vectors(weights, words) if has_table else tf.zeros((tf.shape(words)[0], 1)),
            left,
            right,
        )
        root = states[-1:]
        return tf.nn.l2_loss(root), root


ONE_TREE = {"tree_fc": OneTree}
