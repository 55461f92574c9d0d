"""Row access in loops, and classifiers with the summed negative log likelihood of the labels."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Saved = tuple[Array, Array, Array, Array]  # inputs of the gradients


def slice_rows(x: Array, at: Array, n: int) -> Array:
    """Return n rows, starting at row `at`."""
    return lax.dynamic_slice_in_dim(x, at, n)


def slice_columns(x: Array, at: Array, n: int, n_blocks: int) -> list[Array]:
    """Return n rows, starting at row `at`, as blocks of columns of equal width.

    XLA's CPU compiler does not vectorize the columns of a dynamic slice of whole rows.
    """
    width = x.shape[1] // n_blocks
    return [lax.dynamic_slice(x, (at, k * width), (n, width)) for k in range(n_blocks)]


def pad_rows(x: Array, n: int) -> Array:
    """Return the rows, padded with zeros to n rows."""
    return jnp.concatenate([x, jnp.zeros((n - len(x), x.shape[1]), x.dtype)])


def replace_rows(x: Array, rows: Array, at: Array) -> Array:
    """Return x with rows replaced from `at` on; in place if a loop carries x."""
    return lax.dynamic_update_slice_in_dim(x, rows, at, 0)


def compute_cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the summed loss of logits (n, n_classes), for few classes.

    Rows with a negative label do not count.
    """
    losses = jax.nn.logsumexp(logits, axis=1)
    right = jnp.take_along_axis(logits, jnp.maximum(labels, 0)[:, None], axis=1)[:, 0]
    return jnp.sum(jnp.where(labels >= 0, losses - right, 0))


@jax.custom_vjp
def compute_linear_cross_entropy(hidden: Array, weight: Array, bias: Array, labels: Array) -> Array:
    """Return the summed loss of rows (n, n_inputs); those with a negative label do not count.

    The exponentials of the logits are computed once, and the gradients reuse them in place: rows
    are scaled on the narrow side of the matmuls. The bias is an additional row of the weight, and
    its gradient one of the weight's gradient. Other forms were slower.
    """
    loss: Array = _loss(_append_ones(hidden), _append_bias(weight, bias), labels)[0]
    return loss


def _loss(hidden: Array, weight: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Return the loss and its gradient at the logits, which is (n, 1) times (n, n_classes)."""
    logits = hidden @ weight
    real, labels = (labels >= 0)[:, None], jnp.maximum(labels, 0)
    largest = jnp.max(logits, axis=1, keepdims=True)
    powers = jnp.exp(logits - largest)
    total = jnp.sum(powers, axis=1, keepdims=True)
    right = jnp.take_along_axis(logits, labels[:, None], axis=1)
    loss = jnp.sum(jnp.where(real, jnp.log(total) + largest - right, 0))
    d = powers.at[jnp.arange(len(labels)), labels].add(-total[:, 0])
    return loss, jnp.where(real, 1 / total, 0), d


def _fwd(hidden: Array, weight: Array, bias: Array, labels: Array) -> tuple[Array, Saved]:
    wide = _append_ones(hidden)
    loss, scales, d = _loss(wide, _append_bias(weight, bias), labels)
    return loss, (wide, weight, scales, d)


def _bwd(saved: Saved, dloss: Array) -> tuple[Array, Array, Array, None]:
    wide, weight, scales, d = saved
    scales = dloss * scales
    dweight = (scales * wide).T @ d
    return scales * (d @ weight.T), dweight[:-1], dweight[-1], None


def _append_ones(hidden: Array) -> Array:
    return jnp.concatenate([hidden, jnp.ones((len(hidden), 1), hidden.dtype)], axis=1)


def _append_bias(weight: Array, bias: Array) -> Array:
    return jnp.concatenate([weight, bias[None]])


compute_linear_cross_entropy.defvjp(_fwd, _bwd)


class ScoreWeights(NamedTuple):
    """Weight (n_inputs, n_classes) and bias (n_classes,), or None, of scores made step by step."""

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
