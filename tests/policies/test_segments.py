"""Graphs with segments: a policy sees one segment at a time, and no batch mixes two."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings

from dynbatch.harness.contracts.policy import (
    LearnedPolicy,
    Policy,
    is_learned,
    learn_policy,
    load_policy,
)
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.policies.parts import segments
from dynbatch.harness.policies.parts.bound import compute_lower_bound
from dynbatch.harness.policies.parts.segments import (
    cut_in_segments,
    schedule_in_segments,
    select_first_segment,
)
from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.graph import NO_TYPE, Graph
from dynbatch.harness.values.schedule import Schedule, check_schedule
from scripts.write_pages import read_presets
from tests.support.policies import FEW, batches, schedule_by
from tests.support.random_graphs import graph_of, graphs_in_segments, minimum_batches

POLICIES = (
    *("unbatched", "depth", "frontier", "inline_depth", "agenda"),
    *("sufficient", "sufficient_reversed", "critical_share", "fsm_sort"),
)


def part_of(graph: Graph, number: int) -> tuple[list[int], list[list[int]]]:
    """Return the vertices of a segment, and their arguments within it, by index."""
    mine = np.flatnonzero(graph.segments == number).tolist()
    place = {v: k for k, v in enumerate(mine)}
    return mine, [[place[a] for a in graph.select_args(v).tolist() if a in place] for v in mine]


def two_steps() -> Graph:
    """Return two chains of type 1, of three and two steps; a vertex of type 2 reads each step."""
    args: list[list[int]] = [[], [0], [1], [], [3], [0], [1], [2], [3], [4]]
    graph = graph_of([1, 1, 1, 1, 1, 2, 2, 2, 2, 2], args)
    return replace(graph, segments=as_int_array([0, 1, 2, 0, 1, 0, 1, 2, 0, 1]))


@settings(max_examples=150, deadline=None)
@given(graphs_in_segments())
def test_a_segment_is_its_vertices_with_the_arguments_among_them(graph: Graph) -> None:
    cut = cut_in_segments(graph)
    assert len(cut.graphs) == graph.segments.max() + 1
    for r, part in enumerate(cut.graphs):
        mine, args = part_of(graph, r)
        assert cut.vertices[cut.starts[r] : cut.starts[r + 1]].tolist() == mine
        assert part.types.tolist() == graph.types[mine].tolist()
        assert [part.select_args(v).tolist() for v in range(part.n_vertices)] == args
        assert part.segments is None
        # `part` skips checks, but its result equals a graph that is built with checks.
        again = graph_of(part.types.tolist(), args, graph.n_types, graph.follows.tolist())
        assert np.array_equal(again.arg_start, part.arg_start)
        for array in (part.types, part.arg_start, part.args):
            assert not array.flags.writeable


@settings(max_examples=60, deadline=None)
@given(graphs_in_segments())
def test_schedules_are_valid_and_as_those_of_a_graph_for_each_segment(graph: Graph) -> None:
    parts = cut_in_segments(graph).graphs
    assert compute_lower_bound(graph) == sum(map(compute_lower_bound, parts))
    for name in POLICIES:
        policy = policy_for(name, graph)
        schedule = schedule_in_segments(policy, graph)
        check_schedule(graph, schedule)  # each once, children first, segments in order
        for part, n in zip(parts, np.diff(schedule.segment_starts), strict=True):
            assert compute_lower_bound(part) <= n <= part.n_vertices, name
        check_equal_by_graphs(policy, graph)
    counted = with_counters(graph)
    check_equal_by_graphs(load_policy("inline_depth"), counted)
    machine = policy_for("fsm_sort", graph)
    assert isinstance(machine, LearnedPolicy)
    decided = [machine.run(part).decided for part in parts]
    assert machine.run(graph).decided.tolist() == np.concatenate(decided).tolist()


def policy_for(name: str, graph: Graph) -> Policy:
    """Return a policy; if it is learned, learn it on the first segment."""
    if is_learned(name):
        return learn_policy(name, [select_first_segment(graph)], FEW)
    return load_policy(name)


def check_equal_by_graphs(policy: Policy, graph: Graph) -> None:
    """Check that a policy schedules segments as it schedules a graph for each."""
    schedule = schedule_in_segments(policy, graph)
    by_graphs = schedule_in_segments(lambda part: policy(part), graph)
    for field in ("order", "starts", "segment_starts"):
        np.testing.assert_array_equal(getattr(schedule, field), getattr(by_graphs, field))


def with_counters(graph: Graph) -> Graph:
    """Count as a program with a new phase after every two calls, in which nothing follows."""
    phases, depths = np.divmod(np.arange(graph.n_vertices), 2)
    return replace(graph, phases=phases, depths=depths, follows=as_int_array([]))


@pytest.mark.parametrize("name", sorted({str(p["policy"]) for p in read_presets().values()}))
def test_policies_of_presets_schedule_all_segments_in_one_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a hundred small segments, a loop in Python takes longer than any of these policies."""
    graph = two_steps()
    policy = policy_for(name, graph)
    by_graphs = schedule_in_segments(lambda part: policy(part), graph)
    refuse = Mock(side_effect=AssertionError("a graph for every segment"))
    monkeypatch.setattr(Graph, "build_part", refuse)
    assert batches(schedule_in_segments(policy, graph)) == batches(by_graphs)


