"""Encoder-decoders in JAX: all pairs of sentences in parallel.

seq2seq decodes step by step: each step looks up its words, and computes their scores and losses.
Only gradients are deferred to the last step. seq2seq_at_once knows all words in advance.
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
from dynbatch.harness.values.instances import SentencePair
from dynbatch.systems.on_jax.models.layers import (
    ScoreWeights,
    StepScores,
    add_scores,
    compute_linear_cross_entropy,
    pad_rows,
    replace_rows,
    slice_rows,
    start_scores,
)
from dynbatch.systems.on_jax.models.lstm import (
    ColumnSizes,
    LSTMResiduals,
    States,
    backpropagate_lstms,
    lay_out_columns,
    repeat_start,
    run_lstms,
)
from dynbatch.systems.on_jax.scan import Given, ProgramInputs, pack_inputs, pad_vector

NamedIds = Mapping[str, Array]
Weights = Mapping[str, Array]
SHARED = ("starts", "bounds", "before")  # vectors of the columns that LSTMs read


class PairSizes(NamedTuple):
    """Sizes that a program is compiled for: columns of sources, and of decoders."""

    source: ColumnSizes
    target: ColumnSizes


class PairNetwork:
    """Encoder and plan of both models."""

    tables: Mapping[str, str] = {"source_embedding": "source", "target_embedding": "read"}

    def __init__(self, model: Model, options: Any) -> None:
        self.options = options

    def plan(self, pairs: Sequence[SentencePair]) -> ProgramInputs:
        """Lay out sources and decoders in columns, which have different orders.

        Words that decoders read, and their labels, are by position, or by row if decoders run step
        by step. `last` has the row of the last word of every decoder's source.
        """
        widths, multiple = self.options.widths, self.options.multiple
        n_source = np.array([len(pair.source) for pair in pairs], dtype=np.int64)
        n_steps = np.array([pair.n_steps for pair in pairs], dtype=np.int64)
        source, of_source = lay_out_columns(n_source, widths, multiple)
        target, of_target = lay_out_columns(n_steps, widths, multiple)
        columns = of_target["rows"][np.cumsum(n_steps) - n_steps]  # rows of the first step
        last = np.zeros(target.widths[0], np.int32)
        last[columns] = of_source["rows"][np.cumsum(n_source) - 1]
        words, read, labels = (
            np.concatenate(parts)
            for parts in (
                [pair.source for pair in pairs],
                [pair.target[:-1] for pair in pairs],
                [pair.target[1:] for pair in pairs],
            )
        )
        vectors = {
            **{f"source_{name}": of_source[name] for name in (*SHARED, "places")},
            **{f"target_{name}": of_target[name] for name in (*SHARED, "places", "rows")},
            "source": pad_vector(words, source.n_words, 0),
            "read": pad_vector(read, target.n_words, 0),
            "labels": pad_vector(labels, target.n_words, -1),
            "last": last,
        }
        return self.pack(PairSizes(source, target), vectors, len(labels))

    def pack(self, sizes: PairSizes, vectors: dict[str, Any], n_outputs: int) -> ProgramInputs:
        """Return the inputs of a program, whose outputs are by position."""
        return pack_inputs(sizes, slice(n_outputs), vectors)

    def encode(self, given: Given) -> States:
        """Return h and c after the last word of every decoder's source (k, h)."""
        weights, vectors, ids, sizes, _ = given
        x = embed_words(weights, "source", vectors["source_embedding"])
        gates = (x @ weights["W_source"] + weights["b_source"])[ids["source_places"]]
        widths, start = sizes.source.widths, repeat_start(weights, "", sizes.source.widths[0])
        own = select_columns(ids, "source")
        ((h, c),) = run_lstms(widths, [gates], [weights["U_source"]], [start], own)
        return h[ids["last"]], c[ids["last"]]

    def outputs(self, weights: Weights, hidden: Array) -> Array:
        """Return the scores of all predicted words."""
        return hidden @ weights["W_out"]


def embed_words(weights: Weights, side: str, vectors: Array) -> Array:
    """Return tanh(E x + b_E) of looked-up words (n, h)."""
    return jnp.tanh(vectors @ weights[f"E_{side}"] + weights[f"b_E_{side}"])


def select_columns(ids: NamedIds, side: str) -> dict[str, Array]:
    """Return the vectors of the columns of one side, by the names of lay_out_columns."""
    return {name: ids[f"{side}_{name}"] for name in SHARED}


