"""A small sweep of counts, one policy of which goes wrong as it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.counts import worker
from harness.counts.counting import Scheduler

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
