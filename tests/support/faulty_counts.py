"""Small sweep of counts with a fault in one policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dynbatch.harness.counts import worker
from dynbatch.harness.counts.counting import Scheduler
from dynbatch.harness.counts.request import PlannedCount, parse_requests
from dynbatch.harness.counts.sequential import plan_policy_counts
from dynbatch.harness.trials.spec import Limits

COUNT = (
    *("model=tree_lstm", "dataset=sst_synthetic", "batch_size=1,2", "hidden_size=4"),
    *("policy=agenda,depth,sufficient", "timing.min_seconds=0"),
)
N_ROWS = 6
Fault = Callable[[], object] | Exception


def have_depth_fail(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Let the policy `depth` raise an error or call a function when it counts."""
    count_batches = worker.count_batches

    def wrong(scheduler: Scheduler, *rest: Any) -> object:
        if scheduler.name == "depth" and isinstance(fault, Exception):
            raise fault
        if scheduler.name == "depth":
            fault()
        return count_batches(scheduler, *rest)

    monkeypatch.setattr(worker, "count_batches", wrong)


def planned_with(limits_of_depth: Limits) -> list[PlannedCount]:
    """Return the sweep, in which only `depth` has limits that a slow machine may exceed."""
    planned = plan_policy_counts(parse_requests(COUNT))
    for k, count in enumerate(planned):
        if count.policy == "depth":
            spec = replace(count.request.spec, limits=limits_of_depth)
            planned[k] = replace(count, request=replace(count.request, spec=spec))
    return planned
