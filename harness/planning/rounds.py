"""In which order trials are measured: all first rounds, then all second ones, and so on.

In a round the systems of a point come one after the other, in an order that is drawn anew: who is
always measured behind the same neighbour would always meet the machine as that one leaves it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from harness.trials.spec import TrialSpec

Trial = TypeVar("Trial")

# Who is measured at a point, and how long; all else is the point.
_NOT_POINT = ("system", "adapter", "system_options", "policy", "learning", "timing")


def in_rounds(
    trials: Sequence[Trial],
    n_rounds_of: Callable[[Trial], int],
    spec_of: Callable[[Trial], TrialSpec],
) -> tuple[tuple[Trial, int], ...]:
    """Return every trial with each of its rounds, in the order of measuring."""
    placed = [(n_rounds_of(trial), _placed(trial, spec_of(trial))) for trial in trials]
    most = max((n_rounds for n_rounds, _ in placed), default=0)
    return tuple(
        (trial, round_)
        for round_ in range(most)
        for trial in _ordered([one for n_rounds, one in placed if n_rounds > round_], round_)
    )


def order_of_round(
    trials: Iterable[Trial], round_: int, spec_of: Callable[[Trial], TrialSpec]
) -> list[Trial]:
    """Return points as they first come, and the systems of each as they are drawn for the round.

    Drawn by a hash of round and trial, so that it is the same everywhere, and a system more leaves
    the others in their order.
    """
    return _ordered([_placed(trial, spec_of(trial)) for trial in trials], round_)


class _Placed(NamedTuple, Generic[Trial]):
    """A trial, what is measured of it, and its name; worked out once for all rounds."""

    point: str
    trial_id: str
    trial: Trial


def _placed(trial: Trial, spec: TrialSpec) -> _Placed[Trial]:
    return _Placed(point_of(spec), spec.trial_id, trial)


def _ordered(placed: Iterable[_Placed[Trial]], round_: int) -> list[Trial]:
    points: dict[str, list[tuple[str, Trial]]] = {}
    for one in placed:
        drawn = hashlib.sha256(f"{round_} {one.trial_id}".encode()).hexdigest()
        points.setdefault(one.point, []).append((drawn, one.trial))
    return [
        trial for there in points.values() for _, trial in sorted(there, key=lambda pair: pair[0])
    ]


def point_of(spec: TrialSpec) -> str:
    """What is measured, as text: everything but by whom."""
    rest = {name: value for name, value in spec.identity.items() if name not in _NOT_POINT}
    return json.dumps(rest, sort_keys=True, default=str)
