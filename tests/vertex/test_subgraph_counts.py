"""Batches and copies of the cells: the 14 published pairs, and the search against brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import ModelSizes, trace_functions
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.models.cell import CELLS, CellModel
from dynbatch.harness.vertex.operators import Node
from dynbatch.harness.vertex.program import VertexFunction
from dynbatch.harness.vertex.subgraph.block import OperatorBatch, OperatorBlock
from dynbatch.harness.vertex.subgraph.plan import BlockPlan, plan_block
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
    assert callable(batches_of)
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


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ConfigError, match="layout=row is not allowed; choose one of dynet, pq"):
        plan_block(block_of("gru"), "row", pre_gather=True)


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
