"""Small lattices for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.values.instances import Lattice


def lattice(words: Sequence[tuple[int, int]], n_states: int, seed: int = 0) -> Lattice:
    """A lattice of n_states - 1 characters and of words (from state, to state)."""
    random = np.random.default_rng(seed)
    sources: list[int] = []
    arc_start = [0, 0]
    for state in range(1, n_states):
        sources += [state - 1, *(begin for begin, end in words if end == state)]
        arc_start.append(len(sources))
    tokens = random.integers(0, 5, len(sources))
    tags = np.concatenate([[0], random.integers(0, 3, n_states - 1)])
    return Lattice(tags, arc_start, sources, tokens)


# One word; two words that end together; no words; three words that end together, and overlap.
LATTICES = (
    lattice([(0, 2)], 4, seed=1),
    lattice([(0, 3), (1, 3), (3, 5)], 6, seed=2),
    lattice([], 2, seed=3),
    lattice([(0, 3), (1, 4), (0, 4), (2, 4)], 5, seed=4),
)
