"""precision=bf16 on a CPU: rounding, the whole engine, and unsupported cases.

test_products.py tests the matmuls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.compiler.pointers import get_address
from dynbatch.harness.engine.backend import choose_backend
from dynbatch.harness.engine.backends.compiled import memory
from dynbatch.harness.engine.backends.compiled.memory import Parameters
from dynbatch.harness.engine.cpu_kernels import blas
from dynbatch.harness.engine.cpu_kernels.blas import N_BF16, round_parameter
from dynbatch.harness.engine.cpu_kernels.libraries import ONEDNN
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import UnsupportedTrial
from dynbatch.harness.reference import run_reference
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.precision import TOLERANCES
from tests.support.engine_models import example
from tests.support.engine_runs import NoClock, disagreements, prepared, run
from tests.support.measured import measure_alone

needs_halves = pytest.mark.skipif(
    ONEDNN is None or not ONEDNN.half_address, reason="this CPU multiplies no bfloat16"
)
Floats = NDArray[np.float32]


def _rounded(x: Floats) -> Floats:
    """Round with the kernel, and return the result as float32."""
    bits = np.empty(x.size, np.uint16)
    rows = np.ascontiguousarray(x, np.float32).reshape(-1, x.shape[-1])
    round_parameter(get_address(rows), rows.strides[0], *rows.shape, get_address(bits))
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(x.shape)


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_numbers_go_to_the_nearest_of_which_the_last_bit_is_even(x: float) -> None:
    exact = np.float32(x)
    (found,) = _rounded(np.array([exact]))
    bits = int(exact.view(np.uint32))
    below, above = (np.uint32(bits & 0xFFFF0000), np.uint32((bits & 0xFFFF0000) + 0x10000))
    rest = bits & 0xFFFF
    up = rest > 0x8000 or (rest == 0x8000 and int(below) & 0x10000)
    assert found.view(np.uint32) == (above if up else below)


def test_rounding_preserves_nan_and_infinity() -> None:
    nans = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001], np.uint32).view(np.float32)
    assert np.isnan(_rounded(nans)).all()
    infinite = np.array([np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(_rounded(infinite), infinite)


@needs_halves
@pytest.mark.slow
@pytest.mark.parametrize(("name", "threads"), [("tree_lstm", 1), ("tree_lstm", 2), ("mv_rnn", 1)])
def test_the_engine_is_as_near_to_the_reference_as_the_word_allows(name: str, threads: int) -> None:
    model, instances, weights = example(name)
    reference = run_reference(model, weights, instances, "train")
    adapter = prepared(model, weights, Switches(precision="bf16"), threads=threads)
    found = run(adapter, instances)
    assert disagreements(found, reference, TOLERANCES["bf16"].array) == []
    assert disagreements(found, reference, 1e-4) != [], "products were as exact as ever"
    assert adapter.effective_options()["precision"] == "bf16"
    adapter.run(NoClock())  # an update: rounded weights are brought up to date
    again = adapter.result()
    now = {k: np.asarray(v) for k, v in adapter.parameters().items()}
    updated = run_reference(model, now, instances, "train")
    adapter.load(instances)
    adapter.run(NoClock(), update=False)
    assert disagreements(adapter.result(), updated, TOLERANCES["bf16"].array) == []
    assert again.loss != adapter.result().loss


@needs_halves
@pytest.mark.slow
def test_a_record_bears_the_warning_and_the_error(
    make_spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    spec = make_spec(
        adapter="dynbatch.systems.on_core.vertex", system_options={"precision": "bf16"}
    )
    record = measure_alone(spec, tmp_path / "raw" / "r0.json", tmp_path / "r0.log")
    assert record.status == "ok"
    assert "reduced_precision" in record.warnings
    assert record.check is not None
    assert record.check.max_rel_err is not None
    assert record.check.max_rel_err > 1e-4


@pytest.mark.parametrize(
    ("switches", "onednn", "says"),
    [
        ({}, None, r"precision=bf16 needs oneDNN; pip install onednn-cpu-gomp"),
        ({}, "old", r"AVX-512 BF16 or AMX; oneDNN found AVX2"),
        ({"blas": "openblas"}, "same", r"needs oneDNN, which blas=openblas excludes"),
        ({"precision": "tf32"}, "same", r"precision=tf32 needs backend=cuda"),
    ],
)
def test_unsupported_precision_is_refused_before_running(
    monkeypatch: pytest.MonkeyPatch, switches: dict[str, str], onednn: str | None, says: str
) -> None:
    if onednn is None:
        monkeypatch.setattr(blas, "ONEDNN", None)
    elif onednn == "old":
        if ONEDNN is None:
            pytest.skip("oneDNN is not installed")
        monkeypatch.setattr(blas, "ONEDNN", replace(ONEDNN, half_address=0, kernels="AVX2"))
    with pytest.raises(UnsupportedTrial, match=says):
        choose_backend(Switches(**{"precision": "bf16", **switches}), "cpu")


def test_rows_beyond_every_threads_buffer_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "N_BF16", 8)
    wide = Parameters({"W": np.zeros((5, 4), np.float32)}, 1)
    with pytest.raises(UnsupportedTrial, match=r"rows of at most 8 numbers, got W of shape 5 x 4"):
        wide.provide_bf16("W")
    assert N_BF16 > 2**16
