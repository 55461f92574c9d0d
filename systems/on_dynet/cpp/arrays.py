"""Instances one after the other in a few arrays, as DyNet programs in C++ read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.values.arrays import IntArray, int_array
from harness.values.instances import Lattice, Tree

Columns = tuple[IntArray, ...]


def tree_columns(trees: Sequence[Tree]) -> Columns:
    """Sizes of the trees; words, labels, left and right children of all their vertices.

    Children are numbered within their tree. Sizes (n_trees,), all others (n_vertices,).
    """
    sizes = [tree.n_vertices for tree in trees]
    return int_array(sizes), *np.concatenate([tree.table for tree in trees], axis=1)


def lattice_columns(lattices: Sequence[Lattice]) -> Columns:
    """Numbers of states of the lattices; tags and numbers of arcs of all states; sources and
    tokens of all arcs.

    Sources are numbered within their lattice. Sizes (n_lattices,), tags and numbers of arcs
    (n_states,), sources and tokens (n_arcs,). The first arc into a state is its character.
    """
    names = ("tags", "arc_counts", "sources", "tokens")
    joined = (np.concatenate([getattr(lattice, name) for lattice in lattices]) for name in names)
    return int_array([lattice.n_states for lattice in lattices]), *joined


COLUMNS: Mapping[str, Callable[[Sequence[Any]], Columns]] = {
    "tree": tree_columns,
    "lattice": lattice_columns,
}
