"""PQ trees: all orders of some leaves in which given sets of leaves are consecutive.

The reduction is recursive instead of based on templates, and quadratic in the number of leaves.
Trees are values: a reduction returns a new tree that shares unchanged parts, so a failed one has no
effect. Sets of leaves are bit masks.

The requirements of batches on the memory order form such a tree: the values of an operand have to
be adjacent, and all operands of a batch in the same order. Then one order is chosen. After
broadcasting, operands of a pattern have equal subtrees, whose nodes correspond by the indices below
them, and the order of one node determines that of the others. This is a union-find with a
permutation on every edge, which maps a node's children to its root's. A Q-node has two orders, so a
permutation of two elements represents its direction.

Source: Booth and Lueker, "Testing for the Consecutive Ones Property, Interval Graphs, and Graph
Planarity Using PQ-Tree Algorithms", JCSS 1976; Chen et al., "ED-Batch", ICML 2023, Sec. 3.2 and
Alg. 4 to 7.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from dynbatch.harness.vertex.subgraph.block import OperatorBatch


class NodeKind(Enum):
    """Kind of node: P has children in any order, Q in the given order or its reverse."""

    LEAF = "leaf"
    P = "P"
    Q = "Q"


@dataclass(frozen=True, slots=True, eq=False)
class PQNode:
    """Subtree; mask: the leaves below it, one bit each. It is equal only to itself."""

    kind: NodeKind
    mask: int
    children: tuple[PQNode, ...] = ()

    def iterate_leaves(self) -> Iterator[int]:
        """Yield the leaves from left to right."""
        if self.kind is NodeKind.LEAF:
            yield self.mask.bit_length() - 1
        for child in self.children:
            yield from child.iterate_leaves()


def make_universal_tree(leaves: Iterable[int]) -> PQNode:
    """Return the tree of these leaves, at least one, in any order."""
    return _group([PQNode(NodeKind.LEAF, 1 << leaf) for leaf in leaves])[0]


def to_mask(leaves: Iterable[int]) -> int:
    """Return the set of these leaves."""
    return sum(1 << leaf for leaf in set(leaves))


def iterate_members(mask: int) -> Iterator[int]:
    """Yield the leaves of a set in increasing order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def reduce(tree: PQNode, wanted: int) -> PQNode | None:
    """Return the orders of `tree` in which the leaves `wanted` are consecutive; None if none."""
    if tree.mask & wanted == tree.mask or wanted & (wanted - 1) == 0:
        return tree
    for position, child in enumerate(tree.children):
        if child.mask & wanted == wanted:
            reduced = reduce(child, wanted)
            if reduced is None or reduced is child:
                return tree if reduced is child else None
            children = (*tree.children[:position], reduced, *tree.children[position + 1 :])
            return PQNode(tree.kind, tree.mask, children)
    return _reduce_p_root(tree, wanted) if tree.kind is NodeKind.P else _reduce_q_root(tree, wanted)


def find_pertinent_root(tree: PQNode, wanted: int) -> PQNode:
    """Return the smallest subtree that contains all leaves of the set `wanted`."""
    for child in tree.children:
        if child.mask & wanted == wanted:
            return find_pertinent_root(child, wanted)
    return tree


def _is_empty(node: PQNode, wanted: int) -> bool:
    return node.mask & wanted == 0


def _is_full(node: PQNode, wanted: int) -> bool:
    return node.mask & wanted == node.mask


def _is_partial(node: PQNode, wanted: int) -> bool:
    return not _is_empty(node, wanted) and not _is_full(node, wanted)


def _make_node(kind: NodeKind, children: Sequence[PQNode]) -> PQNode:
    mask = 0
    for child in children:
        mask |= child.mask
    return PQNode(kind, mask, tuple(children))


def _group(nodes: Sequence[PQNode]) -> list[PQNode]:
    """Return an empty list, the only node, or a P-node over several nodes."""
    return list(nodes) if len(nodes) < 2 else [_make_node(NodeKind.P, nodes)]


def _partition_children(
    node: PQNode, wanted: int
) -> tuple[list[PQNode], list[PQNode], list[PQNode]]:
    empty = [child for child in node.children if _is_empty(child, wanted)]
    partial = [child for child in node.children if _is_partial(child, wanted)]
    full = [child for child in node.children if _is_full(child, wanted)]
    return empty, partial, full


