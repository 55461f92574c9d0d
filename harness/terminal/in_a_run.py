"""Measuring as a part of a run of the pipeline: in its time, and with a word on how it goes."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.planning.durations import words_of
from harness.planning.nodes import Nodes
from harness.planning.ordering import fields_of
from harness.planning.run_plan import RunPlan
from harness.records.record import path_of, read_record, trial_of
from harness.terminal.ending import USAGE, complain
from harness.terminal.measurement import Measurement, measure_all
from harness.terminal.reporting import outcome_words, trial_words
from harness.terminal.status import Notice
from harness.trials.spec import TrialSpec

GRACE_S = 60.0  # of a trial, beside its limit: its process starts and ends
TERMINAL = 3  # the descriptor that the pipeline opens for it


def measurements(
    specs: Sequence[TrialSpec], results_dir: Path, nodes: Nodes | None = None
) -> list[Measurement]:
    """What a run measures together of trials' rounds; nodes: what the machine has to be."""
    return [
        Measurement(
            spec=spec,
            results_dir=results_dir,
            path=path_of(results_dir, spec.trial_id, spec.round),
            log=results_dir / "logs" / f"{spec.trial_id}.r{spec.round}.log",
            force=False,
            records_bad_data=True,
            nodes=nodes,
            field=field,
        )
        for spec, field in zip(specs, fields_of(specs), strict=True)
    ]


def say_who(line: str) -> None:
    """Tell of another's turn that is waited for, in the log and past it."""
    complain(line)
    tell(line)


def measure_in_time(one: Measurement, plan: RunPlan | None, notice: Notice) -> bool:
    """Return whether the trial was not refused; what would end too late is left.

    notice: says meanwhile what is measured, for whoever asks for the run's status.
    """
    notice.says(trial_words(trial_of(one.spec)), one.spec.limits.time_s + GRACE_S)
    if plan is not None and not plan.fits(one.path, time.time()):
        tell(f"{one.spec.trial_id} r{one.spec.round}  left for the next run: the budget is over")
        return True
    is_measured = measure_all([one]) != USAGE
    if is_measured and plan is not None:
        tell(progress_words(plan, one.path))
    return is_measured


def progress_words(plan: RunPlan, out: Path) -> str:
    """One line: what came out, how many steps are done, and how long the others take."""
    record = read_record(out)
    left = words_of(plan.remaining_s(time.time(), plan.is_done))
    place = f"[{plan.n_done(plan.is_done)}/{len(plan.seconds)}]"
    return f"{place} {trial_words(record.trial)}  {outcome_words(record)}; about {left} left"


def tell(line: str) -> None:
    """Write a line where the pipeline's own go, past the log; nowhere where that is not open."""
    with suppress(OSError):
        os.write(TERMINAL, f"{line}\n".encode())
