"""LSTMs along columns that get fewer: one loop for every width, and a derivative by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Ids = Mapping[str, Array]


class Kept(NamedTuple):
    """What the derivative reads: i, f, g, o (n, 4 h); h, c (k + n, h), k first states first."""

    gates: Array
    h: Array
    c: Array


def sliced(x: Array, at: Array, n: int) -> Array:
    """Rows at to at + n."""
    return lax.dynamic_slice_in_dim(x, at, n)


def replaced(x: Array, rows: Array, at: Array) -> Array:
    """x with these rows from `at` on; in place where a loop carries x."""
    return lax.dynamic_update_slice_in_dim(x, rows, at, 0)


def through_gates(gates: Array) -> tuple[Array, Array, Array, Array]:
    """i, f, g, o of columns i, f, g, o."""
    i, f, g, o = jnp.split(gates, 4, axis=1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def lstms(
    widths: tuple[int, ...],
    gates: Sequence[Array],
    recurrent: Sequence[Array],
    starts: Sequence[tuple[Array, Array]],
    ids: Ids,
) -> list[Array]:
    """h (n, h) of several LSTMs that step together, each from what its inputs give to its gates.

    gates: of each (n, 4 h), columns i, f, g, o. recurrent: of each U (h, 4 h). starts: of each h_0
    and c_0 (k, h). ids: see systems.on_jax.parts.columns.
    """
    return [h for h, _ in _forward(widths, gates, recurrent, starts, ids, keep=False)]


def _forward(widths, gates, recurrent, starts, ids, *, keep):  # type: ignore[no-untyped-def]
    """Of each LSTM h of all rows, and what is kept where `keep` says so."""
    k, n = widths[0], len(gates[0])
    first, bounds = ids["starts"], ids["bounds"]
    carried = []
    for x, (h_0, c_0) in zip(gates, starts, strict=True):
        width = h_0.shape[1]
        kept = Kept(
            jnp.zeros_like(x),
            jnp.zeros((k + n, width), x.dtype).at[:k].set(h_0),
            jnp.zeros((k + n, width), x.dtype).at[:k].set(c_0),
        )
        carried.append((h_0, c_0, kept if keep else jnp.zeros((n, width), x.dtype)))

    def step(w, t, carried):  # type: ignore[no-untyped-def]
        at = first[t]
        return [
            advance(w, at, x, U, *state)
            for x, U, state in zip(gates, recurrent, carried, strict=True)
        ]

    def advance(w, at, x, U, h, c, kept):  # type: ignore[no-untyped-def]
        i, f, g, o = through_gates(sliced(x, at, w) + h @ U)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        if not keep:
            return h, c, replaced(kept, h, at)
        both = jnp.concatenate([i, f, g, o], axis=1)
        return (
            h,
            c,
            Kept(
                replaced(kept.gates, both, at),
                replaced(kept.h, h, at + k),
                replaced(kept.c, c, at + k),
            ),
        )

    for place, w in enumerate(widths):
        carried = [(h[:w], c[:w], kept) for h, c, kept in carried]
        carried = lax.fori_loop(bounds[place], bounds[place + 1], partial(step, w), carried)
    return [(kept.h[k:], kept) if keep else (kept, None) for _, _, kept in carried]


def _fwd(widths, gates, recurrent, starts, ids):  # type: ignore[no-untyped-def]
    found = _forward(widths, gates, recurrent, starts, ids, keep=True)
    return [h for h, _ in found], ([kept for _, kept in found], recurrent, ids)


def _bwd(widths, saved, dhs):  # type: ignore[no-untyped-def]
    """Gradients of the gates, of each U in one product over all steps, and of the first states."""
    kepts, recurrent, ids = saved
    k, first, bounds = widths[0], ids["starts"], ids["bounds"]
    earlier = jnp.concatenate([jnp.zeros(1, first.dtype), first[:-1] + k])
    zeros = [jnp.zeros((widths[-1], U.shape[0]), U.dtype) for U in recurrent]
    carried = [
        (zero, zero, jnp.zeros_like(kept.gates)) for zero, kept in zip(zeros, kepts, strict=True)
    ]

    def retreat(w, t, dh_all, U, kept, dh, dc, d):  # type: ignore[no-untyped-def]
        at = first[t]
        i, f, g, o = jnp.split(sliced(kept.gates, at, w), 4, axis=1)
        tanh_c = jnp.tanh(sliced(kept.c, at + k, w))
        dh = dh + sliced(dh_all, at, w)
        dc = dc + dh * o * (1 - tanh_c * tanh_c)
        di, df, dg = dc * g, dc * sliced(kept.c, earlier[t], w), dc * i
        parts = [di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), dh * tanh_c * o * (1 - o)]
        both = jnp.concatenate(parts, axis=1)
        return both @ U.T, dc * f, replaced(d, both, at)

    for place, w in reversed(list(enumerate(widths))):
        last = bounds[place + 1] - 1

        def step(s, carried, w=w, last=last):  # type: ignore[no-untyped-def]
            return [
                retreat(w, last - s, dh, U, kept, *state)
                for dh, U, kept, state in zip(dhs, recurrent, kepts, carried, strict=True)
            ]

        carried = [(grown(dh, w), grown(dc, w), d) for dh, dc, d in carried]
        carried = lax.fori_loop(0, bounds[place + 1] - bounds[place], step, carried)
    dU = [kept.h[ids["before"]].T @ d for kept, (_, _, d) in zip(kepts, carried, strict=True)]
    return [d for _, _, d in carried], dU, [(dh, dc) for dh, dc, _ in carried], None


def grown(x: Array, w: int) -> Array:
    """The rows and as many of zeros as make w."""
    return jnp.concatenate([x, jnp.zeros((w - len(x), x.shape[1]), x.dtype)])


lstms.defvjp(_fwd, _bwd)
