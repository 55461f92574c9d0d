"""Live graph segments planned by compiled code, compared with the policy and the layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.compiler.pointers import view_array
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.contracts.system import Result
from dynbatch.harness.engine.backends.compiled import live_segments
from dynbatch.harness.engine.backends.compiled.live_segments import CompiledSegments
from dynbatch.harness.engine.cpu_kernels.team import Table, Team
from dynbatch.harness.engine.live import LiveEngine, Seen
from dynbatch.harness.programs.log import DONE
from dynbatch.systems.on_core.acrobat import Adapter
from tests.support.engine_runs import NoClock
from tests.support.run_programs import undone

RUN = CompiledSegments.run


def run_both(adapter: Adapter, batch: Sequence[Any]) -> list[tuple[Result, list[Seen], Any]]:
    """Run a mini-batch by compiled code, and by the policy; Python starts every segment in both."""
    live, found = adapter.live, []
    for is_kept in (True, False):
        calls = list[Any]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LiveEngine, "can_keep", LiveEngine.can_keep if is_kept else _cannot)
            patch.setattr(CompiledSegments, "maker", MADE_BY_PYTHON)
            patch.setattr(CompiledSegments, "run", _run_in_steps)
            patch.setattr(Team, "run_table", _noted(Team.run_table, calls))
            adapter.load(batch)
            adapter.run(NoClock())
        assert (live.engine._current is not None) == is_kept
        found.append((adapter.result(), live.engine.seen, calls))
    return found


# Replaces `maker`: Python calls compiled code for every segment.
MADE_BY_PYTHON = property(lambda _: (undone.address, 1))


def _run_in_steps(segments: CompiledSegments, n: int, left: int, take_feeds: Any) -> None:
    """Call `run` with separate steps for decoding, planning and running."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_segments, "run_segment", partial(_steps, segments))
        RUN(segments, n, left, take_feeds)


def _steps(segments: CompiledSegments, table: int, n: int) -> int:
    left = live_segments.decode_next(table, n, segments.decoder.base, int(segments.decoder.restart))
    if left != DONE:
        return left
    n_calls = live_segments.plan_next(table, int(segments.rules.reorder))
    if n_calls > 0:
        for flags in segments._memory.list_flags():
            flags.fill(0)
        segments._team.run_table(segments.kept["calls"], n_calls)
    return min(n_calls, DONE)


def _cannot(_: LiveEngine) -> bool:
    return False


def _noted(make: Any, calls: list[Any]) -> Any:
    """Record the batches with which each stage's function is called."""

    def noted(self: Team, table: Table, n: int) -> None:
        calls.append(
            [
                (function, argument, view_array(batches, (n_batches, 2), np.int32).tolist())
                for function, argument, batches, n_batches in table[:n].tolist()
            ]
        )
        make(self, table, n)

    return noted


def check_same(adapter: Adapter, batch: Sequence[Any]) -> None:
    adapter.load(batch)
    adapter.run(NoClock())  # runs again if blocks feed each other in a new way
    assert adapter.live.engine._current is not None, "nothing was wrong, and so run with checks"
    (kept, kept_seen, kept_calls), (by_policy, seen, calls) = run_both(adapter, batch)
    np.testing.assert_array_equal(kept.outputs, by_policy.outputs)
    assert kept.loss == by_policy.loss
    assert kept.counters == by_policy.counters
    assert kept_calls == calls
    assert len(kept_seen) == len(seen)
    policy = load_policy("inline_depth")
    for ours, theirs in zip(kept_seen, seen, strict=True):
        for other in (theirs.schedule, policy(ours.graph)):
            check_fields(ours.schedule, other, "order", "starts")
        check_fields(ours.graph, theirs.graph, "types", "arg_start", "args", "phases", "depths")
        types, names = ours.arrangement.types, ("numbers", "bounds", "counts", "batches", "n_rows")
        check_fields(types, theirs.arrangement.types, *names)


def check_fields(ours: Any, theirs: Any, *names: str) -> None:
    """Check that attributes of both are equal arrays."""
    for name in names:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
