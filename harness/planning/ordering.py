"""Order of measurement, and instances of a batch-size sweep.

All first rounds are measured first, then all second rounds, and so on. In each round, the systems
of a point are measured side by side (harness/measuring/block.py). Those that prepare longest start
first, so that the others prepare meanwhile; the rest is in a new random order.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
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
) -> Iterator[tuple[int, str, list[Trial]]]:
    """Yield the trials of each round at each point, in the order of measurement."""
    placed = [(n_rounds_of(trial), _make_placed(trial, spec_of(trial))) for trial in trials]
    for round_ in range(max((n_rounds for n_rounds, _ in placed), default=0)):
        entries = [entry for n_rounds, entry in placed if n_rounds > round_]
        for point, there in _shuffle_systems(entries, round_).items():
            yield round_, point, there


def shuffle_round(
    trials: Iterable[Trial], round_: int, spec_of: Callable[[Trial], TrialSpec]
) -> list[Trial]:
    """Return trials in the order of a round: points as given, their systems in random order.

    Systems that prepare longest precede the others. The order is that of a hash of round and trial.
    It is the same on all machines, and an additional system does not change the order of others.
    """
    placed = [_make_placed(trial, spec_of(trial)) for trial in trials]
    return [*chain.from_iterable(_shuffle_systems(placed, round_).values())]


class _Placed(NamedTuple, Generic[Trial]):
    """Trial with its point, its trial_id and how long it prepares, computed once for all rounds."""

    point: str
    trial_id: str
    preparing_s: float
    trial: Trial


def _make_placed(trial: Trial, spec: TrialSpec) -> _Placed[Trial]:
    return _Placed(format_point(spec), spec.trial_id, estimate_preparing_s(spec.adapter), trial)


def _shuffle_systems(placed: Iterable[_Placed[Trial]], round_: int) -> dict[str, list[Trial]]:
    """Return the trials by point."""
    points: dict[str, list[_Placed[Trial]]] = {}
    for entry in placed:
        points.setdefault(entry.point, []).append(entry)

    def rank(entry: _Placed[Trial]) -> tuple[float, str]:
        drawn = hashlib.sha256(f"{round_} {entry.trial_id}".encode()).hexdigest()
        return -entry.preparing_s, drawn

    return {at: [entry.trial for entry in sorted(there, key=rank)] for at, there in points.items()}


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
