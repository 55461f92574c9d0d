"""Rounds that run before the next one is recorded: real numbers, and states that stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.contracts.model import ModelSizes, initial_weights
from harness.contracts.system import RunSettings
from harness.contracts.timeline import Details
from harness.errors import ProgramError
from harness.interpreter import interpret
from harness.models.tree_fc import TreeFC
from harness.programs.blocks import RecordingOptions
from harness.programs.writer import Body, Writer
from systems.on_core.acrobat import Adapter
from tests.support.engine_runs import NoClock
from tests.support.live_programs import SEED, Decides, live_adapter
from tests.support.scripted_programs import OPTIONS, Choose, Scripted, ScriptedModel, instances

WEIGHTS = initial_weights(ScriptedModel(), SEED)


@settings(deadline=None, max_examples=25)
@given(instances(), st.sampled_from(OPTIONS), st.sampled_from(("compiled", "stepwise")))
def test_rounds_that_run_live_compute_what_programs_do(
    batch: list[Scripted], how: RecordingOptions, backend: str
) -> None:
    adapter = live_adapter(ScriptedModel(), how, backend=backend)
    for instances_of_one in (batch, batch[::-1]):
        truth = interpret(ScriptedModel(), WEIGHTS, instances_of_one)
        adapter.load(instances_of_one)
        adapter.run(NoClock())
        found = adapter.result()
        np.testing.assert_allclose(found.outputs, truth.outputs, rtol=1e-4, atol=1e-5)
        assert found.loss == pytest.approx(truth.loss, rel=1e-4)


def test_numbers_themselves_decide_where_rounds_are_live() -> None:
    model, batch = Decides(), [Scripted((), k) for k in range(5)]
    truth = interpret(model, WEIGHTS, batch)
    adapter = live_adapter(model)
    adapter.load(batch)
    adapter.run(NoClock())
    assert adapter.live is not None
    lengths = len(adapter.live.engine.seen)
    np.testing.assert_allclose(adapter.result().outputs, truth.outputs, rtol=1e-4, atol=1e-5)
    assert 1 < lengths <= 7
    assert len(truth.outputs) < 6 * len(batch)


def test_live_rounds_that_are_wrong_name_the_line() -> None:
    class Wrong(ScriptedModel):
        def program(self, p: Writer, instance: Scripted) -> Body:
            value = p.leaf(word=0)
            yield p.chance(value, 1)
            return p.project(p.unary_a(value, label=0))

    adapter = live_adapter(Wrong())
    adapter.load([Scripted((), 0)])
    with pytest.raises(ProgramError, match=r"test_live\.py:\d+ calls project with other"):
        adapter.run(NoClock())


def test_what_live_rounds_cannot_do_is_told() -> None:
    def settings_of(mode: str, **other: Any) -> RunSettings:
        return RunSettings(mode, "cpu", 1, 1, 0.1, 0, options={"rounds": "live", **other})

    model = ScriptedModel()
    assert "mode=infer only, not with mode=train" in str(Adapter.skip(model, settings_of("train")))
    reason = Adapter.skip(model, settings_of("infer", granularity="operator"))
    assert "granularity=vertex only, not with granularity=operator" in str(reason)
    reason = Adapter.skip(model, settings_of("infer", policy="auto"))
    assert "a policy that is named, not with policy=auto" in str(reason)
    reason = Adapter.skip(model, settings_of("infer", share_equal_inputs=True))
    assert "share_equal_inputs=false only, not with share_equal_inputs=true" in str(reason)
    assert Adapter.skip(model, settings_of("infer")) is None


@pytest.mark.parametrize(
    "options", [{"rounds": "live"}, {"recording": "program"}, {"phases": False}, {"ghosts": False}]
)
def test_a_model_without_a_program_is_told(options: dict[str, Any]) -> None:
    def reason_of(**own: Any) -> str | None:
        settings = RunSettings("infer", "cpu", 1, 1, 0.1, 0, options=own)
        return Adapter.skip(TreeFC(ModelSizes(4, {"words": 5, "classes": 2})), settings)

    assert "model tree_fc has no program" in str(reason_of(**options))
    assert reason_of() is None


def test_live_rounds_count_the_work_of_those_that_are_recorded_ahead() -> None:
    """Outputs of all rounds are computed at once, so that bytes of weights are read less often."""
    batch = [Scripted((Choose(0, k, (1, 2)), Choose(1, k, (0, 3))), k) for k in range(4)]
    found = {}
    for rounds in ("live", "ahead"):
        options = {"rounds": rounds, "recording": "program"}
        adapter = Adapter(RunSettings("infer", "cpu", 1, 1, 0.1, 0, options=options))
        adapter.prepare(ScriptedModel(), WEIGHTS)
        adapter.load(batch)
        adapter.run(NoClock())
        found[rounds] = adapter.result().counters
    assert found["live"].n_flop == found["ahead"].n_flop
    assert found["live"].n_batches == found["ahead"].n_batches
    assert 0 < found["live"].bytes_touched <= found["ahead"].bytes_touched


def test_a_timeline_shows_every_batch_of_live_rounds() -> None:
    batch = [Scripted((Choose(0, k, (1, 2)),), k) for k in range(4)]
    adapter = live_adapter(ScriptedModel())
    adapter.load(batch)
    adapter.run(NoClock())
    whole = adapter.result()
    parts: list[tuple[str, str]] = []

    @contextmanager
    def part(kind: str, name: str, details: Details) -> Iterator[Details]:
        parts.append((kind, name))
        yield details

    adapter.run_in_parts(NoClock(), part)
    np.testing.assert_array_equal(adapter.result().outputs, whole.outputs)
    batches = [name for kind, name in parts if kind == "batch"]
    assert len(batches) >= whole.counters.n_batches
    assert any(name.startswith("unary") for name in batches)
