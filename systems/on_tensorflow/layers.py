"""LSTM layer, word vectors, classifier and loss, with hand-written derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from dynbatch.systems.on_tensorflow.runtime import Variables


class Gates(NamedTuple):
    """Values for a step's derivative, each (k, h): gates, tanh of the new cell state, old state."""

    i: Any
    f: Any
    g: Any
    o: Any
    tanh_c: Any
    c_before: Any


class StepOrder(ABC):
    """Order of steps over the rows of a mini-batch, which are stored step by step."""

    @abstractmethod
    def run_forward(self, a: Any, U: Any, first: Any, c_0: Any) -> tuple[Any, Any]:
        """Run all steps; return h of every row (m, h), and the values that `run_backward` needs.

        Args:
            a: (m, 4 h), W x + b.
            U: (h, 4 h), recurrent weights.
            first: (k, 4 h), U h_0 for the rows of the first step.
            c_0: (k, h), cell states before the first step.
        """

    @abstractmethod
    def compute_cells(self, saved: Any) -> Any:
        """Return c of every row (m, h) from the values that `run_forward` has saved."""

    @abstractmethod
    def run_backward(self, dh: Any, U: Any, saved: Any, dcells: Any | None) -> tuple[Any, Any]:
        """Return the gradients of `a` (m, 4 h) and of c_0 (k, h) from those of h and c.

        Args:
            dcells: (m, h), gradient of `compute_cells`; None if it was not called.
        """

    @abstractmethod
    def get_first_width(self) -> Any:
        """Return the number of rows of the first step."""

    @abstractmethod
    def gather_previous(self, h: Any) -> Any:
        """Return, for every row after the first step, h of its sentence's previous step."""


