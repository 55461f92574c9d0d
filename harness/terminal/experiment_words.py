"""What `bench experiment=NAME` is about to do: at which scale, for how long, on which data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.machine.facts import cpu_model
from harness.planning.artefacts import stand_ins
from harness.planning.durations import Durations, timed_in, words_of
from harness.terminal.command_line import Job, pipeline_choices
from harness.terminal.measurement import Measurement


def opening(jobs: Sequence[Job], planned: Sequence[Measurement]) -> Iterator[str]:
    """A line of the plan, and one for each data set that another one stands in for."""
    chosen = {job.experiment: pipeline_choices(job) for job in jobs if job.experiment is not None}
    if not chosen:
        return
    places = (f"{name} at {choices.scale} scale" for name, choices in chosen.items())
    yield f"{', '.join(places)}: {_plan_words(planned)}"
    yield from dict.fromkeys(line for job in jobs for line in _stand_in_words(job))


def _plan_words(planned: Sequence[Measurement]) -> str:
    lacking = [one for one in planned if one.force or not one.path.exists()]
    n_there = len(planned) - len(lacking)
    if not lacking:
        return f"all {n_there} rounds have a record"
    folders = {one.results_dir for one in planned}
    durations = Durations(one for folder in folders for one in timed_in(folder, cpu_model()))
    takes_s = sum(durations.of(one.spec) for one in lacking)
    n_trials = len({one.spec.trial_id for one in lacking})
    there = f"; {n_there} more have a record" if n_there else ""
    return (
        f"{len(lacking)} rounds of {n_trials} trials to measure, about {words_of(takes_s)}{there}"
    )


def _stand_in_words(job: Job) -> Iterator[str]:
    """Nothing where the data set is typed, for every trial."""
    if job.experiment is None or any(one.startswith("dataset=") for one in job.overrides):
        return
    choices = pipeline_choices(job)
    for dataset, taken in stand_ins(job.experiment, choices).items():
        yield (
            f"{dataset} is not in {choices.data_root}: {taken} stands in, numbers are of that;"
            f" `bench-data fetch {dataset}` gets it"
        )
