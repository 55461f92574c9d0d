"""Order of measurement, screening of slow baselines, and instances of a batch-size sweep.

All first rounds are measured first, then all second rounds, and so on. In each round, the systems
of a point are measured side by side (harness/measuring/block.py), and start in a new random order.

For a system that is three times slower, six rounds show little more than two, and such systems take
most of the time of an experiment. With `screening: {rounds: 2, factor: 1.5}` at a scale, frameworks
are stopped that took more than 1.5 times as long as the fastest one of their point in each of the
first two rounds. Each skipped round gets a record of the reason. A system that reached a limit of
time or memory is stopped, too, because its result needs all rounds.

Source: Maron and Moore, Hoeffding races, NIPS 1993, who drop losing candidates by a confidence
bound. Here a factor that exceeds any spread over rounds replaces the bound.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from dynbatch.harness.records.cross_check import are_comparable
from dynbatch.harness.records.record import LIMITED, Record, build_record_path, find_record
from dynbatch.harness.trials.spec import Screening, TrialSpec

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

    The order is that of a hash of round and trial. It is the same on all machines, and an
    additional system does not change the order of the others.
    """
    return _shuffle_systems([_make_placed(trial, spec_of(trial)) for trial in trials], round_)


class _Placed(NamedTuple, Generic[Trial]):
    """Trial with its point and its trial_id, computed once for all rounds."""

    point: str
    trial_id: str
    trial: Trial


def _make_placed(trial: Trial, spec: TrialSpec) -> _Placed[Trial]:
    return _Placed(format_point(spec), spec.trial_id, trial)


def _shuffle_systems(placed: Iterable[_Placed[Trial]], round_: int) -> list[Trial]:
    points: dict[str, list[tuple[str, Trial]]] = {}
    for entry in placed:
        drawn = hashlib.sha256(f"{round_} {entry.trial_id}".encode()).hexdigest()
        points.setdefault(entry.point, []).append((drawn, entry.trial))
    return [
        trial for there in points.values() for _, trial in sorted(there, key=lambda pair: pair[0])
    ]


def format_point(spec: TrialSpec) -> str:
    """Return the point of a trial as text: everything except the system and the measuring time."""
    rest = {name: value for name, value in spec.identity.items() if name not in _NOT_POINT}
    return json.dumps(rest, sort_keys=True, default=str)


SCREENED = "framework"  # kind of the systems that are screened; others are measured in all rounds

ReadRound = Callable[[str, int], Record | None]  # trial_id and round -> record, or None


@dataclass(frozen=True, slots=True)
class Field:
    """Screened trial with its competitors.

    Attributes:
        running: trial_ids of the screened trials of the point, with its own.
    """

    screening: Screening
    trial_id: str
    running: tuple[str, ...]

    def explain_skip(self, read_round: ReadRound, round_: int) -> str | None:
        """Return the reason why the trial is not measured in a round; None: it is measured.

        A trial is measured if one of the records that decide is missing.
        """
        earlier = [read_round(self.trial_id, number) for number in range(round_)]
        for number, record in enumerate(earlier):
            if record is not None and record.status in LIMITED:
                return f"{record.status} in round {number}"
        if round_ < self.screening.rounds:
            return None
        own = earlier[: self.screening.rounds]
        fastest = [
            self._find_fastest(read_round, number, record) for number, record in enumerate(own)
        ]
        times = [_compute_slowdown(record, best) for record, best in zip(own, fastest, strict=True)]
        if any(number is None or number <= self.screening.factor for number in times):
            return None
        by = " or ".join(dict.fromkeys(best.trial.system for best in fastest if best))
        least = min(number for number in times if number is not None)
        return (
            f"at least {least:.1f} times as slow as {by} in each of the first"
            f" {self.screening.rounds} rounds"
        )

    def _find_fastest(
        self, read_round: ReadRound, round_: int, own: Record | None
    ) -> Record | None:
        """Return the fastest record of a round that is comparable with the trial's own."""
        records = filter(None, [read_round(trial_id, round_) for trial_id in self.running])
        alike = [record for record in records if own is not None and are_comparable(record, own)]
        return max(alike, key=_compute_speed, default=None)


def _compute_speed(record: Record) -> float:
    """Return instances per second; 0 if the record has no number."""
    return record.instances_per_s or 0.0 if record.status == "ok" else 0.0


def _compute_slowdown(record: Record | None, fastest: Record | None) -> float | None:
    """Return a record's time relative to the fastest one; None if either has no number."""
    if record is None or fastest is None or not _compute_speed(record):
        return None
    return _compute_speed(fastest) / _compute_speed(record)


def build_fields(specs: Sequence[TrialSpec]) -> list[Field | None]:
    """Return each trial with its competitors; None for a trial that is not screened."""
    running: dict[tuple[str, float], dict[str, None]] = {}
    keys = [None if s.screening is None else (format_point(s), s.screening.factor) for s in specs]
    for spec, key in zip(specs, keys, strict=True):
        if key is not None:
            running.setdefault(key, {})[spec.trial_id] = None
    return [
        Field(spec.screening, spec.trial_id, tuple(running[key]))
        if key is not None and spec.screening is not None
        else None
        for spec, key in zip(specs, keys, strict=True)
    ]


def find_skip_reason(field: Field | None, round_: int, results_dir: Path) -> str | None:
    """Return the reason why a directory's records screen out a trial's round; None: measure it."""
    if field is None:
        return None

    def read_round(trial_id: str, number: int) -> Record | None:
        return find_record(build_record_path(results_dir, trial_id, number))

    return field.explain_skip(read_round, round_)


def merge_screenings(asked: Iterable[tuple[int, Screening | None]]) -> Screening | None:
    """Return the screening of a trial that several experiments share.

    Screening starts after the rounds that any experiment requires without screening.

    Args:
        asked: rounds and screening of each experiment.

    Returns:
        None if no round would be skipped, or if the experiments have different factors.
    """
    wanted = list(asked)
    screenings = [screening for _, screening in wanted if screening is not None]
    if len({screening.factor for screening in screenings}) != 1:
        return None
    in_full = [n_rounds for n_rounds, screening in wanted if screening is None]
    n_first = max([*in_full, *(screening.rounds for screening in screenings)])
    is_whole = n_first >= max(n_rounds for n_rounds, _ in wanted)
    return None if is_whole else Screening(rounds=n_first, factor=screenings[0].factor)


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
