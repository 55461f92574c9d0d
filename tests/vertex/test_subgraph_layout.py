"""Memory orders of blocks: a layout's claims agree with addresses, and are as many as possible."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.vertex.subgraph.block import OperatorBatch
from dynbatch.harness.vertex.subgraph.plan import (
    BlockLayout,
    lay_out_by_pq_tree,
    lay_out_in_execution_order,
)

OUTSIDE = 100  # ids from here on are inputs


def addresses(order: Sequence[int], sizes: Mapping[int, int]) -> dict[int, int]:
    """Return the start of each variable in memory."""
    ends = itertools.accumulate((sizes[v] for v in order), initial=0)
    return dict(zip(order, ends, strict=False))


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


def test_memory_in_order_of_execution_keeps_the_batches() -> None:
    layout = lay_out_in_execution_order([OperatorBatch((3, 1, 2), ((9, 9, 9),)), *[B1, B2]])
    assert layout.order == (3, 1, 2, 4, 5, 6, 7, 8)
    assert layout.batches[1:] == (B1, B2)
    assert not layout.is_contiguous((1, 3))
    assert layout.is_contiguous((3, 1, 2))
    assert not layout.is_contiguous((9,))


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
    at = addresses(layout.order, sizes)
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
