"""Encoder-decoders in TensorFlow: all pairs of sentences in parallel.

seq2seq decodes step by step: each step looks up its words, and computes their scores and losses.
Only gradients are deferred to the last step. seq2seq_at_once knows all words in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from dynbatch.harness.values.instances import SentencePair
from dynbatch.systems.on_tensorflow.dynamic import ANY, SCALAR, Looped
from dynbatch.systems.on_tensorflow.layers import (
    Gates,
    compute_linear_cross_entropy,
    compute_logits,
    run_lstm_layer,
    score_step,
    step,
    subtract_right,
)
from dynbatch.systems.on_tensorflow.models.sentences import StepsNetwork
from dynbatch.systems.on_tensorflow.runtime import Feeds, Variables
from dynbatch.systems.plans.sentences import Stairs


class PairFeed(NamedTuple):
    """A mini-batch of int32 arrays, which are tensors inside a program.

    Attributes:
        source: stairs of the sources.
        target: stairs of the decoders, whose sentences have another order.
        words: (n,), words of sources by row.
        last: (k,), row of the last word of every decoder's source.
        read: (m,), words that decoders read, by row.
        labels: (m,), words that they predict.
    """

    source: Stairs
    target: Stairs
    words: Any
    last: Any
    read: Any
    labels: Any


class PairNetwork(StepsNetwork):
    """Encoder and rows of both models."""

    unrolled: ClassVar[Sequence[str]] = ("source", "target")

    def construct(self, instances: Sequence[SentencePair]) -> Feeds:
        """Lay out sources and decoders."""
        n_source = np.array([len(pair.source) for pair in instances], dtype=np.int64)
        n_steps = np.array([pair.n_steps for pair in instances], dtype=np.int64)
        source, target = self.lay_out(n_source, "source"), self.lay_out(n_steps, "target")
        columns = target.of_along[np.cumsum(n_steps) - n_steps]  # rows of the first step
        last = np.zeros(len(instances), np.int32)
        last[columns] = source.of_along[np.cumsum(n_source) - 1]
        words, read, labels = (
            np.concatenate(parts, dtype=np.int32)
            for parts in (
                [pair.source for pair in instances],
                [pair.target[:-1] for pair in instances],
                [pair.target[1:] for pair in instances],
            )
        )
        along = target.along
        feed = PairFeed(source, target, words[source.along], last, read[along], labels[along])
        return (feed,)

    def encode(self, weights: Variables, feed: PairFeed) -> tuple[Any, Any]:
        """Return h and c after the last word of every decoder's source (k, h)."""
        h, c = run_lstm_layer(
            _embed_words(weights, "source", feed.words),
            (weights["W_source"], weights["U_source"], weights["b_source"]),
            (weights["h_0"], weights["c_0"]),
            self.make_steps(feed.source),
            keeps_cells=True,
        )
        return tf.gather(h, feed.last), tf.gather(c, feed.last)

    def outputs(self, weights: Variables, kept: Any) -> Any:
        """Return the scores of all predicted words."""
        h, rows = kept
        return compute_logits(tf.gather(h, rows), weights["W_out"], None)


class Seq2SeqAtOnce(PairNetwork):
    """Equations of dynbatch.harness.models.seq2seq_at_once: two LSTMs along whole sentences."""

    def forward(self, weights: Variables, *feeds: PairFeed) -> tuple[Any, Any]:
        (feed,) = feeds
        (h,) = run_lstm_layer(
            _embed_words(weights, "target", feed.read),
            (weights["W_target"], weights["U_target"], weights["b_target"]),
            self.encode(weights, feed),
            self.make_steps(feed.target),
        )
        loss = compute_linear_cross_entropy(h, weights["W_out"], None, feed.labels)
        return loss, (h, feed.target.of_along)


class Seq2Seq(PairNetwork):
    """Equations of dynbatch.harness.models.seq2seq: decoders run step by step, in a loop."""

    unrolled = ("source",)

    def forward(self, weights: Variables, *feeds: PairFeed) -> tuple[Any, Any]:
        (feed,) = feeds
        names = ("E_target", "b_E_target", "W_target", "U_target", "b_target", "W_out")
        own = [tf.convert_to_tensor(weights[name]) for name in names]
        table = weights["target_embedding"]
        loss, h = _decode(tf.gather(table, feed.read), table, own, self.encode(weights, feed), feed)
        return loss, (h, feed.target.of_along)