class Seq2SeqAtOnce(PairNetwork):
    """Equations of dynbatch.harness.models.seq2seq_at_once: two LSTMs along whole sentences."""

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of the decoders by position."""
        weights, vectors, ids, sizes, _ = given
        x = embed_words(weights, "target", vectors["target_embedding"])
        gates = (x @ weights["W_target"] + weights["b_target"])[ids["target_places"]]
        widths, own = sizes.target.widths, select_columns(ids, "target")
        ((h, _),) = run_lstms(widths, [gates], [weights["U_target"]], [self.encode(given)], own)
        h, W_out = h[ids["target_rows"]], weights["W_out"]
        no_bias = jnp.zeros(W_out.shape[1], W_out.dtype)
        return compute_linear_cross_entropy(h, W_out, no_bias, ids["labels"]), h


class DecoderWeights(NamedTuple):
    """Weights of x = tanh(E word + e), an LSTM cell with W x + U h + b, and scores W_out h.

    Attributes:
        E: (n, h).
        e: (h,).
        W: (h, 4 h).
        U: (h, 4 h).
        b: (4 h,).
        W_out: (h, words).
    """

    E: Array
    e: Array
    W: Array
    U: Array
    b: Array
    W_out: Array


class DecoderRows(NamedTuple):
    """Values of all rows: x, gates i, f, g, o, and h and c, the first states first.

    Without a derivative, x, gates and c have no rows.
    """

    x: Array
    gates: Array
    h: Array
    c: Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def decode(
    widths: tuple[int, ...], w: DecoderWeights, vectors: Array, start: States, ids: NamedIds
) -> tuple[Array, Array]:
    """Return the summed loss of all decoders, and h (n_rows, h).

    Args:
        widths: columns of the decoders' rectangles.
        w: the weights.
        vectors: (n_rows, n) looked-up words. They get the gradient, but every step looks up its own
            words in `table`.
        start: h and c of the first step.
        ids: table, read, labels and before of all rows, starts and bounds.
    """
    loss, rows, _ = _decode(widths, w, start, ids, keep=False)
    return loss, rows.h[len(start[0]) :]


def _decode(
    widths: tuple[int, ...], w: DecoderWeights, start: States, ids: NamedIds, *, keep: bool
) -> tuple[Array, DecoderRows, StepScores]:
    n, output, k = len(ids["read"]), ScoreWeights(w.W_out, None), widths[0]

    def step(width: int, t: Array, carried: Any) -> Any:
        h, c, rows, scores = carried
        at = ids["starts"][t]
        x = jnp.tanh(ids["table"][slice_rows(ids["read"], at, width)] @ w.E + w.e)
        i, f, g, o = jnp.split(x @ w.W + h @ w.U + w.b, 4, axis=1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        scores = add_scores(scores, h, output, ids["labels"], at, keep=keep)
        rows = rows._replace(h=replace_rows(rows.h, h, at + k))
        if keep:
            rows = DecoderRows(
                replace_rows(rows.x, x, at),
                replace_rows(rows.gates, jnp.concatenate([i, f, g, o], axis=1), at),
                rows.h,
                replace_rows(rows.c, c, at + k),
            )
        return h, c, rows, scores

    n_kept = n if keep else 0
    rows = DecoderRows(
        jnp.zeros((n_kept, len(w.e)), w.e.dtype),
        jnp.zeros((n_kept, len(w.b)), w.b.dtype),
        *(pad_rows(x, n + k) for x in start),
    )
    carried: Any = *start, rows, start_scores(n, output, keep=keep)
    for index, width in enumerate(widths):
        h, c, *others = carried
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        carried = lax.fori_loop(first, end, partial(step, width), (h[:width], c[:width], *others))
    _, _, rows, scores = carried
    return scores.loss, rows, scores


def _fwd(
    widths: tuple[int, ...], w: DecoderWeights, vectors: Array, start: States, ids: NamedIds
) -> Any:
    loss, rows, scores = _decode(widths, w, start, ids, keep=True)
    return (loss, rows.h[len(start[0]) :]), (w, vectors, rows, scores.d, ids)


def _bwd(widths: tuple[int, ...], saved: Any, given: tuple[Array, Array]) -> Any:
    """Return the gradients of weights, vectors and start; h is only for outputs and has none."""
    w, vectors, rows, d, ids = saved
    d, h = given[0] * d, rows.h[widths[0] :]
    residuals = LSTMResiduals(rows.gates, rows.h, rows.c)
    dstates = d @ w.W_out.T, jnp.zeros_like(h)
    (dgates,), (dU,), (dstart,), _ = backpropagate_lstms(
        widths, ([residuals], [w.U], ids), [dstates]
    )
    dx = (dgates @ w.W.T) * (1 - rows.x * rows.x)
    dweights = DecoderWeights(
        E=vectors.T @ dx,
        e=dx.sum(0),
        W=rows.x.T @ dgates,
        U=dU,
        b=dgates.sum(0),
        W_out=h.T @ d,
    )
    return dweights, dx @ w.E.T, dstart, None


decode.defvjp(_fwd, _bwd)


class Seq2Seq(PairNetwork):
    """Equations of dynbatch.harness.models.seq2seq: decoders run step by step."""

    def pack(self, sizes: PairSizes, vectors: dict[str, Any], n_outputs: int) -> ProgramInputs:
        """Return the inputs of a program, with words that decoders read and labels by row."""
        rows, n_rows = vectors["target_rows"][:n_outputs], sizes.target.n_rows
        read, labels = np.zeros(n_rows, np.int32), np.full(n_rows, -1, np.int32)
        read[rows], labels[rows] = vectors["read"][:n_outputs], vectors["labels"][:n_outputs]
        vectors |= {"read": read, "labels": labels}
        del vectors["target_rows"], vectors["target_places"]
        return pack_inputs(sizes, rows, vectors)

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of the decoders by row."""
        weights, vectors, ids, sizes, tables = given
        names = ("E_target", "b_E_target", "W_target", "U_target", "b_target", "W_out")
        own = {
            **select_columns(ids, "target"),
            **{name: ids[name] for name in ("read", "labels")},
            "table": tables["target_embedding"],
        }
        w = DecoderWeights(*(weights[name] for name in names))
        looked_up, start = vectors["target_embedding"], self.encode(given)
        return decode(sizes.target.widths, w, looked_up, start, own)


NETWORKS = {"seq2seq": Seq2Seq, "seq2seq_at_once": Seq2SeqAtOnce}
