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
Fault = Callable[[], object]


def raise_(error: BaseException) -> Fault:
    """Return a fault that raises an error."""

    def fault() -> None:
        raise error

    return fault


def have_depth_fail(monkeypatch: pytest.MonkeyPatch, fault: Fault | None) -> None:
    """Inject a fault into the policy `depth` while it counts, or remove it."""
    count_batches = worker.count_batches

    def wrong(scheduler: Scheduler, *rest: Any) -> object:
        if scheduler.name == "depth" and fault is not None:
            fault()
        return count_batches(scheduler, *rest)

    monkeypatch.setattr(worker, "count_batches", wrong)


def planned_with(limits_of_depth: Limits) -> list[PlannedCount]:
    """Return the sweep, in which only `depth` has limits that a slow machine may exceed."""
    return [
        _under(limits_of_depth, one) if one.policy == "depth" else one
        for one in plan_policy_counts(parse_requests(COUNT))
    ]


def _under(limits: Limits, one: PlannedCount) -> PlannedCount:
    return replace(one, request=replace(one.request, spec=replace(one.request.spec, limits=limits)))
