"""Sequential counting in a child process under limits, with a record of each count.

One child performs all counts, because graphs and compiled policies are reused in many counts. If it
dies or exceeds a limit, the current count is recorded as failed and a new child continues with the
next one.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path

from harness.counts.request import PlannedCount, Request
from harness.counts.worker import Outcome, failed_count, work
from harness.machine.files import drop_leftovers
from harness.measuring.supervise import (
    POLL_S,
    Members,
    death_reason,
    household,
    memory_excess,
    timeout_reason,
)
from harness.planning.sweep import counting_sha256
from harness.records.count_row import AnyCount, Failure, find_count, write_count
from harness.records.files import WatchedFolders, check_room

# A forked child need not import anything.
_FORK = multiprocessing.get_context("fork")
Ending = tuple[Failure, str]


def planned_counts(requests: Iterable[Request]) -> list[PlannedCount]:
    """Return a planned count for every policy of every request, request by request."""
    return [
        PlannedCount(one, name, _sha256(one.spec.model_module, one.spec.loader, name))
        for one in requests
        for name in one.policies
    ]


@functools.cache
def _sha256(model_module: str, loader: str, policy: str) -> str:
    """Return the hash of the code, cached because a sweep needs it many times."""
    return counting_sha256((model_module, loader), {policy, model_module.rpartition(".")[2]})


def count_in_turn(
    planned: Sequence[PlannedCount],
    records: Path | None = None,
    *,
    anew: bool = False,
    wants_learned: bool = False,
) -> tuple[list[Outcome], int]:
    """Run all counts that have no record yet; a failed count does not stop the others.

    Args:
        records: Directory of the records; None stores none.
        anew: Whether to repeat counts that have a valid record.
        wants_learned: Whether outcomes include the learned policies.

    Returns:
        The outcome of each count, in order, and the number of reused records.

    Raises:
        OutputError: Records cannot be written.
    """
    outcomes: dict[int, Outcome] = {}
    if records is not None and not anew:
        found = {place: _kept(one, records) for place, one in enumerate(planned)}
        outcomes = {place: Outcome(row=row) for place, row in found.items() if row is not None}
    n_kept = len(outcomes)
    waiting = [place for place in range(len(planned)) if place not in outcomes]
    try:
        with WatchedFolders() as folders:
            if waiting and records is not None:
                check_room(records)
                folders.check(records)
            while waiting:
                left = [planned[place] for place in waiting]
                for outcome in _counted_by_a_child(left, wants_learned=wants_learned):
                    place = waiting.pop(0)
                    outcomes[place] = outcome
                    if records is not None and outcome.row is not None:
                        folders.check(records)
                        write_count(planned[place].record_path(records), outcome.row)
    except KeyboardInterrupt as stop:
        stop.add_note(_what_is_kept(planned, records))
        raise
    return [outcomes[place] for place in range(len(planned))], n_kept


def _what_is_kept(planned: Sequence[PlannedCount], records: Path | None) -> str:
    if records is None:
        return "nothing is kept without records=FOLDER"
    n_there = sum(one.record_path(records).exists() for one in planned)
    return f"{n_there} of {len(planned)} counts are kept"


def _kept(planned: PlannedCount, records: Path) -> AnyCount | None:
    path = planned.record_path(records)
    drop_leftovers(path)
    row = find_count(path)
    if row is None:
        return None
    limits = planned.request.spec.limits
    asked_for = (planned.count_id, planned.source_sha256, planned.own_data_sha256)
    return row if row.answers(*asked_for, limits) else None


def _counted_by_a_child(planned: list[PlannedCount], *, wants_learned: bool) -> Iterator[Outcome]:
    """Yield outcomes in order until all are complete or the child ends; yields at least one."""
    receiver, sender = _FORK.Pipe(duplex=False)
    child = _FORK.Process(target=work, args=(planned, sender, os.getpid(), wants_learned))
    with household() as members:
        child.start()
        sender.close()
        try:
            for one in planned:
                outcome = _next(receiver, child, members, one)
                if isinstance(outcome, Outcome):
                    yield outcome
                    continue
                yield Outcome(row=failed_count(one, *outcome))
                return
        finally:
            child.kill()
            child.join()
            receiver.close()


def _next(
    receiver: Connection, child: ForkProcess, members: Members, one: PlannedCount
) -> Outcome | Ending:
    """Wait until the child sends an outcome, ends or exceeds a limit."""
    limits = one.request.spec.limits
    deadline = time.monotonic() + limits.time_s
    while not receiver.poll(min(POLL_S, max(0.0, deadline - time.monotonic()))):
        excess = memory_excess(members(), limits)
        if excess is not None:
            return "oom", excess
        if time.monotonic() > deadline:
            return "timeout", timeout_reason(limits)
    try:
        outcome: Outcome = receiver.recv()
    except (EOFError, OSError):
        child.join()
        return "crash", death_reason(child.exitcode or 0)
    return outcome
