"""What a run of the pipeline does now, and where, in words: `bench-collect --status`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from harness.errors import ConfigError
from harness.planning.at_work import AtWork, at_work
from harness.planning.durations import words_of
from harness.planning.run_plan import FILE, RunPlan, read_run_plan


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
