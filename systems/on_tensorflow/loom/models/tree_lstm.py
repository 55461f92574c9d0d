"""Binary Tree-LSTM as a loom: a leaf and an internal cell, each with the classifier on top.

State of a vertex: [c; h] in one row. Logits leave the loom as they are computed, and the loss is
computed once, over all of them: they are few numbers to pass through, while states would be many,
and a loss inside the loom would need every label passed to its depth.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from harness.contracts.model import Model
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.loom.network import LoomNetwork
from systems.on_tensorflow.loom.ops import OWN, Call, Loom, LoomOp
from systems.on_tensorflow.parts.classifier import summed_loss, word_vectors
from systems.on_tensorflow.parts.tree_cells import lstm_internal, lstm_leaf


class Fold(LoomNetwork):
    """Parameters of harness.models.tree_lstm."""

    output_shape = "logits"

    def make_loom(self, model: Model) -> Loom:
        """A word's vector enters at depth 0."""
        sizes = model.sizes
        return Loom(
            {
                "logits": sizes.of("classes"),
                "state": 2 * sizes.hidden_size,
                "word": sizes.embedding_size,
            },
            [
                LoomOp("internal", ("state", "state"), ("state", "logits"), internal),
                LoomOp("leaf", ("word",), ("state", "logits"), leaf),
            ],
            (None, Call("leaf", (OWN,)), Call("internal", (0, 1))),
        )

    def inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Word vectors of all leaves."""
        return {"word": word_vectors(weights, words)}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """Of the classifier at every vertex."""
        return summed_loss(outputs, labels)


def leaf(weights: Tensors, x: Any) -> tuple[Any, Any]:
    """State and logits of leaves."""
    return _classified(weights, lstm_leaf(weights, x))


def internal(weights: Tensors, left: Any, right: Any) -> tuple[Any, Any]:
    """State and logits of internal vertices."""
    return _classified(weights, lstm_internal(weights, left, right))


def _classified(weights: Tensors, state: Any) -> tuple[Any, Any]:
    _, h = tf.split(state, 2, axis=1)
    return state, h @ weights["W_out"]
