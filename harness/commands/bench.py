"""`bench`: measures one trial, a sweep (-m), or the grid of an experiment (experiment=NAME)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.facts import pin_process
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.planning.nodes import check_machine
from dynbatch.harness.planning.requests import DRAW, KEYS, format_pipeline_command
from dynbatch.harness.records.cross_check import cross_check_records
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.tidy import build_frame
from dynbatch.harness.terminal.command_line import BenchJob, describe_plan, parse, plan
from dynbatch.harness.terminal.exit_handling import make_command, print_message
from dynbatch.harness.terminal.measurement import lock_results, measure_all
from dynbatch.harness.values.paths import CONF_DIR, is_checkout
from dynbatch.plots.declaration import SYSTEMS, read_declaration
from dynbatch.plots.terminal import compare_with_baselines, rank_systems


@make_command("bench")
def main(typed: list[str]) -> int:
    """Run `bench`.

    Returns:
        0 if every trial has a record, 1 for wrong input, 2 for an internal error, and 3 if a trial
        crashed or its result is wrong.
    """
    jobs = parse(typed)
    if not jobs:  # --help or --cfg
        return 0
    planned = plan(jobs, typed)
    pin(jobs, {measurement.spec.threads for measurement in planned})
    for measurement in planned:
        check_machine(measurement.spec)
    for line in describe_plan(jobs, planned):
        print_message(f"bench: {line}")
    with lock_results(planned, shlex.join(["bench", *typed])), ForkServers() as servers:
        return measure_all(planned, servers, partial(compare, jobs=jobs))


def pin(jobs: Sequence[BenchJob], threads: Collection[int]) -> None:
    """Restrict this process and its trials to the CPUs from `cpu` on, one for each thread.

    Raises:
        ConfigError: if the sweep has several values of `cpu` or `threads`, or a CPU is not usable.
    """
    firsts = {job.config.cpu for job in jobs}
    if firsts <= {None}:
        return
    for name, values in (("cpu", firsts), ("threads", threads)):
        if len(values) > 1:
            listed = ",".join(sorted(map(str, values)))
            raise ConfigError(
                f"{name}={listed}, but cpu sets the CPUs of all trials; set one value"
            )
    (first,), (n_threads,) = firsts, threads
    if first is not None:
        pin_process(range(first, first + n_threads))


def compare(records: Sequence[Record], jobs: Sequence[BenchJob]) -> Iterator[str]:
    """Yield the lines that are printed below the trials.

    For experiments that compare systems, these are the speedup over the fastest baseline, the
    fraction of the matmul bound, and the command that draws the experiment. For trials without an
    experiment they are a ranking.
    """
    rows = build_frame(cross_check_records(records))
    conf_dir = jobs[0].conf_dir  # of all jobs
    experiments = sorted({job.config.experiment for job in jobs if job.config.experiment})
    if not experiments:
        yield from rank_systems(rows)
    compared = (read_declaration(name, conf_dir).compare.get(SYSTEMS) for name in experiments)
    for base in dict.fromkeys(systems[0] for systems in compared if systems):
        yield from compare_with_baselines(rows, base, read_systems(conf_dir))
    yield from describe_drawing(jobs)


def describe_drawing(jobs: Sequence[BenchJob]) -> Iterator[str]:
    """Yield the command that draws each experiment; without a checkout, it uses no Snakemake."""
    module = ("python", "-m", "dynbatch.harness.commands.draw")
    commands: dict[str, None] = {}
    for job in jobs:
        if (experiment := job.config.experiment) is not None:
            keys = {key: value for key, value in job.settings.items() if key in KEYS}
            if job.conf_dir != CONF_DIR:
                keys["conf_dir"] = job.conf_dir
            options = [f"--{key.replace('_', '-')}={value}" for key, value in keys.items()]
            command = shlex.join([*module, experiment, *options])
            if is_checkout():
                command = format_pipeline_command(f"{DRAW}{experiment}", keys)
            commands[command] = None
    yield from (f"draw with: {command}" for command in commands)


if __name__ == "__main__":
    sys.exit(main())
