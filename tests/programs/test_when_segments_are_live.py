"""Selection of mini-batches that run interleaved, and their results.

Mini-batches whose programs wait are interleaved; those built from arrays are one segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.programs.compiling.programs import CompiledPrograms
from dynbatch.harness.programs.fibers import Fibers
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.reference import run_reference
from dynbatch.systems.on_core import vertex
from dynbatch.systems.on_core.acrobat import Adapter
from tests.support.engine_models import TREES
from tests.support.engine_runs import run
from tests.support.instances import build
from tests.support.program_models import DECIDED, SENTENCES, SIZES, TRAINED, WITH_ARRAYS
from tests.support.run_programs import SEED, check_result
from tests.support.scripted_programs import Choose, Scripted, ScriptedModel

SINCE = "deferred_reason"
BY = "segment_planner"
RUN_BY = "program_execution"
DRNN_MODEL = TRAINED[2]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of instances whenever programs of a mini-batch run."""
    made, run, begin = list[int](), Fibers.run, CompiledPrograms.begin

    def noted(fibers: Fibers, program: Any, instances: Sequence[Any]) -> list[Any]:
        made.append(len(instances))
        return run(fibers, program, instances)

    def begun(programs: CompiledPrograms, instances: Sequence[Any], *others: Any) -> None:
        made.append(len(instances))
        begin(programs, instances, *others)

    monkeypatch.setattr(Fibers, "run", noted)
    monkeypatch.setattr(CompiledPrograms, "begin", begun)
    return made


def settings_of(mode: str = "infer", policy: str | None = None, **options: Any) -> RunSettings:
    return RunSettings(mode, "cpu", 1, 1, 0.1, 0, policy=policy, options=options)


def adapter_of(model: Model, kind: Any = Adapter, **settings: Any) -> Any:
    adapter = kind(settings_of(**settings))
    adapter.prepare(model, draw_initial_weights(model, SEED))
    return adapter


@pytest.mark.parametrize("execution", ["auto", "interleaved", "deferred"])
@pytest.mark.parametrize(("model", "batch"), WITH_ARRAYS, ids=lambda one: getattr(one, "name", ""))
def test_model_without_waits_uses_one_segment_of_arrays(
    model: Model, batch: Sequence[Any], execution: str, runs: list[int]
) -> None:
    adapter = adapter_of(model, execution=execution)
    for one in (batch, batch[::-1]):
        found = run(adapter, one)
        assert runs == [], "no program is run"
        check_result(found, model, one)
        runs.clear()
    ahead = run(adapter_of(model, execution="deferred"), batch[::-1])
    assert found.counters == ahead.counters
    np.testing.assert_array_equal(found.outputs, ahead.outputs)
    facts = adapter.effective_options()
    assert facts["recording"] == "arrays"
    assert facts["execution"] == {"auto": "deferred"}.get(execution, execution)
    assert facts.get(SINCE) == {"auto": "no step waits for a value"}.get(execution)
    assert BY not in facts
    assert "evaluated" not in facts


@pytest.mark.parametrize("execution", ["auto", "interleaved"])
@pytest.mark.parametrize(
    "options", [{"recording": "program"}, {"program_phases": False}], ids=["recording", "phases"]
)
def test_requested_program_recording_runs_the_program(
    options: dict[str, Any], execution: str, runs: list[int]
) -> None:
    model = build("tree_lstm", SIZES)
    adapter = adapter_of(model, execution=execution, **options)
    check_result(run(adapter, TREES), model, TREES)
    assert runs == [len(TREES)] * len(runs) != []
    facts = adapter.effective_options()
    assert facts["recording"] == "program"
    assert facts["execution"] == "interleaved"
    assert facts[BY] == "compiled code"


@pytest.mark.parametrize("model", DECIDED, ids=lambda model: model.name)
def test_model_with_waits_runs_live(model: ProgramModel, runs: list[int]) -> None:
    adapter = adapter_of(model)
    assert adapter.live.recording is model.recording, "what feeds what is learned once"
    check_result(run(adapter, SENTENCES), model, SENTENCES)
    assert runs
    assert len(adapter.running.engine.seen) > 1
    facts = adapter.effective_options()
    assert facts["execution"] == "interleaved"
    assert facts["recording"] == "program"
    assert facts[BY] == facts[RUN_BY] == "compiled code"
    assert SINCE not in facts


