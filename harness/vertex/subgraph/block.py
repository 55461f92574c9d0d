"""Blocks: the operators of a vertex function, their types, and their batches.

Operators of one type may share a kernel. The types are those of ED-Batch's release (Block::freeze
in dynet/ooc-block.cc), which are DyNet's signatures with two exceptions. Matmuls with different
matrices of equal shape have one type. An output has a separate type, so it is executed alone and
written to the caller's destination.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from dynbatch.harness.vertex.operators import OPERATORS, PARAMETER, Node
from dynbatch.harness.vertex.program import VertexFunction

# Inputs of a block; all other values except parameters are computed in it.
INPUTS = ("gather", "gather_each", "pull", "lookup", "zeros", "ones")


@dataclass(frozen=True, slots=True)
class OperatorBatch:
    """Operators that are executed together.

    Attributes:
        members: the values that they compute, in memory order.
        operands: for each operand, the value that each member reads.
    """

    members: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]

    def reorder(self, members: Sequence[int]) -> OperatorBatch:
        """Return the same batch with its members in another order."""
        at = [self.members.index(member) for member in members]
        operands = tuple(tuple(operand[k] for k in at) for operand in self.operands)
        return OperatorBatch(tuple(members), operands)


@dataclass(frozen=True)
class OperatorBlock:
    """Operators of a vertex function; values are identified by their node ids."""

    function: VertexFunction

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes: inputs, parameters and computed ones."""
        return self.function.nodes

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Computed values that are used outside, each once."""
        shown = [*dict(self.function.scatter).values(), *self.function.shown]
        return tuple(i for i in dict.fromkeys(shown) if i in self.variables)

    @cached_property
    def variables(self) -> tuple[int, ...]:
        """Values that the block computes, operands first."""
        outside = {*INPUTS, PARAMETER}
        return tuple(i for i, node in enumerate(self.nodes) if node.op not in outside)

    @cached_property
    def type_of(self) -> dict[int, int]:
        """Type of every variable, numbered by first appearance."""
        ids: dict[object, int] = {}
        return {i: ids.setdefault(self._make_signature(i), len(ids)) for i in self.variables}

    def _make_signature(self, i: int) -> object:
        node = self.nodes[i]
        rule = OPERATORS[node.op].signature
        if i in self.outputs or (rule is None and node.op != "apply"):
            return i
        facts = {"index": node.index, "value": node.value, "shape": node.shape}
        shapes = tuple(self.nodes[k].shape for k in node.inputs)
        named = tuple(facts[fact] for fact in rule or () if fact != PARAMETER)
        return (node.op, node.shape, node.domain, shapes, named)

    def is_shared(self, batch: OperatorBatch, k: int) -> bool:
        """Return True if operand k is a single value for all members, read in place (a matrix)."""
        operand = batch.operands[k]
        product = self.nodes[batch.members[0]].op == "matmul"
        return product and self.is_parameter(operand[0]) and len(set(operand)) == 1

    def is_parameter(self, i: int) -> bool:
        """Return True if a value is a parameter."""
        return self.nodes[i].op == PARAMETER

    def batch(self, members: Sequence[int]) -> OperatorBatch:
        """Return a batch of these variables, which have one type."""
        operands = zip(*(self.nodes[i].inputs for i in members), strict=True)
        return OperatorBatch(tuple(members), tuple(operands))

    def count_elements(self, operand: Sequence[int]) -> int:
        """Return the total number of elements of these values, for one instance."""
        return sum(self.nodes[i].width for i in operand)
