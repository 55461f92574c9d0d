"""The plan of one run of the pipeline: its steps, how long each may take, until when.

Written when the run begins, read by every process that measures: so that each can say how long it
still takes, and stop in time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from harness.machine.files import read_regular
from harness.records.files import replace_whole

FILE = ".run_plan.json"  # below the results
VARIABLE = "BENCH_RUN_PLAN"  # of the environment: where it lies
SMOOTHING_S = 60.0  # so much as planned is taken for granted before the run's own pace counts


class Step(NamedTuple):
    """A round of a trial, or a count (round 0), that is not there yet."""

    name: str
    round: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Steps by the file that each leaves, with seconds; started and until: seconds of the clock.

    until: when measuring has to be over; None: when all is done.
    """

    started: float
    until: float | None
    seconds: dict[str, float]

    def write(self, path: Path) -> None:
        content = {"started": self.started, "until": self.until, "seconds": self.seconds}
        replace_whole(path, json.dumps(content))

    def fits(self, file: Path, now: float) -> bool:
        """Whether a step that begins now would end in time."""
        return self.until is None or now + self.seconds.get(str(file), 0.0) <= self.until

    def remaining_s(self, now: float, is_done: Callable[[Path], bool]) -> float:
        """How long the steps take that are not done, at the pace of those that are."""
        done = {file for file in self.seconds if is_done(Path(file))}
        planned_s = sum(self.seconds[file] for file in done)
        left_s = sum(self.seconds[file] for file in self.seconds.keys() - done)
        pace = (now - self.started + SMOOTHING_S) / (planned_s + SMOOTHING_S)
        found = left_s * pace
        return found if self.until is None else min(found, max(0.0, self.until - now))

    def is_done(self, file: Path) -> bool:
        """Whether a step has left its file: one that is older than the run was there before."""
        try:
            return file.stat().st_mtime >= self.started
        except OSError:
            return False

    def n_done(self, is_done: Callable[[Path], bool]) -> int:
        """How many steps are done."""
        return sum(is_done(Path(file)) for file in self.seconds)


def read_run_plan(path: Path) -> RunPlan | None:
    """Read a plan; None where there is none that can be read, and so nothing to say."""
    try:
        content = json.loads(read_regular(path))
        return RunPlan(content["started"], content["until"], content["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
