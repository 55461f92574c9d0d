"""Batches, copies and memory orders of blocks: published pairs, and search by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import ModelSizes, trace_functions
from dynbatch.harness.models.cell import CELLS, CellModel
from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.subgraph.block import OperatorBatch, OperatorBlock
from dynbatch.harness.vertex.subgraph.plan import (
    BlockLayout,
    BlockPlan,
    lay_out_by_pq_tree,
    plan_block,
)
from dynbatch.harness.vertex.subgraph.pq_tree import (
    NodeKind,
    PQNode,
    iterate_members,
    make_universal_tree,
    reduce,
    to_mask,
)
from dynbatch.harness.vertex.subgraph.search import (
    batch_by_agenda,
    find_fewest_kernels,
    find_unavoidable_copies,
)

KB, N_INSTANCES = 1024, 8
# Chen et al., "ED-Batch", ICML 2023, Table 2, hidden size 64: kernels that copy and kB copied, for
# DyNet's layout, and for the PQ tree's with parameters gathered in advance.
PUBLISHED = {
    "gru": ((6, 666), (2, 14)),
    "lstm": ((4, 1054), (1, 16)),
    "mv": ((2, 260), (2, 260)),
    "tree_gru_internal": ((8, 552), (2, 16)),
    "tree_gru_leaf": ((4, 268), (2, 8)),
    "tree_lstm_internal": ((7, 1064), (3, 22)),
    "tree_lstm_leaf": ((3, 396), (1, 6)),
}


@cache
def block_of(cell: str) -> OperatorBlock:
    model = CellModel(ModelSizes(64, {"words": 2}), cell=cell)
    return OperatorBlock(trace_functions(model)["cell"])


def counts(plan: BlockPlan) -> tuple[int, float]:
    return plan.n_copies, plan.count_copied_bytes(N_INSTANCES) / KB


@pytest.mark.parametrize("cell", CELLS)
def test_the_14_published_pairs(cell: str) -> None:
    dynet = plan_block(block_of(cell), "dynet", pre_gather=False)
    pq = plan_block(block_of(cell), "pq", pre_gather=True)
    assert (counts(dynet), counts(pq)) == PUBLISHED[cell]


# Savings of each of the two ideas alone (not published): kernels and kB copied.
BY_ITSELF = {
    ("dynet", True): {"lstm": (2, 22), "tree_lstm_internal": (4, 30), "gru": (4, 22)},
    ("pq", False): {"lstm": (3, 1048), "tree_lstm_internal": (6, 1056), "gru": (4, 658)},
}


@pytest.mark.parametrize(("layout", "pre_gather"), BY_ITSELF)
def test_layout_and_pre_gathering_apart(layout: str, pre_gather: bool) -> None:
    for cell, expected in BY_ITSELF[layout, pre_gather].items():
        assert counts(plan_block(block_of(cell), layout, pre_gather=pre_gather)) == expected


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("batches_of", [batch_by_agenda, find_fewest_kernels])
def test_batches_are_valid(cell: str, batches_of: object) -> None:
    block = block_of(cell)
    _check_batches(block, batches_of(block))


def _check_batches(block: OperatorBlock, batches: Sequence[OperatorBatch]) -> None:
    done: set[int] = set()
    for batch in batches:
        assert len({block.type_of[i] for i in batch.members}) == 1
        assert len(batch.members) == 1 or not set(batch.members) & set(block.outputs)
        for i in batch.members:
            assert {k for k in block.nodes[i].inputs if k in block.type_of} <= done
        done |= {*batch.members}
        assert [batch] == [block.batch(batch.members)]
    assert sorted(done) == sorted(block.variables)
    assert sum(len(batch.members) for batch in batches) == len(done)


def test_products_with_different_matrices_of_equal_shape_are_one_batch() -> None:
    block = block_of("lstm")
    products = [b for b in find_fewest_kernels(block) if block.nodes[b.members[0]].op == "matmul"]
    assert [len(batch.members) for batch in products] == [8]


# --- the search against all schedules ---


@st.composite
def programs(draw: st.DrawFn) -> OperatorBlock:
    """Return elementwise operators of a few kinds on two inputs and on each other."""
    nodes = [Node("gather", (), (3,), index=slot, name="h") for slot in range(2)]
    for _ in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from(("tanh", "sigmoid", "mul", "add")))
        operand = st.integers(0, len(nodes) - 1)
        inputs = tuple(draw(operand) for _ in range(1 if op in ("tanh", "sigmoid") else 2))
        nodes.append(Node(op, inputs, (3,)))
    return OperatorBlock(VertexFunction("f", tuple(nodes), scatter=(("h", len(nodes) - 1),)))


def all_schedules(
    block: OperatorBlock, done: frozenset[int] = frozenset()
) -> Iterator[list[OperatorBatch]]:
    """Yield every way to take all ready operators of some type until none is left."""
    left = [i for i in block.variables if i not in done]
    if not left:
        yield []
    ready = [i for i in left if not any(k in left for k in block.nodes[i].inputs)]
    for type_id in sorted({block.type_of[i] for i in ready}):
        members = [i for i in ready if block.type_of[i] == type_id]
        for rest in all_schedules(block, done | {*members}):
            yield [block.batch(members), *rest]


def cost(block: OperatorBlock, batches: Sequence[OperatorBatch]) -> tuple[int, int]:
    copies = [operand for batch in batches for operand in find_unavoidable_copies(block, batch)]
    return len(batches) + len(copies), sum(map(block.count_elements, copies))


@given(programs())
@settings(max_examples=150, deadline=None)
def test_no_schedule_is_cheaper_than_the_one_found(block: OperatorBlock) -> None:
    found = find_fewest_kernels(block)
    _check_batches(block, found)
    assert cost(block, found) == min(cost(block, other) for other in all_schedules(block))


def test_oversized_search_returns_a_valid_schedule() -> None:
    """Twelve pairs of operators that share no batch: 3 ** 12 sets of possible progress."""
    nodes = [Node("gather", (), (3,), name="h")]
    for k in range(12):
        nodes += [Node("shift", (0,), (3,), value=float(k))]
        nodes += [Node("scale", (len(nodes) - 1,), (3,), value=float(k))]
    block = OperatorBlock(VertexFunction("f", tuple(nodes), scatter=(("h", 24),)))
    found = find_fewest_kernels(block)
    _check_batches(block, found)
    assert len(found) == 24


# --- memory orders: claims agree with addresses, and are as many as possible ---

OUTSIDE = 100  # ids from here on are inputs


def is_one_piece(operand: Sequence[int], at: Mapping[int, int], sizes: Mapping[int, int]) -> bool:
    """Return True if each value starts at the end of the previous one."""
    return all(
        a in at and b in at and at[b] == at[a] + sizes[a] for a, b in itertools.pairwise(operand)
    )


def n_aligned(order: Sequence[int], batches: Sequence[OperatorBatch]) -> int:
    """Count operands that are contiguous in the order of their results; -1 if these are not."""
    place = {v: k for k, v in enumerate(order)}
    unit = dict.fromkeys(order, 1)
    count = 0
    for batch in batches:
        laid_out = batch.reorder(sorted(batch.members, key=place.__getitem__))
        if not is_one_piece(laid_out.members, place, unit):
            return -1
        count += sum(is_one_piece(operand, place, unit) for operand in laid_out.operands)
    return count


# A worked example: two batches over variables 1 to 8, each with one alignable operand.
B1, B2 = OperatorBatch((4, 5), ((1, 3),)), OperatorBatch((6, 7, 8), ((3, 1, 2),))


def test_the_worked_example_has_24_layouts_and_ours_is_one() -> None:
    orders = itertools.permutations(range(1, 9))
    valid = {order for order in orders if n_aligned(order, [B1, B2]) == 2}
    assert len(valid) == 24
    assert {(3, 1, 2, 6, 7, 8, 5, 4), (1, 3, 2, 4, 5, 7, 6, 8)} <= valid
    layout = lay_out_by_pq_tree(range(1, 9), [B1, B2])
    assert layout.order in valid
    first, second = layout.batches
    assert all(map(layout.is_contiguous, (*first.operands, *second.operands)))
    assert layout.aligned == ((first.members, *first.operands), (second.members, *second.operands))


@st.composite
def random_batches(draw: st.DrawFn) -> list[OperatorBatch]:
    """Return batches in order of execution; operands are earlier results or inputs."""
    batches: list[OperatorBatch] = []
    computed: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        size, n_operands = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        members = tuple(range(len(computed), len(computed) + size))
        outside = st.sampled_from(range(OUTSIDE, OUTSIDE + 3))
        source = st.sampled_from(computed) if computed else outside
        likely = st.one_of(source, source, source, outside)
        operands = tuple(
            tuple(draw(st.permutations(computed))[:size])
            if len(computed) >= size and draw(st.booleans())
            else tuple(draw(likely) for _ in members)
            for _ in range(n_operands)
        )
        batches.append(OperatorBatch(members, operands))
        computed += members
    return batches


def _false_claims(layout: BlockLayout, batches: Sequence[OperatorBatch]) -> list[str]:
    """Return a layout's claims that contradict addresses."""
    sizes = {v: 3 + k for k, batch in enumerate(batches) for v in batch.members}
    ends = itertools.accumulate((sizes[v] for v in layout.order), initial=0)
    at = dict(zip(layout.order, ends, strict=False))  # the start of each variable in memory
    of_batch = {batch.members: batch.operands for batch in layout.batches}
    same_variables = sorted(layout.order) == sorted(v for batch in batches for v in batch.members)
    false = [] if same_variables else [f"{layout.order} are others"]
    for old, new in zip(batches, layout.batches, strict=True):
        one, other = (sorted(zip(b.members, *b.operands, strict=True)) for b in (old, new))
        false += [] if one == other else [f"{new} applies something else than {old}"]
        false += [] if is_one_piece(new.members, at, sizes) else [f"{new.members} lie apart"]
    for results, *operands in layout.aligned:
        false += [] if operands else [f"{results} are aligned with nothing"]
        for operand in operands:
            is_there = operand in of_batch[results]
            in_place = is_one_piece(operand, at, sizes) and layout.is_contiguous(operand)
            false += [] if is_there and in_place else [f"{operand} are not aligned with {results}"]
    return false


