"""States of all lattices: steps of characters and chunks of words, with their derivative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.values.instances import Lattice
from dynbatch.systems.on_jax.models.lattice_rows import LatticeSizes, pad_lattices
from dynbatch.systems.on_jax.models.layers import (
    compute_cross_entropy,
    pad_rows,
    replace_rows,
    slice_columns,
    slice_rows,
)
from dynbatch.systems.on_jax.models.tree_rows import halve_width
from dynbatch.systems.on_jax.scan import Given, ProgramInputs, pack_inputs

CHUNK = 16  # words; their number differs from step to step, and small matmuls are as fast
N_GATES = 4  # f, i, o and g
States = tuple[Array, ...]  # h and c of some rows, (n, h) each
Ids = Mapping[str, Array]
T = TypeVar("T")


class ArcKinds(NamedTuple):
    """Values of both kinds of arcs, such as their weights or their gates."""

    characters: Any
    words: Any


def compute_cell(U: Array, inputs: Sequence[Array], before: States) -> tuple[States, Array]:
    """Compute c' = f c + i g and h' = o tanh c'.

    Args:
        U: (h, 4 h), weight.
        inputs: inputs' part of every gate.
        before: state before the arc.

    Returns:
        The state after the arc, and all gates, concatenated.
    """
    h, c = before
    by_state = jnp.split(h @ U, N_GATES, axis=1)
    f, i, o, g = (own + block for own, block in zip(inputs, by_state, strict=True))
    f, i, o, g = jax.nn.sigmoid(f), jax.nn.sigmoid(i), jax.nn.sigmoid(o), jnp.tanh(g)
    c = f * c + i * g
    return (o * jnp.tanh(c), c), jnp.concatenate([f, i, o, g], axis=1)


def backpropagate_cell(
    U: Array, gates: Sequence[Array], before: States, d: States
) -> tuple[States, Array]:
    """Return gradients of the state before the arc, and of the gates before their activations."""
    f, i, o, g = gates
    c, (dh, dc) = before[1], d
    tanh_c = jnp.tanh(f * c + i * g)
    dc = dc + dh * o * (1 - tanh_c * tanh_c)
    df, di, do = dc * c * f * (1 - f), dc * g * i * (1 - i), dh * tanh_c * o * (1 - o)
    down = jnp.concatenate([df, di, do, dc * i * (1 - g * g)], axis=1)
    return (down @ U.T, dc * f), down


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def compute_lattice_states(
    sizes: LatticeSizes, weights: ArcKinds, inputs: ArcKinds, start: States, ids: Ids
) -> Array:
    """Return h of all rows (widths[0] + n_rows, h).

    A state is the sum of the cells of all arcs into it. Padding is computed, but never read by
    others, and has no gradient.

    Args:
        sizes: static sizes.
        weights: weights U of the cells.
        inputs: inputs' part of all gates, (n_rows, 4 h) and (n_words, 4 h).
        start: state of all starts, (h,) each.
        ids: see pad_lattices.
    """
    return _forward(sizes, weights, inputs, start, ids, keep=False)[0][0]


def _forward(
    sizes: LatticeSizes,
    weights: ArcKinds,
    inputs: ArcKinds,
    start: States,
    ids: Ids,
    *,
    keep: bool,
) -> tuple[States, ArcKinds]:
    """Return all states, and the gates of all arcs if they are kept.

    A step first adds its characters to its states, then words to later states. The reverse order
    would let XLA read a table after a loop that writes to it, and so copy it in every step.
    """
    width = sizes.widths[0]

    def run_words(n: int, first: Array, i: Array, carried: Any) -> Any:
        states, gates = carried
        at = first + i * n
        sources, targets = slice_rows(ids["sources"], at, n), slice_rows(ids["targets"], at, n)
        before = tuple(x[sources] for x in states)
        own = slice_columns(inputs.words, at, n, N_GATES)
        new, kept = compute_cell(weights.words, own, before)
        states = tuple(x.at[targets].add(y) for x, y in zip(states, new, strict=True))
        return states, replace_rows(gates, kept, at) if keep else gates

    def run_step(w: int, t: Array, carried: Any) -> Any:
        before, states, gates = carried
        at = ids["starts"][t]
        own = slice_columns(inputs.characters, at - width, w, N_GATES)
        new, kept = compute_cell(weights.characters, own, before)
        new = tuple(slice_rows(x, at, w) + y for x, y in zip(states, new, strict=True))
        states = tuple(replace_rows(x, y, at) for x, y in zip(states, new, strict=True))
        of_characters = replace_rows(gates.characters, kept, at - width) if keep else ()
        states, of_words = _run_chunks(sizes, ids, t, run_words, (states, gates.words))
        return new, states, ArcKinds(of_characters, of_words)

    states = tuple(pad_rows(jnp.tile(x, (width, 1)), width + sizes.n_rows) for x in start)
    gates = ArcKinds(*(jnp.zeros_like(x) for x in inputs)) if keep else ArcKinds((), ())
    carried = tuple(x[:width] for x in states), states, gates
    for index, w in enumerate(sizes.widths):
        before, *others = carried
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        carried = lax.fori_loop(
            first, end, partial(run_step, w), (tuple(x[:w] for x in before), *others)
        )
    return carried[1:]


def _run_chunks(sizes: LatticeSizes, ids: Ids, t: Array, run: Any, carried: T) -> T:
    """Run all chunks of words that follow a step, which are independent of each other."""
    first = ids["word_starts"][t]
    for index, n in enumerate(sizes.chunks):
        count = ids["word_counts"][t * len(sizes.chunks) + index]
        carried = lax.fori_loop(0, count, partial(run, n, first), carried)
        first = first + count * n
    return carried


def _fwd(sizes: LatticeSizes, weights: ArcKinds, inputs: ArcKinds, start: States, ids: Ids) -> Any:
    states, gates = _forward(sizes, weights, inputs, start, ids, keep=True)
    return states[0], (weights, states, gates, ids)


def _bwd(sizes: LatticeSizes, saved: Any, dh: Array) -> Any:
    """Return the gradients of weights, inputs and start.

    Words add to the gradients of earlier states, so a step runs its words first. They read
    gradients from a second table, which has those of complete states.
    """
    weights, states, gates, ids = saved
    width = sizes.widths[0]

    def run_words(n: int, first: Array, i: Array, carried: Any) -> Any:
        complete, d, dwords = carried
        at = first + i * n
        sources, targets = slice_rows(ids["sources"], at, n), slice_rows(ids["targets"], at, n)
        before, own = tuple(x[sources] for x in states), tuple(x[targets] for x in complete)
        of_arcs = slice_columns(gates.words, at, n, N_GATES)
        below, dgates = backpropagate_cell(weights.words, of_arcs, before, own)
        d = tuple(x.at[sources].add(y) for x, y in zip(d, below, strict=True))
        return complete, d, replace_rows(dwords, dgates, at)

    def run_step(w: int, last: Array, s: Array, carried: Any) -> Any:
        below, complete, d, (dcharacters, dwords) = carried
        t = last - s
        complete, d, dwords = _run_chunks(sizes, ids, t, run_words, (complete, d, dwords))
        at, earlier = ids["starts"][t], jnp.where(t > 0, ids["starts"][t - 1], 0)
        before = tuple(slice_rows(x, earlier, w) for x in states)
        own = tuple(slice_rows(x, at, w) + y for x, y in zip(d, below, strict=True))
        complete = tuple(replace_rows(x, y, at) for x, y in zip(complete, own, strict=True))
        of_arcs = slice_columns(gates.characters, at - width, w, N_GATES)
        below, dgates = backpropagate_cell(weights.characters, of_arcs, before, own)
        return below, complete, d, ArcKinds(replace_rows(dcharacters, dgates, at - width), dwords)

    nothing = tuple(jnp.zeros_like(x) for x in states)
    carried: Any = (
        tuple(x[:0] for x in states),
        nothing,
        (dh, *nothing[1:]),
        ArcKinds(*(jnp.zeros_like(x) for x in gates)),
    )
    for index, w in reversed(list(enumerate(sizes.widths))):
        below, *others = carried
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        carried = lax.fori_loop(
            0,
            end - first,
            partial(run_step, w, end - 1),
            (tuple(pad_rows(x, w) for x in below), *others),
        )
    below, _, d, dgates = carried
    h_before = states[0][ids["before"]], states[0][ids["sources"]]
    dweights = ArcKinds(*(h.T @ down for h, down in zip(h_before, dgates, strict=True)))
    dstart = tuple(x[:width].sum(0) + y.sum(0) for x, y in zip(d, below, strict=True))
    return dweights, dgates, dstart, None


compute_lattice_states.defvjp(_fwd, _bwd)


class LatticeLSTM:
    """Equations of dynbatch.harness.models.lattice_lstm."""

    tables: Mapping[str, str] = {"characters": "characters", "words": "words"}

    def __init__(self, model: Model, options: Any) -> None:
        self.options = options

    def plan(self, lattices: Sequence[Lattice]) -> ProgramInputs:
        """Assign rows to all states and words."""
        widths, multiple = self.options.widths, self.options.multiple
        chunks = halve_width(self.options.chunk or CHUNK, 2)
        sizes, vectors, rows = pad_lattices(lattices, widths, chunks, multiple)
        return pack_inputs(sizes, rows, vectors)

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of all rows."""
        weights, vectors, ids, sizes, _ = given
        kinds = ArcKinds("char", "word")
        own = ArcKinds(*(weights[f"U_{kind}"] for kind in kinds))
        inputs = ArcKinds(
            *(
                vectors[table] @ weights[f"W_{kind}"] + weights[f"b_{kind}"]
                for table, kind in zip(self.tables, kinds, strict=True)
            )
        )
        start = weights["h_0"], weights["c_0"]
        h = compute_lattice_states(sizes, own, inputs, start, ids)
        return compute_cross_entropy(self.outputs(weights, h), ids["labels"]), h

    def outputs(self, weights: Mapping[str, Array], hidden: Array) -> Array:
        """Return the scores of the tags at all states."""
        return hidden @ weights["W_out"]


NETWORKS = {"lattice_lstm": LatticeLSTM}
