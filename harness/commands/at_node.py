"""Does on a node what the head node ordered: a block of trials, or a count.

    python -m harness.commands.at_node results/.orders/NAME.json --done FILE

Nothing is measured where the node does not see the order, or runs other code than the head node;
trials that were planned for another kind of machine leave records that say so. On one machine one
trial is measured at a time, whichever jobs the scheduler puts there, and nothing is counted beside
it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.measuring.turns import patience_s, turns
from harness.planning.orders import Order, check_code, read_order
from harness.planning.run_plan import VARIABLE, read_run_plan
from harness.planning.running import turn_on_machine
from harness.records.measured import write_measured
from harness.terminal.ending import FAILED, USAGE, OneLineParser, run_command
from harness.terminal.in_a_run import measure_in_time, measurements, say_who
from harness.terminal.status import Notice, node_name

COUNTER = "harness.commands.schedule"
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
    planned = [measurements(group, order.results_dir, order.nodes) for group in order.trials]
    plan = read_run_plan(Path(os.environ.get(VARIABLE, "")))
    who = f"a job of snakemake, {done}"
    none_refused = True
    for group in planned:
        notice.says("waits for its turn", patience_s())
        with turn_on_machine(who, patience_s(), say_who), turns({order.results_dir}, who, say_who):
            for one in group:
                none_refused &= measure_in_time(one, plan, notice)
    if not none_refused:
        return USAGE
    write_measured(done, [one.path for group in planned for one in group if one.path.exists()])
    return 0


def _count(order: Order, notice: Notice) -> int:
    who = f"a count of snakemake, {order.count[0]}"
    notice.says("waits for its turn", patience_s())
    with turn_on_machine(who, patience_s(), say_who, alone=not order.shares_machine):
        notice.says(f"counts {order.count[0]}", MOST_COUNTING_S)
        code = subprocess.call([sys.executable, "-m", COUNTER, *order.count])
    return 0 if code == FAILED else code  # a policy that failed has a row that says so


if __name__ == "__main__":
    sys.exit(main())
