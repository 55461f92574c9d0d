"""Scheduling of graphs in segments (Graph.segments): policies see one segment at a time.

Earlier segments have been computed, so a segment's graph omits arguments in other segments. This is
timed for every mini-batch, which may have a hundred segments of a few dozen vertices: one compiled
pass cuts the graph, and an ArrayPolicy or a state machine schedules all segments in one compiled
call. Any other policy is called with a graph for each segment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper, load_generated
from dynbatch.harness.contracts.policy import ArrayPolicy, LearnedPolicy, Policy
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.arrays import IntArray, Ints, as_int_array
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule

NOTHING = Schedule(as_int_array([]), as_int_array([0]))
_WRONG = "a policy schedules vertices that are not in its graph segment"
# A policy's function becomes part of a loop over all segments. `taken` are arguments of its own;
# `given` are those of one segment.
_LOOP = """
from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.policies.parts.segments import JoinedBatches, add_batches, cut_arrays
from dynbatch.harness.policies.parts.segments import select_counter, select_part, start_batches
from dynbatch.harness.values.arrays import Flags, Ints
from {module} import {name} as compute

@compiled
def schedule_all(
    segments: Ints, types: Ints, arg_start: Ints, args: Ints, {taken}
) -> JoinedBatches:
    cut = cut_arrays(segments, types, arg_start, args)
    order, starts, segment_starts = start_batches(cut)
    for r in range(len(cut.starts) - 1):
        part_types, part_start, part_args = select_part(cut, r)
        part = compute(part_types, part_start, part_args, {given})
        if not add_batches(cut, r, part[0], part[1], order, starts, segment_starts):
            return JoinedBatches(order, starts, segment_starts, False)
    n_batches = segment_starts[len(cut.starts) - 1]
    return JoinedBatches(order, starts[: n_batches + 1], segment_starts, True)
"""
_TAKEN = {"cheap": "Flags"}  # types of arguments; all others are Ints
_GIVEN = {name: f"select_counter({name}, cut, r)" for name in ("phases", "depths")}


@dataclass(frozen=True, slots=True)
class CutGraph:
    """Graph cut into its segments.

    Attributes:
        vertices: (n,), ids in the whole graph, by segment and then in increasing order; those of
            segment r are vertices[starts[r]:starts[r + 1]].
        starts: (n_segments + 1,).
        graphs: One graph for each segment.
    """

    vertices: IntArray
    starts: IntArray
    graphs: tuple[Graph, ...]


def cut_in_segments(graph: Graph) -> CutGraph:
    """Cut a graph with segments."""
    assert graph.segments is not None
    arrays = cut_arrays(graph.segments, graph.types, graph.arg_start, graph.args)
    vertices, starts, types, arg_starts, args, first_arg = map(as_int_array, arrays)
    counters = [
        None if counter is None else as_int_array(counter[vertices])
        for counter in (graph.phases, graph.depths)
    ]
    graphs = []
    bounds = zip(pairwise(starts.tolist()), pairwise(first_arg.tolist()), strict=True)
    for r, ((v, v_end), (a, a_end)) in enumerate(bounds):
        part = types[v:v_end], arg_starts[v + r : v_end + r + 1], args[a:a_end]
        counted = (None if counter is None else counter[v:v_end] for counter in counters)
        graphs.append(graph.build_part(*part, *counted))
    return CutGraph(vertices, starts, tuple(graphs))


def select_first_segment(graph: Graph) -> Graph:
    """Return the first segment, on which learned policies learn.

    The release learns on the first graph that is evaluated: for translation the encoder and one
    step of the decoder. Source: Chen et al., "ED-Batch", ICML 2023.
    """
    return graph if graph.segments is None else cut_in_segments(graph).graphs[0]


def schedule_in_segments(policy: Policy, graph: Graph) -> Schedule:
    """Schedule segment by segment, or the whole graph if it has no segments.

    Raises:
        ScheduleError: if the policy's schedules of the segments cannot be joined.
    """
    if graph.segments is None:
        return policy(graph)
    if isinstance(policy, ArrayPolicy):
        arrays = graph.segments, graph.types, graph.arg_start, graph.args
        batches = load_loop(policy)(*arrays, *policy.select_others(graph))
        if not batches.is_valid:
            raise ScheduleError(_WRONG)
        return Schedule(batches.order, batches.starts, batches.segment_starts)
    if isinstance(policy, LearnedPolicy):
        return policy(graph)
    cut = cut_in_segments(graph)
    return _join_schedules(
        cut, [policy(part) if part.n_vertices else NOTHING for part in cut.graphs]
    )


@functools.cache
def load_loop(policy: ArrayPolicy) -> Callable[..., JoinedBatches]:
    """Return the compiled function that schedules all segments with a policy's function."""
    compute: Any = policy.compute
    text = _LOOP.format(
        module=compute.__module__,
        name=compute.__name__,
        taken=", ".join(f"{name}: {_TAKEN.get(name, 'Ints')}" for name in policy.others),
        given=", ".join(_GIVEN.get(name, name) for name in policy.others),
    )
    return load_generated(text, "schedule_all")


