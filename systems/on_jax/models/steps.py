"""Scores and losses of models that compute them step by step, before the next step."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from dynbatch.systems.on_jax.models.layers import replace_rows, slice_rows


class ScoreWeights(NamedTuple):
    """Weight (n_inputs, n_classes) and bias (n_classes,) of the scores, or None."""

    weight: Array
    bias: Array | None


class StepScores(NamedTuple):
    """Summed loss so far, and the gradient of every score (n_rows, n_classes) if it is kept."""

    loss: Array
    d: Array


def start_scores(n_rows: int, output: ScoreWeights, *, keep: bool) -> StepScores:
    """Return the scores before the first step."""
    weight = output.weight
    kept = (n_rows, weight.shape[1]) if keep else (0, 0)
    return StepScores(jnp.zeros((), weight.dtype), jnp.zeros(kept, weight.dtype))


def add_scores(
    scores: StepScores, hidden: Array, output: ScoreWeights, labels: Array, at: Array, *, keep: bool
) -> StepScores:
    """Add a step's scores of rows (w, n_inputs), whose first row is `at`.

    Rows with a negative label do not count.
    """
    own = slice_rows(labels, at, len(hidden))
    real, own = (own >= 0)[:, None], jnp.maximum(own, 0)[:, None]
    logits = hidden @ output.weight
    if output.bias is not None:
        logits = logits + output.bias
    largest = jnp.max(logits, axis=1, keepdims=True)
    powers = jnp.exp(logits - largest)
    total = jnp.sum(powers, axis=1, keepdims=True)
    right = jnp.take_along_axis(logits, own, axis=1)
    loss = scores.loss + jnp.sum(jnp.where(real, jnp.log(total) + largest - right, 0))
    if not keep:
        return StepScores(loss, scores.d)
    is_right = jnp.arange(logits.shape[1]) == own
    d = jnp.where(real, powers / total - is_right, 0)
    return StepScores(loss, replace_rows(scores.d, d, at))
