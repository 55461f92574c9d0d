"""Segment-by-segment evaluation: nothing of a later segment runs before this one's loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynbatch.harness.engine import engine as engines
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Segment
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ScheduleError
from dynbatch.systems.on_core import vertex as adapters
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import POLICIES, CountingBackend, prepared, run
from tests.support.fake_time import NullClock

Patch = pytest.MonkeyPatch
MODELS = ("seq2seq", "parser")
FORWARD = ("eager", "batch", "lazy")


@pytest.fixture(autouse=True)
def watched(monkeypatch: Patch) -> None:
    monkeypatch.setattr(engines, "choose_backend", lambda *_: (CountingBackend, ""))


def adapter_of(name: str, policy: str = "agenda", **switches: Any) -> Adapter:
    weights = {k: np.zeros(s.shape, np.float32) for k, s in EXAMPLES[name][0].parameters.items()}
    return prepared(EXAMPLES[name][0], weights, Switches(**switches), policy, mode="infer")


def segments_of_batch(engine: Engine, type_id: int, position: int) -> set[int]:
    """Return the segments of the vertices that a batch runs or reads."""
    rows = engine.backend.rows.types[type_id]
    whole = position == ALL_ROWS
    start, end = (0, rows.n_rows) if whole else rows.starts[position : position + 2].tolist()
    return set(engine.mini_batch.segments[rows.vertices[start:end]].tolist())


def seen_by_segment(adapter: Adapter) -> list[set[int]]:
    """Return, for each reading of the loss, the segments of everything that ran before it."""
    backend = adapter.engine.backend
    seen: list[set[int]] = [set()]
    for event in backend.events:
        if event is None:
            seen.append(set())
        else:
            stage, type_id, position = event
            assert stage in FORWARD
            seen[-1] |= segments_of_batch(adapter.engine, type_id, position)
    assert seen.pop() == set(), "the loss is read behind the last batch"
    return seen


def run_watched(adapter: Adapter, instances: list[Any]) -> list[set[int]]:
    adapter.load(instances)
    adapter.engine.backend.events.clear()
    adapter.run(NullClock())
    return seen_by_segment(adapter)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"lazy_batching": False},
    {"hoisting": False},
    {"outputs": "vertices"},
    {"granularity": "operator"},
    {"deduplicate_inputs": True, "fold_tables": True},
]


@pytest.mark.parametrize("switches", SETTINGS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_segment_is_read_before_the_next_one_starts(
    name: str, switches: dict[str, Any]
) -> None:
    instances = EXAMPLES[name][1]
    for policy in POLICIES:
        adapter = adapter_of(name, policy, **switches)
        seen = run_watched(adapter, instances)
        mini_batch = adapter.mini_batch
        assert seen == [{r} for r in range(mini_batch.segments.max() + 1)], policy
        assert adapter.schedule.n_batches >= len(seen)
        assert adapter.effective_options()["evaluated"] == "segment by segment"
        for type_id, position in adapter.engine.arrangement.types.batches.tolist():
            assert len(segments_of_batch(adapter.engine, type_id, position)) == 1


@pytest.mark.parametrize("name", MODELS)
def test_an_engine_that_batches_across_segments_is_noticed(name: str, monkeypatch: Patch) -> None:
    instances = EXAMPLES[name][1]
    adapter = adapter_of(name)
    # Outputs of all segments together, as a stage after the last batch.
    segments_of = engines.plan_segments
    monkeypatch.setattr(engines, "plan_segments", lambda *given: [joined(segments_of(*given))])
    assert len(run_watched(adapter, instances)[0]) > 1
    # A policy that sees all segments together.
    monkeypatch.setattr(adapters, "schedule_in_segments", lambda policy, graph: policy(graph))
    with pytest.raises(ScheduleError, match="the graph has several segments"):
        run(adapter, instances)


def joined(segments: list[Segment]) -> Segment:
    return Segment(
        np.concatenate([one.eager for one in segments]),
        np.concatenate([one.batches for one in segments]),
        np.concatenate([one.lazy for one in segments]),
        tuple(loss for one in segments for loss in one.losses),
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_mini_batch_has_as_many_segments_as_its_longest_instance(name: str) -> None:
    """It has fewer batches than its instances have separately."""
    adapter, instances = adapter_of(name), EXAMPLES[name][1]
    n_segments, n_batches = [], []
    for part in (instances, *([one] for one in instances)):
        run(adapter, part)
        n_segments.append(len(adapter.schedule.segment_starts) - 1)
        n_batches.append(adapter.schedule.n_batches)
    assert n_segments[0] == max(n_segments[1:])
    assert n_batches[0] < sum(n_batches[1:])


@pytest.mark.parametrize("lazy", [True, False])
def test_outputs_go_back_at_once_unless_nothing_is_put_off(lazy: bool) -> None:
    model, instances = EXAMPLES["seq2seq"]
    weights = {k: np.ones(s.shape, np.float32) for k, s in model.parameters.items()}
    adapter = prepared(model, weights, Switches(lazy_batching=lazy))
    run(adapter, instances)
    backend = adapter.engine.backend
    back = [b for stage, type_id, b in backend.batches if stage == "backward" and type_id < 0]
    n_segments = len(adapter.engine.arrangement.segments)
    assert back == ([ALL_ROWS] if lazy else list(range(n_segments)))


def test_mini_batches_without_segments_are_read_once() -> None:
    adapter = adapter_of("bilstm")
    run(adapter, EXAMPLES["bilstm"][1])
    assert adapter.schedule.segment_starts is None
    assert len(adapter.engine.arrangement.segments) == 1
    assert "evaluated" not in adapter.effective_options()
