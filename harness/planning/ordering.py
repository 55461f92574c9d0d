"""Order of measurement, and instances of a batch-size sweep.

All first rounds are measured first, then all second rounds, and so on. In each round, the systems
of a point are measured side by side (harness/measuring/block.py). Those that prepare longest start
first, so that the others prepare meanwhile; the rest is in a new random order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from dynbatch.harness.planning.durations import estimate_preparing_s
from dynbatch.harness.trials.spec import TrialSpec

Trial = TypeVar("Trial")


def group_by_point(
    trials: Iterable[Trial], round_: int, spec_of: Callable[[Trial], TrialSpec]
) -> dict[str, list[Trial]]:
    """Return the trials of a round by point: points as given, their systems in random order.

    Systems that prepare longest precede the others. The order is that of a hash of round and trial.
    It is the same on all machines, and an additional system does not change the order of others.
    """
    points: dict[str, list[Trial]] = {}
    for trial in trials:
        points.setdefault(spec_of(trial).point, []).append(trial)

    def rank(trial: Trial) -> tuple[float, str]:
        spec = spec_of(trial)
        drawn = hashlib.sha256(f"{round_} {spec.trial_id}".encode()).hexdigest()
        return -estimate_preparing_s(spec.adapter), drawn

    return {point: sorted(there, key=rank) for point, there in points.items()}


# Minimum of mini-batches in a pass at the largest batch size.
AT_LARGEST = 4


def compute_shared_n_instances(batch_sizes: Collection[int], n_mini_batches: int) -> int:
    """Return the smallest number of instances that fills mini-batches of every size.

    Args:
        n_mini_batches: minimum of mini-batches at the smallest size; at the largest it is
            AT_LARGEST.
    """
    least = max(n_mini_batches * min(batch_sizes), AT_LARGEST * max(batch_sizes))
    step = math.lcm(*batch_sizes)
    return step * math.ceil(least / step)
