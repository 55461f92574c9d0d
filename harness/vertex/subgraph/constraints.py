"""What batches ask of the memory order, as a PQ tree.

Chen et al., "ED-Batch", ICML 2023, Sec. 3.2 and Alg. 4: the values of an operand shall be adjacent,
and all operands of a batch in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from harness.vertex.subgraph.block import Batch
from harness.vertex.subgraph.pq_tree import Kind, Node, cover, mask_of, members, reduce, universal


@dataclass(slots=True)
class Pattern:
    """Operands of one batch that can be contiguous and in the same order, its results first.

    Element i of all of them belongs together. shared: sets of such indices (bit masks) that have to
    be adjacent in one of the operands, and so in all.
    """

    operands: list[tuple[int, ...]]
    shared: set[int] = field(default_factory=set)

    @property
    def says_something(self) -> bool:
        """Whether there is anything left to align."""
        return len(self.operands) >= 2


def constrain(variables: Collection[int], batches: Sequence[Batch]) -> tuple[Node, list[Pattern]]:
    """The tree of memory orders in which as many operands as possible are contiguous and aligned.

    A batch's results are adjacent in all of them. An operand that cannot be, given those before it,
    is left out: it will be copied.
    """
    tree, patterns = _collect(variables, [batch for batch in batches if len(batch.members) > 1])
    return _broadcast(tree, patterns), [p for p in patterns if p.says_something]


def _collect(variables: Collection[int], batches: Sequence[Batch]) -> tuple[Node, list[Pattern]]:
    tree = universal(variables)
    for batch in batches:  # disjoint sets, so that none fails
        tree = reduce(tree, mask_of(batch.members)) or tree
    patterns = []
    for batch in batches:
        pattern, taken = Pattern([batch.members]), mask_of(batch.members)
        for operand in dict.fromkeys(batch.operands):
            wanted = mask_of(operand)
            computed = wanted & tree.mask == wanted
            distinct = wanted.bit_count() == len(operand)
            if not computed or not distinct or wanted & taken:
                continue
            reduced = reduce(tree, wanted)
            if reduced is not None:
                tree, taken = reduced, taken | wanted
                pattern.operands.append(operand)
        patterns.append(pattern)
    return tree, patterns


def _broadcast(tree: Node, patterns: Sequence[Pattern]) -> Node:
    """Make the subtrees of all operands of a pattern alike, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for pattern in patterns:
            for source in tuple(pattern.operands) if pattern.says_something else ():
                new = _as_indices(source, adjacent_sets(tree, mask_of(source))) - pattern.shared
                if new and source in pattern.operands:
                    changed = True
                    tree = _impose(tree, pattern, source, new)
    return tree


def _impose(tree: Node, pattern: Pattern, source: tuple[int, ...], new: set[int]) -> Node:
    """Ask of every operand what one of them asks; drop what cannot, rather than the results."""
    results = pattern.operands[0]
    for operand in tuple(pattern.operands):
        wanted = [mask_of(operand[i] for i in members(indices)) for indices in new]
        reduced = _reduce_by_all(tree, wanted)
        if reduced is not None:
            tree = reduced
        elif operand == results:
            pattern.operands.remove(source)
            return tree
        else:
            pattern.operands.remove(operand)
    pattern.shared |= new
    return tree


def _reduce_by_all(tree: Node, sets: Sequence[int]) -> Node | None:
    reduced: Node | None = tree
    for wanted in sets:
        reduced = None if reduced is None else reduce(reduced, wanted)
    return reduced


def _as_indices(operand: Sequence[int], sets: Iterator[int]) -> set[int]:
    at = {leaf: 1 << index for index, leaf in enumerate(operand)}
    return {sum(at[leaf] for leaf in members(wanted)) for wanted in sets}


def adjacent_sets(tree: Node, wanted: int) -> Iterator[int]:
    """Sets of leaves that define the order of the adjacent leaves `wanted`, in that order's tree.

    All leaves of a P-node, and of every two neighbours below a Q-node.
    """
    waiting = [cover(tree, wanted)]
    while waiting:
        node = waiting.pop()
        children = [child for child in node.children if child.mask & wanted]
        waiting += children
        if node.kind is Kind.P:
            yield node.mask & wanted
        else:
            yield from (left.mask | right.mask for left, right in pairwise(children))
