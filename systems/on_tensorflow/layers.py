"""An LSTM layer, and both ends of a model: words' vectors, the loss; derivatives by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import tensorflow as tf

from systems.on_tensorflow.runtime import Variables


class Gates(NamedTuple):
    """What a step's derivative needs (k, h): gates, tanh of the new cell state, the old one."""

    i: Any
    f: Any
    g: Any
    o: Any
    tanh_c: Any
    c_before: Any


class StepOrder(ABC):
    """How steps follow one another over the rows of a mini-batch, a step after the other."""

    @abstractmethod
    def forwards(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, Any]:
        """h of every row (m, h), and what `backwards` needs.

        a (m, 4 h): W x + b. first (k, 4 h): U h_0, of the rows of the first step; c_0 (k, h).
        """

    @abstractmethod
    def backwards(self, dh: Any, U: Any, saved: Any) -> tuple[Any, Any]:
        """From the gradients of h those of `a` (m, 4 h) and of c_0 (k, h)."""

    @abstractmethod
    def first_width(self) -> Any:
        """Rows of the first step."""

    @abstractmethod
    def before(self, h: Any) -> Any:
        """Of every row behind the first step, h of its sentence's step before."""


def step(gates: Any, c: Any) -> tuple[Any, Any, Gates]:
    """h and c behind a step, from gates (k, 4 h) with columns i, f, g, o, and c (k, h)."""
    i, f, g, o = tf.split(gates, 4, axis=1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    after = f * c + i * g
    tanh_c = tf.tanh(after)
    return o * tanh_c, after, Gates(i, f, g, o, tanh_c, c)


def step_back(saved: Gates, dh: Any, dc: Any) -> tuple[Any, Any]:
    """Gradients of the gates (k, 4 h) and of the c before, from those of h and c behind a step."""
    i, f, g, o, tanh_c, c = saved
    dc = dc + dh * o * (1.0 - tanh_c * tanh_c)
    dgates = [dc * g * i * (1.0 - i), dc * c * f * (1.0 - f)]
    dgates += [dc * i * (1.0 - g * g), dh * tanh_c * o * (1.0 - o)]
    return tf.concat(dgates, axis=1), dc * f


def lstm_layer(
    x: Any, weights: tuple[Any, Any, Any], start: tuple[Any, Any] | None, along: StepOrder
) -> Any:
    """h of every row (m, h) of x (m, n_inputs), its derivative by hand.

    By hand, the products for the weights' gradients are one each for all steps; TensorFlow's own
    derivative of a loop has one for every step, and adds them up.

    weights: W (n_inputs, 4 h), U (h, 4 h), b (4 h,). start: h_0 and c_0 (h,), the same for every
    sentence; None for zeros.
    """
    h = weights[1].shape[0]
    h_0, c_0 = start or (tf.zeros(h), tf.zeros(h))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def layer(x: Any, W: Any, U: Any, b: Any, h_0: Any, c_0: Any) -> Any:
        k = along.first_width()
        first = tf.broadcast_to(tf.matmul(h_0[None], U), (k, 4 * h))
        a = tf.nn.bias_add(tf.matmul(x, W), b)
        found, saved = along.forwards(a, U, first, tf.broadcast_to(c_0, (k, h)))

        def gradient(dfound: Any) -> tuple[Any, ...]:
            da, dc_0 = along.backwards(dfound, U, saved)
            dfirst = tf.reduce_sum(da[:k], 0)
            dU = tf.matmul(along.before(found), da[k:], transpose_a=True)
            return (
                tf.matmul(da, W, transpose_b=True),
                tf.matmul(x, da, transpose_a=True),
                dU + h_0[:, None] * dfirst,
                tf.reduce_sum(da, 0),
                tf.linalg.matvec(U, dfirst),
                tf.reduce_sum(dc_0, 0),
            )

        return found, gradient

    return layer(x, *map(tf.convert_to_tensor, (*weights, h_0, c_0)))


def word_vectors(weights: Variables, words: Any) -> Any:
    """Rows of the table; looked up outside of loops, where their gradient is sparse."""
    return tf.gather(weights["embedding"], words)


def picked_loss(logits: Any, labels: Any) -> Any:
    """Negative log likelihood of the labels, over all rows."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses)


def logits(hidden: Any, W: Any, b: Any | None) -> Any:
    """Scores of all classes (n, n_classes)."""
    scores = tf.matmul(hidden, W)
    return scores if b is None else tf.nn.bias_add(scores, b)


def summed_loss(hidden: Any, W: Any, b: Any | None, labels: Any) -> Any:
    """Negative log likelihood of the labels (n,), summed; a label of -1 counts nothing.

    hidden (n, n_inputs), W (n_inputs, n_classes). The derivative is written by hand, from
    tf.nn.softmax, which is oneDNN's and faster than the operation under
    sparse_softmax_cross_entropy_with_logits (docs/systems.md).
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def loss(hidden: Any, W: Any, *b: Any) -> Any:
        scores = logits(hidden, W, *b or (None,))
        shares = tf.nn.softmax(scores)
        at_labels = tf.stack([tf.range(tf.shape(labels)[0]), tf.maximum(labels, 0)], axis=1)
        counted = tf.cast(labels >= 0, scores.dtype)
        largest = tf.reduce_max(scores, 1) - tf.math.log(tf.reduce_max(shares, 1))
        losses = (largest - tf.gather_nd(scores, at_labels)) * counted

        def gradient(dloss: Any) -> tuple[Any, ...]:
            with tf.control_dependencies([losses]):  # shares are not read any more: in place
                dscores = tf.tensor_scatter_nd_sub(shares, at_labels, counted)
            dhidden = dloss * tf.matmul(dscores, W, transpose_b=True)
            dW = dloss * tf.matmul(hidden * counted[:, None], dscores, transpose_a=True)
            db = [dloss * tf.linalg.matvec(dscores, counted, transpose_a=True) for _ in b]
            return dhidden * counted[:, None], dW, *db

        return tf.reduce_sum(losses), gradient

    return loss(hidden, W, *(() if b is None else (b,)))