def _reduce_p_root(root: PQNode, wanted: int) -> PQNode | None:
    empty, partial, full = _partition_children(root, wanted)
    if len(partial) > 2:
        return None
    if not partial:
        return _make_node(NodeKind.P, [*empty, *_group(full)])
    ends = [_linearize(child, wanted) for child in partial]
    if any(end is None for end in ends):
        return None
    left, right = ends[0] or [], (ends[1] or [])[::-1] if len(ends) == 2 else []
    chain = _make_node(NodeKind.Q, [*left, *_group(full), *right])
    return _make_node(NodeKind.P, [*empty, chain]) if empty else chain


def _reduce_q_root(root: PQNode, wanted: int) -> PQNode | None:
    """Reduce a Q-node whose children are empty* partial? full* partial? empty*; otherwise None."""
    touched = [k for k, child in enumerate(root.children) if not _is_empty(child, wanted)]
    first, last = touched[0], touched[-1]
    inner = root.children[first + 1 : last]
    if not all(_is_full(child, wanted) for child in inner):
        return None
    left = _linearize(root.children[first], wanted)
    right = _linearize(root.children[last], wanted)
    if left is None or right is None:
        return None
    if len(left) == len(right) == 1:
        return root
    before, behind = root.children[:first], root.children[last + 1 :]
    return _make_node(NodeKind.Q, [*before, *left, *inner, *right[::-1], *behind])


def _linearize(node: PQNode, wanted: int) -> list[PQNode] | None:
    """Return the subtrees of a node, empty ones first and full ones last; None if impossible."""
    if not _is_partial(node, wanted):
        return [node]
    if node.kind is NodeKind.P:
        empty, partial, full = _partition_children(node, wanted)
        if len(partial) > 1:
            return None
        middle = _linearize(partial[0], wanted) if partial else []
        return None if middle is None else [*_group(empty), *middle, *_group(full)]
    children = list(node.children)
    if _is_full(children[0], wanted) or _is_empty(children[-1], wanted):
        children.reverse()
    ranks = [1 if _is_partial(c, wanted) else 2 * _is_full(c, wanted) for c in children]
    if ranks != sorted(ranks) or ranks.count(1) > 1:
        return None
    result: list[PQNode] = []
    for child in children:
        part = _linearize(child, wanted)
        if part is None:
            return None
        result += part
    return result


@dataclass(slots=True)
class Pattern:
    """Operands of one batch that can be contiguous and in the same order, its results first.

    Elements with the same index belong together.

    Attributes:
        shared: sets of indices (bit masks) that must be adjacent in one operand, and so in all.
    """

    operands: list[tuple[int, ...]]
    shared: set[int] = field(default_factory=set)

    @property
    def is_constraint(self) -> bool:
        """True if at least two operands are left to align."""
        return len(self.operands) >= 2


def build_order_tree(
    variables: Collection[int], batches: Sequence[OperatorBatch]
) -> tuple[PQNode, list[Pattern]]:
    """Return the tree of memory orders with as many contiguous, aligned operands as possible.

    A batch's results are adjacent in all of these orders. An operand that contradicts earlier ones
    is omitted: it will be copied.
    """
    tree, patterns = _collect(variables, [batch for batch in batches if len(batch.members) > 1])
    return _broadcast(tree, patterns), [p for p in patterns if p.is_constraint]


def _collect(
    variables: Collection[int], batches: Sequence[OperatorBatch]
) -> tuple[PQNode, list[Pattern]]:
    tree = make_universal_tree(variables)
    for batch in batches:  # The sets are disjoint, so no reduction fails.
        tree = reduce(tree, to_mask(batch.members)) or tree
    patterns = []
    for batch in batches:
        pattern, taken = Pattern([batch.members]), to_mask(batch.members)
        for operand in dict.fromkeys(batch.operands):
            wanted = to_mask(operand)
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


def _broadcast(tree: PQNode, patterns: Sequence[Pattern]) -> PQNode:
    """Make the subtrees of all operands of a pattern equal, until nothing changes."""
    changed = True
    while changed:
        changed = False
        for pattern in patterns:
            for source in tuple(pattern.operands) if pattern.is_constraint else ():
                new = (
                    _as_indices(source, find_adjacent_sets(tree, to_mask(source))) - pattern.shared
                )
                if new and source in pattern.operands:
                    changed = True
                    tree = _impose_sets(tree, pattern, source, new)
    return tree


def _impose_sets(tree: PQNode, pattern: Pattern, source: tuple[int, ...], new: set[int]) -> PQNode:
    """Impose one operand's sets on every operand; drop those that fail, but not the results."""
    results = pattern.operands[0]
    for operand in tuple(pattern.operands):
        wanted = [to_mask(operand[i] for i in iterate_members(indices)) for indices in new]
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


