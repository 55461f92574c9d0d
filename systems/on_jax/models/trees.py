"""States of all tree vertices: one loop over chunks per width, with a hand-written derivative."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Tree
from dynbatch.systems.on_jax.models.layers import compute_cross_entropy, replace_rows, slice_rows
from dynbatch.systems.on_jax.models.tree_rows import (
    UNIT,
    TreeSizes,
    assign_tree_rows,
    choose_chunk_size,
    halve_width,
)
from dynbatch.systems.on_jax.scan import Given, ProgramInputs, pack_inputs

States = tuple[Array, ...]  # states of some vertices, (n, width) each
Weights = Mapping[str, Array]


class ChildStates(NamedTuple):
    """States of the left and the right child of some vertices."""

    left: States
    right: States


class Gradients(NamedTuple):
    """Results of the backward pass of a chunk.

    Attributes:
        rows: gradients of matmul results, (n, width) each.
    """

    children: ChildStates
    rows: States


class InnerCell(Protocol):
    """Inner vertices of a model; hashable, because it is a static argument of programs.

    `forward` returns their states, and the values that `backward` reads. `gradients` computes the
    gradients of weights for all rows together, from the gradients of matmul results.
    """

    def forward(self, weights: Weights, children: ChildStates) -> tuple[States, States]: ...

    def backward(
        self, weights: Weights, kept: States, own: States, children: ChildStates, d: States
    ) -> Gradients: ...

    def gradients(self, children: ChildStates, d: States) -> dict[str, Array]: ...


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def compute_tree_states(
    cell: InnerCell, sizes: TreeSizes, weights: Weights, leaves: States, ids: Mapping[str, Array]
) -> States:
    """Return the states of all rows (n_leaves + n_inner, width), from those of the leaves.

    Padding is computed but never read, and has no gradient. For ids, see assign_tree_rows.
    """
    return _forward(cell, sizes, weights, leaves, ids, keep=False)[0]


def _forward(
    cell: InnerCell,
    sizes: TreeSizes,
    weights: Weights,
    leaves: States,
    ids: Mapping[str, Array],
    *,
    keep: bool,
) -> tuple[States, States]:
    def make_zeros(like: Any, n: int) -> Array:
        return jnp.zeros((n, like.shape[1]), like.dtype)

    states = tuple(jnp.concatenate([x, make_zeros(x, sizes.n_inner)]) for x in leaves)
    shapes = jax.eval_shape(cell.forward, weights, ChildStates(leaves, leaves))[1]
    kept = tuple(make_zeros(shape, sizes.n_inner) for shape in shapes) if keep else ()

    def run_chunk(w: int, first: Array, t: Any, carried: Any) -> Any:
        states, kept = carried
        at = first + t * w
        new, saved = cell.forward(weights, _gather_children(states, ids, at, w))
        states = tuple(
            replace_rows(x, y, sizes.n_leaves + at) for x, y in zip(states, new, strict=True)
        )
        if keep:
            kept = tuple(replace_rows(x, y, at) for x, y in zip(kept, saved, strict=True))
        return states, kept

    carried = states, kept
    for index, w in enumerate(sizes.widths):
        step = partial(run_chunk, w, ids["firsts"][index])
        carried = lax.fori_loop(0, ids["counts"][index], step, carried)
    return carried


def _gather_children(states: States, ids: Mapping[str, Array], at: Array, w: int) -> ChildStates:
    left, right = slice_rows(ids["left"], at, w), slice_rows(ids["right"], at, w)
    return ChildStates(tuple(x[left] for x in states), tuple(x[right] for x in states))


def _fwd(cell: InnerCell, sizes: TreeSizes, weights: Any, leaves: States, ids: Any) -> Any:
    states, kept = _forward(cell, sizes, weights, leaves, ids, keep=True)
    return states, (weights, states, kept, ids)


def _bwd(cell: InnerCell, sizes: TreeSizes, saved: Any, dstates: States) -> Any:
    weights, states, kept, ids = saved
    n = sizes.n_inner

    def backpropagate_chunk(w: int, last: Array, t: Any, carried: Any) -> Any:
        below, d = carried
        at = last - t * w
        places = slice_rows(ids["places"], sizes.n_leaves + at, w)
        own = tuple(slice_rows(x, sizes.n_leaves + at, w) for x in states)
        d_own = tuple(
            slice_rows(x, sizes.n_leaves + at, w) + _gather_gradients(y, places)
            for x, y in zip(dstates, below, strict=True)
        )
        of_rows = tuple(slice_rows(x, at, w) for x in kept)
        children = _gather_children(states, ids, at, w)
        dchildren, rows = cell.backward(weights, of_rows, own, children, d_own)
        below = tuple(
            lax.dynamic_update_slice(x, jnp.stack([left, right]), (0, at, 0))
            for x, left, right in zip(below, *dchildren, strict=True)
        )
        return below, tuple(replace_rows(x, y, at) for x, y in zip(d, rows, strict=True))

    below = tuple(jnp.zeros((2, n + UNIT, x.shape[1]), x.dtype) for x in states)
    everywhere = ChildStates(
        tuple(x[ids["left"]] for x in states), tuple(x[ids["right"]] for x in states)
    )
    inner = tuple(x[sizes.n_leaves :] for x in states)
    shapes = jax.eval_shape(cell.backward, weights, kept, inner, everywhere, inner).rows
    carried = below, tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)
    for index, w in reversed(list(enumerate(sizes.widths))):
        count = ids["counts"][index]
        step: Callable[..., Any] = partial(
            backpropagate_chunk, w, ids["firsts"][index] + (count - 1) * w
        )
        carried = lax.fori_loop(0, count, step, carried)
    below, d = carried
    dleaves = tuple(
        x[: sizes.n_leaves] + _gather_gradients(y, ids["places"][: sizes.n_leaves])
        for x, y in zip(dstates, below, strict=True)
    )
    return cell.gradients(everywhere, d), dleaves, None


def _gather_gradients(below: Array, places: Array) -> Array:
    """Return the gradients that parents have written for their children."""
    return below.reshape(-1, below.shape[2])[places]


compute_tree_states.defvjp(_fwd, _bwd)


class TreeNetwork:
    """Base class of the models of trees. Ids are those of assign_tree_rows, without unused ones.

    Attributes:
        reads: "all" if all vertices are outputs, otherwise "roots".
    """

    tables: Mapping[str, str] = {"embedding": "words"}
    reads: ClassVar[str] = "all"

    def __init__(self, model: Model, options: Any) -> None:
        self.h = model.sizes.hidden_size
        self.options = options

    def plan(self, trees: Sequence[Tree]) -> ProgramInputs:
        """Assign rows to all vertices."""
        chunk = self.options.chunk or choose_chunk_size(sum(tree.n_leaves - 1 for tree in trees))
        widths = halve_width(chunk, self.options.widths)
        sizes, vectors, rows = assign_tree_rows(trees, widths, self.options.multiple)
        if self.reads == "all":
            del vectors["roots"]
            return pack_inputs(sizes, rows, vectors)
        del vectors["labels"]
        return pack_inputs(sizes, slice(len(trees)), vectors)

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the scores of the classes at all vertices."""
        return hidden @ weights["W_out"]


