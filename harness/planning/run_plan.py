"""Plan of one run of the pipeline: its steps, their expected durations, and its end.

It is written at the start of the run. Every process that measures reads it to print the remaining
time and to stop in time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dynbatch.harness.machine.files import read_regular
from dynbatch.harness.records.files import replace_whole

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
        content = {"started": self.started, "until": self.until, "seconds": self.seconds}
        replace_whole(path, json.dumps(content))

    def fits(self, files: Iterable[Path], now: float) -> bool:
        """Return whether steps that start now are expected to end in time."""
        expected_s = sum(self.seconds.get(str(file), 0.0) for file in files)
        return self.until is None or now + expected_s <= self.until

    def estimate_remaining_s(self, now: float, is_done: Callable[[Path], bool]) -> float:
        """Return the seconds that the remaining steps take at the pace of the completed steps."""
        done = {file for file in self.seconds if is_done(Path(file))}
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

    def count_done(self, is_done: Callable[[Path], bool]) -> int:
        return sum(is_done(Path(file)) for file in self.seconds)


def read_run_plan(path: Path) -> RunPlan | None:
    try:
        content = json.loads(read_regular(path))
        return RunPlan(content["started"], content["until"], content["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
