"""LSTMs along columns that get fewer: one loop for every width, and a derivative by hand.

What autodiff makes of the loops adds up the gradient of U step by step; here it is one product over
all steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Ids = Mapping[str, Array]
Start = tuple[Array, Array]


class Kept(NamedTuple):
    """What the derivative reads: i, f, g, o (n, 4 h); h, c (k + n, h), k first states first."""

    gates: Array
    h: Array
    c: Array


class Running(NamedTuple):
    """What a step hands to the next: h, c (width, h), and h of all rows (n, h), or what is kept."""

    h: Array
    c: Array
    rows: Array | Kept


class Returning(NamedTuple):
    """The way back: gradients of h and c (width, h), and of the gates of all rows (n, 4 h)."""

    h: Array
    c: Array
    gates: Array


def sliced(x: Array, at: Array, n: int) -> Array:
    """Rows at to at + n."""
    return lax.dynamic_slice_in_dim(x, at, n)


def replaced(x: Array, rows: Array, at: Array) -> Array:
    """x with these rows from `at` on; in place where a loop carries x."""
    return lax.dynamic_update_slice_in_dim(x, rows, at, 0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def lstms(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    starts: Sequence[Start],
    ids: Ids,
) -> list[Array]:
    """h (n, h) of several LSTMs that step together, each from what its inputs give to its gates.

    gates: of each (n, 4 h), columns i, f, g, o. recurrent: of each U (h, 4 h). starts: of each h_0
    and c_0 (k, h). ids: see systems.on_jax.parts.columns.
    """
    n = len(gates[0])
    running = [Running(h, c, jnp.zeros((n, h.shape[1]), h.dtype)) for h, c in starts]

    def keep(h: Array, rows: Array, at: Array) -> Array:
        return replaced(rows, h, at)

    return [state.rows for state in _forward(widths, gates, recurrent, running, ids, keep)]


def _forward(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    running: Sequence[Running],
    ids: Ids,
    keep: Any,
) -> Any:
    """Run all steps; keep: from a step's results, what is there, and the step's first row."""

    def advance(w: int, at: Array, x: Array, U: Array, state: Running) -> Running:
        i, f, g, o = jnp.split(sliced(x, at, w) + state.h @ U, 4, axis=1)
        i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
        c = f * state.c + i * g
        h = o * jnp.tanh(c)
        found = h if isinstance(state.rows, Array) else (h, c, (i, f, g, o))
        return Running(h, c, keep(found, state.rows, at))

    def step(w: int, t: Array, running: Sequence[Running]) -> list[Running]:
        at = ids["starts"][t]
        return [advance(w, at, *each) for each in zip(gates, recurrent, running, strict=True)]

    for place, w in enumerate(widths):
        running = [Running(h[:w], c[:w], rows) for h, c, rows in running]
        first, end = ids["bounds"][place], ids["bounds"][place + 1]
        running = lax.fori_loop(first, end, partial(step, w), running)
    return running


def _fwd(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    starts: Sequence[Start],
    ids: Ids,
) -> Any:
    k, n = widths[0], len(gates[0])

    def room(first: Array) -> Array:
        return jnp.concatenate([first, jnp.zeros((n, first.shape[1]), first.dtype)])

    def keep(found: Any, rows: Kept, at: Array) -> Kept:
        h, c, parts = found
        return Kept(
            replaced(rows.gates, jnp.concatenate(parts, axis=1), at),
            replaced(rows.h, h, at + k),
            replaced(rows.c, c, at + k),
        )

    running = [
        Running(h, c, Kept(jnp.zeros_like(x), room(h), room(c)))
        for x, (h, c) in zip(gates, starts, strict=True)
    ]
    kept = [state.rows for state in _forward(widths, gates, recurrent, running, ids, keep)]
    return [rows.h[k:] for rows in kept], (kept, recurrent, ids)


def _bwd(widths: tuple[int, ...], saved: Any, dhs: Sequence[Array]) -> Any:
    """Gradients of the gates, of each U in one product over all steps, and of the first states."""
    kept, recurrent, ids = saved
    k, starts, bounds = widths[0], ids["starts"], ids["bounds"]
    earlier = jnp.concatenate([jnp.zeros(1, starts.dtype), starts[:-1] + k])

    def retreat(w: int, t: Array, rows: Kept, U: Array, dh_all: Array, d: Returning) -> Returning:
        at = starts[t]
        i, f, g, o = jnp.split(sliced(rows.gates, at, w), 4, axis=1)
        tanh_c = jnp.tanh(sliced(rows.c, at + k, w))
        dh = d.h + sliced(dh_all, at, w)
        dc = d.c + dh * o * (1 - tanh_c * tanh_c)
        di, df, dg = dc * g, dc * sliced(rows.c, earlier[t], w), dc * i
        parts = [di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), dh * tanh_c * o * (1 - o)]
        gates = jnp.concatenate(parts, axis=1)
        return Returning(gates @ U.T, dc * f, replaced(d.gates, gates, at))

    def step(w: int, last: Array, s: Array, returning: Sequence[Returning]) -> list[Returning]:
        each = zip(kept, recurrent, dhs, returning, strict=True)
        return [retreat(w, last - s, *one) for one in each]

    none = [jnp.zeros((0, len(U)), U.dtype) for U in recurrent]
    d = [
        Returning(zero, zero, jnp.zeros_like(rows.gates))
        for zero, rows in zip(none, kept, strict=True)
    ]
    for place, w in reversed(list(enumerate(widths))):
        n_steps = bounds[place + 1] - bounds[place]
        d = [Returning(_grown(x.h, w), _grown(x.c, w), x.gates) for x in d]
        d = lax.fori_loop(0, n_steps, partial(step, w, bounds[place + 1] - 1), d)
    dU = [rows.h[ids["before"]].T @ x.gates for rows, x in zip(kept, d, strict=True)]
    return [x.gates for x in d], dU, [(x.h, x.c) for x in d], None


def _grown(x: Array, w: int) -> Array:
    """The rows and as many of zeros as make w."""
    return jnp.concatenate([x, jnp.zeros((w - len(x), x.shape[1]), x.dtype)])


lstms.defvjp(_fwd, _bwd)
