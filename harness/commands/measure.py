"""Measures one round of trials that were planned before: what the pipeline calls for a sitting.

    python -m harness.commands.measure SPEC... --round 0 --results-dir results --done FILE

SPEC: a trial as JSON. `bench` composes the same from what is typed, which takes as long as
measuring a short trial; a record tells the `bench` command either way. In a run of the pipeline,
whose plan BENCH_RUN_PLAN names, it stops in time and says how long all the rest takes. Its last act
is FILE, which names the records; nothing that comes before takes one away.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from harness.measuring.turns import turns
from harness.planning.durations import words_of
from harness.planning.run_plan import VARIABLE, RunPlan, read_run_plan
from harness.records.measured import write_measured
from harness.records.record import path_of, read_record
from harness.terminal.argument_parser import OneLineParser
from harness.terminal.ending import USAGE, complain, run_command
from harness.terminal.measurement import Measurement, measure_all
from harness.terminal.reporting import outcome_words, trial_words
from harness.trials.spec import TrialSpec

TERMINAL = 3  # the descriptor that the pipeline opens for it


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when what there was time for has a record, 1 where a trial is refused."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("bench", partial(_sitting, typed), again="the same run of snakemake")


def _sitting(typed: Sequence[str]) -> int:
    parser = OneLineParser(prog="measure", description=__doc__)
    parser.add_argument("specs", nargs="+", type=json.loads)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--results-dir", type=Path, required=True)
    parser.add_argument("--done", type=Path, required=True)
    given = parser.parse_args(typed)
    plan = read_run_plan(Path(os.environ.get(VARIABLE, "")))
    planned = [_planned(values, given) for values in given.specs]
    with turns({given.results_dir}, f"a sitting of snakemake, {given.done}", say_who):
        are_measured = [measure_in_time(one, plan) for one in planned]
    if not all(are_measured):
        return USAGE
    write_measured(given.done, [one.path for one in planned if one.path.exists()])
    return 0


def _planned(values: dict[str, object], given: Namespace) -> Measurement:
    spec = TrialSpec.from_dict(values).with_round(given.round)
    path = path_of(given.results_dir, spec.trial_id, spec.round)
    log = given.results_dir / "logs" / f"{spec.trial_id}.r{spec.round}.log"
    results = given.results_dir
    return Measurement(spec, results, path, log, force=False, records_bad_data=True)


def say_who(line: str) -> None:
    """Tell of another's turn that is waited for, in the log and past it."""
    complain(line)
    tell(line)


def measure_in_time(one: Measurement, plan: RunPlan | None) -> bool:
    """Return whether the trial was not refused; what would end too late is left."""
    if plan is not None and not plan.fits(one.path, time.time()):
        tell(f"{one.spec.trial_id} r{one.spec.round}  left for the next run: the budget is over")
        return True
    is_measured = measure_all([one])
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


if __name__ == "__main__":
    sys.exit(main())
