"""LSTMs along columns of sentences whose number decreases, with a hand-written derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from dynbatch.systems.on_jax.models.layers import (
    pad_rows,
    replace_rows,
    slice_columns,
    slice_rows,
)
from dynbatch.systems.on_jax.scan import pad_vector, round_up, scatter_values
from dynbatch.systems.plans.sentences import Lengths, plan_stairs

UNIT = 8  # columns; a matmul of fewer rows is not faster
NamedIds = Mapping[str, Array]
States = tuple[Array, Array]  # h and c
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


def lay_out_columns(lengths: Lengths, n_widths: int, multiple: int) -> SentenceColumns:
    """Lay out sentences of these lengths in parallel columns.

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
    plan, _ = plan_stairs(lengths)
    going = plan.widths  # number of sentences in each step
    wide = -(-going // unit) * unit
    starts = np.cumsum(wide) - wide
    n_rows, n_words = round_up(int(wide.sum()), 4 * multiple), round_up(n, multiple)
    step = np.repeat(np.arange(len(going)), going)
    column = np.arange(n) - np.repeat(np.cumsum(going) - going, going)
    row = starts[step] + column
    earlier = np.concatenate([[0], width + starts[:-1]])[step] + column
    return SentenceColumns(
        ColumnSizes(widths, n_rows, n_words),
        {
            "places": scatter_values(row, plan.along, n_rows, n_words - 1),
            "mirrored": scatter_values(row, plan.against, n_rows, n_words - 1),
            "rows": scatter_values(plan.along, row, n_words, n_rows - 1),
            "mirrored_rows": scatter_values(plan.against, row, n_words, n_rows - 1),
            "before": scatter_values(row, earlier, n_rows, 0),
            "starts": pad_vector(starts, round_up(len(starts), multiple), 0),
            "bounds": np.append(np.searchsorted(-wide, -np.array(widths)), len(wide)),
        },
    )


class LSTMResiduals(NamedTuple):
    """Inputs of the derivative: i, f, g, o (n, 4 h); h, c (k + n, h), first states first."""

    gates: Array
    h: Array
    c: Array


class Running(NamedTuple):
    """State of the loop: h, c (width, h), and those of all rows or the derivative's inputs."""

    h: Array
    c: Array
    rows: States | LSTMResiduals


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
    starts: Sequence[States],
    ids: NamedIds,
) -> list[States]:
    """Run several LSTMs that step together; return h and c (n, h) of each.

    XLA omits what is not used, such as c in inference.

    Args:
        widths: columns of the rectangles.
        gates: for each LSTM, the contribution of its inputs (n, 4 h), columns i, f, g, o.
        recurrent: for each LSTM, U (h, 4 h).
        starts: for each LSTM, h_0 and c_0 (k, h).
        ids: see lay_out_columns.
    """
    n = len(gates[0])
    none = [jnp.zeros((n, len(U)), U.dtype) for U in recurrent]
    running = [Running(h, c, (x, x)) for x, (h, c) in zip(none, starts, strict=True)]

    def keep(results: Any, rows: States, at: Array) -> States:
        h, c, _ = results
        return replace_rows(rows[0], h, at), replace_rows(rows[1], c, at)

    return [state.rows for state in _forward(widths, gates, recurrent, running, ids, keep)]


def _forward(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    running: Sequence[Running],
    ids: NamedIds,
    keep: Any,
) -> Any:
    """Run all steps; for other arguments, see run_lstms.

    Args:
        running: first states.
        keep: returns the stored rows, from a step's results, the stored rows so far, and the step's
            first row.
    """

    def advance(w: int, at: Array, x: Array, U: Array, state: Running) -> Running:
        by_state = jnp.split(state.h @ U, 4, axis=1)
        given = zip(slice_columns(x, at, w, 4), by_state, strict=True)
        i, f, g, o = (own + part for own, part in given)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * state.c + i * g
        h = o * jnp.tanh(c)
        return Running(h, c, keep((h, c, (i, f, g, o)), state.rows, at))

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
    starts: Sequence[States],
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
    return [(rows.h[k:], rows.c[k:]) for rows in kept], (kept, recurrent, ids)