@pytest.mark.parametrize("programs", ["compiled", "python"])
def test_program_runner_is_in_effective_options(programs: str) -> None:
    adapter = adapter_of(DRNN_MODEL, execution="deferred", programs=programs)
    check_result(run(adapter, SENTENCES), DRNN_MODEL, SENTENCES)
    reported = {"compiled": "compiled code", "python": "Python, since it was asked to"}
    assert adapter.effective_options()[RUN_BY] == reported[programs]


def test_program_runner_is_reported_only_when_programs_run() -> None:
    """Graphs of trees are built from arrays."""
    examples = (("drnn", SENTENCES, "compiled code"), ("tree_lstm", TREES, None))
    for name, batch, by in examples:
        adapter = adapter_of(build(name, SIZES), vertex.Adapter)
        run(adapter, batch)
        assert adapter.effective_options().get(RUN_BY) == by


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": "train"}, "expected mode=infer, got mode=train"),
        ({"granularity": "operator"}, "expected granularity=vertex, got granularity=operator"),
        ({"outputs": "vertices"}, "expected outputs=stage, got outputs=vertices"),
        ({"deduplicate_inputs": True}, "expected deduplicate_inputs=false"),
        ({"policy": "agenda"}, "by policy=inline_depth only, got policy=agenda"),
        ({"backend": "stepwise"}, "compiled code cannot plan graph segments with these switches"),
        ({"loop": "python"}, "compiled code cannot plan graph segments with these switches"),
        ({"execution": "deferred"}, None),
    ],
    ids=str,
)
def test_fallback_to_deferred_execution_reports_the_reason(
    settings: dict[str, Any], why: str | None
) -> None:
    adapter = adapter_of(DRNN_MODEL, **settings)
    found = run(adapter, SENTENCES)
    mode = settings.get("mode", "infer")
    truth = run_reference(DRNN_MODEL, draw_initial_weights(DRNN_MODEL, SEED), SENTENCES, mode)
    assert found.loss == pytest.approx(truth.loss, rel=1e-4)
    facts = adapter.effective_options()
    assert facts["execution"] == "deferred"
    assert facts["evaluated"] == "segment by segment"
    assert BY not in facts
    assert (why is None) == (SINCE not in facts)
    assert why is None or why in facts[SINCE]
    if "expected" in str(why):
        asked = settings_of(**settings, execution="interleaved")
        assert f"execution=interleaved is not allowed: {why}" in str(
            Adapter.skip(DRNN_MODEL, asked)
        )


@pytest.mark.parametrize(
    "options",
    [
        {"execution": "interleaved"},
        {"recording": "program"},
        {"program_phases": False},
        {"ghost_operators": False},
    ],
)
def test_model_without_a_program_needs_none_and_is_reported(options: dict[str, Any]) -> None:
    model, reason = build("tree_fc", SIZES), "model tree_fc has no program"
    assert reason in str(Adapter.skip(model, settings_of(**options)))
    assert Adapter.skip(model, settings_of()) is None
    assert Adapter.skip(DRNN_MODEL, settings_of(**options)) is None
    adapter = adapter_of(model)
    run(adapter, TREES)
    facts = adapter.effective_options()
    assert (facts["recording"], facts[SINCE]) == ("arrays", reason)


def test_live_segments_count_the_work_of_those_that_are_recorded_ahead() -> None:
    """Outputs of all segments are computed together, so fewer bytes of weights are read."""
    batch = [Scripted((Choose(0, k, (1, 2)), Choose(1, k, (0, 3))), k) for k in range(4)]
    found = {}
    for execution in ("interleaved", "deferred"):
        adapter = adapter_of(ScriptedModel(), execution=execution, recording="program")
        found[execution] = run(adapter, batch).counters
    assert found["interleaved"].n_flop == found["deferred"].n_flop
    assert found["interleaved"].n_batches == found["deferred"].n_batches
    assert 0 < found["interleaved"].bytes_touched <= found["deferred"].bytes_touched