@given(random_batches())
@settings(max_examples=400, deadline=None)
def test_layout_claims_match_memory_addresses(batches: list[OperatorBatch]) -> None:
    variables = [v for batch in batches for v in batch.members]
    assert _false_claims(lay_out_by_pq_tree(variables, batches), batches) == []


@given(random_batches())
@settings(max_examples=60, deadline=None)
def test_a_layout_is_found_wherever_one_aligns_everything(batches: list[OperatorBatch]) -> None:
    """If some order aligns every operand that any order could align, the PQ tree finds one."""
    variables = [v for batch in batches for v in batch.members]
    several = [batch for batch in map(_with_disjoint_operands, batches) if len(batch.members) > 1]
    wanted = sum(len(batch.operands) for batch in several)
    if len(variables) > 7 or wanted == 0:
        return
    if all(n_aligned(order, several) < wanted for order in itertools.permutations(variables)):
        return
    assert n_aligned(lay_out_by_pq_tree(variables, several).order, several) == wanted


def _with_disjoint_operands(batch: OperatorBatch) -> OperatorBatch:
    """Select what a layout can align: no inputs, and nothing twice in a batch."""
    kept: list[tuple[int, ...]] = []
    for operand in batch.operands:
        taken = {v for other in kept for v in other}
        distinct = len(set(operand)) == len(operand)
        if distinct and not taken & {*operand} and max(operand) < OUTSIDE:
            kept.append(operand)
    return OperatorBatch(batch.members, tuple(kept))


