"""From a PQ tree to one order: nodes of operands that belong together get the same order.

DecideNodeOrder of Chen et al., ICML 2023, Alg. 5 to 7. After broadcasting, operands of a pattern
have alike subtrees, whose nodes correspond by the indices below them. What one of them decides the
others follow: union-find, with the permutation that leads from a node's children to its root's on
every edge. A Q-node has two orders, so a permutation of two tells its direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.vertex.subgraph.constraints import Pattern
from harness.vertex.subgraph.pq_tree import Kind, Node, cover, mask_of

Permutation = tuple[int, ...]
Relation = tuple[Node, Node, Permutation]
SAME, REVERSED = (0, 1), (1, 0)


def decide_orders(tree: Node, patterns: Sequence[Pattern]) -> tuple[tuple[int, ...], list[Pattern]]:
    """All leaves in one order that aligns the operands of the patterns returned.

    An operand that contradicts those before it is dropped.
    """
    tree = _with_pairs_as_q(tree)
    orders = _Orders()
    for pattern in patterns:
        first = _inner_nodes(tree, pattern.operands[0])
        for operand in tuple(pattern.operands[1:]):
            relations = _relations(first, _inner_nodes(tree, operand))
            if relations is None or not orders.relate(relations):
                pattern.operands.remove(operand)
    return tuple(_leaves(tree, orders)), [p for p in patterns if p.says_something]


def _with_pairs_as_q(node: Node) -> Node:
    """Any order of two children is one of two directions."""
    children = tuple(map(_with_pairs_as_q, node.children))
    return Node(Kind.Q if len(children) == 2 else node.kind, node.mask, children)


# Below an operand: its inner nodes by the indices under them, each with its children's indices.
Inner = dict[int, tuple[Node, tuple[int, ...]]]


def _inner_nodes(tree: Node, operand: Sequence[int]) -> Inner:
    wanted = mask_of(operand)
    found: Inner = {}
    waiting = [cover(tree, wanted)]
    while waiting:
        node = waiting.pop()
        children = [child for child in node.children if child.mask & wanted]
        if children:
            parts = tuple(_indices(operand, child.mask) for child in children)
            found[_indices(operand, node.mask)] = (node, parts)
        waiting += children
    return found


def _indices(operand: Sequence[int], mask: int) -> int:
    return sum(1 << index for index, leaf in enumerate(operand) if mask >> leaf & 1)


def _relations(first: Inner, other: Inner) -> list[Relation] | None:
    """How the nodes below one operand follow those below another; None where they are not alike."""
    if first.keys() != other.keys():
        return None
    relations = []
    for indices, (node, parts) in first.items():
        twin, twin_parts = other[indices]
        if node.kind is not twin.kind or set(parts) != set(twin_parts):
            return None
        if node.kind is Kind.P:
            permutation = tuple(twin_parts.index(part) for part in parts)
        elif parts in (twin_parts, twin_parts[::-1]):
            permutation = SAME if parts == twin_parts else REVERSED
        else:
            return None
        relations.append((node, twin, permutation))
    return relations


class _Orders:
    """Union-find over nodes; slot k of a node is slot permutation[k] of its parent."""

    def __init__(self) -> None:
        self.parent: dict[Node, tuple[Node, Permutation]] = {}

    def find(self, node: Node) -> tuple[Node, Permutation]:
        """The root of a node, and the node's slots among the root's."""
        n = 2 if node.kind is Kind.Q else len(node.children)
        permutation = tuple(range(n))
        while node in self.parent:
            node, step = self.parent[node]
            permutation = tuple(step[k] for k in permutation)
        return node, permutation

    def relate(self, relations: Iterable[Relation]) -> bool:
        """Let all of these hold (slot k of a is slot permutation[k] of b), or none of them."""
        before = dict(self.parent)
        for a, b, permutation in relations:
            (root_a, of_a), (root_b, of_b) = self.find(a), self.find(b)
            of_a_by_b = tuple(of_b[k] for k in permutation)
            if root_a is not root_b:
                slots = [0] * len(of_a)
                for ours, theirs in zip(of_a, of_a_by_b, strict=True):
                    slots[ours] = theirs
                self.parent[root_a] = (root_b, tuple(slots))
            elif of_a != of_a_by_b:
                self.parent = before
                return False
        return True

    def children(self, node: Node) -> list[Node]:
        """A node's children in the order decided."""
        _, slots = self.find(node)
        if node.kind is Kind.Q:
            return list(node.children[:: 1 if slots == SAME else -1])
        return [node.children[slots.index(k)] for k in range(len(slots))]


def _leaves(node: Node, orders: _Orders) -> Iterable[int]:
    if node.kind is Kind.LEAF:
        yield from node.leaves()
        return
    for child in orders.children(node):
        yield from _leaves(child, orders)
