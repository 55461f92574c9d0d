"""The state of a run: a file for each job, as long as it measures, and `bench-collect --status`."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.errors import ConfigError
from harness.machine.files import read_regular
from harness.planning.durations import words_of
from harness.planning.run_plan import FILE, RunPlan, read_run_plan
from harness.records.files import replace_whole

FOLDER = ".at_work"  # below the results
NODE_NAMES = ("SLURMD_NODENAME", "BENCH_NODE")  # of Slurm, and of our jobs on Kubernetes


@dataclass(frozen=True, slots=True)
class AtWork:
    """What one job does now, and how long at most; since: seconds of the clock."""

    node: str
    job: str
    what: str
    since: float
    at_most_s: float

    def is_overdue(self, now: float) -> bool:
        """Whether it should have been over: its node may have died."""
        return now > self.since + self.at_most_s


def node_name() -> str:
    """What the scheduler calls this machine; else its own name."""
    told = (os.environ.get(name) for name in NODE_NAMES)
    return next(filter(None, told), platform.node())


def job_name() -> str:
    """What the scheduler calls this job; else its process."""
    return os.environ.get("SLURM_JOB_ID") or f"process {os.getpid()}"


class Notice:
    """Says what this job does, until it is taken down."""

    def __init__(self, results_dir: Path) -> None:
        name = f"{node_name()}-{platform.node()}-{os.getpid()}.json"
        self._path = results_dir / FOLDER / name

    def says(self, what: str, at_most_s: float) -> None:
        """Replace what it said before. Raises OutputError where that cannot be written."""
        content = AtWork(node_name(), job_name(), what, time.time(), at_most_s)
        replace_whole(self._path, json.dumps(asdict(content)))

    def take_down(self) -> None:
        with suppress(OSError):  # the folder may be what was lost
            self._path.unlink(missing_ok=True)


def at_work(results_dir: Path) -> Iterator[AtWork]:
    """What jobs say that they do now, node by node."""
    for path in sorted((results_dir / FOLDER).glob("*.json")):
        try:
            yield AtWork(**json.loads(read_regular(path)))
        except (OSError, ValueError, TypeError):  # it has just ended
            continue


def forget_all(results_dir: Path) -> None:
    """Take all notices down: of jobs that ended without a word."""
    for path in (results_dir / FOLDER).glob("*.json"):
        with suppress(OSError):
            path.unlink()


def tell_status(places: Sequence[Path]) -> None:
    """Print what a run into a folder of results has done, and what its jobs do now.

    Raises ConfigError where no run of the pipeline ever began there.
    """
    (results_dir,) = places
    plan = read_run_plan(results_dir / FILE)
    if plan is None:
        raise ConfigError(
            f"no run of the pipeline began in {results_dir}; name the results_dir of one"
        )
    print(*status_lines(plan, list(at_work(results_dir)), time.time()), sep="\n")


def status_lines(plan: RunPlan, working: Iterable[AtWork], now: float) -> Iterator[str]:
    """One line of the run as a whole, and one for each job that is at work."""
    working = list(working)
    n_done, n_steps = plan.n_done(plan.is_done), len(plan.seconds)
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(plan.started))
    left = words_of(plan.remaining_s(now, plan.is_done)) if n_done < n_steps else "nothing"
    yield f"{n_done} of {n_steps} steps of the run that began {began} are done; {left} left"
    for one in working:
        for_s = words_of(max(0.0, now - one.since))
        doubt = ": its node may be dead" if one.is_overdue(now) else ""
        yield f"{one.node}  job {one.job}  {one.what}, for {for_s}{doubt}"
    if not working:
        yield "no job on a node is at work; on one machine a run says in its terminal what it does"
