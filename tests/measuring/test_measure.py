"""The worker: results are written to the record, and failures become a status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dynbatch.harness.machine.noise import Slowdown
from dynbatch.harness.measuring import worker
from dynbatch.harness.measuring.processes.child import REFUSED
from dynbatch.harness.measuring.processes.launch import build_worker_environment
from dynbatch.harness.measuring.worker import write_measured
from dynbatch.harness.records.record import Record
from dynbatch.harness.records.turns import collect_turn_seconds, compute_pass_s
from dynbatch.harness.trials.spec import Timing
from tests.support import odd_system
from tests.support.measured import MakeSpec, OwnTurns, measure
from tests.support.processes import run_python
from tests.support.refusals import Output, expect_refusal, read_refusal

Measured = Callable[..., Record]
Patch = pytest.MonkeyPatch
REFERENCE_IS_FINITE = "the reference is finite there; fix the system, not the model"


@pytest.fixture
def measured(make_spec: MakeSpec, tmp_path: Path) -> Measured:
    """Return a function that measures a trial in this process."""
    return lambda **changes: measure(make_spec(**changes), tmp_path)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_good_trial(measured: Measured, mode: str) -> None:
    record = measured(mode=mode, command="bench some=thing")
    assert (record.status, record.reason) == ("ok", None)
    assert record.check.status == "ok"
    assert record.check.max_rel_err == 0.0
    assert (record.n_mini_batches, record.n_instances) == (2, 4)
    assert len(record.passes_s) >= 2
    assert all(seconds > 0 for seconds in record.passes_s)
    assert record.compile_s is not None
    assert record.peak_memory_bytes > 2**20
    assert 1 <= record.n_warmup <= 10
    assert 0 < record.timer_overhead_s < min(record.passes_s)
    assert sum(turn.n_passes for turn in record.turns) == len(record.passes_s)
    assert record.block == "here"
    assert record.gpu is None
    assert record.versions["fake"] == "1.0"
    assert {"python", "numpy", "harness"} < set(record.versions)
    assert record.command == "bench some=thing"
    reported = {name for name, seconds in record.phases_s.items() if seconds is not None}
    assert reported == ({"backward", "update"} if mode == "train" else set())


def test_speed_follows_from_passes_and_counters_from_the_warm_up(measured: Measured) -> None:
    record = measured()
    pass_s = compute_pass_s(collect_turn_seconds(record.passes_s, record.turns))
    assert record.instances_per_s == pytest.approx(4 / pass_s)
    # Verification takes eight runs, so the two mini-batches of the warm-up are runs 9 and 10.
    assert record.n_batches == 9.5
    assert record.n_launches is None


def test_shape_compilations_are_counted_and_timed_separately(measured: Measured) -> None:
    slow = {"fault": "sleep:0.2", "at": "compile_for"}
    record = measured(system_options=slow)
    assert record.status == "ok", record.reason
    assert record.n_compilations == 2  # once for each mini-batch
    assert record.compile_s >= 2 * 0.2  # it sleeps for each
    assert max(record.passes_s) < 0.2
    assert "recompiled_while_timed" not in record.warnings


def test_compilation_during_timing_gives_warning(measured: Measured) -> None:
    record = measured(system_options={"fault": "compiles_always"})
    assert "recompiled_while_timed" in record.warnings


def test_compilations_of_the_warm_up_are_counted_too(
    measured: Measured, monkeypatch: Patch
) -> None:
    """Verification takes eight runs, so the two mini-batches of the first pass are 9 and 10."""
    monkeypatch.setattr(
        odd_system.Adapter, "n_compilations", lambda self: max(0, min(self.n_runs, 10) - 8)
    )
    record = measured()
    assert record.n_compilations == 2
    assert "recompiled_while_timed" not in record.warnings


def test_a_gpu_that_others_use_or_that_is_slowed_down_gives_warnings(
    measured: Measured, monkeypatch: Patch
) -> None:
    facts = {"gpu_clocks_mhz": (1980, 1200), "gpu_limited_s": {"heat": 0.25}, "gpu_others": (0, 2)}
    seen = Slowdown(is_throttled=True, **facts)
    monkeypatch.setattr(worker.SlowdownWatch, "stop", lambda _: seen)
    record = measured()
    assert {"throttled", "gpu_shared"} <= {*record.warnings}
    assert {name: getattr(record, name) for name in facts} == facts


def test_pass_with_repeated_instances_gives_warning(measured: Measured) -> None:
    few = {"n_leaves": 4, "n_instances": 3, "seed": 0}
    record = measured(dataset_options=few)  # two mini-batches of two
    assert "repeated_instances" in record.warnings
    assert "repeated_instances" not in measured().warnings


def test_steps_too_small_for_float32_are_no_wrong_result(measured: Measured) -> None:
    """The loss of a single mini-batch often stays the same for some passes."""
    timing = Timing(n_mini_batches=1, min_seconds=0.0, max_seconds=0.1, min_passes=50, last="keep")
    own = {"adapter": "dynbatch.systems.on_core.vertex", "policy": "agenda", "batch_size": 64}
    record = measured(**own, timing=timing, learning_rate=1e-7)
    assert (record.status, record.reason, record.n_instances) == ("ok", None, 8)


def test_the_null_system_is_not_checked_and_still_timed(measured: Measured, tmp_path: Path) -> None:
    record = measured(adapter="dynbatch.systems.null_system")
    assert record.status == "ok"
    assert record.check.status == "skipped"
    assert None not in record.phases_s.values()
    assert not (tmp_path / "oracle").exists()


@pytest.mark.parametrize("fault", ["wrong_loss", "wrong_gradient", "nan_outputs"])
def test_a_wrong_result_has_no_time(measured: Measured, fault: str) -> None:
    record = measured(system_options={"fault": fault})
    assert record.status == "wrong_result"
    assert record.check.status == "failed"
    assert (record.passes_s, record.instances_per_s) == ((), None)
    assert record.reason.endswith(REFERENCE_IS_FINITE) == (fault == "nan_outputs")


def test_nan_loss_in_timed_mini_batch_is_reported_with_cause(
    measured: Measured, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(odd_system.Adapter, "last_loss", lambda _: float("nan"))
    record = measured()
    assert record.reason == f"the loss of mini-batch 0 is nan; {REFERENCE_IS_FINITE}"


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("skip", "unsupported", "not on this machine"),
        ("raise:unsupported", "unsupported", "this model is too odd"),
        ("raise:schedule", "wrong_result", "policy odd: vertex 2 runs in batch 3"),
        ("raise:memory", "oom", "MemoryError: no room for a tensor"),
    ],
)
def test_failed_measurement_records_status_and_reason(
    measured: Measured, fault: str, status: str, reason: str
) -> None:
    record = measured(system_options={"fault": fault})
    assert record.status == status
    assert (record.reason or "").startswith(reason)
    assert record.passes_s == ()
    assert record.inputs_sha256 is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dataset_options": {"n_leaves": 3}}, "n_leaves"),
        ({"dataset_options": {"leaves": 4}}, "leaves"),
        ({"adapter": "dynbatch.systems.no_such"}, "dynbatch.systems.no_such is not a module"),
        ({"adapter": "dynbatch.harness.contracts.system"}, "no class Adapter"),
        ({"model_options": {"variant": "odd"}}, "odd is unknown"),
    ],
)
def test_wrong_input_is_one_line_and_no_record(
    make_spec: MakeSpec, tmp_path: Path, capsys: Output, changes: dict[str, object], words: str
) -> None:
    (tmp_path / "spec.json").write_text(json.dumps(make_spec().to_dict() | changes))
    paths = tmp_path / "spec.json", tmp_path / "r0.json"
    assert write_measured(*paths, "here", OwnTurns(Timing())) == REFUSED
    read_refusal(capsys, words)
    assert not (tmp_path / "r0.json").exists()


FOREIGN = (
    *("torch", "tensorflow", "jax", "dynet", "_dynet", "hydra"),
    *("pandas", "matplotlib", "dynbatch.plots"),
)


@pytest.mark.parametrize(
    "adapter", ["dynbatch.systems.null_system", "dynbatch.systems.on_core.reference"]
)
def test_a_worker_loads_no_framework_of_others(
    make_spec: MakeSpec, tmp_path: Path, adapter: str
) -> None:
    spec = make_spec(adapter=adapter)
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    program = (
        "import pathlib, sys; from dynbatch.harness.measuring.worker import write_measured;"
        "from dynbatch.harness.trials.spec import Timing;"
        "from tests.support.measured import OwnTurns;"
        "turns = OwnTurns(Timing(min_seconds=0.0));"
        f"folder = pathlib.Path({str(tmp_path)!r});"
        "code = write_measured(folder / 'spec.json', folder / 'r0.json', 'b', turns);"
        f"print(code, [name for name in {FOREIGN} if name in sys.modules])"
    )
    printed = run_python("-c", program, **build_worker_environment(spec))
    assert printed.split("\n")[-2] == "0 []"


def test_memory_is_given_back_before_the_warm_up_and_not_after(
    measured: Measured, monkeypatch: Patch
) -> None:
    """Memory that the warm-up has faulted in stays resident for the first timed pass.

    The baseline of resident memory is measured before the reference is computed or loaded.
    """
    order: list[str] = []

    def note(name: str) -> None:
        work = getattr(worker, name)

        def noted(*given: object, **named: object) -> object:
            order.append(name)
            return work(*given, **named)

        monkeypatch.setattr(worker, name, noted)

    around_the_baseline = ["release_memory", "measure_resident_bytes", "Reference"]
    around_the_passes = ["release_memory"] * 2 + ["warm_up", "reset_peak_memory", "take_turns"]
    for name in {*around_the_baseline, *around_the_passes}:
        note(name)
    monkeypatch.setattr(odd_system.Adapter, "reset_peak_memory", lambda _: order.append("own"))
    assert measured().status == "ok"
    around_the_passes.insert(-1, "own")  # the framework's
    assert order == around_the_baseline + around_the_passes


@pytest.mark.parametrize(
    ("method", "returned", "words"),
    [
        ("effective_options", {"threads": 3}, "{'threads': 3}: expected a dict of strings by name"),
        ("effective_options", None, "None: expected a dict of strings by name"),
        ("effective_options", {"a": ["c" * 5000]}, "expected a dict of strings by name"),
        ("versions", {"torch": None}, "{'torch': None}: expected a dict of strings by name"),
        ("n_compilations", 2.5, "2.5: expected a whole number of at least 0, or None"),
        ("n_compilations", True, "True: expected a whole number of at least 0, or None"),
        ("peak_memory_bytes", float("nan"), "nan: expected a whole number of at least 0, or"),
        ("peak_memory_bytes", -5, "-5: expected a whole number of at least 0, or None"),
        ("data_movement_fraction", "half", "'half': expected a number from 0 to 1, or None"),
        ("data_movement_fraction", float("nan"), "nan: expected a number from 0 to 1, or None"),
    ],
)
def test_invalid_adapter_return_value_is_named_in_error(
    measured: Measured, monkeypatch: Patch, method: str, returned: object, words: str
) -> None:
    monkeypatch.setattr(odd_system.Adapter, method, lambda self: returned)
    start = f"tests.support.odd_system: {method}() returned "
    with expect_refusal(start, words, kind=TypeError):
        measured()


def test_numbers_of_numpy_are_numbers(measured: Measured, monkeypatch: Patch) -> None:
    monkeypatch.setattr(odd_system.Adapter, "n_compilations", lambda self: np.int64(3))
    monkeypatch.setattr(odd_system.Adapter, "peak_memory_bytes", lambda self: np.int64(7))
    monkeypatch.setattr(odd_system.Adapter, "data_movement_fraction", lambda self: np.float32(0.5))
    record = measured()
    assert (record.n_compilations, record.peak_memory_bytes) == (3, 7)
    assert record.data_movement_fraction == 0.5


def test_memory_of_a_process_is_not_that_of_a_gpu(measured: Measured) -> None:
    assert measured(device="cuda").peak_memory_bytes is None
