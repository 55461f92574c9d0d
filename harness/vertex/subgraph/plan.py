"""Batching and layout of a block, by a PQ tree or in order of execution, and remaining copies.

Gathers and copied bytes are counted as in Chen et al., "ED-Batch", ICML 2023, Table 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dynbatch.harness.vertex.subgraph.block import OperatorBatch, OperatorBlock
from dynbatch.harness.vertex.subgraph.pq_tree import Pattern, build_order_tree, decide_orders
from dynbatch.harness.vertex.subgraph.search import batch_by_agenda, find_fewest_kernels


@dataclass(frozen=True)
class BlockLayout:
    """Values in memory order, and batches in order of execution.

    Attributes:
        order: every variable once.
        batches: with members in memory order.
        aligned: operands, with the results of their batch, that are contiguous and in the same
            order.
    """

    order: tuple[int, ...]
    batches: tuple[OperatorBatch, ...]
    aligned: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @cached_property
    def position(self) -> Mapping[int, int]:
        """Index of every variable in memory order."""
        return {variable: index for index, variable in enumerate(self.order)}

    def is_contiguous(self, operand: Sequence[int]) -> bool:
        """Return True if these values are adjacent in memory, in this order."""
        first = self.position.get(operand[0])
        return first is not None and all(
            self.position.get(variable) == first + k for k, variable in enumerate(operand)
        )


def lay_out_by_pq_tree(variables: Collection[int], batches: Sequence[OperatorBatch]) -> BlockLayout:
    """Make as many operands as possible contiguous and aligned.

    Source: Chen et al., ICML 2023, Alg. 2.
    """
    if not variables:
        return BlockLayout((), ())
    tree, patterns = build_order_tree(variables, batches)
    order, patterns = decide_orders(tree, patterns)
    position = {variable: k for k, variable in enumerate(order)}
    return BlockLayout(
        order,
        tuple(batch.reorder(sorted(batch.members, key=position.__getitem__)) for batch in batches),
        tuple(_sort_by_position(pattern, position) for pattern in patterns),
    )


def _sort_by_position(pattern: Pattern, position: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    results = pattern.operands[0]
    by_place = sorted(range(len(results)), key=lambda k: position[results[k]])
    return tuple(tuple(operand[k] for k in by_place) for operand in pattern.operands)


LAYOUTS = ("dynet", "pq")
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Copy:
    """Operand of a batch that is gathered into contiguous memory before it is read.

    Attributes:
        n_elements: their total number of elements, for one instance.
        of_parameters: all values are parameters, so they are the same in every call.
    """

    batch: int
    operand: int
    values: tuple[int, ...]
    n_elements: int
    of_parameters: bool


@dataclass(frozen=True)
class BlockPlan:
    """Block with its layout; with pre_gather parameters are gathered once, not in every call."""

    block: OperatorBlock
    layout: BlockLayout
    pre_gather: bool

    @cached_property
    def gathers(self) -> tuple[Copy, ...]:
        """Operands that are not contiguous in the right order, including parameters."""
        return tuple(
            Copy(
                index,
                k,
                operand,
                self.block.count_elements(operand),
                all(map(self.block.is_parameter, operand)),
            )
            for index, batch in enumerate(self.layout.batches)
            for k, operand in self._find_scattered_operands(batch)
        )

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Gathers of every call."""
        return tuple(filter(self.is_repeated, self.gathers))

    def is_repeated(self, copy: Copy) -> bool:
        """Return True if a gather happens in every call, not just once."""
        return not (self.pre_gather and copy.of_parameters)

    def list_inputs(self) -> tuple[int, ...]:
        """Return the inputs and parameters that operators read."""
        read = [i for batch in self.layout.batches for operand in batch.operands for i in operand]
        return tuple(i for i in dict.fromkeys(read) if i not in self.layout.position)

    @property
    def n_copies(self) -> int:
        """Number of kernels of a call that only copy ("mem kernels")."""
        return len(self.copies)

    @property
    def n_launches(self) -> int:
        """Number of all kernels of a call."""
        return len(self.layout.batches) + self.n_copies

    def count_copied_bytes(self, n_instances: int) -> int:
        """Return the bytes copied per call; as in the paper, parameters count per instance."""
        return sum(copy.n_elements for copy in self.copies) * FLOAT_BYTES * n_instances

    def _find_scattered_operands(
        self, batch: OperatorBatch
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        if len(batch.members) == 1:
            return
        for k, operand in enumerate(batch.operands):
            if not self.layout.is_contiguous(operand) and not self.block.is_shared(batch, k):
                yield k, operand


def plan_block(block: OperatorBlock, layout: str, *, pre_gather: bool) -> BlockPlan:
    """Batch a block and lay it out.

    Args:
        layout: "dynet" for the agenda's batches, with memory in order of execution; "pq" for the
            fewest kernels, with memory laid out by a PQ tree.
    """
    if layout == "dynet":
        batches = batch_by_agenda(block)
        chosen = BlockLayout(tuple(i for batch in batches for i in batch.members), batches)
    else:
        chosen = lay_out_by_pq_tree(block.variables, find_fewest_kernels(block))
    return BlockPlan(block, chosen, pre_gather)
