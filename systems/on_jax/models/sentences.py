"""Models of sentences in JAX: LSTMs along columns whose number decreases, with their derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.models.bilstm import DIRECTIONS
from dynbatch.harness.models.parts.lstm import format_layer_suffix
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_jax.models.layers import (
    compute_cross_entropy,
    compute_linear_cross_entropy,
    replace_rows,
    slice_rows,
)
from dynbatch.systems.on_jax.scan import (
    Given,
    Ids,
    ProgramInputs,
    pack_inputs,
    pad_vector,
    round_up,
)
from dynbatch.systems.plans.sentences import count_words, plan_stairs

UNIT = 8  # columns; a matmul of fewer rows is not faster
NamedIds = Mapping[str, Array]
Start = tuple[Array, Array]
ORDERS = (("places", "rows"), ("mirrored", "mirrored_rows"))  # along and against the sentence


class ColumnSizes(NamedTuple):
    """Sizes that a program is compiled for.

    Attributes:
        widths: columns of the rectangles, the widest first. The number of steps of each is data, so
            that a program serves any lengths.
        n_rows: number of rows of all steps, rounded up.
        n_words: number of words of the mini-batch, rounded up.
    """

    widths: tuple[int, ...]
    n_rows: int
    n_words: int


class SentenceColumns(NamedTuple):
    """Sizes and index vectors (see `lay_out_columns`) of a mini-batch of sentences."""

    sizes: ColumnSizes
    vectors: dict[str, NDArray[np.integer]]


def plan_inputs(
    chains: Sequence[Chain], n_widths: int, multiple: int, *, both_ways: bool
) -> ProgramInputs:
    """Return the sentences' columns, and words and labels by position (0 and -1 for padding)."""
    sizes, vectors = lay_out_columns(count_words(chains), n_widths, multiple)
    used = {name: v for name, v in vectors.items() if both_ways or "mirrored" not in name}
    words = np.concatenate([chain.words for chain in chains])
    labels = np.concatenate([chain.labels for chain in chains])
    used["words"] = pad_vector(words, sizes.n_words, 0)
    used["labels"] = pad_vector(labels, sizes.n_words, -1)
    return pack_inputs(sizes, slice(len(words)), used)


