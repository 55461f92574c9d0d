"""A small sweep of counts, one policy of which goes wrong as it is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.counts import worker
from harness.counts.counting import Scheduler
from harness.counts.in_turn import planned_counts
from harness.counts.request import PlannedCount, parse_requests
from harness.trials.spec import Limits

COUNT = (
    "model=tree_lstm",
    "dataset=sst_synthetic",
    "batch_size=1,2",
    "hidden_size=4",
    "policy=agenda,depth,sufficient",
    "timing.min_seconds=0",
)
N_ROWS = 6
Fault = Callable[[], object]


def raise_(error: BaseException) -> Fault:
    """A fault that raises."""

    def fault() -> None:
        raise error

    return fault


def have_depth_fail(monkeypatch: pytest.MonkeyPatch, fault: Fault | None) -> None:
    """Have the policy `depth` go wrong while it counts, or be right again."""
    count_batches = worker.count_batches

    def wrong(scheduler: Scheduler, *rest: Any) -> object:
        if scheduler.name == "depth" and fault is not None:
            fault()
        return count_batches(scheduler, *rest)

    monkeypatch.setattr(worker, "count_batches", wrong)


def planned_with(limits_of_depth: Limits) -> list[PlannedCount]:
    """The sweep, where only `depth` is under limits that a slow machine may pass."""
    return [
        _under(limits_of_depth, one) if one.policy == "depth" else one
        for one in planned_counts(parse_requests(COUNT))
    ]


def _under(limits: Limits, one: PlannedCount) -> PlannedCount:
    return replace(one, request=replace(one.request, spec=replace(one.request.spec, limits=limits)))
