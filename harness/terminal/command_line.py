"""The command line of `bench`: Hydra parses, composes and sweeps; what runs is decided here.

Hydra would run a sweep's jobs one after another inside this process. Its job function therefore
only collects the composed configurations; all are checked before the first trial starts.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from harness.contracts.policy import AUTO, policy_names
from harness.errors import ConfigError
from harness.machine.facts import cpu_model
from harness.machine.folders import temporary_folder
from harness.planning.artefacts import (
    Choices,
    choices_from,
    measuring_order,
    plan_artefact,
    stand_ins,
)
from harness.planning.compose import (
    CONFIG_NAME,
    Composer,
    as_recorded,
    hydra_errors,
    sweep_of_one,
)
from harness.planning.durations import Durations, timed_in, words_of
from harness.planning.ordering import fields_of, order_of_round, shared_n_instances
from harness.planning.resolve import MOST_ROUNDS, spec_from, spec_of
from harness.planning.schema import register_schema
from harness.planning.typed_words import check_typed
from harness.planning.yaml_files import NAMED, check_name
from harness.records.files import Output, check_suffix, check_writable
from harness.records.record import is_record, record_path
from harness.terminal.measurement import Measurement
from harness.trials.spec import TrialSpec
from harness.values.checked import check_count
from harness.values.places import CONF_DIR


def is_trace(content: bytes) -> bool:
    """Return whether the content of a file is a timeline."""
    try:
        return isinstance(json.loads(content)["traceEvents"], list)
    except (ValueError, KeyError, TypeError):
        return False


OUT = Output("out=", "a record", is_record)
TRACE = Output("trace=", "a timeline", is_trace)
# What an experiment decides by itself, or what does not belong to a single trial.
_NOT_PASSED_ON = ("experiment", "scale", "rounds", "round", "out", "trace", "force", "bad_data")


@dataclass(frozen=True, slots=True)
class Job:
    """One configuration as Hydra composed it; `overrides` are those of the command line."""

    config: DictConfig
    experiment: str | None
    overrides: tuple[str, ...]


def parse(arguments: Sequence[str]) -> list[Job]:
    """Compose what was typed; empty when Hydra itself answered (--help, --cfg).

    Raises ConfigError in one line for whatever Hydra does not accept.
    """
    jobs: dict[tuple[str, ...], Job] = {}  # by their overrides, as sweep_of_one makes equal ones
    chosen: dict[tuple[str, str], None] = {}

    def collect(config: DictConfig) -> None:
        context = HydraConfig.get()
        name = context.runtime.choices.get("experiment")
        chosen.update(
            dict.fromkeys((group, str(context.runtime.choices[group])) for group in NAMED)
        )
        overrides = tuple(context.overrides.task)
        jobs.setdefault(overrides, Job(config, name, overrides))

    register_schema()
    entry = hydra.main(version_base="1.3", config_path=str(CONF_DIR), config_name=CONFIG_NAME)
    with temporary_folder() as folder:
        typed = [as_recorded(argument) for argument in arguments if not _is_sweep(argument)]
        is_sweep = len(typed) < len(arguments)
        with hydra_errors():
            check_typed(typed, may_sweep=is_sweep)
        if is_sweep:
            # First, as argparse wants it; the folder is where Hydra notes a sweep's settings.
            typed = ["-m", *map(sweep_of_one, typed), f"hydra.sweep.dir={folder}"]
        with hydra_errors(), _as_command_line(typed):
            entry(collect)()
    if any(one in ("-h", "--help") for one in typed):
        print(what_keys_mean(CONF_DIR / f"{CONFIG_NAME}.yaml"))
        print(f"\nPolicies: {', '.join((AUTO, *policy_names()))}")
    for group, choice in chosen:
        check_name(group, choice, CONF_DIR)
    return list(jobs.values())


def what_keys_mean(config: Path) -> str:
    """Every key with its default and what its comment says, for `bench --help`.

    config: the file that says it, between its own `defaults` and `hydra`, which Hydra reads.
    """
    blocks = config.read_text(encoding="utf-8").split("\n\n")
    of_ours = [one for one in blocks if not one.startswith(("hydra:", "#", "defaults:"))]
    return "\n\n".join(["What each key means, and which words it takes:", *of_ours])


def _is_sweep(argument: str) -> bool:
    """Whether it asks for a sweep: argparse takes a long flag's beginning for the flag."""
    return argument == "-m" or (argument.startswith("--m") and "--multirun".startswith(argument))


