"""Graph segments of a laid out mini-batch: batches of each stage, and the losses to add up.

A segment is the part of a mini-batch that runs until the next decision that depends on computed
values, or the whole mini-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.registry import helper
from dynbatch.harness.engine.lowering.plan import FORWARD, Plan, Ref
from dynbatch.harness.engine.rows.fields import OUTPUT
from dynbatch.harness.engine.rows.layout import Layout
from dynbatch.harness.values.arrays import Flags, FlagTable, IntArray, Ints, IntTable, Longs

AROUND = ("eager", "lazy")  # stages of FORWARD before and after that of batches
NO_OUTPUTS: Longs = np.zeros(0, dtype=np.int64)
ALL_ROWS = -1  # position of a batch that consists of all rows of a function
Run = tuple[str, IntArray]  # a stage, and (k, 2) type id and position of its batches
Loss = tuple[int, Ref, slice]  # function id, columns of the loss, and the rows to add up


@dataclass(frozen=True, eq=False, slots=True)
class Segment:
    """One graph segment.

    Batches are arrays (k, 2) of type id and position, in the order of execution. If all rows of a
    type are in this segment, the batches of that type run in one call of the eager or lazy stage.

    Attributes:
        eager: Batches of the stage that runs before `batches`.
        batches: Batches of the stage that runs batch by batch.
        lazy: Batches of the stage that runs after `batches`.
        losses: For each function with a loss: its id, the columns of the loss, and the new rows.
    """

    eager: IntArray
    batches: IntArray
    lazy: IntArray
    losses: tuple[Loss, ...]

    @property
    def runs(self) -> list[Run]:
        """Stages with their batches, in the order of execution."""
        stages = zip(FORWARD, (self.eager, self.batches, self.lazy), strict=True)
        return [(stage, batches) for stage, batches in stages if len(batches)]


@dataclass(frozen=True, eq=False, slots=True)
class LossRows:
    """Columns of a function's loss, and the first row of each graph segment in them.

    Attributes:
        starts: (n_segments + 1,).
    """

    type_id: int
    ref: Ref
    starts: IntArray


@dataclass(frozen=True, eq=False)
class Segments(Sequence[Segment]):
    """All graph segments of a mini-batch, planned together.

    There may be a hundred segments of a few batches each, which would be slow to plan one by one.

    Attributes:
        batches: For each stage of FORWARD, the batches of all segments (k, 2), one segment after
            the other.
        starts: For each stage, the first batch of each segment (n_segments + 1,).
        losses: The loss rows of each function that has a loss.
    """

    batches: Mapping[str, IntArray]
    starts: Mapping[str, NDArray[np.integer]]
    losses: Sequence[LossRows]

    def __len__(self) -> int:
        return len(self.starts["batch"]) - 1

    def __getitem__(self, r: int) -> Segment:  # type: ignore[override]  # there are no slices
        r = range(len(self))[r]
        eager, batches, lazy = (
            self.batches[stage][self.starts[stage][r] : self.starts[stage][r + 1]]
            for stage in FORWARD
        )
        rows = ((loss, loss.starts[r : r + 2].tolist()) for loss in self.losses)
        losses = [
            (loss.type_id, loss.ref, slice(*ends)) for loss, ends in rows if ends[0] < ends[1]
        ]
        return Segment(eager, batches, lazy, tuple(losses))


@dataclass(frozen=True, eq=False, slots=True)
class SharedStages:
    """Stages before and after the batches, for mini-batches of one graph segment.

    Mini-batches with the same functions share them.

    Attributes:
        backward_lazy: Batches of the stage that ends the backward pass.
    """

    eager: IntArray
    lazy: IntArray
    backward_lazy: IntArray
    losses: tuple[Loss, ...]

    def make_segment(self, batches: IntArray) -> Segment:
        """Return the graph segment that runs these batches; those of outputs come last."""
        return Segment(self.eager, batches, self.lazy, self.losses)


def plan_shared_stages(plans: Mapping[int, Plan], types: tuple[int, ...]) -> SharedStages:
    """Return the stages that run once per mini-batch for these functions.

    Args:
        types: Function ids, with OUTPUT if outputs are read.
    """
    losses = [(t, plans[t].loss) for t in types]

    def take_all_rows(stage: str) -> IntArray:
        having = [(t, ALL_ROWS) for t in types if plans[t].steps[stage]]
        return np.array(having, dtype=np.int32).reshape(-1, 2)

    return SharedStages(
        eager=take_all_rows("eager"),
        lazy=take_all_rows("lazy"),
        backward_lazy=take_all_rows("backward_lazy"),
        losses=tuple(
            (t, plans[t].refs[loss], slice(None)) for t, loss in losses if loss is not None
        ),
    )


def plan_segments(plans: Mapping[int, Plan], layout: Layout, segment_starts: IntArray) -> Segments:
    """Collect the batches of each graph segment, followed by its outputs.

    Args:
        segment_starts: (n_segments + 1,), the first batch of each segment.
    """
    types = tuple(layout)
    has_steps = np.zeros((2, layout.fields.n_functions), dtype=np.bool_)  # OUTPUT (-1) is last
    for type_id in types:
        has_steps[:, type_id] = [bool(plans[type_id].steps[stage]) for stage in AROUND]
    ordered = _order_batches(
        layout.batches,
        segment_starts,
        layout.output_segments if OUTPUT in types else NO_OUTPUTS,
        has_steps,
    )
    return Segments(
        {"batch": ordered.batches, AROUND[0]: ordered.eager, AROUND[1]: ordered.lazy},
        {"batch": ordered.starts, AROUND[0]: ordered.eager_starts, AROUND[1]: ordered.lazy_starts},
        [
            LossRows(t, plan.refs[plan.loss], _find_loss_rows(layout, t, ordered))
            for t, plan in ((t, plans[t]) for t in types)
            if plan.loss is not None
        ],
    )


def _find_loss_rows(layout: Layout, type_id: int, ordered: _Ordered) -> IntArray:
    """Return the first row of each graph segment among those of a function (n_segments + 1,)."""
    n_before = _count_batches_before(ordered.batches, ordered.starts, type_id)
    first: IntArray = layout.select_starts(type_id)[n_before].astype(np.int32)
    return first


class _Ordered(NamedTuple):
    """Batches (k, 2) of each stage, segment by segment, and the first batch of each segment."""

    batches: IntTable
    starts: Ints
    eager: IntTable
    eager_starts: Ints
    lazy: IntTable
    lazy_starts: Ints


@compiled
def _order_batches(
    batches: IntTable, segment_starts: Ints, of_outputs: Longs, has_steps: FlagTable
) -> _Ordered:
    """Order batches and those of outputs by segment, and select those of the other two stages.

    Args:
        of_outputs: The segment of each batch of the output function.
        has_steps: (2, n_functions), whether a function has steps in each stage of AROUND.
    """
    n_segments, n = len(segment_starts) - 1, len(batches) + len(of_outputs)
    starts, ordered = np.zeros(n_segments + 1, np.int32), np.empty((n, 2), np.int32)
    for r in of_outputs:
        starts[r + 1] += 1
    for r in range(n_segments):
        starts[r + 1] += starts[r] + segment_starts[r + 1] - segment_starts[r]
    free = starts.copy()
    for r in range(n_segments):
        for b in range(segment_starts[r], segment_starts[r + 1]):
            ordered[free[r], 0], ordered[free[r], 1] = batches[b, 0], batches[b, 1]
            free[r] += 1
    for b in range(len(of_outputs)):
        r = of_outputs[b]
        ordered[free[r], 0], ordered[free[r], 1] = OUTPUT, b
        free[r] += 1
    at_once = _find_types_of_one_segment(ordered, starts, has_steps.shape[1])
    eager, eager_starts = _select_batches(ordered, starts, has_steps[0], at_once)
    lazy, lazy_starts = _select_batches(ordered, starts, has_steps[1], at_once)
    return _Ordered(ordered, starts, eager, eager_starts, lazy, lazy_starts)


@helper
def _find_types_of_one_segment(ordered: IntTable, starts: Ints, n_functions: int) -> Flags:
    """Return whether all batches of each function are in one graph segment."""
    segment, at_once = np.full(n_functions, -1, np.int32), np.ones(n_functions, np.bool_)
    for r in range(len(starts) - 1):
        for k in range(starts[r], starts[r + 1]):
            f = _index_function(ordered[k, 0], n_functions)
            at_once[f] = at_once[f] and (segment[f] < 0 or segment[f] == r)
            segment[f] = r
    return at_once


@helper
def _select_batches(
    ordered: IntTable, starts: Ints, has_steps: Flags, at_once: Flags
) -> tuple[IntTable, Ints]:
    """Return the batches of functions with steps; a function of one segment is one batch."""
    selected, new_starts = np.empty((len(ordered), 2), np.int32), np.zeros(len(starts), np.int32)
    n = 0
    for r in range(len(starts) - 1):
        for k in range(starts[r], starts[r + 1]):
            f = _index_function(ordered[k, 0], len(has_steps))
            if has_steps[f] and not (at_once[f] and ordered[k, 1] > 0):
                selected[n, 0] = ordered[k, 0]
                selected[n, 1] = ALL_ROWS if at_once[f] else ordered[k, 1]
                n += 1
        new_starts[r + 1] = n
    return selected[:n], new_starts


@helper
def _index_function(type_id: int, n_functions: int) -> int:
    return n_functions - 1 if type_id == OUTPUT else type_id


@compiled
def _count_batches_before(batches: IntTable, starts: Ints, type_id: int) -> Ints:
    """Return how many batches of a function precede each graph segment (n_segments + 1,)."""
    n_before = np.zeros(len(starts), np.int32)
    for r in range(len(starts) - 1):
        n_before[r + 1] = n_before[r]
        for k in range(starts[r], starts[r + 1]):
            n_before[r + 1] += batches[k, 0] == type_id
    return n_before
