"""Command line of `bench`: parsing of settings to points of a sweep, and their measurements.

All points are checked before the first trial starts. Hydra handles flags such as --help and --cfg.
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
from typing import Any

import hydra

from harness.contracts.policy import AUTO, policy_names
from harness.errors import ConfigError
from harness.machine.facts import cpu_model
from harness.planning.artefacts import (
    Choices,
    choices_from,
    measuring_order,
    plan_artefact,
    stand_ins,
)
from harness.planning.config import (
    CONFIG_NAME,
    MOST_ROUNDS,
    BenchConfig,
    Composer,
    hydra_errors,
    register_schema,
    spec_of,
)
from harness.planning.durations import Durations, timed_in, words_of
from harness.planning.ordering import fields_of, order_of_round, shared_n_instances
from harness.planning.overrides import Settings, read_points
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
# Keys that the experiment defines itself, or that do not belong to a single trial.
_NOT_PASSED_ON = ("experiment", "scale", "rounds", "round", "out", "trace", "force", "bad_data")


@dataclass(frozen=True, slots=True)
class Job:
    """One point of the command line's sweep, with its configuration."""

    settings: Settings
    config: BenchConfig
    conf_dir: Path = CONF_DIR

    @property
    def experiment(self) -> str | None:
        """Experiment whose grid is measured; None: a single trial."""
        return self.config.experiment


def parse(arguments: Sequence[str]) -> list[Job]:
    """Parse the arguments; return no jobs if Hydra handles a flag (--help, --cfg).

    Raises:
        ConfigError: for an invalid argument.
    """
    conf_dir, rest = _take_conf_dir(arguments)
    flags = [one for one in rest if one.startswith("-") and not _is_sweep(one)]
    texts = [one for one in rest if not one.startswith("-") and (not flags or "=" in one)]
    may_sweep = any(map(_is_sweep, rest))
    points = read_points(texts, conf_dir, may_sweep=may_sweep)
    composer = Composer(conf_dir)
    jobs = [Job(point, composer.config(point), conf_dir) for point in points]
    if not flags:
        return jobs
    _ask_hydra(rest, conf_dir)
    if any(one in ("-h", "--help") for one in flags):
        print(what_keys_mean(conf_dir / f"{CONFIG_NAME}.yaml"))
        print(f"\nPolicies: {', '.join((AUTO, *policy_names()))}")
    return []


