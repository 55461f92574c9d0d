"""Lattice-LSTM with gates in JAX: words add to sums, which the character that ends them reads.

Steps are as in dynbatch.systems.on_jax.models.lattices. Weights have one matmul per kind of gates
for all rows; derivatives of elementwise functions are JAX's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dynbatch.harness.contracts.model import Model
from dynbatch.systems.on_jax.models.lattice_rows import LatticeSizes
from dynbatch.systems.on_jax.models.lattices import LatticeNetwork, add_blocks, run_chunks
from dynbatch.systems.on_jax.models.layers import (
    compute_cross_entropy,
    pad_rows,
    replace_rows,
    slice_columns,
    slice_rows,
)
from dynbatch.systems.on_jax.scan import Given

Pair = tuple[Array, Array]  # h and c, or both sums, of some rows
Ids = Mapping[str, Array]


class GateKinds(NamedTuple):
    """Values of the gates of characters (i, o, f, g), of words (i, f, g) and of word weights.

    They are weights U, the inputs' parts (n, n_gates * h), or pre-activations and their gradients.
    """

    characters: Array
    words: Array
    shares: Array


class Kept(NamedTuple):
    """Inputs of the derivative: states, sums, pre-activations and cells of words (n_words, h)."""

    states: Pair
    sums: Pair
    gates: GateKinds
    cells: Array


def compute_character(gates: Sequence[Array], c: Array, sums: Pair) -> Pair:
    """Return h and c after a character, given its pre-activations i, o, f and g.

    Sums of weights are 0 if no word ends with the character.
    """
    i, o, f = (jax.nn.sigmoid(x) for x in gates[:3])
    g, (weight, weighted) = jnp.tanh(gates[3]), sums
    own = jnp.exp(i)
    c = jnp.where(weight > 0, (weighted + own * g) / (weight + own), f * c + i * g)
    return o * jnp.tanh(c), c


def compute_word(gates: Sequence[Array], c: Array) -> Array:
    """Return the cell of a word, given its pre-activations i, f and g."""
    i, f, g = gates
    return jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)


def weigh_cell(share: Array, cell: Array) -> Pair:
    """Return a word's terms of both sums, given the pre-activation of its weight."""
    weight = jnp.exp(jax.nn.sigmoid(share))
    return weight, weight * cell


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def compute_gated_states(
    sizes: LatticeSizes, weights: GateKinds, inputs: GateKinds, start: Pair, ids: Ids
) -> Array:
    """Return h of all rows (widths[0] + n_rows, h).

    Args:
        sizes: static sizes.
        weights: U (h, n_gates * h).
        inputs: inputs' parts of all pre-activations, with the bias.
        start: h and c of all starts, (h,) each.
        ids: see pad_lattices.
    """
    return _forward(sizes, weights, inputs, start, ids, keep=False).states[0]


def _forward(
    sizes: LatticeSizes, weights: GateKinds, inputs: GateKinds, start: Pair, ids: Ids, *, keep: bool
) -> Kept:
    width = sizes.widths[0]

    def run_words(n: int, first: Array, i: Array, kept: Kept) -> Kept:
        at = first + i * n
        sources, targets = slice_rows(ids["sources"], at, n), slice_rows(ids["targets"], at, n)
        h, c = (x[sources] for x in kept.states)
        gates = add_blocks(slice_columns(inputs.words, at, n, 3), h @ weights.words)
        cell = compute_word(gates, c)
        share = slice_rows(inputs.shares, at, n) + cell @ weights.shares
        terms = weigh_cell(share, cell)
        weight, weighted = (x.at[targets].add(y) for x, y in zip(kept.sums, terms, strict=True))
        kept = kept._replace(sums=(weight, weighted))
        if not keep:
            return kept
        words = replace_rows(kept.gates.words, jnp.concatenate(gates, axis=1), at)
        shares = replace_rows(kept.gates.shares, share, at)
        gates_so_far = kept.gates._replace(words=words, shares=shares)
        return kept._replace(gates=gates_so_far, cells=replace_rows(kept.cells, cell, at))

    def run_step(w: int, t: Array, carried: Any) -> Any:
        (h, c), kept = carried
        at = ids["starts"][t]
        own = slice_columns(inputs.characters, at - width, w, 4)
        gates = add_blocks(own, h @ weights.characters)
        weight, weighted = (slice_rows(x, at, w) for x in kept.sums)
        new = compute_character(gates, c, (weight, weighted))
        h, c = (replace_rows(x, y, at) for x, y in zip(kept.states, new, strict=True))
        kept = kept._replace(states=(h, c))
        if keep:
            joined = jnp.concatenate(gates, axis=1)
            characters = replace_rows(kept.gates.characters, joined, at - width)
            kept = kept._replace(gates=kept.gates._replace(characters=characters))
        return new, run_chunks(sizes, ids, t, run_words, kept)

    h, c = (pad_rows(jnp.tile(x, (width, 1)), width + sizes.n_rows) for x in start)
    none = jnp.zeros_like(inputs.shares[:0])
    kept = Kept(
        (h, c),
        (jnp.zeros_like(h), jnp.zeros_like(c)),
        GateKinds(*(jnp.zeros_like(x) for x in inputs)) if keep else GateKinds(none, none, none),
        jnp.zeros_like(inputs.shares) if keep else none,
    )
    carried = (h[:width], c[:width]), kept
    for index, w in enumerate(sizes.widths):
        (h, c), kept = carried
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        carried = lax.fori_loop(first, end, partial(run_step, w), ((h[:w], c[:w]), kept))
    return carried[1]


