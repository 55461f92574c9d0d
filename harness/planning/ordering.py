"""The order of measuring: rounds of trials, systems that are dropped, and instances of a sweep.

All first rounds come first, then all second ones, and so on. In a round the systems of a point come
one after the other, in an order that is drawn for each round: otherwise one system would always
meet the machine as the same neighbor leaves it.

Six rounds show little more than two of a system that is three times slower, and such systems take
most of the time of an artefact. If an experiment has `screening: {rounds: 2, factor: 1.5}` at a
scale, those of its frameworks that took more than 1.5 times as long as the fastest one of their
point in each of the first two rounds have no more rounds; a record in place of each says so. The
same holds for a system that reached a limit of time or memory: a number needs all rounds.
Candidates that lose are dropped as in racing (Maron & Moore, Hoeffding races, NIPS 1993), by a
factor that no spread over rounds makes up for in place of a bound.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from harness.records.cross_check import are_comparable
from harness.records.record import LIMITED, Record, find_record, path_of
from harness.trials.spec import Screening, TrialSpec

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


SCREENED = "framework"  # the kind of systems that are: what a comparison is with is measured fully

ReadRound = Callable[[str, int], Record | None]  # by trial_id and round; None: there is none


@dataclass(frozen=True, slots=True)
class Field:
    """A trial that is screened, and all that run against it, itself among them, by trial_id."""

    screening: Screening
    trial_id: str
    running: tuple[str, ...]

    def why_called_off(self, read_round: ReadRound, round_: int) -> str | None:
        """In words, why the trial is not measured in a round; None: it is.

        Where a record lacks nothing is known, and so it is measured.
        """
        earlier = [read_round(self.trial_id, one) for one in range(round_)]
        for one, record in enumerate(earlier):
            if record is not None and record.status in LIMITED:
                return f"{record.status} in round {one}"
        if round_ < self.screening.rounds:
            return None
        own = earlier[: self.screening.rounds]
        fastest = [self._fastest(read_round, one, record) for one, record in enumerate(own)]
        times = [_times(record, best) for record, best in zip(own, fastest, strict=True)]
        if any(one is None or one <= self.screening.factor for one in times):
            return None
        by = " or ".join(dict.fromkeys(best.trial.system for best in fastest if best))
        least = min(one for one in times if one is not None)
        return (
            f"at least {least:.1f} times as slow as {by} in each of the first"
            f" {self.screening.rounds} rounds"
        )

    def _fastest(self, read_round: ReadRound, round_: int, own: Record | None) -> Record | None:
        """Return the fastest record of a round that may be compared with the trial's own."""
        records = filter(None, [read_round(trial_id, round_) for trial_id in self.running])
        alike = [one for one in records if own is not None and are_comparable(one, own)]
        return max(alike, key=_speed, default=None)


def _speed(record: Record) -> float:
    """Instances per second; 0 where there is no number."""
    return record.instances_per_s or 0.0 if record.status == "ok" else 0.0


def _times(record: Record | None, fastest: Record | None) -> float | None:
    """How many times as long as the fastest it took; None where either has no number."""
    if record is None or fastest is None or not _speed(record):
        return None
    return _speed(fastest) / _speed(record)


def fields_of(specs: Sequence[TrialSpec]) -> list[Field | None]:
    """For each trial, those of its point that it is screened with; None: it is measured fully."""
    running: dict[tuple[str, float], dict[str, None]] = {}
    keys = [None if s.screening is None else (point_of(s), s.screening.factor) for s in specs]
    for spec, key in zip(specs, keys, strict=True):
        if key is not None:
            running.setdefault(key, {})[spec.trial_id] = None
    return [
        Field(spec.screening, spec.trial_id, tuple(running[key]))
        if key is not None and spec.screening is not None
        else None
        for spec, key in zip(specs, keys, strict=True)
    ]


def why_called_off(field: Field | None, round_: int, results_dir: Path) -> str | None:
    """In words, why a trial's round is not measured, by the records in a folder; None: it is."""
    if field is None:
        return None

    def read_round(trial_id: str, one: int) -> Record | None:
        return find_record(path_of(results_dir, trial_id, one))

    return field.why_called_off(read_round, round_)


def screening_of_all(asked: Iterable[tuple[int, Screening | None]]) -> Screening | None:
    """That of a trial which several artefacts want, each with its rounds and its screening.

    The rounds that any wants in full decide too, so that it has them all. None: it isn't screened,
    as nothing would be left out, or as they do not agree on one factor.
    """
    wanted = list(asked)
    said = [screening for _, screening in wanted if screening is not None]
    if len({screening.factor for screening in said}) != 1:
        return None
    in_full = [n_rounds for n_rounds, screening in wanted if screening is None]
    n_first = max([*in_full, *(screening.rounds for screening in said)])
    is_whole = n_first >= max(n_rounds for n_rounds, _ in wanted)
    return None if is_whole else Screening(rounds=n_first, factor=said[0].factor)


# Mini-batches of a pass at the largest batch size, at least.
AT_LARGEST = 4


def shared_n_instances(batch_sizes: Collection[int], n_mini_batches: int) -> int:
    """Return the fewest instances that fill mini-batches of every size.

    n_mini_batches: how many the smallest size has at least; the largest has AT_LARGEST at least.
    """
    least = max(n_mini_batches * min(batch_sizes), AT_LARGEST * max(batch_sizes))
    step = math.lcm(*batch_sizes)
    return step * math.ceil(least / step)