def lay_out_columns(lengths: Ids, n_widths: int, multiple: int) -> SentenceColumns:
    """Lay out sentences of these lengths, none of them 0, in parallel columns.

    The width of a step is the number of sentences that have not ended, rounded up to one of
    n_widths.

    The vectors are:

    - places, mirrored (n_rows,): word of every row, read forwards and backwards (the last word for
      padding).
    - rows, mirrored_rows (n_words,): row of every word (the last row, which has no gradient, for
      padding).
    - before (n_rows,): rows of the previous states, where the first states (widths[0],) come first.
    - starts (n_steps,): first row of every step.
    - bounds (len(widths) + 1,): first step of every rectangle, and the end.

    Args:
        lengths: numbers of words.
        n_widths: maximum number of widths.
        multiple: multiple to which numbers of rows and words are rounded up.
    """
    k, n = len(lengths), int(lengths.sum())
    unit = round_up(-(-k // n_widths), UNIT)
    width = round_up(k, unit)
    widths = tuple(range(width, 0, -unit))
    plan = plan_stairs(lengths)
    going = plan.widths  # number of sentences in each step
    wide = -(-going // unit) * unit
    starts = np.cumsum(wide) - wide
    n_rows, n_words = round_up(int(wide.sum()), 4 * multiple), round_up(n, multiple)
    step = np.repeat(np.arange(len(going)), going)
    column = np.arange(n) - np.repeat(np.cumsum(going) - going, going)
    row = starts[step] + column
    along, against = plan.rows.along, plan.rows.against
    earlier = np.concatenate([[0], width + starts[:-1]])[step] + column
    return SentenceColumns(
        ColumnSizes(widths, n_rows, n_words),
        {
            "places": _scatter_values(row, along, n_rows, n_words - 1),
            "mirrored": _scatter_values(row, against, n_rows, n_words - 1),
            "rows": _scatter_values(along, row, n_words, n_rows - 1),
            "mirrored_rows": _scatter_values(against, row, n_words, n_rows - 1),
            "before": _scatter_values(row, earlier, n_rows, 0),
            "starts": pad_vector(starts, round_up(len(starts), multiple), 0),
            "bounds": np.append(np.searchsorted(-wide, -np.array(widths)), len(wide)),
        },
    )


def _scatter_values(
    at: NDArray[np.integer], values: NDArray[np.integer], n: int, rest: int
) -> NDArray[np.int32]:
    result = np.full(n, rest, dtype=np.int32)
    result[at] = values
    return result


class LSTMResiduals(NamedTuple):
    """Inputs of the derivative: i, f, g, o (n, 4 h); h, c (k + n, h), first states first."""

    gates: Array
    h: Array
    c: Array


class Running(NamedTuple):
    """State of the loop: h, c (width, h), and h of all rows (n, h) or the derivative's inputs."""

    h: Array
    c: Array
    rows: Array | LSTMResiduals


class Returning(NamedTuple):
    """State of the backward loop: gradients of h and c (width, h), and of all gates (n, 4 h)."""

    h: Array
    c: Array
    gates: Array


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def run_lstms(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    starts: Sequence[Start],
    ids: NamedIds,
) -> list[Array]:
    """Run several LSTMs that step together; return h (n, h) of each.

    Args:
        widths: columns of the rectangles.
        gates: for each LSTM, the contribution of its inputs (n, 4 h), columns i, f, g, o.
        recurrent: for each LSTM, U (h, 4 h).
        starts: for each LSTM, h_0 and c_0 (k, h).
        ids: see lay_out_columns.
    """
    n = len(gates[0])
    running = [Running(h, c, jnp.zeros((n, h.shape[1]), h.dtype)) for h, c in starts]

    def keep(h: Array, rows: Array, at: Array) -> Array:
        return replace_rows(rows, h, at)

    return [state.rows for state in _forward(widths, gates, recurrent, running, ids, keep)]


def _forward(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    running: Sequence[Running],
    ids: NamedIds,
    keep: Any,
) -> Any:
    """Run all steps.

    Args:
        widths: see run_lstms.
        gates: see run_lstms.
        recurrent: see run_lstms.
        running: first states.
        ids: see run_lstms.
        keep: returns the stored rows, from a step's results, the stored rows so far, and the step's
            first row.
    """

    def advance(w: int, at: Array, x: Array, U: Array, state: Running) -> Running:
        i, f, g, o = jnp.split(slice_rows(x, at, w) + state.h @ U, 4, axis=1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * state.c + i * g
        h = o * jnp.tanh(c)
        results = h if isinstance(state.rows, Array) else (h, c, (i, f, g, o))
        return Running(h, c, keep(results, state.rows, at))

    def step(w: int, t: Array, running: Sequence[Running]) -> list[Running]:
        at = ids["starts"][t]
        return [advance(w, at, *each) for each in zip(gates, recurrent, running, strict=True)]

    for index, w in enumerate(widths):
        running = [Running(h[:w], c[:w], rows) for h, c, rows in running]
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        running = lax.fori_loop(first, end, partial(step, w), running)
    return running


def _fwd(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    starts: Sequence[Start],
    ids: NamedIds,
) -> Any:
    k, n = widths[0], len(gates[0])

    def append_zeros(first: Array) -> Array:
        return jnp.concatenate([first, jnp.zeros((n, first.shape[1]), first.dtype)])

    def keep(results: Any, rows: LSTMResiduals, at: Array) -> LSTMResiduals:
        h, c, parts = results
        return LSTMResiduals(
            replace_rows(rows.gates, jnp.concatenate(parts, axis=1), at),
            replace_rows(rows.h, h, at + k),
            replace_rows(rows.c, c, at + k),
        )

    running = [
        Running(h, c, LSTMResiduals(jnp.zeros_like(x), append_zeros(h), append_zeros(c)))
        for x, (h, c) in zip(gates, starts, strict=True)
    ]
    kept = [state.rows for state in _forward(widths, gates, recurrent, running, ids, keep)]
    return [rows.h[k:] for rows in kept], (kept, recurrent, ids)


def _bwd(widths: tuple[int, ...], saved: Any, dhs: Sequence[Array]) -> Any:
    """Return gradients of the gates, of each U (one matmul for all steps) and of first states."""
    kept, recurrent, ids = saved
    k, starts, bounds = widths[0], ids["starts"], ids["bounds"]
    earlier = jnp.concatenate([jnp.zeros(1, starts.dtype), starts[:-1] + k])

    def backpropagate_step(
        w: int, t: Array, rows: LSTMResiduals, U: Array, dh_all: Array, d: Returning
    ) -> Returning:
        at = starts[t]
        i, f, g, o = jnp.split(slice_rows(rows.gates, at, w), 4, axis=1)
        tanh_c = jnp.tanh(slice_rows(rows.c, at + k, w))
        dh = d.h + slice_rows(dh_all, at, w)
        dc = d.c + dh * o * (1 - tanh_c * tanh_c)
        di, df, dg = dc * g, dc * slice_rows(rows.c, earlier[t], w), dc * i
        parts = [di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), dh * tanh_c * o * (1 - o)]
        gates = jnp.concatenate(parts, axis=1)
        return Returning(gates @ U.T, dc * f, replace_rows(d.gates, gates, at))

    def step(w: int, last: Array, s: Array, returning: Sequence[Returning]) -> list[Returning]:
        each = zip(kept, recurrent, dhs, returning, strict=True)
        return [backpropagate_step(w, last - s, *arguments) for arguments in each]

    none = [jnp.zeros((0, len(U)), U.dtype) for U in recurrent]
    d = [
        Returning(zero, zero, jnp.zeros_like(rows.gates))
        for zero, rows in zip(none, kept, strict=True)
    ]
    for index, w in reversed(list(enumerate(widths))):
        n_steps = bounds[index + 1] - bounds[index]
        d = [Returning(_pad_rows(x.h, w), _pad_rows(x.c, w), x.gates) for x in d]
        d = lax.fori_loop(0, n_steps, partial(step, w, bounds[index + 1] - 1), d)
    dU = [rows.h[ids["before"]].T @ x.gates for rows, x in zip(kept, d, strict=True)]
    return [x.gates for x in d], dU, [(x.h, x.c) for x in d], None


def _pad_rows(x: Array, w: int) -> Array:
    """Return the rows, padded with zeros to w rows."""
    return jnp.concatenate([x, jnp.zeros((w - len(x), x.shape[1]), x.dtype)])


run_lstms.defvjp(_fwd, _bwd)


class SentenceNetwork:
    """Base class of the models of sentences.

    Attributes:
        both_ways: True if sentences are also read backwards.
    """

    tables: Mapping[str, str] = {"embedding": "words"}
    both_ways: ClassVar[bool]

    def __init__(self, model: Model, options: Any) -> None:
        self.layers = [format_layer_suffix(k) for k in range(1, model.options["layers"] + 1)]
        self.options = options

    def plan(self, chains: Sequence[Chain]) -> ProgramInputs:
        """Return the columns of the sentences, and words and labels by position."""
        widths, multiple = self.options.widths, self.options.multiple
        return plan_inputs(chains, widths, multiple, both_ways=self.both_ways)


class VarLSTM(SentenceNetwork):
    """Equations of dynbatch.harness.models.var_lstm over columns of words."""

    both_ways = False

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the input of the output layer (n_words, h)."""
        weights, vectors, ids, sizes = given
        x = vectors["embedding"]
        for suffix in self.layers:
            U = weights[f"U{suffix}"]
            gates = (x @ weights[f"W{suffix}"] + weights[f"b{suffix}"])[ids["places"]]
            zeros = jnp.zeros((sizes.widths[0], U.shape[0]), U.dtype)
            x = run_lstms(sizes.widths, [gates], [U], [(zeros, zeros)], ids)[0][ids["rows"]]
        return compute_linear_cross_entropy(x, weights["W_out"], weights["b_out"], ids["labels"]), x

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the logits of all words."""
        return hidden @ weights["W_out"] + weights["b_out"]


class BiLSTM(SentenceNetwork):
    """Equations of harness/models/bilstm.py over columns of words; one loop for both directions."""

    both_ways = True

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and the input of the classifier (n_words, mlp_size)."""
        weights, vectors, ids, sizes = given
        x = [vectors["embedding"]] * 2
        for layer in self.layers:
            names = [f"_{direction}{layer}" for direction in DIRECTIONS]
            gates = [
                (read @ weights[f"W{name}"] + weights[f"b{name}"])[ids[places]]
                for read, name, (places, _) in zip(x, names, ORDERS, strict=True)
            ]
            U = [weights[f"U{name}"] for name in names]
            starts = [
                tuple(
                    jnp.broadcast_to(weights[f"{state}{name}"], (sizes.widths[0], len(U[0])))
                    for state in ("h_0", "c_0")
                )
                for name in names
            ]
            hidden = run_lstms(sizes.widths, gates, U, starts, ids)
            x = [h[ids[rows]] for h, (_, rows) in zip(hidden, ORDERS, strict=True)]
        t = jnp.tanh(jnp.concatenate(x, axis=1) @ weights["W_tag"] + weights["b_tag"])
        return compute_cross_entropy(self.outputs(weights, t), ids["labels"]), t

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the scores of the tags of all words."""
        return hidden @ weights["W_out"]


NETWORKS = {
    "var_lstm": VarLSTM,
    "bilstm": BiLSTM,
}
