"""Compiled tanh, sigmoid and exp against float64, and kernels that were generated."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from harness.engine.backends.compiled.source import CYCLES, HEADER, NATIVE
from harness.engine.cpu_kernels.fast_math import FAST, fast_exp, fast_sigmoid, fast_tanh
from harness.machine import compiled, generated, machine_code, remembered
from harness.machine.caches import cache_folder
from harness.values.places import ROOT

Floats = NDArray[np.float32]
# The bounds of the docstrings: relative for tanh and exp, absolute for sigmoid.
TANH_RELATIVE, SIGMOID_ABSOLUTE, EXP_RELATIVE = 5e-7, 3e-7, 5e-7


@numba.njit(fastmath=FAST, error_model="numpy")
def _all(x: Any, tanh: Any, sigmoid: Any, exp: Any) -> None:  # pragma: no cover - compiled
    for k in range(len(x)):
        tanh[k] = fast_tanh(x[k])
        sigmoid[k] = fast_sigmoid(x[k])
        exp[k] = fast_exp(x[k])


def _compute(x: Any) -> tuple[Floats, Floats, Floats]:
    """Evaluate the three functions in one loop, as generated kernels do."""
    x = np.atleast_1d(np.asarray(x, dtype=np.float32))
    results = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    _all(x, *results)
    return results


def _magnitudes() -> Floats:
    """Both signs of every magnitude from denormal to huge, and densely where the functions bend."""
    powers = np.logspace(-45, 38, 40_000)
    dense = np.concatenate([np.linspace(0, 10, 200_001), 8 + np.linspace(-1e-4, 1e-4, 101)])
    positive = np.concatenate([powers, dense]).astype(np.float32)
    return np.concatenate([positive, -positive])


def test_tanh_keeps_its_relative_error_at_every_magnitude() -> None:
    x = _magnitudes()
    exact = np.tanh(x.astype(np.float64))
    tanh = _compute(x)[0].astype(np.float64)
    normal = np.abs(x) >= np.finfo(np.float32).tiny
    relative = np.abs(tanh - exact)[normal] / np.abs(exact[normal])
    assert relative.max() <= TANH_RELATIVE
    # Of denormal numbers only the spacing can be kept.
    assert np.abs(tanh - exact)[~normal].max() <= 2e-45


def test_tanh_is_odd_bounded_and_zero_at_zero() -> None:
    x = _magnitudes()
    tanh = _compute(x)[0]
    np.testing.assert_array_equal(_compute(-x)[0], -tanh)
    assert np.abs(tanh).max() <= 1.0 + 1e-7
    assert _compute(0.0)[0][0] == 0.0


def test_sigmoid_keeps_its_absolute_error_and_range() -> None:
    x = _magnitudes()
    exact = 0.5 * (1.0 + np.tanh(0.5 * x.astype(np.float64)))
    sigmoid = _compute(x)[1]
    assert np.abs(sigmoid - exact).max() <= SIGMOID_ABSOLUTE
    assert sigmoid.min() >= -1e-7
    assert sigmoid.max() <= 1.0 + 1e-7


def test_exp_keeps_its_relative_error_and_stays_finite() -> None:
    x = np.concatenate([np.linspace(-87, 88, 400_001), _magnitudes()]).astype(np.float32)
    exp = _compute(x)[2].astype(np.float64)
    exact = np.exp(np.clip(x.astype(np.float64), -87.0, 88.0))
    assert (np.abs(exp - exact) / exact).max() <= EXP_RELATIVE
    assert np.isfinite(exp).all()
    assert _compute(0.0)[2][0] == 1.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinity_saturates(sign: float) -> None:
    tanh, sigmoid, exp = (values[0] for values in _compute(sign * np.inf))
    np.testing.assert_allclose(tanh, sign, atol=3e-7)
    np.testing.assert_allclose(sigmoid, 0.5 + 0.5 * sign, atol=SIGMOID_ABSOLUTE)
    np.testing.assert_allclose(exp, np.exp(88.0) if sign > 0 else 0.0, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("n", [1, 5, 64])  # alone, in a loop's rest, in its vectorised part
def test_nan_is_not_hidden(n: int) -> None:
    x = np.zeros(n, dtype=np.float32)
    x[n // 2] = np.nan
    for values in _compute(x):
        assert np.isnan(values[n // 2])
        assert np.isnan(values).sum() == 1


# As a loop, but for a function that Python calls.
SOURCE = (
    HEADER.replace(
        NATIVE,
        "from harness.machine.compiled import compiled_with\n\n\n"
        '@compiled_with(fastmath=FAST, error_model="numpy")',
    )
    + """def kernel(n, row, state_row, a0):
    for m in range(n):
        for j in range(2):
            a0[m][j] = fast_tanh(a0[m][j]) + F(1.0)
