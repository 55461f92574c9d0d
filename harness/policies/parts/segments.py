"""Scheduling of graphs in segments (Graph.segments): policies see one segment at a time.

Earlier segments have been computed, so a segment's graph omits arguments in other segments. This is
timed for every mini-batch, which may have a hundred segments of a few dozen vertices: one compiled
pass cuts the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.contracts.policy import (
    ArrayPolicy,
    LearnedPolicy,
    LearnedRun,
    OrderAndStarts,
    Policy,
)
from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.arrays import IntArray, Ints, as_int_array
from dynbatch.harness.values.graph import Graph
from dynbatch.harness.values.schedule import Schedule

NOTHING = Schedule(as_int_array([]), as_int_array([0]))
NO_RUN = LearnedRun(schedule=NOTHING, decided=as_int_array([]))


@dataclass(frozen=True, slots=True)
class CutGraph:
    """Graph cut into its segments.

    Attributes:
        whole: The graph.
        vertices: (n,), ids in the whole graph, by segment and then in increasing order; those of
            segment r are vertices[starts[r]:starts[r + 1]].
        starts: (n_segments + 1,).
        parts: Types, starts of arguments and arguments of each segment.
    """

    whole: Graph
    vertices: IntArray
    starts: IntArray
    parts: tuple[tuple[IntArray, IntArray, IntArray], ...]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """One graph for each segment."""
        whole, bounds = self.whole, pairwise(self.starts.tolist())
        counters = [
            None if counter is None else as_int_array(counter[self.vertices])
            for counter in (whole.phases, whole.depths)
        ]
        return tuple(
            whole.build_part(*part, *(None if c is None else c[v:v_end] for c in counters))
            for part, (v, v_end) in zip(self.parts, bounds, strict=True)
        )


def cut_in_segments(graph: Graph) -> CutGraph:
    """Cut a graph with segments."""
    assert graph.segments is not None
    arrays = _cut(graph.segments, graph.types, graph.arg_start, graph.args)
    vertices, starts, types, arg_starts, args, first_arg = map(as_int_array, arrays)
    bounds = zip(pairwise(starts.tolist()), pairwise(first_arg.tolist()), strict=True)
    parts = tuple(
        (types[v:v_end], arg_starts[v + r : v_end + r + 1], args[a:a_end])
        for r, ((v, v_end), (a, a_end)) in enumerate(bounds)
    )
    return CutGraph(graph, vertices, starts, parts)


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
    cut = cut_in_segments(graph)
    if isinstance(policy, ArrayPolicy):
        compute, others = policy.compute, policy.read_others(graph)
        return _join(cut, [compute(*part, *others) for part in cut.parts])
    return _join_schedules(
        cut, [policy(part) if part.n_vertices else NOTHING for part in cut.graphs]
    )


def run_in_segments(policy: LearnedPolicy, graph: Graph) -> LearnedRun:
    """Schedule as schedule_in_segments does; return the states of all decisions, too."""
    if graph.segments is None:
        return policy.run(graph)
    cut = cut_in_segments(graph)
    runs = [policy.run(part) if part.n_vertices else NO_RUN for part in cut.graphs]
    schedule = _join_schedules(cut, [run.schedule for run in runs])
    decided = as_int_array(np.concatenate([run.decided for run in runs]))
    return LearnedRun(schedule=schedule, decided=decided)


def _join_schedules(cut: CutGraph, schedules: Sequence[Schedule]) -> Schedule:
    for (types, *_), schedule in zip(cut.parts, schedules, strict=True):
        if not isinstance(schedule, Schedule) or len(schedule.order) != len(types):
            raise ScheduleError(
                f"expected a Schedule of all {len(types)} vertices of a graph segment;"
                " fix the policy"
            )
    return _join(cut, [(item.order, item.starts) for item in schedules])


def _join(cut: CutGraph, batches: Sequence[OrderAndStarts]) -> Schedule:
    first, sizes = cut.starts[:-1], np.diff(cut.starts)
    order = np.concatenate([order for order, _ in batches])
    if (order.view(np.uint32) >= sizes.repeat(sizes).view(np.uint32)).any():
        raise ScheduleError("a policy schedules vertices that are not in its graph segment")
    order += first.repeat(sizes)
    n_batches = [len(starts) - 1 for _, starts in batches]
    ends = np.concatenate([starts[1:] for _, starts in batches]) + first.repeat(n_batches)
    starts = np.zeros(len(ends) + 1, dtype=np.int32)
    starts[1:] = ends
    segment_starts = np.zeros(len(n_batches) + 1, dtype=np.int32)
    np.cumsum(n_batches, out=segment_starts[1:])
    return Schedule(cut.vertices[order], starts, segment_starts)


@compiled
def _cut(
    segments: Ints, types: Ints, arg_start: Ints, args: Ints
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Return the vertices, arguments and starts of all segments.

    Returns:
        vertices by segment; the start of each segment in them; the vertices' types; the start of
            each vertex's arguments, with one more entry per segment; arguments, numbered within the
            segment; and the start of each segment's arguments.
    """
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
    return vertices, starts, cut_types, cut_start, cut_args[:n_args], first_arg
