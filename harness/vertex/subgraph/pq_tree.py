"""PQ trees: all orders of some leaves in which given sets of leaves are consecutive.

The data structure of Booth and Lueker, "Testing for the Consecutive Ones Property, Interval Graphs,
and Graph Planarity Using PQ-Tree Algorithms", JCSS 1976; the reduction is recursive
instead of by templates, and quadratic in the number of leaves. Trees are values: a reduction
returns a new tree that shares what did not change, so a failed one leaves nothing behind. Sets of
leaves are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """P: children in any order. Q: children in the given order or its reverse."""

    LEAF = "leaf"
    P = "P"
    Q = "Q"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A subtree; mask: the leaves below it, one bit each. Equal only to itself."""

    kind: Kind
    mask: int
    children: tuple[Node, ...] = ()

    def leaves(self) -> Iterator[int]:
        """The leaves from left to right."""
        if self.kind is Kind.LEAF:
            yield self.mask.bit_length() - 1
        for child in self.children:
            yield from child.leaves()


def universal(leaves: Iterable[int]) -> Node:
    """The tree of these leaves, at least one, in any order."""
    return _group([Node(Kind.LEAF, 1 << leaf) for leaf in leaves])[0]


def mask_of(leaves: Iterable[int]) -> int:
    """The set of these leaves."""
    return sum(1 << leaf for leaf in set(leaves))


def members(mask: int) -> Iterator[int]:
    """The leaves of a set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def reduce(tree: Node, wanted: int) -> Node | None:
    """The orders of `tree` in which the leaves of the set `wanted` are consecutive, or None."""
    if tree.mask & wanted == tree.mask or wanted & (wanted - 1) == 0:
        return tree
    for position, child in enumerate(tree.children):
        if child.mask & wanted == wanted:
            reduced = reduce(child, wanted)
            if reduced is None or reduced is child:
                return tree if reduced is child else None
            children = (*tree.children[:position], reduced, *tree.children[position + 1 :])
            return Node(tree.kind, tree.mask, children)
    return _reduce_p_root(tree, wanted) if tree.kind is Kind.P else _reduce_q_root(tree, wanted)


def cover(tree: Node, wanted: int) -> Node:
    """The smallest subtree that holds all leaves of the set `wanted`."""
    for child in tree.children:
        if child.mask & wanted == wanted:
            return cover(child, wanted)
    return tree


def _is_empty(node: Node, wanted: int) -> bool:
    return node.mask & wanted == 0


def _is_full(node: Node, wanted: int) -> bool:
    return node.mask & wanted == node.mask


def _is_partial(node: Node, wanted: int) -> bool:
    return not _is_empty(node, wanted) and not _is_full(node, wanted)


def _node(kind: Kind, children: Sequence[Node]) -> Node:
    mask = 0
    for child in children:
        mask |= child.mask
    return Node(kind, mask, tuple(children))


def _group(nodes: Sequence[Node]) -> list[Node]:
    """Nothing, the only node, or a P-node over several."""
    return list(nodes) if len(nodes) < 2 else [_node(Kind.P, nodes)]


def _sorted_by_label(node: Node, wanted: int) -> tuple[list[Node], list[Node], list[Node]]:
    empty = [child for child in node.children if _is_empty(child, wanted)]
    partial = [child for child in node.children if _is_partial(child, wanted)]
    full = [child for child in node.children if _is_full(child, wanted)]
    return empty, partial, full


def _reduce_p_root(root: Node, wanted: int) -> Node | None:
    empty, partial, full = _sorted_by_label(root, wanted)
    if len(partial) > 2:
        return None
    if not partial:
        return _node(Kind.P, [*empty, *_group(full)])
    ends = [_linear(child, wanted) for child in partial]
    if any(end is None for end in ends):
        return None
    left, right = ends[0] or [], (ends[1] or [])[::-1] if len(ends) == 2 else []
    chain = _node(Kind.Q, [*left, *_group(full), *right])
    return _node(Kind.P, [*empty, chain]) if empty else chain


def _reduce_q_root(root: Node, wanted: int) -> Node | None:
    """Children must read empty* partial? full* partial? empty*."""
    touched = [k for k, child in enumerate(root.children) if not _is_empty(child, wanted)]
    first, last = touched[0], touched[-1]
    inner = root.children[first + 1 : last]
    if not all(_is_full(child, wanted) for child in inner):
        return None
    left = _linear(root.children[first], wanted)
    right = _linear(root.children[last], wanted)
    if left is None or right is None:
        return None
    if len(left) == len(right) == 1:
        return root
    before, behind = root.children[:first], root.children[last + 1 :]
    return _node(Kind.Q, [*before, *left, *inner, *right[::-1], *behind])


def _linear(node: Node, wanted: int) -> list[Node] | None:
    """Subtrees of a node below the root, empty ones first, full ones last; None: impossible."""
    if not _is_partial(node, wanted):
        return [node]
    if node.kind is Kind.P:
        empty, partial, full = _sorted_by_label(node, wanted)
        if len(partial) > 1:
            return None
        middle = _linear(partial[0], wanted) if partial else []
        return None if middle is None else [*_group(empty), *middle, *_group(full)]
    children = list(node.children)
    if _is_full(children[0], wanted) or _is_empty(children[-1], wanted):
        children.reverse()
    ranks = [1 if _is_partial(c, wanted) else 2 * _is_full(c, wanted) for c in children]
    if ranks != sorted(ranks) or ranks.count(1) > 1:
        return None
    result: list[Node] = []
    for child in children:
        part = _linear(child, wanted)
        if part is None:
            return None
        result += part
    return result
