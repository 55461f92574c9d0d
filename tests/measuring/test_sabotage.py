"""Every sabotage is caught by the worker, and is not caught once its guards are disabled.

Reduced precision widens tolerances only as the trial requests. Later rounds rely on the proof of
the first one, as long as nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dynbatch.harness.machine.facts import Gpu, describe_machine
from dynbatch.harness.measuring import passes, surroundings, worker
from dynbatch.harness.measuring.checks import mini_batch_check, reference_check, timed_check
from dynbatch.harness.measuring.checks.reference_check import Verdict
from dynbatch.harness.records.cross_check import cross_check_records
from dynbatch.harness.records.record import Record, locate_record
from tests.support import saboteurs
from tests.support.fake_time import NullClock
from tests.support.measured import MakeSpec, measure, measure_at, spec_of

Patch = pytest.MonkeyPatch
Measured = Callable[..., Record]
PARAMETERS = ("embedding", "W", "b_leaf", "U", "b", "F_1", "F_2", "b_f", "W_out")


def nothing(*_: Any, **__: Any) -> None:
    """Guard that finds nothing."""


def once_by_no_clock(system: Any, instances: Any, *, update: bool) -> Any:
    system.load(instances)
    system.run(NullClock(), update=update)
    return system


# Replacement of each disabled guard, and the module and the name under which it is looked up.
GUARDS: dict[str, list[tuple[Any, str, Any]]] = {
    "answer": [(mini_batch_check, "check_answer", lambda *_: Verdict("ok"))],
    "step": [
        (reference_check, "find_step_fault", nothing),
        (mini_batch_check, "find_step_fault", nothing),
    ],
    "after step": [
        (reference_check, "_find_loss_fault", nothing),
        (reference_check, "_find_outputs_fault", nothing),
    ],
    "parts": [(mini_batch_check, "find_parts_fault", nothing)],
    "changed": [(mini_batch_check, "find_changed_parameter", nothing)],
    "losses": [(worker, "find_losses_fault", nothing)],
    "hidden": [(timed_check, "find_hidden_fault", nothing)],
    "unseen": [(timed_check, "find_unseen_fault", nothing)],
    "no clock": [(mini_batch_check, "find_clock_fault", nothing)],
    "same clock": [
        (reference_check, "run_once", once_by_no_clock),
        (mini_batch_check, "run_once", once_by_no_clock),
    ],
}


class Sabotage(NamedTuple):
    """Class in tests.support.saboteurs, text in the record's reason, and guards that catch it."""

    kind: str
    of: str
    mode: str
    says: str
    guards: tuple[str, ...]


STEPS = ("parts", "step", "after step")
SABOTAGES = [
    *(
        Sabotage("SkipsAnUpdate", name, "train", f"changes {name} ", ("step", "after step"))
        for name in PARAMETERS
    ),
    Sabotage("StepsTooFar", "W", "train", "one step changes", ("step",)),
    Sabotage("SumsHalfAGradient", "W", "train", "gradient of W", ("answer", *STEPS)),
    Sabotage("SumsHalfAGradientOfMany", "W", "train", "gradient of W of 6", ("parts",)),
    Sabotage("TakesOneVertexForAnother", "", "infer", "deviates by", ("answer", "parts")),
    Sabotage("TakesOneVertexOfManyForAnother", "", "infer", "loss of 6", ("parts",)),
    Sabotage("ReusesTheLastResult", "", "infer", "the loss of mini-batch 0", ("losses",)),
    Sabotage("ReusesTheLastResult", "", "train", "have equal losses", ("losses",)),
    *(
        Sabotage("ComputesInHalfPrecision", of, mode, "deviates by", ("answer", *more))
        for of in ("float16", "bfloat16")
        for mode, more in (("infer", ()), ("train", ("step", "after step", "parts")))
    ),
    Sabotage("KeepsAnswers", "", "infer", "unseen mini-batches", ("unseen",)),
    Sabotage("KnowsTheCheckAlone", "", "infer", "of 6 instances", ("parts",)),
    Sabotage("WrongForMany", "W", "train", "gradient of W of 6", ("parts",)),
    Sabotage("WrongForMany", "b", "train", "gradient of b of 6", ("parts",)),
    Sabotage("WrongWithAClock", "", "infer", "loss deviates", ("same clock", "losses")),
    *(
        Sabotage(kind, "", mode, "move the work into run", ("hidden", *more))
        for kind in ("WorksInLoad", "WorksInSynchronize")
        for mode, more in (("infer", ("unseen",)), ("train", ("unseen",)))
    ),
    Sabotage("WorksWhenAsked", "", "infer", "move the work into run", ("hidden",)),
    Sabotage(
        "UpdatesAlways", "", "train", "changes in a run without an update", ("changed", *STEPS)
    ),
    Sabotage("UpdatesALittle", "", "train", "changes in a run without an update", ("changed",)),
]


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: Patch) -> None:
    """Do not fill turns with passes: those that work untimed would run hundreds of them."""
    monkeypatch.setattr(passes, "TURN_S", 1e-3)


