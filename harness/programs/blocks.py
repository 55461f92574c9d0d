"""The blocks that a program may call: what its model's vertex functions read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.vertex.program import VertexFunction


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What a call of a block must look like.

    type_id: of the vertices that calls become. operands: of every slot the types that have the
    states which it reads; `of_each` where it takes any number. pulls: numbers that it needs.
    """

    name: str
    type_id: int
    operands: tuple[frozenset[int], ...]
    of_each: frozenset[int] | None
    pulls: frozenset[str]

    def allowed(self, n: int) -> tuple[frozenset[int], ...] | None:
        """Types of n operands; None where it does not take so many."""
        if self.of_each is not None:
            return (self.of_each,) * n
        return self.operands if n == len(self.operands) else None


def block_shapes(
    functions: Mapping[str, VertexFunction], types: Sequence[str]
) -> dict[str, BlockShape]:
    """Shapes of all blocks by name; ids are places in `types`, from 1."""
    having: dict[str, set[int]] = {}
    for type_id, name in enumerate(types, start=1):
        for state, _ in functions[name].scatter:
            having.setdefault(state, set()).add(type_id)
    every = frozenset(range(1, len(types) + 1))
    found = {}
    for type_id, name in enumerate(types, start=1):
        function = functions[name]
        slots = [every] * function.arity
        of_each: frozenset[int] | None = None
        for node in function.nodes:
            if node.op == "gather":
                slots[node.index] &= having[node.name]
            elif node.op == "gather_each":
                of_each = (every if of_each is None else of_each) & having[node.name]
        pulls = frozenset(node.name for node in function.nodes if node.op == "pull")
        found[name] = BlockShape(name, type_id, tuple(slots), of_each, pulls)
    return found
