"""Command line of `bench`: parsing of settings to points of a sweep, and their measurements.

All points are checked before the first trial starts. Hydra handles flags such as --help and --cfg.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from itertools import chain
from pathlib import Path
from textwrap import fill
from typing import Any

import hydra

from dynbatch.harness.contracts.policy import list_policy_names
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.cgroup import read_cpu_quota
from dynbatch.harness.machine.facts import read_cpu_model
from dynbatch.harness.planning.artifacts import (
    Choices,
    PlannedTrial,
    build_choices,
    find_fallbacks,
    merge_equal_trials,
    plan_artifact,
)
from dynbatch.harness.planning.config import (
    CONFIG_NAME,
    BenchConfig,
    Composer,
    register_schema,
    resolve_spec,
)
from dynbatch.harness.planning.durations import Durations, format_duration, read_durations
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.planning.ordering import compute_shared_n_instances, group_by_point
from dynbatch.harness.planning.overrides import Settings, read_points
from dynbatch.harness.planning.requests import DRAW, format_pipeline_command
from dynbatch.harness.planning.yaml_files import convert_hydra_errors
from dynbatch.harness.records.files import Output, check_writable
from dynbatch.harness.records.record import find_record, is_record, locate_record
from dynbatch.harness.records.reuse import Present
from dynbatch.harness.terminal.measurement import Measurement
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.nested import flatten
from dynbatch.harness.values.paths import CONF_DIR

OUT = Output("out=", "a record", is_record, (".json",))
# Keys that the experiment defines itself, or that do not belong to a single trial.
_NOT_PASSED_ON = (
    "experiment",
    "scale",
    "rounds",
    "round",
    "out",
    "cpu",
    "force",
    "on_invalid_data",
)


@dataclass(frozen=True, slots=True)
class BenchJob:
    """One point of the command line's sweep, with its configuration."""

    settings: Settings
    config: BenchConfig
    conf_dir: Path = CONF_DIR


def parse(arguments: Sequence[str]) -> list[BenchJob]:
    """Parse the arguments; return no jobs if Hydra handles a flag (--help, --cfg)."""
    conf_dir, rest = _take_conf_dir(arguments)
    words = [argument for argument in rest if not argument.startswith("-")]
    options = [argument for argument in rest if argument.startswith("-")]
    flags = [option for option in options if not _is_sweep(option)]
    texts = [word for word in words if not flags or "=" in word]  # --cfg has a word of its own
    points = read_points(texts, conf_dir, may_sweep=len(flags) < len(options))
    composer = Composer(conf_dir)
    jobs = [BenchJob(point, composer.compose_config(point), conf_dir) for point in points]
    if not flags:
        return jobs
    _ask_hydra(rest, conf_dir)
    if any(argument in ("-h", "--help") for argument in flags):
        print(describe_choices(conf_dir))
        print(f"\n{describe_keys(conf_dir / f'{CONFIG_NAME}.yaml')}")
    return []


