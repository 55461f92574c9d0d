"""Runs a job of the pipeline: measures planned rounds of trials, or counts batches.

    python -m dynbatch.harness.commands.measure results/.orders/NAME.json --done FILE

The job spec defines the work. In a run of the pipeline, whose plan BENCH_RUN_PLAN names, the job
stops within the budget, and prints each result and the remaining time. It writes FILE last. A
failed job deletes no records, and a refused trial does not stop the others.

A cluster node measures nothing if it cannot read the job spec or has other code than the head node.
Trials that were planned for another kind of machine get records of that status. A node measures one
block at a time, whatever jobs the scheduler assigns to it, and counts no batches meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from dynbatch.harness.errors import BenchError
from dynbatch.harness.measuring.processes.fork_server import ForkServers
from dynbatch.harness.measuring.processes.results_lock import choose_patience_s, lock_results_dirs
from dynbatch.harness.planning.durations import format_duration
from dynbatch.harness.planning.job_specs import (
    VARIABLE,
    Order,
    RunPlan,
    Step,
    check_code,
    read_order,
    read_run_plan,
)
from dynbatch.harness.planning.locks import hold_machine
from dynbatch.harness.records.files import replace_whole
from dynbatch.harness.records.record import Record, build_record_path, build_trial, read_record
from dynbatch.harness.terminal.exit_handling import (
    EXIT_INTERNAL_ERROR,
    EXIT_TRIAL_FAILED,
    EXIT_USAGE,
    OneLineParser,
    make_command,
    print_error,
)
from dynbatch.harness.terminal.measurement import Measurement, measure_all
from dynbatch.harness.terminal.reporting import format_outcome, format_trial
from dynbatch.harness.terminal.status import Notice, find_node_name

COUNTER = "dynbatch.harness.commands.schedule"
MAX_COUNTING_S = 24 * 3600.0
GRACE_S = 60.0  # start and end of a trial's process, in addition to its time limit
TERMINAL = 3  # file descriptor that the pipeline opens for messages outside the log


@make_command(find_node_name(), again="the same snakemake command")
def main(typed: list[str]) -> int:
    """Run the command.

    Returns:
        0 if everything within the budget was measured, 1 for wrong input or a refused trial, 2 for
        an internal error.
    """
    parser = OneLineParser(prog="measure", description=__doc__)
    parser.add_argument("order", type=Path)
    parser.add_argument("--done", type=Path, required=True)
    given = parser.parse_args(typed)
    order = read_order(given.order)
    if order.nodes is not None:
        check_code(order.code, "the head node")
    notice = Notice(order.results_dir)
    try:
        return _count(order, notice) if order.count else _measure(order, given.done, notice)
    finally:
        notice.take_down()


def _measure(order: Order, done: Path, notice: Notice) -> int:
    plan = read_run_plan(Path(os.environ.get(VARIABLE, "")))
    codes, holder = {0}, f"a Snakemake job, {done}"
    with ForkServers() as servers:
        for steps in order.repetitions:
            notice.show_work("waits for the lock", choose_patience_s())
            machine: AbstractContextManager[object] = nullcontext()
            if order.nodes is not None:
                machine = hold_machine(holder, choose_patience_s(), _report_holder)
            with machine, lock_results_dirs({order.results_dir}, holder, _report_holder):
                repetition = [_build_measurement(order, step) for step in steps]
                codes.add(_measure_in_time(repetition, servers, plan, notice))
    if max(codes) == 0:
        replace_whole(done, f"{time.time_ns()}\n")  # Snakemake compares contents, too
    return max(codes)


def _build_measurement(order: Order, step: Step) -> Measurement:
    spec = order.specs[step.name].replace_round(step.round)
    return Measurement(
        spec=spec,
        results_dir=order.results_dir,
        path=build_record_path(order.results_dir, *step),
        force=False,
        records_invalid_data=True,
        nodes=order.nodes,
        unsupported=order.unsupported.get(step.name),
    )


def _measure_in_time(
    repetition: Sequence[Measurement], servers: ForkServers, plan: RunPlan | None, notice: Notice
) -> int:
    """Measure the systems of one point side by side if the budget allows it.

    Args:
        notice: file that shows the current work to `bench-collect --status`.

    Returns:
        0, EXIT_USAGE if a trial was refused, or EXIT_INTERNAL_ERROR after an internal error.
    """
    names = ", ".join(measurement.spec.system for measurement in repetition)
    first = format_trial(build_trial(repetition[0].spec))
    limit_s = sum(measurement.spec.limits.longest_s for measurement in repetition)
    work = first if len(repetition) == 1 else f"{first} with {names}"
    notice.show_work(work, limit_s + GRACE_S)
    if plan is not None and not plan.fits([m.path for m in repetition], time.time()):
        for measurement in repetition:
            show_line(f"{_format_round(measurement)}  left for the next run: time budget exhausted")
        return 0

    def settled(measurement: Measurement, record: Record | None) -> None:
        if record is None:
            show_line(f"{_format_round(measurement)}  refused; see the log")
        elif plan is not None:
            show_line(format_progress(plan, measurement.path))

    try:
        code = measure_all(repetition, servers, settled=settled)
        return EXIT_USAGE if code == EXIT_USAGE else 0
    except BenchError:  # no disk space for records
        raise
    except Exception:
        traceback.print_exc()
        show_line(
            f"{_format_round(repetition[0])}  internal error in the block of {names}; see the log"
        )
        return EXIT_INTERNAL_ERROR


def _format_round(measurement: Measurement) -> str:
    return f"{measurement.spec.trial_id} r{measurement.spec.round}"


def format_progress(plan: RunPlan, out: Path) -> str:
    """Return a line with the result, the number of completed steps, and the remaining time."""
    record = read_record(out)
    left = format_duration(plan.estimate_remaining_s(time.time()))
    position = f"[{plan.count_done()}/{len(plan.seconds)}]"
    return f"{position} {format_trial(record.trial)}  {format_outcome(record)}; about {left} left"


def _count(order: Order, notice: Notice) -> int:
    holder = f"a Snakemake count, {order.count[0]}"
    notice.show_work("waits for the lock", choose_patience_s())
    with hold_machine(holder, choose_patience_s(), _report_holder, alone=not order.shares_machine):
        notice.show_work(f"counts {order.count[0]}", MAX_COUNTING_S)
        code = subprocess.call([sys.executable, "-m", COUNTER, *order.count])
    return 0 if code == EXIT_TRIAL_FAILED else code  # the row of a failed policy has its status


def _report_holder(line: str) -> None:
    """Print a line about the holder of a lock, to the log and to the pipeline's terminal."""
    print_error(line)
    show_line(line)


def show_line(line: str) -> None:
    """Write a line to the pipeline's terminal, if its file descriptor is open."""
    with suppress(OSError):
        os.write(TERMINAL, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