def test_batches_do_not_mix_segments() -> None:
    """Depth would read all steps together after the last one; with segments, each separately."""
    graph = two_steps()
    schedule = schedule_by("agenda", graph)
    assert batches(schedule) == [[0, 3], [5, 8], [1, 4], [6, 9], [2], [7]]
    assert schedule.segment_starts.tolist() == [0, 2, 4, 6]
    assert compute_lower_bound(graph) == minimum_batches(graph) == 6
    assert compute_lower_bound(replace(graph, segments=None)) == 4


def test_a_schedule_of_all_segments_at_once_is_noticed() -> None:
    graph = two_steps()
    whole = load_policy("depth")(replace(graph, segments=None))
    with pytest.raises(ScheduleError, match="the schedule has none; set segment_starts"):
        check_schedule(graph, whole)


def test_a_segment_that_runs_too_early_is_noticed() -> None:
    """The arguments alone allow it, as vertex 1 has none."""
    graph = replace(graph_of([1, 2], [[], []]), segments=as_int_array([0, 1]))
    swapped = Schedule(as_int_array([1, 0]), as_int_array([0, 1, 2]), as_int_array([0, 1, 2]))
    with pytest.raises(ScheduleError, match="vertex 1 of segment 1 runs in segment 0"):
        check_schedule(graph, swapped)


@pytest.mark.parametrize(
    "made",
    [
        None,
        Schedule(as_int_array([0]), as_int_array([0, 1])),
        Schedule(as_int_array([0, 1, 7, 3]), as_int_array([0, 4])),
    ],
)
def test_policy_scheduling_other_vertices_is_reported(made: Schedule | None) -> None:
    with pytest.raises(ScheduleError, match="segment"):
        schedule_in_segments(lambda _: made, two_steps())  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("order", [[0], [0, 2], [0, -1], [0, 1, 1]])
def test_array_policy_scheduling_other_vertices_is_reported(
    order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled loop runs as Python here, with a function that returns these two vertices."""
    graph = replace(graph_of([1, 1], [[], []]), segments=as_int_array([0, 0]))
    cut = segments.cut_arrays(graph.segments, graph.types, graph.arg_start, graph.args)
    made = segments.start_batches(cut)
    assert segments.add_batches(cut, 0, as_int_array([1, 0]), as_int_array([0, 2]), *made)
    assert made[0].tolist() == [1, 0]
    assert made[1][:2].tolist() == [0, 2]
    assert made[2].tolist() == [0, 1]
    wrong = as_int_array(order), as_int_array([0, len(order)])
    assert not segments.add_batches(cut, 0, *wrong, *segments.start_batches(cut))
    refused = segments.JoinedBatches(*made, is_valid=False)
    monkeypatch.setattr(segments, "load_loop", lambda _: lambda *_: refused)
    with pytest.raises(ScheduleError, match="not in its graph segment"):
        schedule_in_segments(load_policy("depth"), graph)


def test_a_learned_policy_learns_on_the_first_segment_and_meets_states_of_all() -> None:
    graph = two_steps()
    first = select_first_segment(graph)
    assert first.types.tolist() == [1, 1, 2, 2]
    assert first.type_names == graph.type_names
    machine = learn_policy("fsm_sort", [first], FEW)
    run = machine.run(graph)
    check_schedule(graph, run.schedule)
    assert run.n_decisions == run.schedule.n_batches == 6
    assert run.n_unseen == 0  # every segment looks like the first
    assert batches(schedule_in_segments(machine, graph)) == batches(run.schedule)


# --- graphs and schedules check themselves ---


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([0, 0], "segments has 2 entries"),
        ([0, -1, 0], "the least -1"),
        ([0, 2, 1], "vertex 2 of segment 1 uses vertex 1 of the later segment 2"),
    ],
)
def test_segments_that_cannot_be_are_refused(segments: list[int], message: str) -> None:
    graph = graph_of([1, 1, 1], [[], [0], [1]])
    with pytest.raises(ScheduleError, match=message):
        replace(graph, segments=np.array(segments))


def test_a_vertex_that_must_follow_is_of_the_same_segment() -> None:
    graph = graph_of([1, 2], [[], [0]], follows=[NO_TYPE, NO_TYPE, 1])
    replace(graph, segments=as_int_array([1, 1]))
    with pytest.raises(ScheduleError, match="must be in the segment of its argument"):
        replace(graph, segments=as_int_array([0, 1]))


@pytest.mark.parametrize("starts", [[], [1, 2], [0, 1], [0, 2, 1, 2]])
def test_starts_of_segments_that_cannot_be_are_refused(starts: list[int]) -> None:
    with pytest.raises(ScheduleError, match="starts of segments"):
        Schedule(as_int_array([0, 1]), as_int_array([0, 1, 2]), as_int_array(starts))
