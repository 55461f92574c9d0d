"""Var-LSTM as a loom: a sentence is a chain of calls, layer k one depth behind layer k - 1.

h of every word of the top layer leaves the loom and is passed through to its end, so that the
words' distributions are computed once, over all of them: inside the loom the product with the
vocabulary, and the gradient of its matrix, would be computed anew at every depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from harness.contracts.model import Model
from harness.models.parts.lstm import layer_suffix
from systems.on_tensorflow.loom.loop import Tensors
from systems.on_tensorflow.loom.network import LoomNetwork
from systems.on_tensorflow.loom.ops import OWN, Call, Loom, LoomOp
from systems.on_tensorflow.parts.classifier import word_vectors
from systems.on_tensorflow.parts.output_layer import logits, summed_loss


class Fold(LoomNetwork):
    """Parameters of harness.models.var_lstm.

    The first word of a sentence calls the same op as all others, with a state of zeros.
    """

    output_shape = "h"

    def make_loom(self, model: Model) -> Loom:
        """c and h are type shapes of their own, as h alone leaves the loom."""
        sizes = model.sizes
        n_layers = len(model.vertex_types) // 2
        shapes = {"c": sizes.hidden_size, "h": sizes.hidden_size, "word": sizes.embedding_size}
        ops, vertices = [], []
        for k in range(1, n_layers + 1):
            name, x = f"step_{k}", "word" if k == 1 else "h"
            ops.append(LoomOp(name, (x, "h", "c"), ("h", "c"), step_of(layer_suffix(k))))
            first_x, x_source = (OWN, OWN) if k == 1 else (0, 1)
            vertices += [Call(name, (first_x, OWN, OWN)), Call(name, (x_source, 0, 0))]
        return Loom(shapes, ops, (None, *vertices))

    def inputs(self, weights: Tensors, words: Any) -> Tensors:
        """Word vectors of all words."""
        return {"word": word_vectors(weights, words)}

    def loss(self, weights: Tensors, outputs: Any, labels: Any) -> Any:
        """Of the next word, everywhere."""
        return summed_loss(outputs, weights["W_out"], weights["b_out"], labels)

    def outputs(self, weights: Tensors, kept: Any) -> Any:
        """Logits of all words of the vocabulary."""
        return logits(kept, weights["W_out"], weights["b_out"])


def step_of(suffix: str) -> Callable[..., tuple[Any, Any]]:
    """The cell of a layer: i, f, g, o = W x + U h + b; c' = f c + i g; h' = o tanh c'."""

    def step(weights: Tensors, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates = x @ weights[f"W{suffix}"] + h @ weights[f"U{suffix}"]
        i, f, g, o = tf.split(tf.nn.bias_add(gates, weights[f"b{suffix}"]), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    return step


FOLD = {"var_lstm": Fold}
