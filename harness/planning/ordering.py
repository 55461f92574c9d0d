"""Order of measurement, and instances of a batch-size sweep.

All first rounds are measured first, then all second rounds, and so on. In each round, the systems
of a point are measured side by side (harness/measuring/block.py). Those that prepare longest start
first, so that the others prepare meanwhile; the rest is in a new random order.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from dynbatch.harness.planning.durations import estimate_preparing_s
from dynbatch.harness.trials.spec import TrialSpec

Trial = TypeVar("Trial")

# Fields that define the system and the measuring time; all other fields define the point.
_NOT_POINT = ("system", "adapter", "system_options", "policy", "learning", "timing")


def order_rounds(
    trials: Sequence[Trial],
    n_rounds_of: Callable[[Trial], int],
    spec_of: Callable[[Trial], TrialSpec],
) -> tuple[tuple[Trial, int], ...]:
    """Return every trial with each of its rounds, in the order of measurement."""
    placed = [(n_rounds_of(trial), _make_placed(trial, spec_of(trial))) for trial in trials]
    most = max((n_rounds for n_rounds, _ in placed), default=0)
    return tuple(
        (trial, round_)
        for round_ in range(most)
        for trial in _shuffle_systems(
            [entry for n_rounds, entry in placed if n_rounds > round_], round_
        )
    )


def shuffle_round(
    trials: Iterable[Trial], round_: int, spec_of: Callable[[Trial], TrialSpec]
) -> list[Trial]:
    """Return trials in the order of a round: points as given, their systems in random order.

    Systems that prepare longest precede the others. The order is that of a hash of round and trial.
    It is the same on all machines, and an additional system does not change the order of others.
    """
    return _shuffle_systems([_make_placed(trial, spec_of(trial)) for trial in trials], round_)


class _Placed(NamedTuple, Generic[Trial]):
    """Trial with its point, its trial_id and how long it prepares, computed once for all rounds."""

    point: str
    trial_id: str
    preparing_s: float
    trial: Trial


def _make_placed(trial: Trial, spec: TrialSpec) -> _Placed[Trial]:
    return _Placed(format_point(spec), spec.trial_id, estimate_preparing_s(spec.adapter), trial)


def _shuffle_systems(placed: Iterable[_Placed[Trial]], round_: int) -> list[Trial]:
    points: dict[str, list[_Placed[Trial]]] = {}
    for entry in placed:
        points.setdefault(entry.point, []).append(entry)

    def rank(entry: _Placed[Trial]) -> tuple[float, str]:
        drawn = hashlib.sha256(f"{round_} {entry.trial_id}".encode()).hexdigest()
        return -entry.preparing_s, drawn

    return [entry.trial for there in points.values() for entry in sorted(there, key=rank)]


def format_point(spec: TrialSpec) -> str:
    """Return the point of a trial as text: everything except the system and the measuring time."""
    rest = {name: value for name, value in spec.identity.items() if name not in _NOT_POINT}
    return json.dumps(rest, sort_keys=True, default=str)


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
