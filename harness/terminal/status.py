"""State of a pipeline run: one file per active job, shown by `bench-collect --status`."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.planning.durations import format_duration
from dynbatch.harness.planning.job_specs import FILE, RunPlan, read_run_plan
from dynbatch.harness.records.files import replace_whole

FOLDER = ".at_work"  # in the results directory


@dataclass(frozen=True, slots=True)
class AtWork:
    """Current work of one job.

    Attributes:
        node: name of the machine.
        job: Slurm's job number, or the process.
        since: start of the work in seconds since the epoch.
        at_most_s: time limit of the work.
    """

    node: str
    job: str
    what: str
    since: float
    at_most_s: float


def find_node_name() -> str:
    """Return Slurm's name of this machine, else its host name."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


class Notice:
    """File that shows the current work of this job, until it is deleted."""

    def __init__(self, results_dir: Path) -> None:
        name = f"{find_node_name()}-{platform.node()}-{os.getpid()}.json"
        self._path = results_dir / FOLDER / name

    def show_work(self, what: str, at_most_s: float) -> None:
        job = os.environ.get("SLURM_JOB_ID") or f"process {os.getpid()}"
        content = AtWork(find_node_name(), job, what, time.time(), at_most_s)
        replace_whole(self._path, json.dumps(asdict(content)))

    def take_down(self) -> None:
        with suppress(OSError):  # the directory may no longer exist
            self._path.unlink()


def read_current_work(results_dir: Path) -> Iterator[AtWork]:
    for path in sorted((results_dir / FOLDER).glob("*.json")):
        try:
            yield AtWork(**json.loads(read_regular(path)))
        except (OSError, ValueError, TypeError):  # the job has just ended
            continue


def forget_all(results_dir: Path) -> None:
    """Delete the files of all jobs, some of which ended without deleting theirs."""
    for path in (results_dir / FOLDER).glob("*.json"):
        with suppress(OSError):
            path.unlink()


def tell_status(places: Sequence[Path]) -> None:
    """Print the progress of a run into a results directory, and the current work of its jobs.

    Raises:
        ConfigError: if no run of the pipeline has started there.
    """
    (results_dir,) = places
    plan = read_run_plan(results_dir / FILE)
    if plan is None:
        raise ConfigError(f"no pipeline run found in {results_dir}; choose the results_dir of one")
    print(*format_status(plan, list(read_current_work(results_dir)), time.time()), sep="\n")


def format_status(plan: RunPlan, working: Sequence[AtWork], now: float) -> Iterator[str]:
    """Yield a line about the whole run, and one for each active job."""
    n_done, n_steps = plan.count_done(), len(plan.seconds)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(plan.started))
    remaining = format_duration(plan.estimate_remaining_s(now))
    left = remaining if n_done < n_steps else "nothing"
    yield f"{n_done} of {n_steps} steps of the run started {began} are done; {left} left"
    for work in working:
        for_s = format_duration(max(0.0, now - work.since))
        doubt = ": its node may be dead" if now > work.since + work.at_most_s else ""
        yield f"{work.node}  job {work.job}  {work.what}, for {for_s}{doubt}"
    if not working:
        yield "no job is active on a node; a run on one machine shows its progress in its terminal"
