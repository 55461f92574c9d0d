"""Child process of `bench-schedule`: counts one policy after the other and sends the outcomes.

An exception in a policy ends only its count and becomes a status with a reason. The parent handles
errors that end this process (harness/counts/sequential.py).
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from dynbatch.harness.contracts.policy import LearnedPolicy, is_learned
from dynbatch.harness.counts.counting import ENOUGH_S, GraphPair, build_scheduler, count_batches
from dynbatch.harness.counts.request import GraphSource, PlannedCount
from dynbatch.harness.errors import BenchError, DataError, ScheduleError, UnsupportedTrial
from dynbatch.harness.measuring.processes.child import bind_to_parent, is_out_of_memory
from dynbatch.harness.records.count_row import AnyCount, CountRow, FailedCount, Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOutcome:
    """Outcome of one count.

    Attributes:
        row: The row of the count, or None if the input was refused.
    """

    row: AnyCount | None = None
    refusal: str | None = None
    learned: LearnedPolicy | None = None


class Counter:
    """Counter that keeps the last request's graphs, which take longer to build than to schedule."""

    def __init__(self) -> None:
        # Source, first mini-batch, and those that follow.
        self._last: tuple[GraphSource, GraphPair, list[GraphPair]] | None = None

    def count_policy(self, planned: PlannedCount) -> CountOutcome:
        """Count one policy on one mini-batch; errors of policy or input are in the outcome."""
        try:
            return self._count(planned)
        except UnsupportedTrial as error:
            return CountOutcome(row=make_failed_count(planned, "unsupported", str(error)))
        except ScheduleError as error:
            return CountOutcome(row=make_failed_count(planned, "wrong_result", str(error)))
        except BenchError as error:
            if isinstance(error, DataError) and planned.request.records_invalid_data:
                return CountOutcome(row=make_failed_count(planned, "invalid_data", str(error)))
            return CountOutcome(refusal=" ".join(str(error).split()))
        except Exception as error:
            traceback.print_exc()
            status: Failure = "oom" if is_out_of_memory(error) else "crash"
            reason = f"{type(error).__name__}: {error}"
            return CountOutcome(row=make_failed_count(planned, status, reason))

    def _count(self, planned: PlannedCount) -> CountOutcome:
        request = planned.request
        if self._last is None or self._last[0].request is not request:
            source = GraphSource(request)
            self._last = source, source.build_at(request.offset), source.build_following()
        source, graphs, following = self._last
        learns_elsewhere = is_learned(planned.policy) and request.learn_offset != request.offset
        train = source.build_at(request.learn_offset) if learns_elsewhere else graphs
        scheduler = build_scheduler(planned.policy, request.spec.learning, request.workload, train)
        enough_s = min(ENOUGH_S, request.spec.timing.min_seconds)
        counts = count_batches(scheduler, graphs, following, enough_s)
        row = CountRow(**planned.build_labels(), **vars(counts))
        return CountOutcome(row=row, learned=scheduler.plain.learned)


def make_failed_count(planned: PlannedCount, status: Failure, reason: str) -> FailedCount:
    """Return the row of a failed count; the reason is joined to one line."""
    return FailedCount(
        **planned.build_labels(),
        status=status,
        reason=" ".join(reason.split()),
        limits=planned.request.spec.limits,
    )


def run_counts(
    planned: Sequence[PlannedCount], sender: Connection, parent_pid: int, wants_learned: bool
) -> None:
    """Perform the counts in order and send each outcome.

    Args:
        wants_learned: Whether to send learned policies, too, which takes longer than a count.
    """
    bind_to_parent(parent_pid)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent ends this process
    counter = Counter()
    for count in planned:
        outcome = counter.count_policy(count)
        sender.send(outcome if wants_learned else replace(outcome, learned=None))
