"""Additions that cost nothing: a bias or a sum that a matrix product can do on its way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.vertex.operators import Node

MATMULS = ("matmul", "matmul_transposed")


@dataclass(frozen=True, slots=True)
class Absorption:
    """Products that also do the addition behind them.

    into: product -> the bias or add node whose value it leaves behind.
    after: product -> the node whose value it adds to, which must come first.
    """

    into: Mapping[int, int]
    after: Mapping[int, int]

    @property
    def merged(self) -> frozenset[int]:
        """Additions that need no step of their own."""
        return frozenset(self.into.values())


def find_absorption(
    nodes: Sequence[Node],
    stage_of: Mapping[int, str],
    pinned: frozenset[int],
    scattered: frozenset[int],
    *,
    absorb_bias: bool,
    biases: frozenset[int] = frozenset(),
) -> Absorption:
    """Find sums x W + b and y + x W in which the parts have no other use.

    pinned: nodes that others than nodes read: scattered, shown outside, gradients of children.
    scattered: nodes whose place is their state's, where no other value can be first.
    biases: additions of a bias that another kernel does where the product left its rows.
    """
    consumers = find_consumers(nodes, {*stage_of, *pinned})
    into: dict[int, int] = {}
    after: dict[int, int] = {}
    for i, node in enumerate(nodes):
        if i not in stage_of or node.op not in ("bias", "add"):
            continue
        if node.op == "bias":
            product = node.inputs[0]
            whole = node.shape[-1:] == nodes[node.inputs[1]].shape
            absorbs = absorb_bias and whole and nodes[product].op in MATMULS
            if i in biases or (absorbs and _sole_use(product, i, consumers, pinned)):
                into[product] = i
            continue
        if i in scattered or any(nodes[k].op == "concat" for k in consumers[i]):
            continue  # its place is chosen for its reader, not for its parts
        for target, product in (node.inputs, node.inputs[::-1]):
            if nodes[product].op not in MATMULS or product in into or product == target:
                continue
            if stage_of.get(product) != stage_of[i]:
                continue  # a product of an earlier stage would come before what it adds to
            if _sole_use(product, i, consumers, pinned) and _may_grow(
                target, i, nodes, stage_of, consumers, pinned
            ):
                into[product], after[product] = i, target
                break
    return Absorption(into, after)


def find_consumers(nodes: Sequence[Node], results: Iterable[int]) -> list[list[int]]:
    """Nodes that read each node, of those that the results depend on."""
    used = set(results)
    for i in reversed(range(len(nodes))):
        if i in used:
            used.update(nodes[i].inputs)
    consumers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        if i in used:
            for operand in dict.fromkeys(node.inputs):
                consumers[operand].append(i)
    return consumers


def _sole_use(
    i: int, user: int, consumers: Sequence[Sequence[int]], pinned: frozenset[int]
) -> bool:
    return list(consumers[i]) == [user] and i not in pinned


def _may_grow(
    target: int,
    user: int,
    nodes: Sequence[Node],
    stage_of: Mapping[int, str],
    consumers: Sequence[Sequence[int]],
    pinned: frozenset[int],
) -> bool:
    """Whether the target's memory may be added to: read by nobody else, and computed in the same
    stage, or hoisted before the batches, where every vertex has a row of its own.
    """
    if not _sole_use(target, user, consumers, pinned):
        return False
    base = target
    if nodes[target].op == "slice":
        base = nodes[target].inputs[0]
        others = [k for k in consumers[base] if k != target]
        if base in pinned or any(_reads_columns(nodes, k, target) for k in others):
            return False
    stages = (stage_of.get(base), stage_of.get(user))
    if stages == ("eager", "batch"):
        return nodes[base].op in (*MATMULS, "add", "bias", "lookup")
    return nodes[base].op in (*MATMULS, "outer", "add") and stages[0] == stages[1]


def _reads_columns(nodes: Sequence[Node], reader: int, target: int) -> bool:
    """Whether a reader of a slice's base sees columns of the slice."""
    if nodes[reader].op != "slice":
        return True
    start, other = nodes[target].index, nodes[reader].index
    return other < start + nodes[target].width and start < other + nodes[reader].width