@pytest.mark.parametrize("direction", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_three_children_of_a_p_node_follow_one_permutation(direction: tuple[int, ...]) -> None:
    """Two operands without any order of their own still have to agree with the results."""
    sources = OperatorBatch(tuple(range(8)), ((OUTSIDE,) * 8,))
    first = OperatorBatch((8, 9, 10, 11), (direction, (4, 6, 5, 7)))
    layout = lay_out_by_pq_tree(range(12), [sources, first])
    assert all(map(layout.is_contiguous, layout.batches[1].operands))


def test_conflicting_operand_is_copied_and_others_stay_aligned() -> None:
    """Vertex b needs a's results in order and crosswise: the crosswise operand is dropped."""
    a = OperatorBatch((0, 1, 2), ((OUTSIDE,) * 3,))
    b = OperatorBatch((3, 4, 5), ((0, 1, 2),))
    c = OperatorBatch((6, 7, 8), ((3, 4, 5), (1, 0, 2)))
    layout = lay_out_by_pq_tree(range(9), [a, b, c])
    aligned = [layout.is_contiguous(o) for batch in layout.batches[1:] for o in batch.operands]
    assert aligned == [True, True, False]


def test_a_block_without_operators_has_an_empty_layout() -> None:
    assert lay_out_by_pq_tree((), ()).order == ()


# --- PQ trees: exactly the orders that their sets allow ---

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
