"""Does on a node what the head node ordered: a block of trials, or a count.

    python -m harness.commands.at_node results/.orders/NAME.json --done FILE

Nothing is measured where the node does not see the order, or runs other code than the head node;
trials that were planned for another kind of machine leave records that say so. On one machine one
trial is measured at a time, whichever jobs the scheduler puts there, and nothing is counted beside
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.commands import schedule
from harness.commands.measure import measure_in_time, say_who
from harness.measuring.turns import patience_s, turns
from harness.planning.at_work import Notice, node_name
from harness.planning.orders import Order, check_code, read_order
from harness.planning.run_plan import VARIABLE, read_run_plan
from harness.planning.running import turn_on_machine
from harness.records.measured import write_measured
from harness.records.record import path_of, trial_of
from harness.terminal.argument_parser import OneLineParser
from harness.terminal.ending import USAGE, run_command
from harness.terminal.measurement import Measurement
from harness.terminal.reporting import trial_words
from harness.trials.spec import TrialSpec

GRACE_S = 60.0  # of a trial, beside its limit: its process starts and ends
MOST_COUNTING_S = 24 * 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 when all that was ordered is there, 1 in one line where it cannot be."""
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command(node_name(), partial(_at_node, typed), again="the same run of snakemake")


def _at_node(typed: Sequence[str]) -> int:
    parser = OneLineParser(prog="at_node", description=__doc__)
    parser.add_argument("order", type=Path)
    parser.add_argument("--done", type=Path, required=True)
    given = parser.parse_args(typed)
    order = read_order(given.order)
    check_code(order.code, "the head node")
    notice = Notice(order.results_dir)
    try:
        return _count(order, notice) if order.count else _measure(order, given.done, notice)
    finally:
        notice.take_down()


def _measure(order: Order, done: Path, notice: Notice) -> int:
    planned = [[_measurement(spec, order) for spec in group] for group in order.trials]
    plan = read_run_plan(Path(os.environ.get(VARIABLE, "")))
    who = f"a job of snakemake, {done}"
    none_refused = True
    for group in planned:
        notice.says("waits for its turn", patience_s())
        with turn_on_machine(who, patience_s(), say_who), turns({order.results_dir}, who, say_who):
            for one in group:
                limit_s = one.spec.limits.time_s + GRACE_S
                notice.says(trial_words(trial_of(one.spec)), limit_s)
                none_refused &= measure_in_time(one, plan)
    if not none_refused:
        return USAGE
    write_measured(done, [one.path for group in planned for one in group if one.path.exists()])
    return 0


def _measurement(spec: TrialSpec, order: Order) -> Measurement:
    results = order.results_dir
    return Measurement(
        spec=spec,
        results_dir=results,
        path=path_of(results, spec.trial_id, spec.round),
        log=results / "logs" / f"{spec.trial_id}.r{spec.round}.log",
        force=False,
        records_bad_data=True,
        nodes=order.nodes,
    )


def _count(order: Order, notice: Notice) -> int:
    who = f"a count of snakemake, {order.count[0]}"
    notice.says("waits for its turn", patience_s())
    with turn_on_machine(who, patience_s(), say_who, alone=not order.shares_machine):
        notice.says(f"counts {order.count[0]}", MOST_COUNTING_S)
        return schedule.main(order.count)


if __name__ == "__main__":
    sys.exit(main())
