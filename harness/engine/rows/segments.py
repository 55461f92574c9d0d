"""Graph segments of a laid out mini-batch: batches of each stage, and the losses to add up.

A segment is the part of a mini-batch that runs until the next decision that depends on computed
values, or the whole mini-batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.engine.lowering.plan import FORWARD, Plan, Ref
from dynbatch.harness.engine.rows.fields import OUTPUT
from dynbatch.harness.engine.rows.layout import Layout
from dynbatch.harness.values.arrays import IntArray

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

    @overload
    def __getitem__(self, r: int) -> Segment: ...
    @overload
    def __getitem__(self, r: slice) -> list[Segment]: ...
    def __getitem__(self, r: int | slice) -> Segment | list[Segment]:
        if isinstance(r, slice):
            return [self[k] for k in range(len(self))[r]]
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
        whole: One batch of all rows for each function.
    """

    eager: IntArray
    lazy: IntArray
    whole: IntArray
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
    return SharedStages(
        eager=_make_pairs([(t, ALL_ROWS) for t in types if plans[t].list_steps("eager")]),
        lazy=_make_pairs([(t, ALL_ROWS) for t in types if plans[t].list_steps("lazy")]),
        whole=_make_pairs([(t, ALL_ROWS) for t in types]),
        losses=tuple(
            (t, plans[t].refs[loss], slice(None)) for t, loss in losses if loss is not None
        ),
    )


def _make_pairs(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


def plan_segments(plans: Mapping[int, Plan], layout: Layout, segment_starts: IntArray) -> Segments:
    """Collect the batches of each graph segment, followed by its outputs.

    Args:
        segment_starts: (n_segments + 1,), the first batch of each segment.
    """
    numbers = np.arange(len(segment_starts), dtype=np.int32)  # of segments, and one after the last
    in_segment: list[IntArray] = [numbers[:-1].repeat(segment_starts[1:] - segment_starts[:-1])]
    pieces = [layout.batches]
    if OUTPUT in layout:
        of_output = layout.output_segments.astype(np.int32)
        positions = np.arange(len(of_output), dtype=np.int32)
        pieces.append(np.stack([np.full_like(positions, OUTPUT), positions], axis=1))
        in_segment.append(of_output)
    batches, segments = np.concatenate(pieces), np.concatenate(in_segment)
    if len(pieces) > 1:
        order = segments.argsort(kind="stable")
        batches, segments = batches[order], segments[order]
    at_once, their_segments = _merge_batches(batches, segments)
    of_stage = {"batch": batches}
    starts = {"batch": segments.searchsorted(numbers)}
    for stage in ("eager", "lazy"):
        has_steps = np.zeros(layout.fields.n_functions, dtype=np.bool_)  # OUTPUT (-1) is last
        has_steps[[type_id for type_id in layout if plans[type_id].list_steps(stage)]] = True
        mine = has_steps[at_once[:, 0]]
        of_stage[stage] = at_once[mine]
        starts[stage] = their_segments[mine].searchsorted(numbers)
    losses = _collect_losses(plans, layout, batches, segments, numbers)
    return Segments(of_stage, starts, losses)


def _merge_batches(batches: IntArray, segments: IntArray) -> tuple[IntArray, IntArray]:
    """Merge the batches of each type that occurs in one graph segment only.

    Returns:
        The batches, where a merged one has position ALL_ROWS, and the segment of each.
    """
    types, positions = batches[:, 0] - batches[:, 0].min(initial=0), batches[:, 1]
    first, last = (np.zeros(types.max(initial=0) + 1, dtype=np.int64) for _ in range(2))
    last[types] = segments  # with repeated indices, NumPy keeps the last value
    first[types[::-1]] = segments[::-1]
    is_one = (first == last)[types]
    merged = batches.copy()
    merged[is_one, 1] = ALL_ROWS
    kept = ~is_one | (positions == 0)
    return merged[kept], segments[kept]


def _collect_losses(
    plans: Mapping[int, Plan],
    layout: Layout,
    batches: IntArray,
    segments: IntArray,
    numbers: IntArray,
) -> list[LossRows]:
    loss_rows = []
    for type_id in layout:
        plan = plans[type_id]
        if plan.loss is not None:
            mine = segments[batches[:, 0] == type_id]
            rows = layout.select_starts(type_id)[mine.searchsorted(numbers)].astype(np.int32)
            loss_rows.append(LossRows(type_id, plan.refs[plan.loss], rows))
    return loss_rows
