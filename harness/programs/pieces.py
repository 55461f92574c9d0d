"""A piece of what programs called, as arrays: all of it, or a round."""

from __future__ import annotations

from dataclasses import dataclass

from harness.values.arrays import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Vertices in the order of recording, numbered from `base` on.

    types, rounds, phases, depths (n,). arg_start (n + 1,): from 0. args (m,): numbers of vertices,
    of earlier calls too. pulls: external numbers (n,) by name, -1 where there is none.
    """

    base: int
    types: IntArray
    arg_start: IntArray
    args: IntArray
    rounds: IntArray
    phases: IntArray
    depths: IntArray
    pulls: dict[str, IntArray]

    @property
    def n(self) -> int:
        """How many."""
        return len(self.types)
