"""PQ trees against brute force: a tree represents exactly the orders that its sets allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.vertex.subgraph.pq_tree import (
    NodeKind,
    PQNode,
    find_pertinent_root,
    iterate_members,
    make_universal_tree,
    reduce,
    to_mask,
)

Order = tuple[int, ...]


@cache
def permutations(n: int) -> NDArray[Any]:
    """Return all orders of n leaves (n!, n)."""
    return np.array(list(itertools.permutations(range(n))), dtype=np.int8)


@cache
def positions(n: int) -> NDArray[Any]:
    """Return the position of each leaf in each order (n!, n)."""
    return np.argsort(permutations(n), axis=1)


def allowed(n: int, sets: list[int]) -> set[Order]:
    """Find by brute force the orders in which every set is consecutive."""
    keep = np.ones(len(positions(n)), dtype=bool)
    for wanted in sets:
        at = positions(n)[:, list(iterate_members(wanted))]
        keep &= at.max(axis=1) - at.min(axis=1) == at.shape[1] - 1
    return set(map(tuple, permutations(n)[keep].tolist()))


def orders(node: PQNode) -> Iterator[Order]:
    """Return the orders that a tree represents."""
    if node.kind is NodeKind.LEAF:
        yield tuple(node.iterate_leaves())
        return
    if node.kind is NodeKind.P:
        arrangements = list(itertools.permutations(node.children))
    else:
        arrangements = [node.children, node.children[::-1]]
    for children in arrangements:
        for parts in itertools.product(*(list(orders(child)) for child in children)):
            yield tuple(itertools.chain(*parts))


@st.composite
def leaves_and_sets(draw: st.DrawFn) -> tuple[int, list[int]]:
    n = draw(st.integers(1, 7))
    return n, draw(st.lists(st.integers(1, (1 << n) - 1), max_size=6))


@given(leaves_and_sets())
@settings(max_examples=250, deadline=None)
def test_reduce_keeps_exactly_the_orders_that_sets_allow(case: tuple[int, list[int]]) -> None:
    n, sets = case
    tree, kept = make_universal_tree(range(n)), []
    for wanted in sets:
        reduced = reduce(tree, wanted)
        if reduced is None:  # the tree is unchanged, and the test continues without this set
            assert allowed(n, [*kept, wanted]) == set()
            continue
        tree = reduced
        kept.append(wanted)
    assert set(orders(tree)) == allowed(n, kept)
    assert sorted(tree.iterate_leaves()) == list(range(n))
    waiting = [tree]  # inner nodes are well-formed
    while waiting:
        node = waiting.pop()
        waiting += node.children
        assert len(node.children) >= {NodeKind.LEAF: 0, NodeKind.P: 2, NodeKind.Q: 3}[node.kind]
        assert node.mask == to_mask(node.iterate_leaves())


def test_trivial_sets_leave_the_tree_unchanged() -> None:
    tree = make_universal_tree(range(3))
    assert reduce(tree, to_mask({1})) is tree
    assert reduce(tree, to_mask({0, 1, 2})) is tree


def test_the_smallest_subtree_around_some_leaves() -> None:
    tree = reduce(make_universal_tree(range(4)), to_mask({1, 2}))
    assert tree is not None
    assert set(find_pertinent_root(tree, to_mask({1, 2})).iterate_leaves()) == {1, 2}
    assert find_pertinent_root(tree, to_mask({1, 3})) is tree
