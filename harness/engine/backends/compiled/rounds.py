"""All rounds of a mini-batch as one list of calls, made without Python for each round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled.steps import WHOLE_STAGES
from harness.engine.cpu_kernels.loss_kernels import LossSums
from harness.engine.cpu_kernels.team import Callee, Calls
from harness.engine.rows.rounds import ALL_ROWS, STAGES, Rounds
from harness.values.arrays import IntArray

Counts = Callable[[str, IntArray], IntArray]
Starts = NDArray[np.integer]  # where batches of each round begin (n_rounds + 1,)


def calls_of(
    rounds: Rounds, program_of: Callable[[str], Callee], counts_of: Counts, sums: LossSums
) -> Calls:
    """Of every round its stages, and then the sum of its losses.

    counts_of: of a stage's batches, how many each of them is run as: see `spread`.
    """
    callees: list[Callee] = []
    batches, starts = list[IntArray](), list[Starts]()
    for stage in STAGES:
        found, begin = rounds.batches[stage], rounds.starts[stage]
        if len(found):
            if stage in WHOLE_STAGES:
                found, begin = spread(found, begin, counts_of(stage, found))
            callees.append(program_of(stage))
            batches.append(np.ascontiguousarray(found))
            starts.append(begin)
    if rounds.losses:
        bounds = np.stack([one.starts for one in rounds.losses], axis=1)
        callees.append(sums)
        batches.append(np.stack([bounds[:-1], bounds[1:]], axis=2).reshape(-1, 2))
        starts.append(np.arange(len(bounds)) * len(rounds.losses))
    return Calls(callees, batches, _in_order(starts, len(rounds)))


def _in_order(starts: list[Starts], n_rounds: int) -> IntArray:
    """See Calls.order: round after round, of each what it has of each callee."""
    order = np.empty((n_rounds, len(starts), 3), dtype=np.int32)
    for k, of_callee in enumerate(starts):
        order[:, k, 0], order[:, k, 1] = k, of_callee[:-1]
        order[:, k, 2] = of_callee[1:] - of_callee[:-1]
    return order[order[:, :, 2] > 0]


def spread(batches: IntArray, starts: Starts, counts: IntArray) -> tuple[IntArray, Starts]:
    """Batches (k, 2), each run as so many (k,): all rows at once as one, or batch by batch.

    starts: where those of each round begin, which is returned anew.
    """
    if (counts == 1).all():
        return batches, starts
    ends = np.zeros(len(batches) + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    found = batches.repeat(counts, axis=0)
    positions = np.arange(len(found), dtype=np.int32) - ends[:-1].repeat(counts)
    is_one_of_many = counts.repeat(counts) > 1
    found[is_one_of_many, 1] = positions[is_one_of_many]
    return found, ends[starts]


def n_run_as(batches: IntArray, n_batches: dict[int, int]) -> IntArray:
    """How many batches each of these (k, 2) is run as.

    n_batches: of the functions whose rows do not follow one another, how many they have.
    """
    counts = np.ones(len(batches), dtype=np.int32)
    for type_id, n in n_batches.items():
        counts[(batches[:, 0] == type_id) & (batches[:, 1] == ALL_ROWS)] = n
    return counts
