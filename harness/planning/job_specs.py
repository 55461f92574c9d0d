"""Job specs: files that define the work of each job of a pipeline run.

The plan is made once, on the head node of a cluster, because Snakemake starts twice for each job.

The plan of a run has its steps, their expected durations, and its end. It is written at the start;
every process that measures reads it to print the remaining time and to stop in time.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from dynbatch.harness.errors import BenchError, ConfigError
from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.planning.nodes import Nodes
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.records.record import describe_first_fault
from dynbatch.harness.trials.sources import hash_contents
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.paths import ROOT

FILE = ".run_plan.json"  # in the results directory
VARIABLE = "BENCH_RUN_PLAN"  # environment variable with the path of the plan
SMOOTHING_S = 60.0  # weight of the planned pace against the pace of the run so far


class Step(NamedTuple):
    """One round of a trial, or one batch count (round 0)."""

    name: str
    round: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Steps of a run and its time limit.

    Attributes:
        started: start of the run in seconds since the epoch.
        until: end of measuring in seconds since the epoch; None: no limit.
        seconds: expected seconds of each step, by its output file.
    """

    started: float
    until: float | None
    seconds: dict[str, float]

    def write(self, path: Path) -> None:
        replace_whole(path, json.dumps(asdict(self)))

    def fits(self, files: Iterable[Path], now: float) -> bool:
        """Return whether steps that start now are expected to end in time."""
        expected_s = sum(self.seconds.get(str(file), 0.0) for file in files)
        return self.until is None or now + expected_s <= self.until

    def estimate_remaining_s(self, now: float) -> float:
        """Return the seconds that the remaining steps take at the pace of the completed steps."""
        done = {file for file in self.seconds if self.is_done(Path(file))}
        planned_s = sum(self.seconds[file] for file in done)
        left_s = sum(self.seconds[file] for file in self.seconds.keys() - done)
        pace = (now - self.started + SMOOTHING_S) / (planned_s + SMOOTHING_S)
        remaining_s = left_s * pace
        return remaining_s if self.until is None else min(remaining_s, max(0.0, self.until - now))

    def is_done(self, file: Path) -> bool:
        """Return whether a step of this run has written its file; an older file does not count."""
        try:
            return file.stat().st_mtime >= self.started
        except OSError:
            return False

    def count_done(self) -> int:
        return sum(self.is_done(Path(file)) for file in self.seconds)


def read_run_plan(path: Path) -> RunPlan | None:
    try:
        return RunPlan(**json.loads(read_regular(path)))
    except (OSError, ValueError, TypeError):
        return None


FOLDER = ".orders"  # in the results directory
MEASURED = ("harness", "systems", "datasets")  # directories of code that a node runs


@dataclass(frozen=True, slots=True)
class Order:
    """Job spec: either rounds of trials, or one batch count.

    Attributes:
        nodes: nodes that measure; None: this machine.
        code: required result of `compute_code_version` on a node; empty without nodes.
        repetitions: steps of each repetition, in the order of measurement.
        specs: trials of the repetitions, by trial_id.
        unsupported: reasons of trials that this machine cannot run, by trial_id.
        count: arguments of `bench-schedule`; empty if trials are measured.
        shares_machine: whether a count may run at the same time as others, because it is not timed.
    """

    results_dir: Path
    nodes: Nodes | None = None
    code: str = ""
    repetitions: tuple[tuple[Step, ...], ...] = ()
    specs: Mapping[str, TrialSpec] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    count: tuple[str, ...] = ()
    shares_machine: bool = False

    def write(self, path: Path) -> None:
        """Write the job spec as JSON; raise OutputError if the file cannot be written."""
        replace_whole(path, _ORDER.dump_json(self))


_ORDER = TypeAdapter(Order)


def build_order_path(results_dir: Path | str, name: str) -> Path:
    """Return the path of a job spec; `name` may be a wildcard of the pipeline."""
    return Path(results_dir) / FOLDER / f"{name}.json"


def build_done_path(results_dir: Path | str, name: str) -> Path:
    """Return the path of a job's marker file; `name` may be a wildcard of the pipeline."""
    return Path(results_dir) / "measured" / f"{name}.json"


def read_order(path: Path) -> Order:
    """Read a job spec; raise BenchError if the file is invalid or not visible on this machine."""
    try:
        return _ORDER.validate_json(read_regular(path))
    except OSError as error:
        raise BenchError(
            f"cannot read {path} on {platform.node()}: {error.strerror}; set results_dir to a"
            " directory that the head node and all nodes share"
        ) from error
    except ValidationError as error:
        fault = describe_first_fault(error)
        raise BenchError(f"{path} is not a job spec ({fault}); start the run again") from error


def compute_code_version() -> str:
    """Return Python's version and a short hash of all code that may run on a node."""
    files = {
        path.relative_to(ROOT).as_posix(): path
        for folder in MEASURED
        for path in (ROOT / folder).rglob("*.py")
    }
    return f"{platform.python_version()}-{hash_contents(files)[:16]}"


def check_code(code: str, node: str) -> None:
    """Raise ConfigError if a node's code differs from that of this machine."""
    ours = compute_code_version()
    if code != ours:
        raise ConfigError(
            f"{node} has a different version of the code or of Python: expected {ours}, got {code};"
            " use one checkout and one environment in a shared directory"
        )