def differentiate_gates(kept: States, own: States, children: ChildStates, d: States) -> States:
    """Differentiate h = o tanh c and c = i u + f_1 c_1 + f_2 c_2.

    Args:
        kept: gates i, o, u, f_1 and f_2, each (n, h).
        d: gradients of h and c.

    Returns:
        Gradients of i, o and u before their activations, concatenated (n, 3 h), of f_1 and f_2
        before theirs, and of c_1 and c_2.
    """
    i, o, u, f_1, f_2 = kept
    (_, c_1), (_, c_2) = children
    dh, dc = d
    tanh_c = jnp.tanh(own[1])
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    di, do, du = dc * u * i * (1 - i), dh * tanh_c * o * (1 - o), dc * i * (1 - u * u)
    df_1, df_2 = dc * c_1 * f_1 * (1 - f_1), dc * c_2 * f_2 * (1 - f_2)
    return jnp.concatenate([di, do, du], axis=1), df_1, df_2, dc * f_1, dc * f_2


class LSTMInner(NamedTuple):
    """Inner vertex; weights are left, right (h, 4 h), b (3 h,) and b_f (h,).

    Each child is multiplied once: columns are i, o, u, and its own forget gate.
    """

    h: int

    def forward(self, weights: Weights, children: ChildStates) -> tuple[States, States]:
        """Return states h and c, and the gates."""
        (h_1, c_1), (h_2, c_2) = children
        n = 3 * self.h
        left, right = h_1 @ weights["left"], h_2 @ weights["right"]
        i, o, u = jnp.split(left[:, :n] + right[:, :n] + weights["b"], 3, axis=1)
        i, o, u = jax.nn.sigmoid(i), jax.nn.sigmoid(o), jnp.tanh(u)
        f_1 = jax.nn.sigmoid(left[:, n:] + weights["b_f"])
        f_2 = jax.nn.sigmoid(right[:, n:] + weights["b_f"])
        c = i * u + f_1 * c_1 + f_2 * c_2
        return (o * jnp.tanh(c), c), (i, o, u, f_1, f_2)

    def backward(
        self, weights: Weights, kept: States, own: States, children: ChildStates, d: States
    ) -> Gradients:
        """Return gradients of the gates before their activations, with separate forget gates."""
        gates, df_1, df_2, dc_1, dc_2 = differentiate_gates(kept, own, children, d)
        left = jnp.concatenate([gates, df_1], axis=1)
        right = jnp.concatenate([gates, df_2], axis=1)
        below = ChildStates((left @ weights["left"].T, dc_1), (right @ weights["right"].T, dc_2))
        return Gradients(below, (left, right))

    def gradients(self, children: ChildStates, d: States) -> dict[str, Array]:
        """Compute the gradients with one matmul per child."""
        left, right = d
        n = 3 * self.h
        return {
            "left": children.left[0].T @ left,
            "right": children.right[0].T @ right,
            "b": left[:, :n].sum(0),
            "b_f": left[:, n:].sum(0) + right[:, n:].sum(0),
        }