def step(gates: Any, c: Any) -> tuple[Any, Any, Gates]:
    """Return h and c after a step.

    Args:
        gates: (k, 4 h), columns i, f, g, o before their activations.
        c: (k, h), cell states before the step.
    """
    i, f, g, o = tf.split(gates, 4, axis=1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    after = f * c + i * g
    tanh_c = tf.tanh(after)
    return o * tanh_c, after, Gates(i, f, g, o, tanh_c, c)


def step_back(saved: Gates, dh: Any, dc: Any) -> tuple[Any, Any]:
    """Return gradients of a step's gates (k, 4 h) and of its input c, from those of its h and c."""
    i, f, g, o, tanh_c, c = saved
    dc = dc + dh * o * (1.0 - tanh_c * tanh_c)
    dgates = [dc * g * i * (1.0 - i), dc * c * f * (1.0 - f)]
    dgates += [dc * i * (1.0 - g * g), dh * tanh_c * o * (1.0 - o)]
    return tf.concat(dgates, axis=1), dc * f


def run_lstm_layer(
    x: Any,
    weights: tuple[Any, Any, Any],
    start: tuple[Any, Any] | None,
    along: StepOrder,
    *,
    keeps_cells: bool = False,
) -> Sequence[Any]:
    """Run a layer with a hand-written derivative.

    The derivative computes each weight's gradient with one matmul for all steps. TensorFlow's own
    derivative of a loop has one matmul per step, and adds the results.

    Args:
        x: (m, n_inputs), inputs of all rows.
        weights: W (n_inputs, 4 h), U (h, 4 h), b (4 h,).
        start: h_0 and c_0, the same for every sentence (h,), or for each (k, h); None for zeros.
        along: order of steps.
        keeps_cells: also return c.

    Returns:
        h of every row (m, h), and c if it is kept.
    """
    h = weights[1].shape[0]
    h_0, c_0 = (tf.reshape(part, (-1, h)) for part in start or (tf.zeros(h), tf.zeros(h)))
    is_shared = start is None or start[0].shape.rank == 1

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run_layer(x: Any, W: Any, U: Any, b: Any, h_0: Any, c_0: Any) -> Any:
        k = along.get_first_width()
        first = tf.broadcast_to(tf.matmul(h_0, U), (k, 4 * h))
        a = tf.nn.bias_add(tf.matmul(x, W), b)
        hidden, saved = along.run_forward(a, U, first, tf.broadcast_to(c_0, (k, h)))
        kept = (hidden, along.compute_cells(saved)) if keeps_cells else (hidden,)

        def compute_gradients(dhidden: Any, dcells: Any | None = None) -> tuple[Any, ...]:
            da, dc_0 = along.run_backward(dhidden, U, saved, dcells)
            dfirst = da[:k]
            if is_shared:
                dfirst, dc_0 = (tf.reduce_sum(d, 0, keepdims=True) for d in (dfirst, dc_0))
            dU = tf.matmul(along.gather_previous(hidden), da[k:], transpose_a=True)
            return (
                tf.matmul(da, W, transpose_b=True),
                tf.matmul(x, da, transpose_a=True),
                dU + tf.matmul(h_0, dfirst, transpose_a=True),
                tf.reduce_sum(da, 0),
                tf.matmul(dfirst, U, transpose_b=True),
                dc_0,
            )

        return kept, compute_gradients

    kept: Sequence[Any] = run_layer(x, *map(tf.convert_to_tensor, weights), h_0, c_0)
    return kept


def look_up_vectors(weights: Variables, words: Any) -> Any:
    """Return rows of the embedding table; outside of loops, so that their gradient is sparse."""
    return tf.gather(weights["embedding"], words)


def compute_cross_entropy(logits: Any, labels: Any) -> Any:
    """Return the negative log likelihood of the labels, summed over all rows."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses)


def score_step(scores: Any, labels: Any) -> tuple[Any, Any]:
    """Return the summed negative log likelihood of a step's labels, and the softmax of scores."""
    share = tf.nn.softmax(scores)
    right = tf.gather(scores, labels, batch_dims=1)
    total = tf.reduce_max(scores, 1) - tf.math.log(tf.reduce_max(share, 1))
    return tf.reduce_sum(total - right), share


def subtract_right(shares: Any, labels: Any, counted: Any | None = None) -> Any:
    """Return the gradient of the scores of all rows: the softmax, less 1 at the labels.

    Args:
        counted: (n,), numbers to subtract instead of 1.
    """
    at_labels = tf.stack([tf.range(tf.shape(labels)[0]), labels], axis=1)
    counted = tf.ones_like(labels, shares.dtype) if counted is None else counted
    return tf.tensor_scatter_nd_sub(shares, at_labels, counted)


def compute_logits(hidden: Any, W: Any, b: Any | None) -> Any:
    scores = tf.matmul(hidden, W)
    return scores if b is None else tf.nn.bias_add(scores, b)


def compute_linear_cross_entropy(hidden: Any, W: Any, b: Any | None, labels: Any) -> Any:
    """Return the summed negative log likelihood of the labels, with a hand-written derivative.

    The derivative uses tf.nn.softmax, whose oneDNN kernel is faster than the operation of
    sparse_softmax_cross_entropy_with_logits.

    Args:
        hidden: (n, n_inputs).
        W: (n_inputs, n_classes).
        b: (n_classes,), or None.
        labels: (n,); -1 excludes a row.
    """

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def loss(hidden: Any, W: Any, *b: Any) -> Any:
        scores = compute_logits(hidden, W, *b or (None,))
        shares = tf.nn.softmax(scores)
        words = tf.maximum(labels, 0)
        counted = tf.cast(labels >= 0, scores.dtype)
        largest = tf.reduce_max(scores, 1) - tf.math.log(tf.reduce_max(shares, 1))
        losses = (largest - tf.gather(scores, words, batch_dims=1)) * counted

        def compute_gradients(dloss: Any) -> tuple[Any, ...]:
            with tf.control_dependencies([losses]):  # last read of shares: updated in place
                dscores = subtract_right(shares, words, counted)
            dhidden = dloss * tf.matmul(dscores, W, transpose_b=True)
            dW = dloss * tf.matmul(hidden * counted[:, None], dscores, transpose_a=True)
            db = [dloss * tf.linalg.matvec(dscores, counted, transpose_a=True) for _ in b]
            return dhidden * counted[:, None], dW, *db

        return tf.reduce_sum(losses), compute_gradients

    return loss(hidden, W, *(() if b is None else (b,)))
