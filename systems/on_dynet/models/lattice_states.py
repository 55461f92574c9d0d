"""Lattices as a DyNet program holds them: lists of Python numbers, state by state."""

from __future__ import annotations

from itertools import pairwise

from harness.values.instances import Lattice

# Tag, character (-1 at the start), and the words that end here: where each begins, and its id.
State = tuple[int, int, list[tuple[int, int]]]


def states_of(lattice: Lattice) -> list[State]:
    """Every state of a lattice in order.

    Lists of 64 lattices of Weibo in 0.90 ms; a pair of slices for each state took 1.59.
    """
    starts, tokens = lattice.arc_start.tolist(), lattice.tokens.tolist()
    arcs = list(zip(lattice.sources.tolist(), tokens, strict=True))
    own = list(pairwise(starts))
    characters = [tokens[a] if a < b else -1 for a, b in own]
    words = [arcs[a + 1 : b] for a, b in own]
    return list(zip(lattice.tags.tolist(), characters, words, strict=True))
