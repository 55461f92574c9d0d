"""Dependency parser in JAX: all sentences in parallel, one decision of each per step.

A layer over the joined vectors of several tokens is a sum of one term per slot. One matmul before
the first decision computes the terms of all tokens; each step adds up the terms of the tokens that
it looks at, and computes scores and loss. Only gradients are deferred to the last step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.parser import LAYERS, Parser
from dynbatch.harness.values.parsed import N_FEATURES, ParsedSentence
from dynbatch.systems.on_jax.models.layers import (
    ScoreWeights,
    StepScores,
    add_scores,
    replace_rows,
    slice_rows,
    start_scores,
)
from dynbatch.systems.on_jax.models.lstm import (
    ColumnSizes,
    lay_out_columns,
    make_zero_start,
    run_both_directions,
)
from dynbatch.systems.on_jax.scan import (
    Given,
    ProgramInputs,
    pack_inputs,
    pad_vector,
    scatter_values,
)
from dynbatch.systems.plans.columns import build_parsed_columns

NamedIds = Mapping[str, Array]


class ParserSizes(NamedTuple):
    """Sizes that a program is compiled for: columns of tokens, and columns of decisions."""

    tokens: ColumnSizes
    decisions: ColumnSizes


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def decide(
    widths: tuple[int, ...], terms: Array, output: ScoreWeights, ids: NamedIds
) -> tuple[Array, Array]:
    """Return the summed loss of all decisions, and the layer below their scores (n_rows, mlp).

    Args:
        widths: columns of the decisions' rectangles.
        terms: (n_tokens * N_FEATURES, mlp), the term of every token in every slot.
        output: the output layer.
        ids: looked_at (n_rows * N_FEATURES,), rows of terms; labels, starts and bounds of rows.
    """
    loss, hidden, _ = _forward(widths, terms, output, ids, keep=False)
    return loss, hidden


def _forward(
    widths: tuple[int, ...], terms: Array, output: ScoreWeights, ids: NamedIds, *, keep: bool
) -> tuple[Array, Array, Array]:
    n, mlp = len(ids["labels"]), terms.shape[1]

    def step(w: int, t: Array, carried: tuple[Array, StepScores]) -> tuple[Array, StepScores]:
        hidden, scores = carried
        at = ids["starts"][t]
        rows = slice_rows(ids["looked_at"], at * N_FEATURES, w * N_FEATURES)
        own = jnp.tanh(terms[rows].reshape(w, N_FEATURES, mlp).sum(1))
        scores = add_scores(scores, own, output, ids["labels"], at, keep=keep)
        return replace_rows(hidden, own, at), scores

    carried = jnp.zeros((n, mlp), terms.dtype), start_scores(n, output, keep=keep)
    for index, w in enumerate(widths):
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        carried = lax.fori_loop(first, end, partial(step, w), carried)
    hidden, scores = carried
    return scores.loss, hidden, scores.d


def _fwd(widths: tuple[int, ...], terms: Array, output: ScoreWeights, ids: NamedIds) -> Any:
    loss, hidden, d = _forward(widths, terms, output, ids, keep=True)
    return (loss, hidden), (terms, output, hidden, d, ids["looked_at"])


def _bwd(widths: tuple[int, ...], saved: Any, given: tuple[Array, Array]) -> Any:
    """Return the gradients of terms and output; `hidden` is only for outputs and has none."""
    terms, output, hidden, d, looked_at = saved
    d = given[0] * d
    dsum = (d @ output.weight.T) * (1 - hidden * hidden)
    repeated = jnp.repeat(dsum, N_FEATURES, axis=0)
    dterms = jnp.zeros_like(terms).at[looked_at].add(repeated)
    return dterms, ScoreWeights(hidden.T @ d, d.sum(0)), None


decide.defvjp(_fwd, _bwd)


class ParserNetwork:
    """Equations of dynbatch.harness.models.parser."""

    tables: Mapping[str, str] = {"embedding": "words", "tags": "tags"}

    def __init__(self, model: Model, options: Any) -> None:
        assert isinstance(model, Parser)
        self.model, self.options = model, options

    def plan(self, sentences: Sequence[ParsedSentence]) -> ProgramInputs:
        """Lay out tokens and decisions in columns; a missing token is the one after the last."""
        widths, multiple = self.options.widths, self.options.multiple
        columns = build_parsed_columns(self.model, sentences)
        lengths, words, tags, n_steps, features, labels = columns
        tokens, vectors = lay_out_columns(lengths, widths, multiple)
        decisions, of_decisions = lay_out_columns(n_steps, widths, multiple)
        offsets = np.repeat(np.cumsum(lengths) - lengths, N_FEATURES * n_steps)
        token = np.where(features < 0, tokens.n_words, features + offsets).reshape(-1, N_FEATURES)
        rows, n_rows = of_decisions["rows"][: len(labels)], decisions.n_rows
        looked_at = np.zeros((n_rows, N_FEATURES), np.int32)
        looked_at[rows] = token * N_FEATURES + np.arange(N_FEATURES)
        vectors |= {
            "words": pad_vector(words, tokens.n_words, 0),
            "tags": pad_vector(tags, tokens.n_words, 0),
            "looked_at": looked_at.ravel(),
            "labels": scatter_values(rows, labels, n_rows, -1),
            "decision_starts": of_decisions["starts"],
            "decision_bounds": of_decisions["bounds"],
        }
        return pack_inputs(ParserSizes(tokens, decisions), rows, vectors)

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the layer below the scores of all decisions."""
        weights, vectors, ids, sizes, _ = given
        widths = sizes.tokens.widths
        x = jnp.concatenate([vectors["embedding"], vectors["tags"]], axis=1)
        for layer in LAYERS:
            suffixes = [f"_{direction}{layer}" for direction in ("forward", "backward")]
            starts = [make_zero_start(weights, suffix, widths[0]) for suffix in suffixes]
            both = run_both_directions([x, x], weights, suffixes, starts, widths, ids)
            x = jnp.concatenate(both, axis=1)
        tokens = jnp.concatenate([x, jnp.tanh(weights["missing"])[None]])
        h, mlp = x.shape[1], len(weights["b_mlp"])
        by_slot = weights["W_mlp"].reshape(N_FEATURES, h, mlp).transpose(1, 0, 2)
        terms = tokens @ by_slot.reshape(h, N_FEATURES * mlp)
        terms = terms.reshape(-1, N_FEATURES, mlp).at[:, 0].add(weights["b_mlp"])
        return decide(
            sizes.decisions.widths,
            terms.reshape(-1, mlp),
            ScoreWeights(weights["W_out"], weights["b_out"]),
            {
                "looked_at": ids["looked_at"],
                "labels": ids["labels"],
                "starts": ids["decision_starts"],
                "bounds": ids["decision_bounds"],
            },
        )

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the scores of all decisions."""
        return hidden @ weights["W_out"] + weights["b_out"]


NETWORKS = {"parser": ParserNetwork}
