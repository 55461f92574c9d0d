"""Measures one round of a trial that was planned before: what the pipeline calls for each.

    python -m harness.commands.measure SPEC --round 0 --out RECORD.json --log FILE

SPEC: the trial as JSON. `bench` composes the same from what is typed, which takes as long as
measuring a short trial; a record tells the `bench` command either way. In a run of the pipeline,
whose plan BENCH_RUN_PLAN names, it stops in time and says how long all the rest takes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.errors import BenchError
from harness.planning.durations import words_of
from harness.planning.run_plan import VARIABLE, RunPlan, read_run_plan
from harness.records.postponed import is_postponed, postpone
from harness.records.record import read_record
from harness.terminal.measurement import Measurement, complain, measure_all
from harness.terminal.reporting import outcome_words, trial_words
from harness.trials.spec import TrialSpec

USAGE, INTERRUPTED = 1, 130
TERMINAL = 3  # the descriptor that the pipeline opens for it


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when there is a record, 1 where the trial is refused."""
    parser = ArgumentParser(prog="measure", description=__doc__)
    parser.add_argument("spec", type=json.loads)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    given = parser.parse_args(arguments)
    plan = read_run_plan(Path(os.environ.get(VARIABLE, "")))
    if plan is not None and not plan.fits(given.out, time.time()):
        postpone(given.out)
        tell(f"{given.out.parent.name} r{given.round}  left for the next run: the budget is over")
        return 0
    try:
        spec = TrialSpec.from_dict(given.spec).with_round(given.round)
        one = Measurement(spec, given.out, given.log, force=False, records_bad_data=True)
        is_measured = measure_all([one])
    except BenchError as error:
        complain(error)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    if is_measured and plan is not None:
        tell(progress_words(plan, given.out))
    return 0 if is_measured else USAGE


def progress_words(plan: RunPlan, out: Path) -> str:
    """One line: what came out, how many steps are done, and how long the others take."""
    record = read_record(out)
    left = words_of(plan.remaining_s(time.time(), _is_done))
    place = f"[{plan.n_done(_is_done)}/{len(plan.seconds)}]"
    return f"{place} {trial_words(record.trial)}  {outcome_words(record)}; about {left} left"


def _is_done(path: Path) -> bool:
    return path.exists() and not is_postponed(path)


def tell(line: str) -> None:
    """Write a line where the pipeline's own go, past the log; nowhere where that is not open."""
    with suppress(OSError):
        os.write(TERMINAL, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
