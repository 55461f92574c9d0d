"""Who is measured no further: whom the first rounds have shown to be far behind the fastest.

Six rounds tell of a system three times behind what two tell, and such systems take most of the time
that an artefact takes. An experiment says `screening: {rounds: 2, factor: 1.5}` at a scale: its
frameworks that in each of the first two rounds took more than 1.5 times as long as the fastest one
of their point have no more rounds; a record in place of each says so. Nor has who reached a limit
of time or memory: a number stands on all rounds, so that there will be none.

Candidates that lose are dropped as in racing (Maron & Moore, Hoeffding races, NIPS 1993), by a
factor that no spread over rounds makes up for in place of a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.planning.rounds import point_of
from harness.records.record import LIMITED, Record, find_record, path_of
from harness.trials.spec import Screening, TrialSpec

SCREENED = "framework"  # the kind of systems that are: what a comparison is with is measured fully

ReadRound = Callable[[str, int], Record | None]  # by trial_id and round; None: there is none


def read_screening(place: str, said: Any, n_rounds: int) -> Screening | None:
    """Read what a scale says; raises ConfigError, which begins with the place."""
    if said is None:
        return None
    if not isinstance(said, Mapping) or set(said) != {"rounds", "factor"}:
        raise ConfigError(f"{place} has screening={said}; give {{rounds: 2, factor: 2}}")
    try:
        found = Screening(**said)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    if found.rounds >= n_rounds:
        raise ConfigError(
            f"{place} has screening.rounds={found.rounds} of rounds={n_rounds}, which leaves none"
            " out; give less, or leave screening out"
        )
    return found


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
        fastest = [self._fastest(read_round, one) for one in range(len(own))]
        times = [_times(record, best) for record, best in zip(own, fastest, strict=True)]
        if any(one is None or one <= self.screening.factor for one in times):
            return None
        by = " or ".join(dict.fromkeys(best.trial.system for best in fastest if best))
        least = min(one for one in times if one is not None)
        return (
            f"at least {least:.1f} times as slow as {by} in each of the first"
            f" {self.screening.rounds} rounds"
        )

    def _fastest(self, read_round: ReadRound, round_: int) -> Record | None:
        records = [read_round(trial_id, round_) for trial_id in self.running]
        return max(filter(None, records), key=_speed, default=None)


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