def _decode(
    vectors: Any, table: Any, weights: Sequence[Any], start: tuple[Any, Any], feed: PairFeed
) -> tuple[Any, Any]:
    """Return the summed loss of all decoders, and h of every row (m, h).

    Args:
        vectors: (m, n), looked-up words. They get the gradient, but every step looks up its own
            words in `table`.
        weights: E, e, W, U and b of x = tanh(E word + e) and of the cell, and W_out of the scores.
        start: h and c before the first step (k, h).
    """
    widths, words = feed.target.widths, tf.stop_gradient(tf.convert_to_tensor(table))
    steps = Looped(tf.size(widths), widths, feed.target.before)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run_decoders(
        vectors: Any, E: Any, e: Any, W: Any, U: Any, b: Any, W_out: Any, h_0: Any, c_0: Any
    ) -> Any:
        loss, arrays = _run_steps(
            words, DecoderWeights(E, e, W, U, b, W_out), (h_0, c_0), feed, steps
        )
        x, hidden, shares = (array.concat() for array in arrays[:3])

        def compute_gradients(dloss: Any, _: Any) -> tuple[Any, ...]:
            d = dloss * subtract_right(shares, feed.labels)
            dh = tf.matmul(d, W_out, transpose_b=True)
            da, dc_0 = steps.run_backward(dh, U, arrays[3:], None)
            k = widths[0]
            dx = tf.matmul(da, W, transpose_b=True) * (1.0 - x * x)
            dU = tf.matmul(h_0, da[:k], transpose_a=True)
            dU += tf.matmul(steps.gather_previous(hidden), da[k:], transpose_a=True)
            return (
                tf.matmul(dx, E, transpose_b=True),
                tf.matmul(vectors, dx, transpose_a=True),
                tf.reduce_sum(dx, 0),
                tf.matmul(x, da, transpose_a=True),
                dU,
                tf.reduce_sum(da, 0),
                tf.matmul(hidden, d, transpose_a=True),
                tf.matmul(da[:k], U, transpose_b=True),
                dc_0,
            )

        return (loss, hidden), compute_gradients

    result: tuple[Any, Any] = run_decoders(vectors, *weights, *start)
    return result


class DecoderWeights(NamedTuple):
    """Weights of x = tanh(E word + e), an LSTM cell with W x + U h + b, and scores W_out h."""

    E: Any
    e: Any
    W: Any
    U: Any
    b: Any
    W_out: Any


def _run_steps(
    words: Any, w: DecoderWeights, start: tuple[Any, Any], feed: PairFeed, steps: Looped
) -> tuple[Any, list[Any]]:
    """Return the summed loss, and arrays by step: x, h, the softmax of scores, and Gates."""
    widths, n_steps, (h_0, c_0) = steps.widths, steps.n_steps, start
    starts = tf.cumsum(widths, exclusive=True)
    after = tf.concat([widths[1:], [0]], 0)
    h, n_words = w.W_out.shape

    def run_step(t: Any, loss: Any, recurrent: Any, c: Any, *kept: Any) -> tuple[Any, ...]:
        rows = slice(starts[t], starts[t] + widths[t])
        x = tf.tanh(tf.nn.bias_add(tf.gather(words, feed.read[rows]) @ w.E, w.e))
        hidden, c, gates = step(tf.nn.bias_add(x @ w.W, w.b) + recurrent, c)
        step_loss, share = score_step(hidden @ w.W_out, feed.labels[rows])
        parts = (x, hidden, share, *gates)
        kept = tuple(array.write(t, part) for array, part in zip(kept, parts, strict=True))
        recurrent = tf.matmul(hidden[: after[t]], w.U)
        return t + 1, loss + step_loss, recurrent, c[: after[t]], *kept

    sizes = (w.e.shape[0], h, n_words, *[h] * len(Gates._fields))
    arrays = [steps.make_array(size) for size in sizes]
    rows = tf.TensorShape([None, 4 * h]), tf.TensorShape([None, h])
    _, loss, _, _, *arrays = tf.while_loop(
        lambda t, *_: t < n_steps,
        run_step,
        (0, tf.zeros(()), tf.matmul(h_0, w.U), c_0, *arrays),
        shape_invariants=(SCALAR, SCALAR, *rows, *[ANY] * len(arrays)),
        parallel_iterations=1,  # a step's loss precedes the next step
        maximum_iterations=n_steps,
    )
    return loss, arrays


def _embed_words(weights: Variables, side: str, words: Any) -> Any:
    """Return tanh(E x + b_E) of words (n,), (n, h)."""
    vectors = tf.gather(weights[f"{side}_embedding"], words)
    return tf.tanh(tf.nn.bias_add(vectors @ weights[f"E_{side}"], weights[f"b_E_{side}"]))


SIDE_BY_SIDE = {"seq2seq": Seq2Seq, "seq2seq_at_once": Seq2SeqAtOnce}
