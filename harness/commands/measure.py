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
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.measuring.turns import turns
from harness.planning.run_plan import VARIABLE, read_run_plan
from harness.records.measured import write_measured
from harness.terminal.ending import USAGE, OneLineParser, run_command
from harness.terminal.in_a_run import measure_in_time, measurements, say_who
from harness.terminal.status import Notice
from harness.trials.spec import TrialSpec


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
    specs = [TrialSpec.from_dict(values).with_round(given.round) for values in given.specs]
    planned = measurements(specs, given.results_dir)
    notice = Notice(given.results_dir)
    with turns({given.results_dir}, f"a sitting of snakemake, {given.done}", say_who):
        are_measured = [measure_in_time(one, plan, notice) for one in planned]
    notice.take_down()
    if not all(are_measured):
        return USAGE
    write_measured(given.done, [one.path for one in planned if one.path.exists()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