class TreeLSTM(TreeNetwork):
    """Equations of dynbatch.harness.models.tree_lstm, chunk by chunk."""

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of all rows."""
        weights, vectors, ids, sizes, _ = given
        gates = vectors["embedding"] @ weights["W"] + weights["b_leaf"]
        i, o, u = jnp.split(gates, 3, axis=1)
        c = jax.nn.sigmoid(i) * jnp.tanh(u)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        upper, lower = jnp.split(weights["U"], 2)
        inner = {
            "left": jnp.concatenate([upper, weights["F_1"]], axis=1),
            "right": jnp.concatenate([lower, weights["F_2"]], axis=1),
            "b": weights["b"],
            "b_f": weights["b_f"],
        }
        h, c = compute_tree_states(LSTMInner(self.h), sizes, inner, (h, c), ids)
        return compute_cross_entropy(self.outputs(weights, h), ids["labels"]), h


class FCInner(NamedTuple):
    """Inner vertex; weights are W (2 h, h) and b (h,)."""

    def forward(self, weights: Weights, children: ChildStates) -> tuple[States, States]:
        """Return state h, and no further values."""
        return (jax.nn.relu(_concatenate_children(children) @ weights["W"] + weights["b"]),), ()

    def backward(
        self, weights: Weights, kept: States, own: States, children: ChildStates, d: States
    ) -> Gradients:
        """Return the gradient of relu's input."""
        given = jnp.where(own[0] > 0, d[0], 0)
        left, right = jnp.split(given @ weights["W"].T, 2, axis=1)
        return Gradients(ChildStates((left,), (right,)), (given,))

    def gradients(self, children: ChildStates, d: States) -> dict[str, Array]:
        """Compute the gradients with one matmul for all rows."""
        return {"W": _concatenate_children(children).T @ d[0], "b": d[0].sum(0)}


def _concatenate_children(children: ChildStates) -> Array:
    return jnp.concatenate([children.left[0], children.right[0]], axis=1)


class TreeFC(TreeNetwork):
    """Equations of dynbatch.harness.models.tree_fc, chunk by chunk."""

    reads = "roots"

    def __init__(self, model: Model, options: Any) -> None:
        super().__init__(model, options)
        self.looks_up = model.options["variant"] == "fold"
        if not self.looks_up:
            self.tables = {}

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of the roots."""
        weights, vectors, ids, sizes, _ = given
        layer = {name: weights[name] for name in ("W", "b")}
        if self.looks_up:
            leaves = vectors["embedding"]
        else:  # the layer on two vectors of zeros, computed at every leaf
            zeros = jnp.zeros((sizes.n_leaves, 2 * self.h), layer["W"].dtype)
            leaves = jax.nn.relu(zeros @ layer["W"] + layer["b"])
        (h,) = compute_tree_states(FCInner(), sizes, layer, (leaves,), ids)
        roots = h[ids["roots"]]
        real = (ids["roots"] >= 0)[:, None]
        return 0.5 * jnp.sum(jnp.where(real, roots * roots, 0)), roots

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the roots' h."""
        return hidden


NETWORKS = {
    "tree_lstm": TreeLSTM,
    "tree_fc": TreeFC,
}