@contextmanager
def _as_command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Let Hydra read `arguments`, and raise its errors instead of printing them."""
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [argv[0], *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            yield
    except SystemExit as stop:
        if stop.code:  # argparse has said why on its last line
            reason = complaint.getvalue().strip().rpartition("error: ")[2]
            raise ConfigError(f"{reason}; see `bench --help`") from stop
    finally:
        sys.argv = argv
        del os.environ["HYDRA_FULL_ERROR"]
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


def plan(jobs: Sequence[Job], arguments: Sequence[str]) -> list[Measurement]:
    """Turn jobs into measurements, in the order of harness.planning.ordering.

    Raises ConfigError for a trial that is not allowed, or a place that cannot be written.
    """
    command = shlex.join(["bench", *arguments])
    measure_same_instances([job for job in jobs if job.experiment is None])
    planned = [one for job in jobs for one in _measurements(job, command)]
    planned = [
        one
        for round_ in sorted({one.spec.round for one in planned})
        for one in order_of_round(
            (one for one in planned if one.spec.round == round_), round_, lambda one: one.spec
        )
    ]
    unique = list({(one.path, one.spec.trial_id, one.spec.round): one for one in planned}.values())
    if len({one.path for one in unique}) < len(unique):
        raise ConfigError("out names one file for several records; leave it out or make it differ")
    traces = [one.trace for one in unique if one.trace is not None]
    if len(set(traces)) < len(traces):
        raise ConfigError(
            "trace names one file for several trials or rounds; leave it out or make it differ"
        )
    for folder in dict.fromkeys(one.folder for one in unique):
        check_writable(folder)
    fields = fields_of([one.spec for one in unique])
    return [replace(one, field=field) for one, field in zip(unique, fields, strict=True)]


def measure_same_instances(jobs: Sequence[Job]) -> None:
    """Let a sweep over batch sizes measure the same instances at each, if it says nothing else."""
    sizes = {job.config.batch_size for job in jobs}
    said = {text.partition("=")[0].lstrip("+") for job in jobs for text in job.overrides}
    if len(sizes) < 2 or min(sizes) < 1 or said & {"timing.n_mini_batches", "timing.n_instances"}:
        return
    for job in jobs:
        n_mini_batches = job.config.timing.n_mini_batches
        job.config.timing.n_instances = shared_n_instances(sizes, n_mini_batches)


def _measurements(job: Job, command: str) -> list[Measurement]:
    config = job.config
    if job.experiment is None:
        first, n_rounds = config.round, 1 if config.rounds is None else config.rounds
        specs = [spec_of(config, command)]
    else:
        if config.out is not None:
            raise ConfigError("out names one record, an experiment has many; give results_dir")
        if config.trace is not None:
            raise ConfigError(
                "trace is of one trial, an experiment has many; name one trial in place of it"
            )
        first = 0
        choices, extra = pipeline_choices(job), _passed_on(job.overrides)
        specs, n_rounds = experiment_trials(job.experiment, choices, config.rounds, extra)
    check_count("rounds", n_rounds, 1, MOST_ROUNDS)
    rounds = range(first, first + n_rounds)
    return [_measurement(config, spec.with_round(r), command) for r in rounds for spec in specs]


def pipeline_choices(job: Job) -> Choices:
    """What the pipeline would be told; no scale means "paper" where CUDA is present, else "smoke".

    Folders are as they are called, which overrides may have in quotes.
    """
    said = dict(text.split("=", 1) for text in _passed_on(job.overrides) if "=" in text)
    config = job.config
    places = {"data_root": config.data_root, "results_dir": config.results_dir}
    return choices_from({**said, **places, "scale": config.scale}, os.environ)


def experiment_trials(
    name: str, choices: Choices, rounds: int | None, extra: Sequence[str] = ()
) -> tuple[list[TrialSpec], int]:
    """Return an artefact's trials, as the pipeline plans them, and their number of rounds.

    extra: overrides of every trial.
    """
    composer = Composer()
    trials = measuring_order(plan_artefact(name, choices, composer))
    if not trials:
        raise ConfigError(
            f"experiment={name} counts and times nothing; snakemake draw_{name} makes it"
        )
    specs: dict[str, TrialSpec] = {}
    for trial in trials:
        spec = spec_from(composer.plain([*trial.overrides, *extra]))
        specs.setdefault(spec.trial_id, replace(spec, screening=trial.spec.screening))
    planned = max(trial.rounds for trial in trials)
    return list(specs.values()), planned if rounds is None else rounds


def _passed_on(overrides: Sequence[str]) -> list[str]:
    return [text for text in overrides if text.partition("=")[0] not in _NOT_PASSED_ON]


def _measurement(config: DictConfig, spec: TrialSpec, command: str) -> Measurement:
    results = Path(config.results_dir)
    path = record_path(results, spec) if config.out is None else Path(config.out)
    if config.out is not None:
        OUT.check_kind(path)
        check_suffix(path, "a record is", ".json")
        OUT.check(path)
    trace = None if config.trace is None else Path(config.trace)
    if trace is not None:
        TRACE.check_kind(trace)
        check_suffix(trace, "a timeline is", ".json", given_as="trace=")
        TRACE.check(trace)
        if trace.resolve() == path.resolve():
            raise ConfigError(f"trace={trace} is where the record goes; give another name")
    log = results / "logs" / f"{spec.trial_id}.r{spec.round}.log"
    keeps = config.bad_data == "record"
    return Measurement(
        replace(spec, command=command), results, path, log, bool(config.force), keeps, trace=trace
    )


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