@pytest.fixture
def measured(make_spec: MakeSpec, tmp_path: Path) -> Measured:
    """Return a function that measures a system of tests.support.saboteurs."""

    def measured_by(kind: str, of: str = "W", mode: str = "train", **changes: Any) -> Record:
        spec = spec_of(make_spec, kind, of, mode=mode, **changes)
        return measure_at(spec, locate_record(tmp_path, spec))

    return measured_by


def name_of(sabotage: Sabotage) -> str:
    return "-".join(filter(None, (sabotage.kind, sabotage.of, sabotage.mode)))


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=name_of)
def test_sabotage_is_caught(measured: Measured, sabotage: Sabotage) -> None:
    record = measured(*sabotage[:3])
    assert record.status == "wrong_result"
    assert sabotage.says in (record.reason or "")
    assert (record.passes_s, record.instances_per_s) == ((), None)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=name_of)
def test_it_is_its_guards_that_catch_it(
    measured: Measured, monkeypatch: Patch, sabotage: Sabotage
) -> None:
    for guard in sabotage.guards:
        for owner, name, stand_in in GUARDS[guard]:
            monkeypatch.setattr(owner, name, stand_in)
    record = measured(*sabotage[:3])
    assert (record.status, record.reason) == ("ok", None)


def test_every_guard_is_needed_for_some_sabotage() -> None:
    alone = {guards[0] for *_, guards in SABOTAGES if len(guards) == 1}
    assert {"step", "parts", "losses", "unseen", "hidden", "changed", "answer"} <= alone


KNOWS_WHAT_IT_COST = """\
import time

from tests.support.saboteurs import Honest


class Adapter(Honest):
    def run(self, clock, *, update=True):
        began = time.perf_counter()
        super().run(clock, update=update)
        self.took_s = time.perf_counter() - began
"""


def test_a_clock_in_a_system_is_found(
    make_spec: MakeSpec, make_module: Callable[[str], str], tmp_path: Path, monkeypatch: Patch
) -> None:
    adapter = make_module(KNOWS_WHAT_IT_COST)
    spec = make_spec(adapter=adapter)
    record = measure(spec, tmp_path)
    assert record.status == "wrong_result"
    assert record.reason == f"{adapter} reads a clock (time); only the harness may measure time"
    monkeypatch.setattr(*GUARDS["no clock"][0])
    assert measure(spec, tmp_path).status == "ok"


def test_reference_resolves_disagreement(measured: Measured) -> None:
    """The systems differ in a mini-batch that only fingerprints cover."""
    first, second = measured("Honest"), measured("WrongForTheSecond")
    assert first.status == "ok"
    assert second.status == "wrong_result"
    assert "mini-batch 1 differs from other systems and the reference" in str(second.reason)
    assert "gradient of W" in str(second.reason)


def test_wrong_first_record_is_hidden(measured: Measured) -> None:
    first, second = measured("WrongForTheSecond"), measured("Honest")
    assert (first.status, second.status) == ("ok", "ok")  # no record contradicted it yet
    assert (first.fingerprint.proved, second.fingerprint.proved) == (False, True)
    shown = cross_check_records([first, second])
    assert [one.status for one in shown] == ["wrong_result", "ok"]
    assert "differs from Honest, which the reference confirmed" in str(shown[0].reason)


# --- reduced precision ---


@pytest.mark.parametrize("of", ["float16", "bfloat16"])
def test_requested_reduced_precision_passes_with_warning(measured: Measured, of: str) -> None:
    record = measured("ComputesInHalfPrecision", of, precision="bf16")
    assert (record.status, record.reason) == ("ok", None)
    assert "reduced_precision" in record.warnings
    assert record.check.max_rel_err > 1e-4


