"""One call of the compiled backend for all graph segments, in order, with losses in between.

test_backends.py compares the losses with those of segment after segment, in a timeline.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynbatch.harness.engine.cpu_kernels.loss_kernels import LossSums
from dynbatch.harness.engine.cpu_kernels.team import Calls
from dynbatch.harness.engine.lowering.plan import FORWARD
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Segments
from dynbatch.harness.engine.switches import Switches
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import example
from tests.support.engine_runs import prepared, run


def ran(name: str, **switches: Any) -> Adapter:
    model, instances, weights = example(name)
    adapter = prepared(model, weights, Switches(**switches), mode="infer")
    run(adapter, instances)
    return adapter


@pytest.mark.parametrize("switches", [{}, {"lazy_batching": False}, {"outputs": "vertices"}])
@pytest.mark.parametrize("name", ["seq2seq", "parser"])
def test_every_segment_is_whole_before_the_next_one(
    name: str, switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = ran(name, **switches)
    backend, made = adapter.engine.backend, list[Calls]()
    team = type(backend._team)
    run_all = team.run_all
    monkeypatch.setattr(
        team, "run_all", lambda self, calls: (made.append(calls), run_all(self, calls))
    )
    adapter.engine.forward()
    (calls,) = made
    segments, found = adapter.engine.laid_out.segments, list[Any]()
    for which, first, n in calls.order.tolist():
        of_call = calls.batches[which][first : first + n].tolist()
        is_sum = isinstance(calls.callees[which], LossSums)
        found.append(("losses" if is_sum else "batches", of_call))
    expected = list[Any]()
    for one in segments:
        expected += [("batches", batches.tolist()) for _, batches in one.runs]
        expected.append(("losses", [[rows.start, rows.stop] for _, _, rows in one.losses]))
    assert len(segments) > 1
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    kept = [(kind, rows) for kind, rows in found if kind == "batches" or rows[0][0] < rows[0][1]]
    whole = [one for one in kept if one[0] == "losses"]
    assert [rows for _, rows in whole] == [rows for kind, rows in expected if kind == "losses"]
    for (_, batches), (_, asked) in zip(found, expected, strict=True):
        if asked and ALL_ROWS not in {b for _, b in asked}:
            assert batches == asked


def test_segments_are_seen_one_by_one() -> None:
    segments = ran("seq2seq").engine.laid_out.segments
    assert isinstance(segments, Segments)
    assert len(segments[1:]) == len(segments) - 1
    np.testing.assert_array_equal(segments[-1].batches, list(segments)[-1].batches)
    for stage in FORWARD:
        index = FORWARD.index(stage)
        parts = [(one.eager, one.batches, one.lazy)[index] for one in segments]
        np.testing.assert_array_equal(np.concatenate(parts), segments.batches[stage])
    with pytest.raises(IndexError):
        segments[len(segments)]