"""
)


def _run(kernel: Callable[..., None]) -> Floats:
    values = np.zeros((3, 2), dtype=np.float32)
    kernel(2, 0, 0, values)
    return values


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own folder of machine code, with what the kernels call of ours."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder(machine_code.FOLDER)
    assert folder is not None
    return folder


def _files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_kernel_is_kept_and_found_again(folder: Path) -> None:
    np.testing.assert_array_equal(
        _run(generated.load_generated(SOURCE, "kernel")), [[1, 1], [1, 1], [0, 0]]
    )
    before = _files(folder)
    assert before, "the compiled kernel is kept"
    kernel: Any = generated.load_generated(SOURCE, "kernel")
    _run(kernel)
    assert _files(folder) == before
    assert (sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())) == (
        1,
        0,
    )
    assert {file.name for file in folder.parent.iterdir()} <= {folder.name, remembered.FOLDER}


def test_another_source_or_other_functions_get_a_module_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = generated.load_generated(SOURCE, "kernel")
    assert generated.load_generated(SOURCE, "kernel").__module__ == first.__module__
    other = generated.load_generated(SOURCE.replace("F(1.0)", "F(2.0)"), "kernel")
    np.testing.assert_array_equal(_run(other)[0], [2, 2])
    assert other.__module__ != first.__module__
    # tanh is inlined into the compiled kernel, so that its source counts too.
    monkeypatch.setattr(generated, "stamp_of", lambda modules: "another tanh")
    edited = generated.load_generated(SOURCE, "kernel")
    assert edited.__module__ not in (first.__module__, other.__module__)


@pytest.mark.parametrize("name", ["fast_math", "cycles", "row_kernels", "blas", "loss_kernels"])
def test_an_edit_of_any_module_that_a_loop_calls_compiles_it_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = SOURCE.replace("import math\n", f"import math\n{CYCLES}", 1)
    before = generated.load_generated(source, "kernel").__module__
    hashed = compiled.code_sha256

    def edited(path: Path) -> bytes:
        return hashed(path) + (b"edited" if path.stem == name else b"")

    monkeypatch.setattr(compiled, "code_sha256", edited)
    compiled.stamp_of.cache_clear()
    after = generated.load_generated(source, "kernel").__module__
    compiled.stamp_of.cache_clear()
    assert before != after


def test_a_folder_that_cannot_be_written_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    np.testing.assert_array_equal(_run(generated.load_generated(SOURCE, "kernel"))[0], [1, 1])
    assert blocked.read_text() == "in the way"


def test_messages_show_the_text_of_a_kernel() -> None:
    """Triton compiles from it."""
    kernel: Any = generated.load_generated(SOURCE, "kernel")
    assert inspect.getsource(kernel.py_func) == SOURCE[SOURCE.index("@compiled_with") :]


def test_another_process_uses_the_kept_kernel(folder: Path) -> None:
    _run(generated.load_generated(SOURCE, "kernel"))
    program = (
        "import numpy as np, sys\n"
        "from harness.machine import generated\n"
        "kernel = generated.load_generated(sys.stdin.read(), 'kernel')\n"
        "kernel(1, 0, 0, np.zeros((1, 2), dtype=np.float32))\n"
        "print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=SOURCE,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"XDG_CACHE_HOME": str(folder.parents[1])},
        cwd=ROOT,
    )
    assert done.stdout.split() == ["1", "0"]