@pytest.mark.parametrize("precision", ["ieee", "tf32x3", "half"])
def test_exact_names_and_words_of_others_loosen_nothing(measured: Measured, precision: str) -> None:
    record = measured("ComputesInHalfPrecision", "float16", precision=precision)
    assert record.status == "wrong_result"


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        *(("SkipsAnUpdate", name) for name in ("embedding", "U", "b", "F_1", "W_out")),
        ("SumsHalfAGradient", "W"),
        ("SumsHalfAGradientOfMany", "W"),
        ("UpdatesALittle", ""),
    ],
)
def test_wrong_results_fail_in_reduced_precision(measured: Measured, kind: str, of: str) -> None:
    assert measured(kind, of, precision="tf32").status == "wrong_result"


def test_reduced_precision_is_a_workload_of_its_own(measured: Measured) -> None:
    exact, lower, near = (
        measured("Honest", precision=name).fingerprint for name in ("ieee", "bf16", "tf32x3")
    )
    assert exact.workload == near.workload != lower.workload
    assert exact.losses == lower.losses


# --- later rounds ---


@pytest.fixture
def proofs(monkeypatch: Patch) -> list[int]:
    """Return a list that grows with each proof."""
    calls: list[int] = []
    prove = worker.prove

    def counted(*given: Any) -> Any:
        calls.append(1)
        return prove(*given)

    monkeypatch.setattr(worker, "prove", counted)
    return calls


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_later_round_is_proved_by_the_first(
    measured: Measured, proofs: list[int], mode: str
) -> None:
    first, second = (measured("Honest", mode=mode, round=number) for number in (0, 1))
    assert (first.status, second.status) == ("ok", "ok")
    assert len(proofs) == 1
    assert (first.check.in_round, second.check.in_round) == (None, 0)
    assert second.fingerprint.sketches == first.fingerprint.sketches
    assert (first.unseen_slowdown is None, second.unseen_slowdown is None) == (False, True)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_later_round_with_other_losses_is_wrong(
    measured: Measured, monkeypatch: Patch, mode: str
) -> None:
    assert measured("Honest", mode=mode).status == "ok"
    last_loss = saboteurs.Honest.last_loss
    monkeypatch.setattr(saboteurs.Honest, "last_loss", lambda self: 1.01 * last_loss(self))
    record = measured("Honest", mode=mode, round=1)
    assert record.status == "wrong_result"
    assert "the loss of mini-batch 0 is" in str(record.reason)
    assert record.passes_s == ()


def test_a_gpu_that_changes_its_clock_rate_is_the_same(
    measured: Measured, tmp_path: Path, proofs: list[int], monkeypatch: Patch
) -> None:
    machine = replace(describe_machine(), gpus=(Gpu("G", 2**30, "1.0", 345, 1980),))
    first = measured("Honest").model_copy(update={"machine": machine.to_dict()})
    (path,) = tmp_path.rglob("r0.json")
    path.write_text(first.model_dump_json())
    for n_proofs, gpu in ((1, {"sm_clock_mhz": 1755}), (2, {"name": "H"})):
        changed = replace(machine, gpus=(replace(machine.gpus[0], **gpu),))
        monkeypatch.setattr(surroundings, "describe_machine", lambda changed=changed: changed)
        assert measured("Honest", round=1).status == "ok"
        assert len(proofs) == n_proofs


@pytest.mark.parametrize("changed", ["source", "machine", "versions", "inputs", "status", "none"])
def test_a_changed_first_round_proves_nothing(
    measured: Measured, tmp_path: Path, proofs: list[int], changed: str
) -> None:
    first = measured("Honest")
    (path,) = tmp_path.rglob("r0.json")
    changes: dict[str, dict[str, Any]] = {
        "source": {"source_sha256": "0" * 64},
        "machine": {"machine": {**first.machine, "cpu": "another"}},
        "versions": {"versions": {**first.versions, "numpy": "0.1"}},
        "inputs": {"inputs_sha256": "0" * 64},
        "status": {"status": "wrong_result", "reason": "other systems contradict it"},
        "none": {},
    }
    path.write_text(first.model_copy(update=changes[changed]).model_dump_json())
    if changed == "none":
        path.unlink()
    again = measured("Honest", round=1)
    assert again.status == "ok"
    assert again.check.in_round is None
    assert len(proofs) == 2