def _reduce_by_all(tree: PQNode, sets: Sequence[int]) -> PQNode | None:
    reduced: PQNode | None = tree
    for wanted in sets:
        reduced = None if reduced is None else reduce(reduced, wanted)
    return reduced


def _as_indices(operand: Sequence[int], sets: Iterator[int]) -> set[int]:
    at = {leaf: 1 << index for index, leaf in enumerate(operand)}
    return {sum(at[leaf] for leaf in iterate_members(wanted)) for wanted in sets}


def find_adjacent_sets(tree: PQNode, wanted: int) -> Iterator[int]:
    """Yield sets of leaves that define the order of the adjacent leaves `wanted` in the tree.

    These are all leaves of a P-node, and those of every two neighbors below a Q-node.
    """
    waiting = [find_pertinent_root(tree, wanted)]
    while waiting:
        node = waiting.pop()
        children = [child for child in node.children if child.mask & wanted]
        waiting += children
        if node.kind is NodeKind.P:
            yield node.mask & wanted
        else:
            yield from (left.mask | right.mask for left, right in pairwise(children))


Permutation = tuple[int, ...]
Relation = tuple[PQNode, PQNode, Permutation]
SAME, REVERSED = (0, 1), (1, 0)


def decide_orders(
    tree: PQNode, patterns: Sequence[Pattern]
) -> tuple[tuple[int, ...], list[Pattern]]:
    """Return all leaves in one order that aligns the operands of the returned patterns.

    An operand that contradicts earlier ones is dropped.
    """
    tree = _convert_pairs_to_q(tree)
    orders = _Orders()
    for pattern in patterns:
        first = _find_inner_nodes(tree, pattern.operands[0])
        for operand in tuple(pattern.operands[1:]):
            relations = _find_relations(first, _find_inner_nodes(tree, operand))
            if relations is None or not orders.add_relations(relations):
                pattern.operands.remove(operand)
    return tuple(_order_leaves(tree, orders)), [p for p in patterns if p.is_constraint]


def _convert_pairs_to_q(node: PQNode) -> PQNode:
    """Convert nodes with two children to Q-nodes: either order is a direction."""
    children = tuple(map(_convert_pairs_to_q, node.children))
    return PQNode(NodeKind.Q if len(children) == 2 else node.kind, node.mask, children)


# Inner nodes below an operand, by the indices under them, with their children's indices.
Inner = dict[int, tuple[PQNode, tuple[int, ...]]]


def _find_inner_nodes(tree: PQNode, operand: Sequence[int]) -> Inner:
    wanted = to_mask(operand)
    inner: Inner = {}
    waiting = [find_pertinent_root(tree, wanted)]
    while waiting:
        node = waiting.pop()
        children = [child for child in node.children if child.mask & wanted]
        if children:
            parts = tuple(_find_indices(operand, child.mask) for child in children)
            inner[_find_indices(operand, node.mask)] = (node, parts)
        waiting += children
    return inner


def _find_indices(operand: Sequence[int], mask: int) -> int:
    return sum(1 << index for index, leaf in enumerate(operand) if mask >> leaf & 1)


def _find_relations(first: Inner, other: Inner) -> list[Relation] | None:
    """Return how nodes below one operand follow those below another; None if they differ."""
    if first.keys() != other.keys():
        return None
    relations = []
    for indices, (node, parts) in first.items():
        twin, twin_parts = other[indices]
        if node.kind is not twin.kind or set(parts) != set(twin_parts):
            return None
        if node.kind is NodeKind.P:
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
        self.parent: dict[PQNode, tuple[PQNode, Permutation]] = {}

    def find(self, node: PQNode) -> tuple[PQNode, Permutation]:
        """Return the root of a node, and the node's slots among the root's."""
        n = 2 if node.kind is NodeKind.Q else len(node.children)
        permutation = tuple(range(n))
        while node in self.parent:
            node, step = self.parent[node]
            permutation = tuple(step[k] for k in permutation)
        return node, permutation

    def add_relations(self, relations: Iterable[Relation]) -> bool:
        """Add all relations (slot k of a is slot permutation[k] of b), or none if one fails."""
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

    def order_children(self, node: PQNode) -> list[PQNode]:
        """Return a node's children in the chosen order."""
        _, slots = self.find(node)
        if node.kind is NodeKind.Q:
            return list(node.children[:: 1 if slots == SAME else -1])
        return [node.children[slots.index(k)] for k in range(len(slots))]


def _order_leaves(node: PQNode, orders: _Orders) -> Iterable[int]:
    if node.kind is NodeKind.LEAF:
        yield from node.iterate_leaves()
        return
    for child in orders.order_children(node):
        yield from _order_leaves(child, orders)
