"""States of all vertices of trees: one loop over chunks for every width, its derivative by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from systems.on_jax.parts.lstm import replaced, sliced
from systems.on_jax.parts.tree_rows import UNIT, TreeSizes

States = tuple[Array, ...]  # of some vertices, (n, width) each
Weights = Mapping[str, Array]


class Children(NamedTuple):
    """States of the left and the right child of some vertices."""

    left: States
    right: States


class Cell(Protocol):
    """The inner vertices of a model; hashable, since a program is compiled for it.

    `forward` gives their states, and what `backward` reads. `backward` gives the gradients of the
    children's states, and those of all products with weights, of which `gradients` makes the
    gradients of the weights for all rows at once.
    """

    def forward(self, weights: Weights, children: Children) -> tuple[States, States]: ...

    def backward(
        self, weights: Weights, kept: States, own: States, children: Children, d: States
    ) -> tuple[Children, States]: ...

    def gradients(self, children: Children, kept: States, d: States) -> dict[str, Array]: ...


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def tree_states(
    cell: Cell, sizes: TreeSizes, weights: Weights, leaves: States, ids: Mapping[str, Array]
) -> States:
    """States of all rows (n_leaves + n_inner, width), from those of the leaves.

    ids: see systems.on_jax.parts.tree_rows. Padding is computed and never read; no gradient flows
    into it.
    """
    return _forward(cell, sizes, weights, leaves, ids, keep=False)[0]


def _forward(
    cell: Cell,
    sizes: TreeSizes,
    weights: Weights,
    leaves: States,
    ids: Mapping[str, Array],
    *,
    keep: bool,
) -> tuple[States, States]:
    def room(like: Any, n: int) -> Array:
        return jnp.zeros((n, like.shape[1]), like.dtype)

    states = tuple(jnp.concatenate([x, room(x, sizes.n_inner)]) for x in leaves)
    shapes = jax.eval_shape(cell.forward, weights, Children(leaves, leaves))[1]
    kept = tuple(room(shape, sizes.n_inner) for shape in shapes) if keep else ()

    def chunk(w: int, first: Array, t: Any, carried: Any) -> Any:
        states, kept = carried
        at = first + t * w
        new, found = cell.forward(weights, _children(states, ids, at, w))
        states = tuple(
            replaced(x, y, sizes.n_leaves + at) for x, y in zip(states, new, strict=True)
        )
        if keep:
            kept = tuple(replaced(x, y, at) for x, y in zip(kept, found, strict=True))
        return states, kept

    carried = states, kept
    for place, w in enumerate(sizes.widths):
        step = partial(chunk, w, ids["firsts"][place])
        carried = lax.fori_loop(0, ids["counts"][place], step, carried)
    return carried


def _children(states: States, ids: Mapping[str, Array], at: Array, w: int) -> Children:
    left, right = sliced(ids["left"], at, w), sliced(ids["right"], at, w)
    return Children(tuple(x[left] for x in states), tuple(x[right] for x in states))


def _fwd(cell: Cell, sizes: TreeSizes, weights: Any, leaves: States, ids: Any) -> Any:
    states, kept = _forward(cell, sizes, weights, leaves, ids, keep=True)
    return states, (weights, states, kept, ids)


def _bwd(cell: Cell, sizes: TreeSizes, saved: Any, dstates: States) -> Any:
    weights, states, kept, ids = saved
    n = sizes.n_inner

    def chunk(w: int, last: Array, t: Any, carried: Any) -> Any:
        below, d = carried
        at = last - t * w
        places = sliced(ids["places"], sizes.n_leaves + at, w)
        own = tuple(sliced(x, sizes.n_leaves + at, w) for x in states)
        d_own = tuple(
            sliced(x, sizes.n_leaves + at, w) + _given(y, places)
            for x, y in zip(dstates, below, strict=True)
        )
        of_rows = tuple(sliced(x, at, w) for x in kept)
        children = _children(states, ids, at, w)
        dchildren, found = cell.backward(weights, of_rows, own, children, d_own)
        below = tuple(
            lax.dynamic_update_slice(x, jnp.stack([left, right]), (0, at, 0))
            for x, left, right in zip(below, *dchildren, strict=True)
        )
        return below, tuple(replaced(x, y, at) for x, y in zip(d, found, strict=True))

    below = tuple(jnp.zeros((2, n + UNIT, x.shape[1]), x.dtype) for x in states)
    everywhere = Children(
        tuple(x[ids["left"]] for x in states), tuple(x[ids["right"]] for x in states)
    )
    inner = tuple(x[sizes.n_leaves :] for x in states)
    shapes = jax.eval_shape(cell.backward, weights, kept, inner, everywhere, inner)[1]
    carried = below, tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)
    for place, w in reversed(list(enumerate(sizes.widths))):
        count = ids["counts"][place]
        step: Callable[..., Any] = partial(chunk, w, ids["firsts"][place] + (count - 1) * w)
        carried = lax.fori_loop(0, count, step, carried)
    below, d = carried
    dleaves = tuple(
        x[: sizes.n_leaves] + _given(y, ids["places"][: sizes.n_leaves])
        for x, y in zip(dstates, below, strict=True)
    )
    return cell.gradients(everywhere, kept, d), dleaves, None


def _given(below: Array, places: Array) -> Array:
    """What parents have left for their children."""
    return below.reshape(-1, below.shape[2])[places]


tree_states.defvjp(_fwd, _bwd)