def _take_conf_dir(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the configuration directory, of `--config-path` if given, and the other arguments."""
    conf_dir, rest, left = CONF_DIR, [], list(arguments)
    while left:
        flag, equals, value = (first := left.pop(0)).partition("=")
        if flag not in ("--config-path", "-cp"):
            rest.append(first)
            continue
        if not equals and not left:
            raise ConfigError(f"{flag} has no value; set {flag}=DIRECTORY")
        conf_dir = Path(value if equals else left.pop(0)).resolve()
    return conf_dir, rest


def describe_choices(conf_dir: Path) -> str:
    """Return the names of all choices for `bench --help`; systems have their labels, by kind."""
    named = {
        key: sorted(path.stem for path in (conf_dir / key).glob("*.yaml"))
        for key in ("dataset", "experiment", "model")
    }
    named["policy"] = [*list_policy_names()]
    for system in read_systems(conf_dir):
        names = named.setdefault(f"system, {system.kind.replace('_', ' ')}", [])
        names.append(f"{system.name} ({system.label})")
    lines = (f"{key}: {', '.join(names)}" for key, names in named.items())
    return "\n".join(
        fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in lines
    )


def describe_keys(config: Path) -> str:
    """Return every key with its default and its comment, for `bench --help`.

    Args:
        config: path of bench.yaml; its blocks `defaults` and `hydra` are omitted.
    """
    blocks = config.read_text(encoding="utf-8").split("\n\n")
    others = ("hydra:", " ", "#", "defaults:")  # with a blank: the rest of a block, of hydra alone
    of_ours = [block for block in blocks if not block.startswith(others)]
    return "\n\n".join(["Keys with defaults, meaning and allowed values:", *of_ours])


def _is_sweep(argument: str) -> bool:
    """Return whether an argument is `-m` or a prefix of `--multirun`, as argparse accepts."""
    return argument == "-m" or (argument.startswith("--m") and "--multirun".startswith(argument))


def _ask_hydra(arguments: Sequence[str], conf_dir: Path) -> None:
    """Let Hydra print the output of a flag; raise ConfigError if it would run a trial instead."""

    def refuse(_: object) -> None:
        flags = [argument for argument in arguments if argument.startswith("-")]
        raise ConfigError(f"{' '.join(flags)} measures nothing; remove it, or see `bench --help`")

    # Without quotes, Hydra reads the system's name as a null value.
    named = ["system='null'" if argument == "system=null" else argument for argument in arguments]
    register_schema()
    entry = hydra.main(version_base="1.3", config_path=str(conf_dir), config_name=CONFIG_NAME)
    with convert_hydra_errors(), _as_command_line(named):
        entry(refuse)()


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
        if stop.code:  # argparse's last line has the reason
            reason = complaint.getvalue().strip().rpartition("error: ")[2]
            raise ConfigError(f"{reason}; see `bench --help`") from stop
    finally:
        sys.argv = argv
        del os.environ["HYDRA_FULL_ERROR"]
        if full is not None:
            os.environ["HYDRA_FULL_ERROR"] = full


def plan(jobs: Sequence[BenchJob], arguments: Sequence[str]) -> list[Measurement]:
    """Convert jobs to measurements, in the order of dynbatch.harness.planning.ordering."""
    command = shlex.join(["bench", *arguments])
    alone = measure_same_instances([job for job in jobs if job.config.experiment is None])
    jobs = [*alone, *(job for job in jobs if job.config.experiment is not None)]
    by_round: dict[int, list[Measurement]] = {}
    for job in jobs:
        for measurement in _plan_job(job, command):
            by_round.setdefault(measurement.spec.round, []).append(measurement)
    unique: dict[tuple[Path, str, int], Measurement] = {}
    for round_, planned in sorted(by_round.items()):
        points = group_by_point(planned, round_, lambda item: item.spec)
        for measurement in chain.from_iterable(points.values()):
            unique[measurement.path, measurement.spec.trial_id, round_] = measurement
    measurements = list(unique.values())
    if len({measurement.path for measurement in measurements}) < len(measurements):
        raise ConfigError("out is one file for several records; remove it, or set one for each")
    for folder in dict.fromkeys(measurement.folder for measurement in measurements):
        check_writable(folder)
    return measurements


def measure_same_instances(jobs: Sequence[BenchJob]) -> list[BenchJob]:
    """Set the same instances for all batch sizes of a sweep, if it does not set their number."""
    sizes = {job.config.batch_size for job in jobs}
    keys = {key for job in jobs for key, _ in flatten(job.settings)}
    if len(sizes) < 2 or keys & {"timing.n_mini_batches", "timing.n_instances"}:
        return list(jobs)
    adjusted = []
    for job in jobs:
        n_instances = compute_shared_n_instances(sizes, job.config.timing.n_mini_batches)
        timing = replace(job.config.timing, n_instances=n_instances)
        adjusted.append(replace(job, config=replace(job.config, timing=timing)))
    return adjusted


def _plan_job(job: BenchJob, command: str) -> list[Measurement]:
    config = job.config
    if config.experiment is None:
        if config.scale is not None:
            raise ConfigError(
                f"scale={config.scale} is of an experiment; set experiment=NAME, or remove scale"
            )
        first, planned = config.round, [(resolve_spec(config, job.conf_dir), 1)]
    else:
        if config.out is not None:
            raise ConfigError("out is one record, an experiment has many; set results_dir")
        if config.round:
            raise ConfigError("round is of one trial, an experiment has many; set rounds")
        choices, extra = build_pipeline_choices(job), _select_settings(job.settings)
        trials = plan_experiment(config.experiment, choices, extra)
        first, planned = 0, [(trial.spec, trial.rounds) for trial in trials]
    return [
        _build_measurement(config, spec.replace_round(first + k), command)
        for spec, n_rounds in planned
        for k in range(config.rounds or n_rounds)
    ]


def build_pipeline_choices(job: BenchJob) -> Choices:
    """Return the pipeline's choices for a job; the default scale is "medium" with CUDA."""
    settings = {**_select_settings(job.settings), "conf_dir": job.conf_dir}
    settings |= {key: getattr(job.config, key) for key in ("data_root", "results_dir", "scale")}
    return build_choices(settings, os.environ)


def plan_experiment(name: str, choices: Choices, extra: Settings) -> tuple[PlannedTrial, ...]:
    """Return an experiment's trials as the pipeline plans them, with more settings."""
    composer = Composer(choices.conf_dir)
    trials = plan_artifact(name, choices, composer)
    if not trials:
        command = format_pipeline_command(f"{DRAW}{name}", {"scale": choices.scale})
        raise ConfigError(f"experiment={name} has no trials; draw it with {command}")
    return merge_equal_trials(
        replace(trial, spec=composer.resolve_trial({**trial.all_settings, **extra}))
        for trial in trials
    )


def _select_settings(settings: Settings) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _NOT_PASSED_ON}


