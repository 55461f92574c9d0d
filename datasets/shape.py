"""Shape statistics of a corpus: the numbers that decide how much there is to batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.values.instances import Lattice, Tree


@dataclass(frozen=True, slots=True)
class TreeShapes:
    """Summary of many trees; label_shares are fractions of all vertices, by label."""

    n_instances: int
    n_vertices: int
    n_leaves: int
    leaves_mean: float
    leaves_max: int
    height_mean: float
    height_max: int
    n_words_used: int
    label_shares: tuple[float, ...]


def tree_shapes(trees: Sequence[Tree], n_classes: int) -> TreeShapes:
    """Measure every tree; height counts edges from the root to the farthest leaf."""
    leaves = np.array([tree.n_leaves for tree in trees])
    heights = np.array([tree.height for tree in trees])
    words = np.concatenate([tree.words for tree in trees])
    labels = np.bincount(np.concatenate([tree.labels for tree in trees]), minlength=n_classes)
    return TreeShapes(
        n_instances=len(trees),
        n_vertices=len(words),
        n_leaves=int(leaves.sum()),
        leaves_mean=float(leaves.mean()),
        leaves_max=int(leaves.max()),
        height_mean=float(heights.mean()),
        height_max=int(heights.max()),
        n_words_used=len(np.unique(words[words >= 0])),
        label_shares=tuple((labels / labels.sum()).tolist()),
    )


@dataclass(frozen=True, slots=True)
class LatticeShapes:
    """Summary of many lattices; label_shares are fractions of all states, by tag.

    arcs_into[n]: states with n incoming arcs; state 0 has none.
    word_lengths[n]: words of n characters, by where their arcs begin and end.
    """

    n_instances: int
    n_states: int
    n_characters: int
    n_words: int
    states_mean: float
    states_min: int
    states_max: int
    arcs_into: tuple[int, ...]
    word_lengths: tuple[int, ...]
    n_characters_used: int
    n_words_used: int
    label_shares: tuple[float, ...]


def lattice_shapes(lattices: Sequence[Lattice], n_classes: int) -> LatticeShapes:
    """Measure every lattice."""
    states = np.array([lattice.n_states for lattice in lattices])
    arcs_into = [np.diff(lattice.arc_start) for lattice in lattices]
    targets = np.concatenate([np.arange(len(n)).repeat(n) for n in arcs_into])
    sources = np.concatenate([lattice.sources for lattice in lattices])
    tokens = np.concatenate([lattice.tokens for lattice in lattices])
    is_word = ~np.concatenate([lattice.is_character for lattice in lattices])
    labels = np.bincount(
        np.concatenate([lattice.tags for lattice in lattices]), minlength=n_classes
    )
    return LatticeShapes(
        n_instances=len(lattices),
        n_states=int(states.sum()),
        n_characters=int((~is_word).sum()),
        n_words=int(is_word.sum()),
        states_mean=float(states.mean()),
        states_min=int(states.min()),
        states_max=int(states.max()),
        arcs_into=tuple(np.bincount(np.concatenate(arcs_into)).tolist()),
        word_lengths=tuple(np.bincount((targets - sources)[is_word]).tolist()),
        n_characters_used=len(np.unique(tokens[~is_word])),
        n_words_used=len(np.unique(tokens[is_word])),
        label_shares=tuple((labels / labels.sum()).tolist()),
    )
