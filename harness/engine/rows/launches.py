"""Launches of a schedule: a batch of several vertex functions is launched once for each.

At operator granularity, a policy batches componentwise operators whatever their shapes, as DyNet
does (Neubig et al., NIPS 2017, appendix A). DyNet runs such a batch in one kernel over all elements
of its contiguous memory; here each shape has rows and kernels of its own.
"""

from __future__ import annotations

import numpy as np

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.values.arrays import IntArray, Ints
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.schedule import Schedule


def split_into_launches(mini_batch: MiniBatch, schedule: Schedule) -> Schedule:
    """Split every batch by vertex function.

    Functions are in the order of their first vertices in the batch, and vertices keep their order.
    A schedule whose batches have one function each is returned unchanged.
    """
    functions: IntArray | None = mini_batch.function_ids
    if functions is None:
        return schedule
    order, starts, first = _split(schedule.order, schedule.starts, functions)
    if len(starts) == len(schedule.starts):
        return schedule
    segments = schedule.segment_starts
    return Schedule(order, starts, None if segments is None else first[segments])


@compiled
def _split(order: Ints, starts: Ints, functions: Ints) -> tuple[Ints, Ints, Ints]:
    """Return order and starts of the launches, and the first launch of each batch and of the end.

    The order is new only if a batch is split.
    """
    n, n_batches = len(order), len(starts) - 1
    launch_starts = np.empty(n + 1, np.int32)
    first = np.empty(n_batches + 1, np.int32)
    split_order, placed = order, np.zeros(0, np.bool_)
    n_launches = 0
    for b in range(n_batches):
        first[b] = n_launches
        begin, end = starts[b], starts[b + 1]
        at = begin
        while at < end:
            launch_starts[n_launches] = at
            n_launches += 1
            if at == begin:
                function = functions[order[begin]]
                while at < end and functions[order[at]] == function:
                    at += 1
                if at == end:
                    break
                if len(placed) == 0:
                    split_order, placed = order.copy(), np.zeros(n, np.bool_)
                for k in range(begin, at):
                    placed[k] = True
            else:
                k = begin
                while placed[k]:
                    k += 1
                function = functions[order[k]]
            for k in range(begin, end):
                if not placed[k] and functions[order[k]] == function:
                    placed[k] = True
                    split_order[at] = order[k]
                    at += 1
    first[n_batches] = n_launches
    launch_starts[n_launches] = n
    return split_order, launch_starts[: n_launches + 1], first
