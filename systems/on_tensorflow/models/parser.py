"""Dependency parser in TensorFlow: all sentences in parallel, one decision of each per step.

A layer over the joined vectors of several tokens is a sum of one term per slot. One matmul before
the first decision computes the terms of all tokens; each step adds up the terms of the tokens that
it looks at, and computes scores and loss. Only gradients are deferred to the last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.parser import LAYERS, Parser
from dynbatch.harness.values.parsed import N_FEATURES, ParsedSentence
from dynbatch.systems.on_tensorflow.dynamic import Looped
from dynbatch.systems.on_tensorflow.layers import (
    compute_logits,
    run_lstm_layer,
    score_step,
    subtract_right,
)
from dynbatch.systems.on_tensorflow.models.sentences import StepsNetwork
from dynbatch.systems.on_tensorflow.runtime import Feeds, Variables
from dynbatch.systems.on_tensorflow.sentences import SentenceLayout
from dynbatch.systems.plans.columns import build_parsed_columns
from dynbatch.systems.plans.sentences import Stairs


class ParserFeed(NamedTuple):
    """A mini-batch of int32 arrays, which are tensors inside a program.

    Attributes:
        words: (n,), by row of `tokens`.
        tags: (n,), parts of speech by row.
        tokens: stairs of the tokens of sentences.
        decisions: stairs of the decisions.
        looked_at: (d, N_FEATURES), rows of terms, by row of `decisions`.
        labels: (d,), right decisions by row.
    """

    words: Any
    tags: Any
    tokens: Stairs
    decisions: Stairs
    looked_at: Any
    labels: Any


class ParserNetwork(StepsNetwork):
    """Equations of dynbatch.harness.models.parser."""

    unrolled = ("tokens",)

    def __init__(self, model: Model, way: SentenceLayout) -> None:
        super().__init__(model, way)
        assert isinstance(model, Parser)
        self.model = model

    def construct(self, instances: Sequence[ParsedSentence]) -> Feeds:
        """Lay out tokens and decisions; a missing token is the one after the last."""
        columns = build_parsed_columns(self.model, instances)
        lengths, words, tags, n_decisions, features, labels = columns
        tokens = self.lay_out(lengths, "tokens")
        decisions = self.lay_out(n_decisions, "decisions")
        first = np.repeat(np.cumsum(lengths) - lengths, N_FEATURES * n_decisions)
        rows = np.append(tokens.of_along, np.int32(len(words)))
        token = rows[np.where(features < 0, len(words), features + first)].reshape(-1, N_FEATURES)
        looked_at = (token * N_FEATURES + np.arange(N_FEATURES)).astype(np.int32)
        along = tokens.along
        by_decision = looked_at[decisions.along], labels[decisions.along]
        return (ParserFeed(words[along], tags[along], tokens, decisions, *by_decision),)

    def forward(self, weights: Variables, *feeds: ParserFeed) -> tuple[Any, Any]:
        (feed,) = feeds
        tokens = feed.tokens
        x = tf.concat(
            [tf.gather(weights["embedding"], feed.words), tf.gather(weights["tags"], feed.tags)], 1
        )
        # Rows of each direction, in the order of the other one.
        of_against = tf.gather(tokens.of_against, tokens.along)
        of_along = tf.gather(tokens.of_along, tokens.against)
        for layer in LAYERS:
            there = self._run_direction(weights, x, f"_forward{layer}", tokens)
            back = self._run_direction(weights, tf.gather(x, of_along), f"_backward{layer}", tokens)
            x = tf.concat([there, tf.gather(back, of_against)], 1)
        loss, hidden = decide(self._compute_terms(weights, x), weights, feed)
        return loss, (hidden, feed.decisions.of_along)

    def _run_direction(self, weights: Variables, x: Any, suffix: str, tokens: Stairs) -> Any:
        own = (weights[f"W{suffix}"], weights[f"U{suffix}"], weights[f"b{suffix}"])
        return run_lstm_layer(x, own, None, self.make_steps(tokens))[0]

    def _compute_terms(self, weights: Variables, x: Any) -> Any:
        """Return the term of every token in every slot (tokens * N_FEATURES, mlp)."""
        tokens = tf.concat([x, tf.tanh(weights["missing"])[None]], 0)
        h, mlp = tokens.shape[1], weights["b_mlp"].shape[0]
        by_slot = tf.transpose(tf.reshape(weights["W_mlp"], (N_FEATURES, h, mlp)), (1, 0, 2))
        bias = tf.concat([weights["b_mlp"], tf.zeros((N_FEATURES - 1) * mlp)], 0)
        terms = tf.nn.bias_add(tokens @ tf.reshape(by_slot, (h, N_FEATURES * mlp)), bias)
        return tf.reshape(terms, (-1, mlp))

    def outputs(self, weights: Variables, kept: Any) -> Any:
        """Return the scores of all decisions."""
        hidden, rows = kept
        return compute_logits(tf.gather(hidden, rows), weights["W_out"], weights["b_out"])


def decide(terms: Any, weights: Variables, feed: ParserFeed) -> tuple[Any, Any]:
    """Return the summed loss of all decisions, and the layer below their scores (d, mlp)."""
    widths = feed.decisions.widths
    n_steps, starts = tf.size(widths), tf.cumsum(widths, exclusive=True)
    steps = Looped(n_steps, widths, feed.decisions.before)
    mlp, n_scores = weights["W_out"].shape

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def run_decisions(terms: Any, W: Any, b: Any) -> Any:
        def run_step(t: Any, loss: Any, hidden: Any, shares: Any) -> tuple[Any, ...]:
            rows = slice(starts[t], starts[t] + widths[t])
            own = tf.tanh(tf.reduce_sum(tf.gather(terms, feed.looked_at[rows]), 1))
            step_loss, share = score_step(compute_logits(own, W, b), feed.labels[rows])
            return t + 1, loss + step_loss, hidden.write(t, own), shares.write(t, share)

        arrays = [steps.make_array(n) for n in (mlp, n_scores)]
        _, loss, *arrays = tf.while_loop(
            lambda t, *_: t < n_steps,
            run_step,
            (0, tf.zeros(()), *arrays),
            parallel_iterations=1,  # a step's loss precedes the next step
            maximum_iterations=n_steps,
        )
        hidden, shares = (array.concat() for array in arrays)

        def compute_gradients(dloss: Any, _: Any) -> tuple[Any, ...]:
            d = dloss * subtract_right(shares, feed.labels)
            dsum = tf.matmul(d, W, transpose_b=True) * (1.0 - hidden * hidden)
            repeated, looked_at = tf.repeat(dsum, N_FEATURES, 0), tf.reshape(feed.looked_at, [-1])
            dterms = tf.math.unsorted_segment_sum(repeated, looked_at, tf.shape(terms)[0])
            return dterms, tf.matmul(hidden, d, transpose_a=True), tf.reduce_sum(d, 0)

        return (loss, hidden), compute_gradients

    result: tuple[Any, Any] = run_decisions(
        terms, *(tf.convert_to_tensor(weights[name]) for name in ("W_out", "b_out"))
    )
    return result


SIDE_BY_SIDE = {"parser": ParserNetwork}
