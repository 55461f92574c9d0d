"""Where the records of an artefact come from: a folder of results, or anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from harness.counts.answers import CountAnswers
from harness.planning.artefacts import PlannedTrial
from harness.planning.compose import Composer
from harness.planning.sweep import Sweep
from harness.records.answers import Answers
from harness.records.count_row import AnyCount, read_count_rows
from harness.records.record import Record, read_record
from harness.records.stored import Held

Rounds = tuple[Record | None, ...]  # None: there is no record of that round


class Source(Protocol):
    """Answers what an artefact's plan asks for."""

    def rounds(self, trials: Sequence[PlannedTrial]) -> list[Rounds]:
        """For each trial of one artefact, a record or None for each of its rounds."""
        ...

    def counts(self, sweep: Sweep) -> Sequence[AnyCount]:
        """The counts of a sweep that there are, in its order."""
        ...


class ResultsFolder:
    """What was measured here; raises RecordError for a damaged file."""

    def __init__(self, results_dir: Path) -> None:
        self._results_dir = results_dir

    def rounds(self, trials: Sequence[PlannedTrial]) -> list[Rounds]:
        """See Source."""
        return [tuple(map(_record_at, one.record_paths(self._results_dir))) for one in trials]

    def counts(self, sweep: Sweep) -> Sequence[AnyCount]:
        """See Source."""
        path = sweep.path(self._results_dir)
        return read_count_rows(path) if path.exists() else ()


def _record_at(path: Path) -> Record | None:
    return read_record(path) if path.exists() else None


class Elsewhere:
    """What was measured anywhere, by any version of the code."""

    def __init__(self, held: Held, composer: Composer | None = None) -> None:
        self._answers = Answers(held.records)
        self._counts = CountAnswers(held.counts, composer)

    def rounds(self, trials: Sequence[PlannedTrial]) -> list[Rounds]:
        """See Source; as many rounds as the trial among these has that has most.

        How many were measured is a fact of the records: what is missing is what others have.
        """
        found = self._answers.to([trial.spec for trial in trials])
        held = 1 + max((round_ for rounds in found for round_ in rounds), default=0)
        return [
            tuple(rounds.get(round_) for round_ in range(min(trial.rounds, held)))
            for trial, rounds in zip(trials, found, strict=True)
        ]

    def counts(self, sweep: Sweep) -> Sequence[AnyCount]:
        """See Source."""
        return self._counts.to(sweep)

    def n_missing_counts(self, sweep: Sweep) -> int:
        """How many counts of a sweep are not there."""
        return self._counts.n_missing(sweep)
