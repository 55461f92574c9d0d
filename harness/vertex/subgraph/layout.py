"""The order of a block's values in memory, chosen by a PQ tree or as they are computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.vertex.subgraph.block import Batch
from harness.vertex.subgraph.constraints import Pattern, constrain
from harness.vertex.subgraph.orders import decide_orders


@dataclass(frozen=True)
class Layout:
    """Values in memory order, and the batches in order of execution.

    order: every variable once. batches: members in memory order. aligned: operands, with the
    results of their batch, that were found contiguous and in the same order.
    """

    order: tuple[int, ...]
    batches: tuple[Batch, ...]
    aligned: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @cached_property
    def position(self) -> Mapping[int, int]:
        """Place of every variable in memory, in values from the start."""
        return {variable: place for place, variable in enumerate(self.order)}

    def is_contiguous(self, operand: Sequence[int]) -> bool:
        """Whether these values lie in memory one behind the other, in this order."""
        first = self.position.get(operand[0])
        return first is not None and all(
            self.position.get(variable) == first + k for k, variable in enumerate(operand)
        )


def in_order_of_execution(batches: Sequence[Batch]) -> Layout:
    """Every batch behind the one before it, as DyNet allocates memory."""
    return Layout(tuple(i for batch in batches for i in batch.members), tuple(batches))


def by_pq_tree(variables: Collection[int], batches: Sequence[Batch]) -> Layout:
    """As many operands as possible contiguous and aligned (Chen et al., ICML 2023, Alg. 2)."""
    if not variables:
        return Layout((), ())
    tree, patterns = constrain(variables, batches)
    order, patterns = decide_orders(tree, patterns)
    place = {variable: k for k, variable in enumerate(order)}
    return Layout(
        order,
        tuple(batch.reordered(sorted(batch.members, key=place.__getitem__)) for batch in batches),
        tuple(_in_memory_order(pattern, place) for pattern in patterns),
    )


def _in_memory_order(pattern: Pattern, place: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    results = pattern.operands[0]
    by_place = sorted(range(len(results)), key=lambda k: place[results[k]])
    return tuple(tuple(operand[k] for k in by_place) for operand in pattern.operands)