def _take_conf_dir(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the configuration directory, of `--config-path` if given, and the other arguments.

    Raises:
        ConfigError: if `--config-path` has no value.
    """
    conf_dir, rest, left = CONF_DIR, [], list(arguments)
    while left:
        flag, equals, value = (first := left.pop(0)).partition("=")
        if flag not in ("--config-path", "-cp"):
            rest.append(first)
            continue
        if not equals and not left:
            raise ConfigError(f"{flag} names no directory; write {flag}=DIRECTORY")
        conf_dir = Path(value if equals else left.pop(0)).resolve()
    return conf_dir, rest


def what_keys_mean(config: Path) -> str:
    """Return every key with its default and its comment, for `bench --help`.

    Args:
        config: path of bench.yaml; its blocks `defaults` and `hydra` are omitted.
    """
    blocks = config.read_text(encoding="utf-8").split("\n\n")
    of_ours = [one for one in blocks if not one.startswith(("hydra:", "#", "defaults:"))]
    return "\n\n".join(["What each key means, and which words it takes:", *of_ours])


def _is_sweep(argument: str) -> bool:
    """Return whether an argument is `-m` or a prefix of `--multirun`, as argparse accepts."""
    return argument == "-m" or (argument.startswith("--m") and "--multirun".startswith(argument))


def _ask_hydra(arguments: Sequence[str], conf_dir: Path) -> None:
    """Let Hydra print the output of a flag; raise ConfigError if it would run a trial instead."""

    def refuse(_: object) -> None:
        flags = [one for one in arguments if one.startswith("-")]
        raise ConfigError(f"{' '.join(flags)} measures nothing; remove it, or see `bench --help`")

    # Without quotes, Hydra reads the system's name as a null value.
    named = ["system='null'" if one == "system=null" else one for one in arguments]
    register_schema()
    entry = hydra.main(version_base="1.3", config_path=str(conf_dir), config_name=CONFIG_NAME)
    with hydra_errors(), _as_command_line(named):
        entry(refuse)()


@contextmanager
def _as_command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Let Hydra read `arguments`, and raise its errors instead of printing them.

    Raises:
        ConfigError: if Hydra rejects the arguments.
    """
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = [argv[0], *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            yield
    except SystemExit as stop:
        if stop.code:  # argparse's last line has the reason
            reason = complaint.getvalue().strip().rpartition("error: ")[2]
            raise ConfigError(f"{reason}; see `bench --help`") from stop
    finally:
        sys.argv = argv
        del os.environ["HYDRA_FULL_ERROR"]
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


def plan(jobs: Sequence[Job], arguments: Sequence[str]) -> list[Measurement]:
    """Convert jobs to measurements, in the order of harness.planning.ordering.

    Args:
        arguments: the user's arguments, for the records.

    Raises:
        ConfigError: for an invalid trial, for several trials with one output file, and for an
            output path that cannot be written.
    """
    command = shlex.join(["bench", *arguments])
    alone = measure_same_instances([job for job in jobs if job.experiment is None])
    jobs = [*alone, *(job for job in jobs if job.experiment is not None)]
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


def measure_same_instances(jobs: Sequence[Job]) -> list[Job]:
    """Set the same instances for all batch sizes of a sweep, if it does not set their number."""
    sizes = {job.config.batch_size for job in jobs}
    said = {key for job in jobs for key in job.settings}
    if len(sizes) < 2 or said & {"timing.n_mini_batches", "timing.n_instances"}:
        return list(jobs)
    found = []
    for job in jobs:
        n_instances = shared_n_instances(sizes, job.config.timing.n_mini_batches)
        timing = replace(job.config.timing, n_instances=n_instances)
        found.append(replace(job, config=replace(job.config, timing=timing)))
    return found


def _measurements(job: Job, command: str) -> list[Measurement]:
    config = job.config
    if job.experiment is None:
        first, n_rounds = config.round, 1 if config.rounds is None else config.rounds
        specs = [spec_of(config, command, job.conf_dir)]
    else:
        if config.out is not None:
            raise ConfigError("out names one record, an experiment has many; give results_dir")
        if config.trace is not None:
            raise ConfigError(
                "trace is of one trial, an experiment has many; name one trial in place of it"
            )
        first = 0
        choices, extra = pipeline_choices(job), _passed_on(job.settings)
        specs, n_rounds = experiment_trials(job.experiment, choices, config.rounds, extra)
    check_count("rounds", n_rounds, 1, MOST_ROUNDS)
    rounds = range(first, first + n_rounds)
    return [_measurement(config, spec.with_round(r), command) for r in rounds for spec in specs]


def pipeline_choices(job: Job) -> Choices:
    """Return the pipeline's choices for a job; the default scale is "paper" with CUDA."""
    config = job.config
    places = {"data_root": config.data_root, "results_dir": config.results_dir}
    said = {**_passed_on(job.settings), **places, "scale": config.scale, "conf_dir": job.conf_dir}
    return choices_from(said, os.environ)


def experiment_trials(
    name: str, choices: Choices, rounds: int | None, extra: Settings | None = None
) -> tuple[list[TrialSpec], int]:
    """Return an experiment's trials, as the pipeline plans them, and their number of rounds.

    Args:
        rounds: number of rounds; None: that of the experiment.
        extra: settings of every trial.

    Raises:
        ConfigError: if the experiment has no trials.
    """
    composer = Composer(choices.conf_dir)
    trials = measuring_order(plan_artefact(name, choices, composer))
    if not trials:
        raise ConfigError(
            f"experiment={name} counts and times nothing; snakemake draw_{name} makes it"
        )
    specs: dict[str, TrialSpec] = {}
    for trial in trials:
        spec = composer.trial({**trial.all_settings, **(extra or {})})
        specs.setdefault(spec.trial_id, replace(spec, screening=trial.spec.screening))
    planned = max(trial.rounds for trial in trials)
    return list(specs.values()), planned if rounds is None else rounds


def _passed_on(settings: Settings) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _NOT_PASSED_ON}


def _measurement(config: BenchConfig, spec: TrialSpec, command: str) -> Measurement:
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
        replace(spec, command=command), results, path, log, config.force, keeps, trace=trace
    )


def opening(jobs: Sequence[Job], planned: Sequence[Measurement]) -> Iterator[str]:
    """Yield a line with the plan of the experiments, and one for each fallback dataset."""
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
    """Yield a line for each fallback dataset, unless the user sets the dataset of every trial."""
    if job.experiment is None or "dataset" in job.settings:
        return
    choices = pipeline_choices(job)
    for dataset, taken in stand_ins(job.experiment, choices).items():
        yield (
            f"{dataset} is not in {choices.data_root}: {taken} stands in, numbers are of that;"
            f" `bench-data fetch {dataset}` gets it"
        )