def _build_measurement(config: BenchConfig, spec: TrialSpec, command: str) -> Measurement:
    results = Path(config.results_dir)
    path = locate_record(results, spec) if config.out is None else Path(config.out)
    if config.out is not None:
        OUT.check(path)
    keeps = config.on_invalid_data == "record"
    return Measurement(replace(spec, command=command), results, path, config.force, keeps)


def describe_plan(jobs: Sequence[BenchJob], planned: Sequence[Measurement]) -> Iterator[str]:
    """Yield lines on a CPU quota, the plan of the experiments, and each fallback dataset."""
    quota = read_cpu_quota()
    if quota is not None and any(quota <= measurement.spec.threads for measurement in planned):
        yield (
            f"the CPU quota of {quota:.2g} cores pauses trials, which disturbs their turns; give"
            " the container whole CPUs (a CPU set)"
        )
    chosen = [(job, build_pipeline_choices(job)) for job in jobs if job.config.experiment]
    if not chosen:
        return
    scales = {job.config.experiment: choices.scale for job, choices in chosen}
    places = (f"{name} at {scale} scale" for name, scale in scales.items())
    yield f"{', '.join(places)}: {_format_plan(planned)}"
    yield from dict.fromkeys(
        f"{dataset} is not in {choices.data_root}: measuring fallback {taken};"
        f" to download it, run `bench-data fetch {dataset}`"
        for job, choices in chosen
        if "dataset" not in job.settings  # otherwise the user sets that of every trial
        for dataset, taken in find_fallbacks(str(job.config.experiment), choices).items()
    )


def _format_plan(planned: Sequence[Measurement]) -> str:
    present = Present()
    lacking = [
        item
        for item in planned
        if item.force or not present.is_kept(find_record(item.path), item.spec)
    ]
    n_there = len(planned) - len(lacking)
    if not lacking:
        return f"all {n_there} rounds have a valid record"
    folders, cpu = {item.results_dir for item in planned}, read_cpu_model()
    durations = Durations(item for folder in folders for item in read_durations(folder, cpu))
    takes_s = sum(durations.estimate_seconds(item.spec, item.spec.round) for item in lacking)
    n_trials = len({item.spec.trial_id for item in lacking})
    there = f"; {n_there} more have a valid record" if n_there else ""
    return (
        f"{len(lacking)} rounds of {n_trials} trials to measure, about"
        f" {format_duration(takes_s)}{there}"
    )
