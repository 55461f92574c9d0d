"""Rows of states, and gathers that need no copy, on random typed graphs and on the shapes of which
the layout promises something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts.model import Model, initial_weights
from harness.contracts.policy import load_policy
from harness.engine.lowering.plan import Slots
from harness.engine.rows.fields import NOT_CONTIGUOUS, Gather, Reads, fields_of, space_of_type
from harness.engine.rows.layout import Layout
from harness.engine.rows.layout import plan_layout as plan
from harness.engine.switches import Switches
from harness.errors import ScheduleError
from harness.models.tree_fc import TreeFC
from harness.values.arrays import int_array
from harness.values.graph import Graph, MiniBatch
from harness.values.schedule import Schedule
from systems.on_core.vertex import Adapter
from tests.support.engine_models import BINARY, EXAMPLES, tree
from tests.support.engine_runs import prepared
from tests.support.random_graphs import graphs
from tests.support.sketch_models import SIZES, ChainLSTM
from tests.support.sketches import Sketch

POLICIES = st.sampled_from(["frontier", "agenda", "depth", "unbatched"])


def _laid_out(
    graph: Graph, policy: str, n_spaces: int, reorder: bool, slots: Slots = ()
) -> tuple[Layout, Schedule, list[int]]:
    """slots: what every type gathers, as far as all its vertices have them; None: all children."""
    nobody = np.zeros(0, dtype=np.int32)
    mini_batch = MiniBatch(graph, {}, nobody, 1)
    schedule = load_policy(policy)(graph)
    spaces = [t % n_spaces for t in range(graph.n_types)]
    reads = {t: Reads(_gathered(graph, t, slots), ()) for t in range(graph.n_types)}
    fields = fields_of(reads, graph.n_types)
    layout = plan(mini_batch, schedule, fields, int_array(spaces), reorder=reorder)
    return layout, schedule, spaces


def _gathered(graph: Graph, type_id: int, slots: Slots) -> tuple[Slots, ...]:
    if slots is None:
        return (None,)
    n_children = np.diff(graph.arg_start)[graph.types == type_id]
    kept = tuple(slot for slot in slots if slot < n_children.min(initial=len(slots)))
    return (kept,) if kept else ()


@settings(max_examples=80, deadline=None)
@given(graphs(), POLICIES, st.integers(1, 3), st.booleans())
def test_rows_of_each_space_are_a_permutation(
    graph: Graph, policy: str, n_spaces: int, reorder: bool
) -> None:
    layout, _, spaces = _laid_out(graph, policy, n_spaces, reorder)
    space_of_vertex = np.array(spaces)[graph.types]
    for space in range(n_spaces):
        rows = np.sort(layout.row[space_of_vertex == space])
        np.testing.assert_array_equal(rows, np.arange(len(rows)))
        if space < len(layout.n_rows):
            assert layout.n_rows[space] == len(rows)


@settings(max_examples=80, deadline=None)
@given(graphs(), POLICIES, st.integers(1, 3), st.booleans())
def test_each_batch_is_a_block_of_rows(
    graph: Graph, policy: str, n_spaces: int, reorder: bool
) -> None:
    layout, schedule, _ = _laid_out(graph, policy, n_spaces, reorder)
    assert len(layout.batches) == schedule.n_batches
    for k, (type_id, position) in enumerate(layout.batches):
        rows = layout[type_id].rows
        members = rows.vertices[rows.starts[position] : rows.starts[position + 1]]
        expected = schedule.batch(k)
        if reorder:
            assert sorted(members.tolist()) == sorted(expected.tolist())
        else:
            np.testing.assert_array_equal(members, expected)
        assert (graph.types[members] == type_id).all()
        first = rows.first_row[position]
        np.testing.assert_array_equal(layout.row[members], first + np.arange(len(members)))


def _check_views(gather: Gather, bounds: Sequence[int]) -> None:
    """`runs` are claimed exactly where rows follow one another."""
    for k, first in enumerate(gather.runs[:-1].tolist()):
        rows = gather.index[bounds[k] : bounds[k + 1]]
        is_run = not len(rows) or bool((rows == rows[0] + np.arange(len(rows))).all())
        assert (first != NOT_CONTIGUOUS) == is_run
        if is_run and len(rows):
            assert first == rows[0]
    everything = gather.index
    is_run = not len(everything) or bool(
        (everything == everything[0] + np.arange(len(everything))).all()
    )
    assert (gather.runs[-1] != NOT_CONTIGUOUS) == is_run
    if is_run and len(everything):
        assert gather.runs[-1] == everything[0]


@settings(max_examples=80, deadline=None)
@given(graphs(), POLICIES, st.booleans())
def test_gathers_of_all_children_point_to_their_rows(
    graph: Graph, policy: str, reorder: bool
) -> None:
    layout, _, _ = _laid_out(graph, policy, 1, reorder, None)
    for geometry in layout.values():
        rows, gather = geometry.rows, geometry.gathers[None]
        children = [layout.row[graph.args_of(vertex)].tolist() for vertex in rows.vertices]
        assert gather.index.tolist() == [row for own in children for row in own]
        assert np.diff(gather.edge_start).tolist() == [len(own) for own in children]
        _check_views(gather, gather.edge_start[rows.starts].tolist())


@settings(max_examples=80, deadline=None)
@given(graphs(), POLICIES, st.booleans(), st.permutations([0, 1, 2]))
def test_gathers_by_slot_lie_side_by_side(
    graph: Graph, policy: str, reorder: bool, order: list[int]
) -> None:
    layout, _, _ = _laid_out(graph, policy, 1, reorder, tuple(order))
    for geometry in layout.values():
        rows = geometry.rows
        for slots, gather in geometry.gathers.items():
            assert slots is not None
            expected = [
                layout.row[graph.args_of(vertex)[slot]]
                for vertex in rows.vertices
                for slot in slots
            ]
            assert gather.index.tolist() == expected
            _check_views(gather, (rows.starts * len(slots)).tolist())


def test_types_that_write_a_common_state_share_rows() -> None:
    states = [frozenset(s) for s in ("", "c h", "h", "a", "w a", "x")]
    states = [frozenset(" ".join(s).split()) for s in states]
    nobody, first, second, third, fourth, fifth = space_of_type(states)
    assert first == second
    assert third == fourth
    assert len({nobody, first, third, fifth}) == 4


def test_spaces_are_joined_transitively() -> None:
    ax, by, ab, x, y, c = space_of_type([frozenset(s) for s in ("ax", "by", "ab", "x", "y", "c")])
    assert ax == by == ab == x == y != c


def _forward(adapter: Adapter, instances: Sequence[Any]) -> int:
    """Bytes copied by the forward half."""
    mini_batch = adapter.model.mini_batch(instances)
    adapter.engine.arrange(mini_batch, adapter.policy(mini_batch.graph))
    adapter.engine.forward()
    return adapter.engine.backend.tally.bytes_copied


def _adapter(model: Model, layout: str, fusion: bool = False, policy: str = "frontier") -> Adapter:
    switches = Switches(layout=layout, fusion=fusion)
    return prepared(model, initial_weights(model, 0), switches, policy)


def _chain(length: int) -> Sketch:
    return Sketch([("first", [])] + [("step", [k]) for k in range(length - 1)])


CHAINS = {
    (layout, fusion): _adapter(ChainLSTM(SIZES), layout, fusion)
    for layout in ("read_order", "policy")
    for fusion in (True, False)
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.booleans())
def test_chains_of_any_lengths_copy_nothing(lengths: list[int], fusion: bool) -> None:
    chains = [_chain(length) for length in lengths]
    assert _forward(CHAINS["read_order", fusion], chains) == 0


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_chains_are_copied_at_least_as_much_in_the_policy_s_order(lengths: list[int]) -> None:
    chains = [_chain(length) for length in lengths]
    copied = [_forward(CHAINS[layout, False], chains) for layout in ("read_order", "policy")]
    assert copied[0] <= copied[1]


def test_chains_that_end_early_are_copied_in_the_policy_s_order() -> None:
    chains = [_chain(2), _chain(3)]  # the second step reads the second row of two
    assert _forward(CHAINS["policy", False], [_chain(3), _chain(2), _chain(3)]) > 0
    assert _forward(CHAINS["read_order", False], [_chain(3), _chain(2), _chain(3)]) == 0
    assert _forward(CHAINS["policy", False], chains) == 0  # one row is always a run


def complete_tree(height: int) -> Any:
    """A complete binary tree; leaves first, then level by level."""
    n_leaves = 2**height
    words = [k % SIZES.of("words") for k in range(n_leaves)] + [-1] * (n_leaves - 1)
    below = [-1] * n_leaves
    left, right = below + [2 * k for k in range(n_leaves - 1)], list(below)
    right += [2 * k + 1 for k in range(n_leaves - 1)]
    return tree(words, left, right)


@pytest.mark.parametrize("variant", ["fold", "cavs"])
@pytest.mark.parametrize("policy", ["frontier", "depth", "agenda"])
@pytest.mark.parametrize("n_trees", [1, 3])
def test_complete_trees_copy_nothing_at_all(variant: str, policy: str, n_trees: int) -> None:
    model = TreeFC(SIZES, variant=variant)
    adapter = _adapter(model, "read_order", policy=policy)
    adapter.load([complete_tree(3)] * n_trees)
    assert _forward(adapter, adapter.instances) == 0
    if policy != "agenda":  # which may start one level before another has ended
        adapter.engine.backward()
        assert adapter.engine.backend.tally.bytes_copied == 0


@pytest.mark.parametrize("name", ["tree_lstm", "tree_fc_fold", "chain_gru", "shared_children"])
def test_reading_order_copies_no_more_than_the_policy_s(name: str) -> None:
    model, instances = EXAMPLES[name]
    ordered, plain = (
        _forward(_adapter(model, layout), instances * 2) for layout in ("read_order", "policy")
    )
    assert ordered <= plain


def test_children_in_the_wrong_order_are_turned_round() -> None:
    model = EXAMPLES["tree_lstm"][0]
    crossed = tree([1, 2, -1], [-1, -1, 1], [-1, -1, 0])
    assert _forward(_adapter(model, "read_order"), [crossed]) == 0
    # Two states (h for products, c without fusion) of two children of four floats.
    assert _forward(_adapter(model, "policy"), [crossed]) == 2 * 2 * SIZES.hidden_size * 4


def test_a_child_read_twice_is_copied() -> None:
    model = EXAMPLES["shared_children"][0]
    assert _forward(_adapter(model, "read_order"), BINARY[2:]) > 0


def test_a_vertex_with_too_few_children_is_refused() -> None:
    graph = Graph(types=[1, 2], arg_start=[0, 0, 1], args=[0], type_names=("none", "leaf", "pair"))
    mini_batch = MiniBatch(graph, {}, np.array([1], dtype=np.int32), 1)
    schedule = Schedule(order=[0, 1], starts=[0, 1, 2])
    fields = fields_of({2: Reads(((0, 1),), ())}, 3)
    with pytest.raises(ScheduleError, match="a pair vertex gathers slot 1 but has 1 children"):
        plan(mini_batch, schedule, fields, int_array([1, 0, 0]), reorder=False)
