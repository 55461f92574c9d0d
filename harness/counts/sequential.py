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

from dynbatch.harness.counts.request import PlannedCount, Request
from dynbatch.harness.counts.worker import CountOutcome, make_failed_count, run_counts
from dynbatch.harness.machine.files import drop_leftovers
from dynbatch.harness.measuring.processes.process_tree import Members, contain_descendants
from dynbatch.harness.measuring.processes.supervise import (
    LOOK_S,
    POLL_S,
    describe_timeout,
    explain_death,
    find_memory_excess,
    read_resident_bytes,
)
from dynbatch.harness.planning.sweep import hash_counting_code
from dynbatch.harness.records.count_row import (
    AnyCount,
    FailedCount,
    Failure,
    find_count,
    write_count,
)
from dynbatch.harness.records.files import WatchedFolders, check_room
from dynbatch.harness.records.record import LIMITED, TRIED_AGAIN

# A forked child need not import anything.
_FORK = multiprocessing.get_context("fork")
Ending = tuple[Failure, str]


def plan_policy_counts(requests: Iterable[Request]) -> list[PlannedCount]:
    """Return a planned count for every policy of every request, request by request."""
    return [
        PlannedCount(
            request, name, _hash_code(request.spec.model_module, request.spec.loader, name)
        )
        for request in requests
        for name in request.policies
    ]


@functools.cache
def _hash_code(model_module: str, loader: str, policy: str) -> str:
    """Return the hash of the code, cached because a sweep needs it many times."""
    return hash_counting_code((model_module, loader), {policy, model_module.rpartition(".")[2]})


def count_in_turn(
    planned: Sequence[PlannedCount],
    records: Path | None = None,
    *,
    repeat: bool = False,
    wants_learned: bool = False,
) -> tuple[list[CountOutcome], int]:
    """Run all counts that have no record yet; a failed count does not stop the others.

    Args:
        records: Directory of the records; None stores none.
        wants_learned: Whether outcomes include the learned policies.

    Returns:
        The outcome of each count, in order, and the number of reused records.

    Raises:
        OutputError: Records cannot be written.
    """
    outcomes: dict[int, CountOutcome] = {}
    if records is not None and not repeat:
        rows = {index: _find_kept(count, records) for index, count in enumerate(planned)}
        outcomes = {index: CountOutcome(row=row) for index, row in rows.items() if row is not None}
    n_kept = len(outcomes)
    waiting = [index for index in range(len(planned)) if index not in outcomes]
    try:
        with WatchedFolders() as folders:
            if waiting and records is not None:
                check_room(records)
                folders.check(records)
            while waiting:
                left = [planned[index] for index in waiting]
                for outcome in _count_in_child(left, wants_learned=wants_learned):
                    index = waiting.pop(0)
                    outcomes[index] = outcome
                    if records is not None and outcome.row is not None:
                        folders.check(records)
                        write_count(planned[index].build_record_path(records), outcome.row)
    except KeyboardInterrupt as stop:
        stop.add_note(_describe_kept(planned, records))
        raise
    return [outcomes[index] for index in range(len(planned))], n_kept


def _describe_kept(planned: Sequence[PlannedCount], records: Path | None) -> str:
    if records is None:
        return "counts are not saved; set records=DIRECTORY to save them"
    n_there = sum(count.build_record_path(records).exists() for count in planned)
    return f"{n_there} of {len(planned)} counts are saved"


def _find_kept(planned: PlannedCount, records: Path) -> AnyCount | None:
    """Return the record that makes a count unnecessary, or None; see Record.is_valid_for."""
    path = planned.build_record_path(records)
    drop_leftovers(path)
    row = find_count(path)
    asked_for = (planned.count_id, planned.source_sha256, planned.own_data_sha256)
    if row is None or (row.count_id, row.source_sha256, row.own_data_sha256) != asked_for:
        return None
    if isinstance(row, FailedCount) and row.status in LIMITED:
        return row if row.limits == planned.request.spec.limits else None
    return None if row.status in TRIED_AGAIN else row


def _count_in_child(planned: list[PlannedCount], *, wants_learned: bool) -> Iterator[CountOutcome]:
    """Yield outcomes in order until all are complete or the child ends; yields at least one."""
    receiver, sender = _FORK.Pipe(duplex=False)
    child = _FORK.Process(target=run_counts, args=(planned, sender, os.getpid(), wants_learned))
    with contain_descendants() as members:
        child.start()
        sender.close()
        try:
            for count in planned:
                outcome = _receive_outcome(receiver, child, members, count)
                if isinstance(outcome, CountOutcome):
                    yield outcome
                    continue
                yield CountOutcome(row=make_failed_count(count, *outcome))
                return
        finally:
            child.kill()
            child.join()
            receiver.close()


def _receive_outcome(
    receiver: Connection, child: ForkProcess, members: Members, count: PlannedCount
) -> CountOutcome | Ending:
    """Wait until the child sends an outcome, ends or exceeds a limit."""
    limits = count.request.spec.limits
    left_s, looked_at = limits.longest_s, time.monotonic()
    while not receiver.poll(min(POLL_S, max(0.0, left_s))):
        excess = find_memory_excess(sum(map(read_resident_bytes, members())), limits)
        if excess is not None:
            return "oom", excess
        left_s -= min(time.monotonic() - looked_at, LOOK_S)
        looked_at = time.monotonic()
        if left_s <= 0:
            return "timeout", describe_timeout(limits)
    try:
        outcome: CountOutcome = receiver.recv()
    except (EOFError, OSError):
        child.join()
        return "crash", explain_death(child.exitcode or 0)
    return outcome
