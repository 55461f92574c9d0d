"""Lattices of characters and words: frozen values that check themselves when built."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.errors import DataError
from harness.values.arrays import IntArray, int_array


@dataclass(frozen=True, eq=False, slots=True)
class Lattice:
    """One sentence as a lattice: states between characters, arcs that are characters or words.

    tags (n_states,): class of every state; state 0 stands before the first character.
    arc_start (n_states + 1,): the arcs into state i are arc_start[i] to arc_start[i + 1].
    sources (n_arcs,): the state in which an arc begins.
    tokens (n_arcs,): id of its character or word; these are numbered apart.
    arc_counts (n_states,): number of arcs into each state.

    State 0 has no arcs. The first arc into any other state i is its character, from state i - 1;
    all others are words, from states before that. Raises DataError where this does not hold.
    """

    tags: IntArray
    arc_start: IntArray
    sources: IntArray
    tokens: IntArray
    arc_counts: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("tags", "arc_start", "sources", "tokens"):
            object.__setattr__(self, name, int_array(getattr(self, name)))
        self._check_lengths()
        object.__setattr__(self, "arc_counts", int_array(np.diff(self.arc_start)))
        self._check_arcs()

    def _check_lengths(self) -> None:
        n, starts = self.n_states, self.arc_start
        if n < 2:
            raise DataError(f"a lattice has {n} states; it needs at least 2, for one character")
        if len(starts) != n + 1 or starts[0] != 0 or starts[-1] != len(self.sources):
            raise DataError(
                f"arc_start has {len(starts)} entries; it needs {n + 1}, from 0 to the number of"
                f" arcs, {len(self.sources)}"
            )
        if len(self.tokens) != len(self.sources):
            raise DataError(
                f"a lattice has {len(self.sources)} sources and {len(self.tokens)} tokens;"
                " each arc needs one of both"
            )

    def _check_arcs(self) -> None:
        n_arcs = self.arc_counts
        if n_arcs[0] != 0:
            raise DataError(f"state 0 has {n_arcs[0]} incoming arcs; nothing can come before it")
        if n_arcs[1:].min() < 1:
            state = 1 + int(np.flatnonzero(n_arcs[1:] < 1)[0])
            raise DataError(f"state {state} has no incoming arc; it needs its character's")
        targets = np.arange(self.n_states).repeat(n_arcs)
        forward = np.flatnonzero((self.sources >= targets) | (self.sources < 0))
        if len(forward):
            arc = forward[0]
            raise DataError(
                f"an arc into state {targets[arc]} comes from state {self.sources[arc]};"
                " it must come from a state before"
            )
        is_character = self.sources == targets - 1
        if not np.array_equal(is_character, self.is_character):
            state = targets[np.flatnonzero(is_character != self.is_character)[0]]
            raise DataError(
                f"state {state} has no character arc in the first place, or several; exactly the"
                f" first of its arcs must come from state {state - 1}"
            )
        if len(self.tokens) and self.tokens.min() < 0:
            raise DataError(f"token {self.tokens.min()} found; ids must not be negative")

    @property
    def n_states(self) -> int:
        """Characters and the state before them."""
        return len(self.tags)

    @property
    def n_arcs(self) -> int:
        """Characters and words together."""
        return len(self.sources)

    @property
    def is_character(self) -> NDArray[np.bool_]:
        """Whether each arc is a character (n_arcs,): the first into its state."""
        first = np.zeros(self.n_arcs, dtype=np.bool_)
        first[self.arc_start[1:-1]] = True
        return first
