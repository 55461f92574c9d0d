"""Schedules: batches of vertices in order of execution, as integer arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynbatch.harness.errors import ScheduleError
from dynbatch.harness.values.arrays import IntArray, as_int_array, convert_attributes
from dynbatch.harness.values.graph import UNBATCHABLE, Graph


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """Batches in order of execution; batch b is order[starts[b]:starts[b + 1]].

    Attributes:
        order: (n,) every vertex once.
        starts: (n_batches + 1,) start of each batch in `order`.
        segment_starts: (n_segments + 1,) first batch of each graph segment, if there are several.
    """

    order: IntArray
    starts: IntArray
    segment_starts: IntArray | None = None

    def __post_init__(self) -> None:
        convert_attributes(self, "order", "starts")
        self.check_starts()
        if self.segment_starts is not None:
            object.__setattr__(self, "segment_starts", as_int_array(self.segment_starts))
            self._check_segments(self.segment_starts)

    @classmethod
    def from_valid_arrays(cls, order: IntArray, starts: IntArray) -> Schedule:
        """Build a schedule from int32 arrays of a policy whose batches cannot be empty.

        The arrays become read-only. `check_schedule` must still validate the schedule.
        """
        order.setflags(write=False)
        starts.setflags(write=False)
        made, take = object.__new__(cls), object.__setattr__
        take(made, "order", order)
        take(made, "starts", starts)
        take(made, "segment_starts", None)
        return made

    def check_starts(self) -> None:
        """Check that the batches are consecutive and not empty."""
        starts = self.starts
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(self.order):
            raise ScheduleError(f"batch starts must run from 0 to {len(self.order)}")
        if np.logical_or.reduce(starts[1:] <= starts[:-1]):
            raise ScheduleError("a schedule has an empty batch")

    def _check_segments(self, starts: IntArray) -> None:
        if len(starts) == 0 or starts[0] != 0 or starts[-1] != self.n_batches:
            raise ScheduleError(f"starts of segments must run from 0 to {self.n_batches}")
        if (starts[1:] < starts[:-1]).any():
            raise ScheduleError("starts of segments must not decrease")

    @property
    def n_batches(self) -> int:
        return len(self.starts) - 1


def check_schedule(graph: Graph, schedule: Schedule) -> None:
    """Check that a schedule is valid for a graph.

    Every vertex must be executed once, after its arguments, in a batch of one type and one graph
    segment; segments must be in order, and unbatchable vertices in separate batches.
    """
    if not isinstance(schedule, Schedule):
        raise ScheduleError(f"the policy returned a {type(schedule).__name__}: expected a Schedule")
    n = graph.n_vertices
    schedule.check_starts()
    if not np.array_equal(np.sort(schedule.order), np.arange(n)):
        raise ScheduleError(f"the schedule does not execute each of {n} vertices exactly once")
    batch_of = np.empty(n, dtype=np.int32)
    batch_of[schedule.order] = np.repeat(
        np.arange(schedule.n_batches, dtype=np.int32), np.diff(schedule.starts)
    )
    users = np.repeat(np.arange(n), np.diff(graph.arg_start))
    late = np.flatnonzero(batch_of[graph.args] >= batch_of[users])
    if len(late):
        user, arg = users[late[0]], graph.args[late[0]]
        raise ScheduleError(
            f"vertex {user} runs in batch {batch_of[user]},"
            f" not after its argument {arg} (batch {batch_of[arg]})"
        )
    batch_types = graph.types[schedule.order[schedule.starts[:-1]]]
    in_order = graph.types[schedule.order]
    if not np.array_equal(in_order, np.repeat(batch_types, np.diff(schedule.starts))):
        raise ScheduleError("a batch holds vertices of more than one type")
    if np.any(np.diff(schedule.starts)[batch_types == UNBATCHABLE] > 1):
        raise ScheduleError("an unbatchable vertex shares a batch")
    if graph.segments is not None:
        _check_segment_of_each(graph.segments, schedule)


def _check_segment_of_each(segments: IntArray, schedule: Schedule) -> None:
    if schedule.segment_starts is None:
        raise ScheduleError("the graph has segments, but the schedule has none; set segment_starts")
    n_batches = np.diff(schedule.segment_starts)
    segment_of_batch = np.repeat(np.arange(len(n_batches)), n_batches)
    run_in = np.repeat(segment_of_batch, np.diff(schedule.starts))
    wrong = np.flatnonzero(segments[schedule.order] != run_in)
    if len(wrong):
        vertex = schedule.order[wrong[0]]
        raise ScheduleError(
            f"vertex {vertex} of segment {segments[vertex]} runs in segment {run_in[wrong[0]]}"
        )
