"""Binary Tree-GRU in TensorFlow, a vertex at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from harness.contracts.model import Model
from harness.values.instances import Tree
from systems.on_tensorflow.parts.classifier import summed_loss, word_vectors
from systems.on_tensorflow.parts.one_tree import SIGNATURE, feeds_of, states_of
from systems.on_tensorflow.parts.tree_cells import gru_internal, gru_leaf
from systems.on_tensorflow.runtime import Feeds, Network, Variables


class OneTree(Network):
    """Parameters of harness.models.tree_gru; the classifier once, over all vertices of a tree."""

    signature = SIGNATURE

    def __init__(self, model: Model) -> None:
        pass

    def construct(self, instances: Sequence[Tree]) -> Feeds:
        """A tuple of arrays for each tree."""
        return feeds_of(instances)

    def forward(self, weights: Variables, *feeds: Any) -> tuple[Any, Any]:
        """Summed loss and logits of one tree."""
        words, left, right, places, labels = feeds
        states = states_of(
            lambda x: gru_leaf(weights, x),
            lambda first, second: gru_internal(weights, first, second),
            word_vectors(weights, words),
            left,
            right,
        )
        logits = tf.gather(states @ weights["W_out"], places)
        return summed_loss(logits, labels), logits