def backpropagate_lstms(widths: tuple[int, ...], saved: Any, dstates: Sequence[States]) -> Any:
    """Return gradients of the gates, of each U (one matmul for all steps) and of first states."""
    kept, recurrent, ids = saved
    k, starts, bounds = widths[0], ids["starts"], ids["bounds"]
    earlier = jnp.concatenate([jnp.zeros(1, starts.dtype), starts[:-1] + k])

    def backpropagate_step(
        w: int, t: Array, rows: LSTMResiduals, U: Array, of_rows: States, d: Returning
    ) -> Returning:
        at = starts[t]
        i, f, g, o = slice_columns(rows.gates, at, w, 4)
        tanh_c = jnp.tanh(slice_rows(rows.c, at + k, w))
        dh, dc = (x + slice_rows(y, at, w) for x, y in zip(d[:2], of_rows, strict=True))
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        di, df, dg = dc * g, dc * slice_rows(rows.c, earlier[t], w), dc * i
        parts = [di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), dh * tanh_c * o * (1 - o)]
        gates = jnp.concatenate(parts, axis=1)
        return Returning(gates @ U.T, dc * f, replace_rows(d.gates, gates, at))

    def step(w: int, last: Array, s: Array, returning: Sequence[Returning]) -> list[Returning]:
        each = zip(kept, recurrent, dstates, returning, strict=True)
        return [backpropagate_step(w, last - s, *arguments) for arguments in each]

    none = [jnp.zeros((0, len(U)), U.dtype) for U in recurrent]
    d = [
        Returning(zero, zero, jnp.zeros_like(rows.gates))
        for zero, rows in zip(none, kept, strict=True)
    ]
    for index, w in reversed(list(enumerate(widths))):
        n_steps = bounds[index + 1] - bounds[index]
        d = [Returning(pad_rows(x.h, w), pad_rows(x.c, w), x.gates) for x in d]
        d = lax.fori_loop(0, n_steps, partial(step, w, bounds[index + 1] - 1), d)
    dU = [rows.h[ids["before"]].T @ x.gates for rows, x in zip(kept, d, strict=True)]
    return [x.gates for x in d], dU, [(x.h, x.c) for x in d], None


run_lstms.defvjp(_fwd, backpropagate_lstms)


def repeat_start(weights: Mapping[str, Array], suffix: str, k: int) -> States:
    """Return the learned initial states h_0 and c_0 of an LSTM for all columns (k, h)."""
    h_0, c_0 = (jnp.tile(weights[f"{name}{suffix}"], (k, 1)) for name in ("h_0", "c_0"))
    return h_0, c_0


def make_zero_start(weights: Mapping[str, Array], suffix: str, k: int) -> States:
    """Return initial states of zeros for all columns (k, h)."""
    U = weights[f"U{suffix}"]
    zeros = jnp.zeros((k, len(U)), U.dtype)
    return zeros, zeros


def run_both_directions(
    x: Sequence[Array],
    weights: Mapping[str, Array],
    suffixes: Sequence[str],
    starts: Sequence[States],
    widths: tuple[int, ...],
    ids: NamedIds,
) -> list[Array]:
    """Run one LSTM along and one against the sentences; return h of every word (n_words, h).

    For other arguments, see run_lstms.

    Args:
        x: inputs of each LSTM (n_words, n_inputs).
        weights: W, U and b, whose names end with the LSTM's suffix.
    """
    gates = [
        (own @ weights[f"W{suffix}"] + weights[f"b{suffix}"])[ids[places]]
        for own, suffix, (places, _) in zip(x, suffixes, ORDERS, strict=True)
    ]
    recurrent = [weights[f"U{suffix}"] for suffix in suffixes]
    states = run_lstms(widths, gates, recurrent, starts, ids)
    return [h[ids[rows]] for (h, _), (_, rows) in zip(states, ORDERS, strict=True)]
