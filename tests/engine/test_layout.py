"""Rows of states and gathers without copies, on random typed graphs and special shapes.

The shapes are those for which the layout guarantees few copies. Batches of several vertex functions
are launched once per function, and counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.engine.lowering.plan import Slots
from dynbatch.harness.engine.rows import fields as parts
from dynbatch.harness.engine.rows.fields import Reads, number_fields, space_of_type
from dynbatch.harness.engine.rows.launches import split_into_launches
from dynbatch.harness.engine.rows.layout import Before, Layout, RowRules, plan_layout
from dynbatch.harness.engine.rows.row_order import AT_ONCE, N_EDGES
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.models.tree_fc import TreeFC
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import Graph, MiniBatch
from dynbatch.harness.values.schedule import Schedule
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import BINARY, EXAMPLES, chain, example, tree
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.plain_layout import PlainLayout, plain_layout
from tests.support.policies import batches as batches_of
from tests.support.random_graphs import graph_of, graphs, graphs_in_segments
from tests.support.sketch_models import SIZES, ChainLSTM


def test_types_that_write_a_common_state_share_rows_transitively() -> None:
    states = [frozenset(s.split()) for s in ("", "c h", "h", "a", "w a", "x")]
    nobody, first, second, third, fourth, fifth = space_of_type(states)
    assert (first, third) == (second, fourth)
    assert len({nobody, first, third, fifth}) == 4
    ax, by, ab, x, y, c = space_of_type([frozenset(s) for s in ("ax", "by", "ab", "x", "y", "c")])
    assert ax == by == ab == x == y != c


def _forward(adapter: Adapter, instances: Sequence[Any]) -> int:
    """Return the bytes copied by the forward stages."""
    mini_batch = adapter.model.mini_batch(instances)
    adapter.engine.arrange(mini_batch, adapter.policy(mini_batch.graph))
    adapter.engine.forward()
    return adapter.engine.backend.tally.bytes_copied


def _adapter(model: Model, layout: str, fusion: bool = False, policy: str = "frontier") -> Adapter:
    switches = Switches(layout=layout, fusion=fusion)
    return prepared(model, draw_initial_weights(model, 0), switches, policy)


CHAINS = {
    key: _adapter(ChainLSTM(SIZES), *key)
    for key in (("read_order", True), ("read_order", False), ("policy", False))
}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_chains_of_any_lengths_copy_nothing(lengths: list[int]) -> None:
    chains = [chain(length) for length in lengths]
    for fusion in (True, False):
        assert _forward(CHAINS["read_order", fusion], chains) == 0


def test_chains_that_end_early_are_copied_in_the_policy_s_order() -> None:
    assert _forward(CHAINS["policy", False], [chain(3), chain(2), chain(3)]) > 0
    # The second step reads the second row of two, and one row is always consecutive.
    assert _forward(CHAINS["policy", False], [chain(2), chain(3)]) == 0


def complete_tree(height: int) -> Any:
    """Return a complete binary tree; leaves first, then level by level."""
    n_leaves = 2**height
    words = [k % SIZES.get_size("words") for k in range(n_leaves)] + [-1] * (n_leaves - 1)
    below, parents = [-1] * n_leaves, range(n_leaves - 1)
    return tree(words, below + [2 * k for k in parents], below + [2 * k + 1 for k in parents])


@pytest.mark.parametrize("variant", ["fold", "cavs"])
@pytest.mark.parametrize("policy", ["frontier", "depth", "agenda"])
@pytest.mark.parametrize("n_trees", [1, 3])
def test_complete_trees_copy_nothing_at_all(variant: str, policy: str, n_trees: int) -> None:
    model = TreeFC(SIZES, variant=variant)
    adapter = _adapter(model, "read_order", policy=policy)
    adapter.load([complete_tree(3)] * n_trees)
    assert _forward(adapter, adapter.instances) == 0
    if policy != "agenda":  # it may start one level before another has ended
        adapter.engine.backward()
        assert adapter.engine.backend.tally.bytes_copied == 0


@pytest.mark.parametrize("name", ["tree_lstm", "tree_fc_fold", "tree_gru", "shared_children"])
def test_reading_order_copies_no_more_than_the_policy_s(name: str) -> None:
    model, instances = EXAMPLES[name]
    ordered, plain = (
        _forward(_adapter(model, layout), instances * 2) for layout in ("read_order", "policy")
    )
    assert ordered <= plain


def test_a_child_read_twice_is_copied() -> None:
    model = EXAMPLES["shared_children"][0]
    assert _forward(_adapter(model, "read_order"), BINARY[2:]) > 0


NAMES = ("label", "word")


@st.composite
def reads(draw: st.DrawFn, graph: Graph) -> dict[int, Reads]:
    """Draw the gathers and pulls of functions.

    A gather has slots that all vertices of the type have, or all children.
    """
    found = {}
    for t in range(graph.n_types):
        n_children = np.diff(graph.arg_start)[graph.types == t].min(initial=3)
        groups: list[Slots] = [None] if draw(st.booleans()) else []
        order = draw(st.permutations(range(int(n_children))))
        groups += [tuple(order[:k]) for k in {1, len(order)} if k and draw(st.booleans())]
        pulls = tuple(name for name in NAMES if draw(st.booleans()))
        found[t] = Reads(tuple(groups), pulls)
    if draw(st.booleans()):
        found[parts.OUTPUT] = Reads(((0,),), tuple(name for name in NAMES if draw(st.booleans())))
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[MiniBatch, Schedule, dict[int, Reads], list[int]]:
    graph = draw(st.one_of(graphs(), graphs_in_segments()))
    read, n = draw(reads(graph)), graph.n_vertices
    space = draw(st.integers(1, 3))
    outputs = draw(st.lists(st.integers(0, n - 1), max_size=12))
    pulls = {name: as_int_array(np.arange(n) * 7 + k) for k, name in enumerate(NAMES)}
    of_outputs = {
        name: as_int_array(np.arange(len(outputs)) * 5 - k) for k, name in enumerate(NAMES)
    }
    mini_batch = MiniBatch(
        graph,
        pulls,
        as_int_array(outputs),
        1,
        output_pulls=of_outputs if draw(st.booleans()) else None,
    )
    policy = load_policy(draw(st.sampled_from(["frontier", "agenda", "unbatched"])))
    spaces = [t % space for t in range(graph.n_types)]
    return mini_batch, schedule_in_segments(policy, graph), read, spaces


def check(found: Layout, expected: PlainLayout) -> None:
    batches = [list(pair) for pair in expected.batches]
    assert found.batches.tolist() == batches
    assert found.row.tolist() == expected.row
    n_spaces = len(expected.n_rows)
    assert found.n_rows[:n_spaces].tolist() == expected.n_rows
    assert not found.n_rows[n_spaces:].any()
    # Outputs come after all batches, and before them in the backward order.
    of_outputs = [[t, 0] for t in found if t < 0]
    assert found.forth.tolist() == batches + of_outputs
    assert found.back.tolist() == of_outputs + batches[::-1]
    assert list(found) == list(expected.types)
    for t, geometry in expected.types.items():
        check_geometry(found[t], geometry)
        assert found.count_rows(t) == geometry.n_rows
        assert found.count_batches(t) == len(geometry.first_row)
        function = found.fields.index_function(t)
        assert found.room_wanted[function, AT_ONCE] == expected.at_once[t]
        assert found.room_wanted[function, N_EDGES] >= geometry.n_edges
        assert found.select_array(found.fields.index_function_array(t, parts.ROWS)).tolist() == [
            geometry.n_rows
        ]
        if None in geometry.gathers:
            bounds = found.select_array(found.fields.index_gather_array(t, None, parts.EDGE_BOUNDS))
            edge_start = geometry.gathers[None].edge_start
            assert bounds.tolist() == edge_start[geometry.starts].tolist()
    assert found.scattered == [t for t, one in expected.types.items() if not one.contiguous]
    if parts.OUTPUT in found:
        assert found.output_order.tolist() == expected.order
        assert found.output_segments.tolist() == expected.segments


def check_geometry(found: Any, expected: Any) -> None:
    for name in ("vertices", "starts", "first_row"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert list(found.gathers) == list(expected.gathers)
    for slots, gather in expected.gathers.items():
        for name in ("index", "runs", "edge_start"):
            of_found = getattr(found.gathers[slots], name).tolist()
            assert of_found == getattr(gather, name).tolist(), (slots, name)
    assert {k: v.tolist() for k, v in found.pulls.items()} == {
        k: v.tolist() for k, v in expected.pulls.items()
    }
    assert found.contiguous == expected.contiguous


@settings(max_examples=150, deadline=None)
@given(cases(), st.booleans())
def test_one_call_equals_one_array_after_the_other(case: Any, reorder: bool) -> None:
    mini_batch, schedule, read, spaces = case
    fields = number_fields(read, len(spaces))
    rules = RowRules(fields, as_int_array(spaces), {}, reorder)
    found = plan_layout(mini_batch, schedule, rules)
    check(found, plain_layout(mini_batch, schedule, read, spaces, reorder=reorder))


@settings(max_examples=60, deadline=None)
@given(graphs_in_segments(), st.integers(1, 3))
def test_segments_one_by_one_take_the_rows_that_they_have_together(graph: Graph, n: int) -> None:
    """Vertices of the graph are numbered segment by segment."""
    graph = in_order_of_segments(graph)
    spaces = as_int_array([t % n for t in range(graph.n_types)])
    fields = number_fields({t: Reads((None,), ()) for t in range(graph.n_types)}, graph.n_types)
    rules = RowRules(fields, spaces, {}, reorder=True)
    policy, nobody = load_policy("frontier"), as_int_array([])
    schedule = schedule_in_segments(policy, graph)
    whole = plan_layout(MiniBatch(graph, {}, nobody, 1), schedule, rules)
    row = np.zeros(graph.n_vertices, dtype=np.int32)
    used, index = np.zeros(graph.n_types, dtype=np.int64), list[list[int]]()
    for r in range(int(graph.segments.max()) + 1):
        first, end = np.searchsorted(graph.segments, [r, r + 1]).tolist()
        starts = graph.arg_start[first : end + 1]
        args = graph.args[starts[0] : starts[-1]]
        piece = graph.build_part(graph.types[first:end], as_int_array(starts - starts[0]), args)
        begin, last = schedule.segment_starts[r : r + 2].tolist()
        order = schedule.order[schedule.starts[begin] : schedule.starts[last]] - first
        own = Schedule(order, schedule.starts[begin : last + 1] - schedule.starts[begin])
        before, mini_batch = Before(first, row, used), MiniBatch(piece, {}, nobody, 1)
        found = plan_layout(mini_batch, own, rules, before)
        used = found.n_rows
        index += [found[t].gathers[None].index.tolist() for t in found]
        for t in found:
            rows = found[t]
            np.testing.assert_array_equal(
                whole.row[first + rows.vertices[rows.starts[:-1]]], rows.first_row
            )
    np.testing.assert_array_equal(row, whole.row)
    np.testing.assert_array_equal(used, whole.n_rows)
    children = [row for t in whole for row in whole[t].gathers[None].index.tolist()]
    assert sorted(k for one in index for k in one) == sorted(children)


def in_order_of_segments(graph: Graph) -> Graph:
    order = np.argsort(graph.segments, kind="stable")
    new = np.empty(len(order), dtype=np.int64)
    new[order] = np.arange(len(order))
    args = [new[graph.select_args(v)].tolist() for v in order]
    found = graph_of(graph.types[order].tolist(), args, graph.n_types, graph.follows.tolist())
    return replace(found, segments=graph.segments[order])


PAIR = Graph(types=[1, 2], arg_start=[0, 0, 2], args=[0, 0], type_names=("none", "leaf", "pair"))
ONE_CHILD = replace(PAIR, arg_start=as_int_array([0, 0, 1]), args=as_int_array([0]))
AFTER = Schedule(order=[0, 1], starts=[0, 1, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": as_int_array([0, 2])}, "an output reads vertex 2, but the graph has 2"),
        ({"outputs": as_int_array([1, -1])}, "an output reads vertex -1, but the graph has 2"),
        ({"pulls": {}}, "the mini-batch has no pull 'word'"),
        ({"pulls": {"word": as_int_array([1])}}, "pulls word: expected 2 numbers"),
        ({"output_pulls": {}}, "the mini-batch has no pull 'word'"),
        ({"graph": ONE_CHILD}, "a pair vertex gathers slot 1 but has 1 children"),
    ],
)
def test_missing_state_is_reported(changes: dict[str, Any], message: str) -> None:
    reads = {1: Reads((), ("word",)), 2: Reads(((0, 1),), ()), -1: Reads(((0,),), ("word",))}
    given = {"pulls": {"word": as_int_array([3, 4])}, "outputs": as_int_array([1])}
    mini_batch = MiniBatch(**({"graph": PAIR, "n_instances": 1} | given | changes))
    with pytest.raises(ScheduleError, match=message):
        plan_layout(
            mini_batch, AFTER, RowRules(number_fields(reads, 3), as_int_array([1, 0, 0]), {}, True)
        )


def test_unused_inputs_may_be_missing() -> None:
    reads = {1: Reads((), ()), 2: Reads((), ()), 3: Reads((), ("word",))}
    mini_batch = MiniBatch(PAIR, {}, as_int_array([]), 1)
    fields = number_fields(reads, 4)
    rules = RowRules(fields, as_int_array([1, 0, 0, 0]), {}, reorder=True)
    found = plan_layout(mini_batch, AFTER, rules)
    assert list(found) == [1, 2]


# --- launches ---

# Batches as lists of the functions of their vertices.
BATCHES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), max_size=8)
NOTHING = as_int_array([])


def mini_batch_of(batches: list[list[int]], seed: int) -> tuple[MiniBatch, Schedule]:
    """Return vertices in a random order, and a schedule of these batches, in two segments."""
    n = sum(map(len, batches))
    order = np.random.default_rng(seed).permutation(n).astype(np.int32)
    starts = np.cumsum([0, *map(len, batches)])
    functions = np.empty(n, dtype=np.int32)
    functions[order] = [function for batch in batches for function in batch]
    graph = graph_of([1] * n, [[]] * n, n_types=2)
    schedule = Schedule(order, starts, as_int_array([0, len(batches) // 2, len(batches)]))
    return MiniBatch(graph, {}, NOTHING, 1, functions), schedule


@given(BATCHES, st.integers(0, 9))
@settings(deadline=None)
def test_launches_are_the_batches_by_function(batches: list[list[int]], seed: int) -> None:
    mini_batch, schedule = mini_batch_of(batches, seed)
    launches = split_into_launches(mini_batch, schedule)
    expected, firsts = [], [0]
    for members in batches_of(schedule):
        functions = list(dict.fromkeys(mini_batch.functions[members].tolist()))
        expected += [[v for v in members if mini_batch.functions[v] == f] for f in functions]
        firsts.append(len(expected))
    assert batches_of(launches) == expected
    assert launches.segment_starts.tolist() == [firsts[b] for b in schedule.segment_starts]


def test_a_schedule_of_one_function_per_batch_stays_the_same() -> None:
    mini_batch, schedule = mini_batch_of([[1, 1], [2], [1]], seed=0)
    assert split_into_launches(mini_batch, schedule) is schedule
    plain = MiniBatch(mini_batch.graph, {}, NOTHING, 1)
    assert split_into_launches(plain, schedule) is schedule


POLICIES = ("agenda", "depth", "critical_share", "fsm_sort")
BACKENDS = ("compiled", "stepwise") * 2  # which policy made the batches is unknown to a backend


@pytest.mark.parametrize(("policy", "backend"), list(zip(POLICIES, BACKENDS, strict=True)))
@pytest.mark.parametrize("name", ["bilstm_char", "matrices"])
def test_batches_of_several_shapes_are_right_and_counted_once(
    name: str, policy: str, backend: str
) -> None:
    model, instances, weights = example(name)
    switches = Switches(granularity="operator", backend=backend)
    adapter = prepared(model, weights, switches, policy)
    if adapter.learns:
        adapter.learn(instances)
    result = run(adapter, instances)  # which checks the schedule
    assert disagreements(result, run_reference(model, weights, instances, "train")) == []
    n_launches = len(adapter.engine.arrangement.types.batches)
    assert result.counters.n_batches == adapter.schedule.n_batches < n_launches
    assert result.counters.lower_bound <= result.counters.n_batches
