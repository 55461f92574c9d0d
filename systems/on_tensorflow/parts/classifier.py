"""What is at both ends of a tree model: vectors of words, and the loss of all vertices' logits."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from systems.on_tensorflow.runtime import Variables


def word_vectors(weights: Variables, words: Any) -> Any:
    """Rows of the table; looked up outside of loops, where their gradient is sparse."""
    return tf.gather(weights["embedding"], words)


def summed_loss(logits: Any, labels: Any) -> Any:
    """Negative log likelihood of the labels, over all rows."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses)
