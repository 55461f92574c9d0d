"""Jobs of the pipeline: the rounds of trials that one process measures, and their order.

On one machine, a job measures the missing rounds of one experiment or of all experiments: all first
rounds, then all second rounds, and so on. On a cluster, each job may run on another node, waits in
a queue, and starts Snakemake twice. A cluster job therefore has all rounds of all systems at some
points, so that compared records come from one node.

A repetition is one round of one point: its systems are measured side by side, as a block
(harness/measuring/block.py). They start in a random order that differs between rounds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dynbatch.harness.planning.artifacts import PlannedTrial, merge_equal_trials
from dynbatch.harness.planning.durations import estimate_usual_s
from dynbatch.harness.planning.job_specs import Step, build_done_path
from dynbatch.harness.planning.locks import block_runs
from dynbatch.harness.planning.ordering import group_by_point
from dynbatch.harness.records.files import convert_write_errors, replace_whole
from dynbatch.harness.records.record import build_record_path
from dynbatch.harness.trials.spec import TrialSpec

ALL = "all"  # name of the job that measures all experiments
COUNTING_MIN = 24 * 60  # time limit in minutes of a job that counts batches
Plans = Mapping[str, Sequence[PlannedTrial]]  # trials of each experiment


@dataclass(frozen=True, slots=True)
class Job:
    """Turns that one process measures.

    Attributes:
        repetitions: steps of each repetition, in the order of measurement.
        artifacts: experiments that show the steps.
    """

    name: str
    repetitions: tuple[tuple[Step, ...], ...]
    artifacts: frozenset[str]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(chain.from_iterable(self.repetitions))


class _Repetition(NamedTuple):
    """Trials of one round at one point.

    Attributes:
        wanted: for each trial, the experiments that show this round of it.
    """

    round: int
    point: str
    trials: tuple[PlannedTrial, ...]
    wanted: tuple[frozenset[str], ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(Step(trial.trial_id, self.round) for trial in self.trials)

    @property
    def artifacts(self) -> frozenset[str]:
        return frozenset().union(*self.wanted)


def build_local_jobs(plans: Plans, first: Collection[str] = ()) -> dict[str, Job]:
    """Build the jobs of one machine by name: one for each experiment, and one for all.

    Args:
        first: experiments that are measured before the others in each round.
    """
    repetitions = _build_repetitions(plans)
    repetitions.sort(key=lambda item: (item.round, item.artifacts.isdisjoint(first)))
    chosen: dict[str, list[tuple[Step, ...]]] = {ALL: [item.steps for item in repetitions]}
    for repetition in repetitions:
        for name in repetition.artifacts:
            steps = zip(repetition.steps, repetition.wanted, strict=True)
            shown = tuple(step for step, names in steps if name in names)
            chosen.setdefault(name, []).append(shown)
    return {
        name: Job(name, tuple(parts), frozenset(plans if name == ALL else {name}))
        for name, parts in chosen.items()
        if parts
    }


def build_node_jobs(plans: Plans, block_s: float, results_dir: Path) -> dict[str, Job]:
    """Build the jobs of a cluster by name; points that share an experiment may share a job.

    Args:
        block_s: approximate seconds of a job; a point that takes longer has a separate job.
        results_dir: part of the hash in each name, so that runs into several directories have jobs
            of different names.
    """
    points: dict[str, list[_Repetition]] = {}
    for repetition in _build_repetitions(plans):
        points.setdefault(repetition.point, []).append(repetition)
    together = sorted(points.values(), key=lambda members: sorted(_collect_artifacts(members)))
    jobs = (_build_job(members, results_dir) for members in _group_points(together, block_s))
    return {job.name: job for job in jobs}


def _build_repetitions(plans: Plans) -> list[_Repetition]:
    """Return all repetitions in the order of measurement, round after round."""
    trials = merge_equal_trials(trial for plan in plans.values() for trial in plan)
    wanted: dict[Step, set[str]] = {}
    for name, plan in plans.items():
        for trial in plan:
            for round_ in range(trial.rounds):
                wanted.setdefault(Step(trial.trial_id, round_), set()).add(name)
    repetitions = []
    for round_ in range(max((trial.rounds for trial in trials), default=0)):
        there = [trial for trial in trials if trial.rounds > round_]
        for point, members in group_by_point(there, round_, lambda trial: trial.spec).items():
            shown = tuple(frozenset(wanted[Step(trial.trial_id, round_)]) for trial in members)
            repetitions.append(_Repetition(round_, point, tuple(members), shown))
    return repetitions


def _collect_artifacts(members: Iterable[_Repetition]) -> frozenset[str]:
    return frozenset().union(*(repetition.artifacts for repetition in members))


def _group_points(
    points: Iterable[Sequence[_Repetition]], block_s: float
) -> Iterator[list[_Repetition]]:
    """Yield groups of consecutive points that fit in one job and are linked by experiments."""
    block: list[_Repetition] = []
    left_s, wanted_by = block_s, frozenset[str]()
    for members in points:
        specs = (trial.spec for repetition in members for trial in repetition.trials)
        seconds = _sum_usual_s(specs)
        theirs = _collect_artifacts(members)
        if block and (seconds > left_s or wanted_by.isdisjoint(theirs)):
            yield block
            block, left_s, wanted_by = [], block_s, frozenset()
        block += members
        left_s -= seconds
        wanted_by |= theirs
    if block:
        yield block


def _sum_usual_s(specs: Iterable[TrialSpec]) -> float:
    """Return the expected seconds of a round of trials, which new records do not change."""
    return sum(estimate_usual_s(spec.adapter, spec.timing.min_seconds) for spec in specs)


def _build_job(members: Sequence[_Repetition], results_dir: Path) -> Job:
    """Build a job that measures round after round; its name has the first point and a hash."""
    in_order = sorted(members, key=lambda repetition: repetition.round)
    repetitions = tuple(repetition.steps for repetition in in_order)
    whole = [str(results_dir.resolve()), sorted(chain.from_iterable(repetitions))]
    digest = hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:8]
    spec, n_points = members[0].trials[0].spec, len({repetition.point for repetition in members})
    sizes = (f"bs{spec.batch_size}", f"h{spec.hidden_size}")
    more = (f"and_{n_points - 1}_more",) if n_points > 1 else ()
    parts = ("block", spec.model, spec.dataset, *sizes, spec.mode, *more, digest)
    name = "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", part) for part in parts)
    return Job(name, repetitions, _collect_artifacts(members))


def estimate_runtime_min(trials: Iterable[TrialSpec]) -> int:
    """Return the time limit of a job in minutes.

    It is three times the planned time plus the longest time limit of a trial, plus 5 minutes; a
    trial without a limit counts as a day.
    """
    planned = list(trials)
    limits = [spec.limits.time_s for spec in planned]
    most_s = max((COUNTING_MIN * 60 if limit is None else limit for limit in limits), default=0.0)
    return 5 + round((3 * _sum_usual_s(planned) + most_s) / 60)


def update_markers(
    jobs: Iterable[Job], results_dir: Path, is_lacking: Callable[[Step], bool]
) -> None:
    """Create the marker files of complete jobs, and delete those of other jobs.

    A marker file gets the time of its job's newest record, so that Snakemake redraws only figures
    that are older. Nothing happens while another run uses the directory and relies on its files.

    Args:
        is_lacking: whether a step has no valid record. Later rounds of an unsupported trial need
            none.
    """
    if not results_dir.is_dir():
        return
    with convert_write_errors(results_dir), block_runs(results_dir) as is_alone:
        for job in jobs if is_alone else ():
            file = build_done_path(results_dir, job.name)
            if any(map(is_lacking, job.steps)):
                file.unlink(missing_ok=True)
                continue
            records = [build_record_path(results_dir, *step) for step in job.steps]
            times_ns = (record.stat().st_mtime_ns for record in records if record.exists())
            newest_ns = max(times_ns, default=0)
            if not file.exists() or file.stat().st_mtime_ns < newest_ns:
                replace_whole(file, f"{newest_ns}\n")  # Snakemake compares contents, too
                os.utime(file, ns=(newest_ns, newest_ns))