def _fwd(sizes: LatticeSizes, weights: GateKinds, inputs: GateKinds, start: Pair, ids: Ids) -> Any:
    kept = _forward(sizes, weights, inputs, start, ids, keep=True)
    return kept.states[0], (weights, kept, ids)


def _bwd(sizes: LatticeSizes, saved: tuple[GateKinds, Kept, Ids], dh: Array) -> Any:
    """Return the gradients of weights, inputs and start; words of a step come first."""
    _, kept, ids = saved
    width = sizes.widths[0]
    nothing = jnp.zeros_like(dh)
    carried: Any = (
        (dh[:0], dh[:0]),
        (nothing, nothing),
        (dh, nothing),
        GateKinds(*(jnp.zeros_like(x) for x in kept.gates)),
    )
    for index, w in reversed(list(enumerate(sizes.widths))):
        below, *others = carried
        first, end = ids["bounds"][index], ids["bounds"][index + 1]
        padded = tuple(pad_rows(x, w) for x in below)
        step = partial(_backpropagate_step, sizes, saved, w, end - 1)
        carried = lax.fori_loop(0, end - first, step, (padded, *others))
    below, _, d, dgates = carried
    h = kept.states[0]
    inputs = GateKinds(h[ids["before"]], h[ids["sources"]], kept.cells)
    dweights = GateKinds(*(x.T @ down for x, down in zip(inputs, dgates, strict=True)))
    dstart = tuple(x[:width].sum(0) + y.sum(0) for x, y in zip(d, below, strict=True))
    return dweights, dgates, dstart, None


def _backpropagate_step(
    sizes: LatticeSizes,
    saved: tuple[GateKinds, Kept, Ids],
    w: int,
    last: Array,
    s: Array,
    carried: Any,
) -> Any:
    """Backpropagate through step last - s of w characters, after the words that follow it."""
    weights, kept, ids = saved
    below, *others = carried
    t = last - s
    words = partial(_backpropagate_words, saved)
    dsums, d, dgates = run_chunks(sizes, ids, t, words, tuple(others))
    at, earlier = ids["starts"][t], jnp.where(t > 0, ids["starts"][t - 1], 0)
    gates = slice_columns(kept.gates.characters, at - sizes.widths[0], w, 4)
    weight, weighted = (slice_rows(x, at, w) for x in kept.sums)
    before = slice_rows(kept.states[1], earlier, w)
    own = tuple(slice_rows(x, at, w) + y for x, y in zip(d, below, strict=True))
    _, backpropagate = jax.vjp(compute_character, gates, before, (weight, weighted))
    dcharacters, dc, dterms = backpropagate(own)
    down = jnp.concatenate(dcharacters, axis=1)
    dsums = tuple(replace_rows(x, y, at) for x, y in zip(dsums, dterms, strict=True))
    characters = replace_rows(dgates.characters, down, at - sizes.widths[0])
    below = down @ weights.characters.T, dc
    return below, dsums, d, dgates._replace(characters=characters)


def _backpropagate_words(
    saved: tuple[GateKinds, Kept, Ids], n: int, first: Array, i: Array, carried: Any
) -> Any:
    """Backpropagate through the i-th chunk of n words after row `first`."""
    weights, kept, ids = saved
    dsums, d, dgates = carried
    at = first + i * n
    sources, targets = slice_rows(ids["sources"], at, n), slice_rows(ids["targets"], at, n)
    share, cell = slice_rows(kept.gates.shares, at, n), slice_rows(kept.cells, at, n)
    _, backpropagate_weight = jax.vjp(weigh_cell, share, cell)
    dshare, dcell = backpropagate_weight(tuple(x[targets] for x in dsums))
    gates = slice_columns(kept.gates.words, at, n, 3)
    _, backpropagate_word = jax.vjp(compute_word, gates, kept.states[1][sources])
    dwords, dc = backpropagate_word(dcell + dshare @ weights.shares.T)
    down = jnp.concatenate(dwords, axis=1)
    below = down @ weights.words.T, dc
    return (
        dsums,
        tuple(x.at[sources].add(y) for x, y in zip(d, below, strict=True)),
        dgates._replace(
            words=replace_rows(dgates.words, down, at),
            shares=replace_rows(dgates.shares, dshare, at),
        ),
    )


compute_gated_states.defvjp(_fwd, _bwd)


class GatedLatticeLSTM(LatticeNetwork):
    """Equations of dynbatch.harness.models.gated_lattice_lstm."""

    def __init__(self, model: Model, options: Any) -> None:
        super().__init__(None, model, options)

    def loss(self, given: Given) -> tuple[Array, Array]:
        """Return the summed loss, and h of all rows."""
        weights, vectors, ids, sizes, _ = given
        characters = vectors["characters"]
        last = characters[ids["targets"] - sizes.widths[0]]  # the character that ends a word
        kinds = ("char", "word", "gate")
        read = GateKinds(characters, vectors["words"], last)
        inputs = GateKinds(
            *(
                x @ weights[f"W_{kind}"] + weights[f"b_{kind}"]
                for x, kind in zip(read, kinds, strict=True)
            )
        )
        own = GateKinds(*(weights[f"U_{kind}"] for kind in kinds))
        h = compute_gated_states(sizes, own, inputs, (weights["h_0"], weights["c_0"]), ids)
        return compute_cross_entropy(self.outputs(weights, h), ids["labels"]), h


NETWORKS = {"gated_lattice_lstm": GatedLatticeLSTM}