def _join_schedules(cut: CutGraph, schedules: Sequence[Schedule]) -> Schedule:
    for part, schedule in zip(cut.graphs, schedules, strict=True):
        if not isinstance(schedule, Schedule) or len(schedule.order) != part.n_vertices:
            raise ScheduleError(
                f"expected a Schedule of all {part.n_vertices} vertices of a graph segment;"
                " fix the policy"
            )
    first, sizes = cut.starts[:-1], np.diff(cut.starts)
    order = np.concatenate([item.order for item in schedules])
    if (order.view(np.uint32) >= sizes.repeat(sizes).view(np.uint32)).any():
        raise ScheduleError(_WRONG)
    order += first.repeat(sizes)
    n_batches = [item.n_batches for item in schedules]
    ends = np.concatenate([item.starts[1:] for item in schedules]) + first.repeat(n_batches)
    starts = np.zeros(len(ends) + 1, dtype=np.int32)
    starts[1:] = ends
    segment_starts = np.zeros(len(n_batches) + 1, dtype=np.int32)
    np.cumsum(n_batches, out=segment_starts[1:])
    return Schedule(cut.vertices[order], starts, segment_starts)


class CutArrays(NamedTuple):
    """Arrays of a graph that is cut into its segments.

    Attributes:
        vertices: (n,), see CutGraph.
        starts: (n_segments + 1,), see CutGraph.
        types: (n,), types of `vertices`.
        arg_start: (n + n_segments,), start of each vertex's arguments among those of its segment,
            with one more entry per segment.
        args: Arguments, numbered within the segment.
        first_arg: (n_segments + 1,), start of each segment's arguments.
    """

    vertices: Ints
    starts: Ints
    types: Ints
    arg_start: Ints
    args: Ints
    first_arg: Ints


class JoinedBatches(NamedTuple):
    """Arrays of a Schedule, and whether each segment's batches consist of its vertices."""

    order: Ints
    starts: Ints
    segment_starts: Ints
    is_valid: bool


@helper
def select_part(cut: CutArrays, r: int) -> tuple[Ints, Ints, Ints]:
    """Return types, arg_start and args of segment r."""
    v, v_end = cut.starts[r], cut.starts[r + 1]
    part_args = cut.args[cut.first_arg[r] : cut.first_arg[r + 1]]
    return cut.types[v:v_end], cut.arg_start[v + r : v_end + r + 1], part_args


@helper
def select_counter(counter: Ints, cut: CutArrays, r: int) -> Ints:
    """Return the entries of segment r's vertices, or nothing of an empty counter."""
    if len(counter) == 0:
        return counter
    return counter[cut.vertices[cut.starts[r] : cut.starts[r + 1]]]


@helper
def start_batches(cut: CutArrays) -> tuple[Ints, Ints, Ints]:
    """Return space for the order, the starts of batches, and the first batch of each segment."""
    n = len(cut.vertices)
    starts = np.empty(n + 1, np.int32)
    starts[0] = 0
    return np.empty(n, np.int32), starts, np.zeros(len(cut.starts), np.int32)


@helper
def add_batches(
    cut: CutArrays,
    r: int,
    part_order: Ints,
    part_starts: Ints,
    order: Ints,
    starts: Ints,
    segment_starts: Ints,
) -> bool:
    """Append the batches of segment r; return False if they have other vertices than it."""
    first, n = cut.starts[r], cut.starts[r + 1] - cut.starts[r]
    if len(part_order) != n:
        return False
    for k in range(n):
        if part_order[k] < 0 or part_order[k] >= n:
            return False
        order[first + k] = cut.vertices[first + part_order[k]]
    n_before, n_batches = segment_starts[r], len(part_starts) - 1
    for b in range(n_batches):
        starts[n_before + b + 1] = first + part_starts[b + 1]
    segment_starts[r + 1] = n_before + n_batches
    return True


@compiled
def cut_arrays(segments: Ints, types: Ints, arg_start: Ints, args: Ints) -> CutArrays:
    """Cut a graph into its segments."""
    n, n_segments = len(types), 0
    for v in range(n):
        n_segments = max(n_segments, segments[v] + 1)
    starts = np.zeros(n_segments + 1, np.int32)
    for v in range(n):
        starts[segments[v] + 1] += 1
    for r in range(n_segments):
        starts[r + 1] += starts[r]
    free = starts[:-1].copy()
    vertices, position = np.empty(n, np.int32), np.empty(n, np.int32)
    for v in range(n):
        r = segments[v]
        vertices[free[r]] = v
        position[v] = free[r] - starts[r]
        free[r] += 1
    cut_types = np.empty(n, np.int32)
    cut_start = np.empty(n + n_segments, np.int32)
    cut_args = np.empty(len(args), np.int32)
    first_arg = np.zeros(n_segments + 1, np.int32)
    n_args = 0
    for r in range(n_segments):
        first_arg[r] = n_args
        for k in range(starts[r], starts[r + 1]):
            v = vertices[k]
            cut_types[k], cut_start[k + r] = types[v], n_args - first_arg[r]
            for edge in range(arg_start[v], arg_start[v + 1]):
                if segments[args[edge]] == r:
                    cut_args[n_args] = position[args[edge]]
                    n_args += 1
        cut_start[starts[r + 1] + r] = n_args - first_arg[r]
    first_arg[n_segments] = n_args
    return CutArrays(vertices, starts, cut_types, cut_start, cut_args[:n_args], first_arg)
