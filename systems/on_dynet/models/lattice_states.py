"""Lattices as a DyNet program holds them: lists of Python numbers, state by state."""

from __future__ import annotations

from itertools import pairwise

from harness.values.instances import Lattice

# Tag, character (-1 at the start), and the words that end here: where each begins, and its id.
State = tuple[int, int, list[tuple[int, int]]]


def states_of(lattice: Lattice) -> list[State]:
    """Every state of a lattice in order."""
    starts = lattice.arc_start.tolist()
    arcs = list(zip(lattice.sources.tolist(), lattice.tokens.tolist(), strict=True))
    of_state = [arcs[a:b] for a, b in pairwise(starts)]
    return [
        (tag, own[0][1] if own else -1, own[1:])
        for tag, own in zip(lattice.tags.tolist(), of_state, strict=True)
    ]
