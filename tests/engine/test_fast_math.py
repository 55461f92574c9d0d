"""Compiled tanh, sigmoid and exp against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.compiler.compiled import compiled
from harness.engine.cpu_kernels.elementwise import FAST, fast_exp
from tests.support.elementwise_groups import computed

Floats = NDArray[np.float32]
# The bounds of the docstrings: relative for tanh and exp, absolute for sigmoid.
TANH_RELATIVE, SIGMOID_ABSOLUTE, EXP_RELATIVE = 5e-7, 3e-7, 5e-7


@compiled(fast=FAST)
def _exp_in_a_loop(x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """As kernels call it that are no groups of operators."""
    for k in range(len(x)):
        out[k] = fast_exp(x[k])


def _compute(x: Any) -> tuple[Floats, Floats, Floats, Floats]:
    """Evaluate tanh, sigmoid and exp as groups, and exp in a loop."""
    x = np.atleast_1d(np.asarray(x, dtype=np.float32))
    exp = np.empty_like(x)
    _exp_in_a_loop(x, exp)
    tanh, sigmoid, of_group = (computed(one, x[None])[0] for one in ("tanh", "sigmoid", "exp"))
    return tanh, sigmoid, of_group, exp


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


@pytest.mark.parametrize("way", ["group", "loop"])
def test_exp_keeps_its_relative_error_and_stays_finite(way: str) -> None:
    place = {"group": 2, "loop": 3}[way]
    x = np.concatenate([np.linspace(-87, 88, 400_001), _magnitudes()]).astype(np.float32)
    exp = _compute(x)[place].astype(np.float64)
    exact = np.exp(np.clip(x.astype(np.float64), -87.0, 88.0))
    assert (np.abs(exp - exact) / exact).max() <= EXP_RELATIVE
    assert np.isfinite(exp).all()
    assert _compute(0.0)[place][0] == 1.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinity_saturates(sign: float) -> None:
    tanh, sigmoid, *exps = (values[0] for values in _compute(sign * np.inf))
    np.testing.assert_allclose(tanh, sign, atol=3e-7)
    np.testing.assert_allclose(sigmoid, 0.5 + 0.5 * sign, atol=SIGMOID_ABSOLUTE)
    np.testing.assert_allclose(exps, np.exp(88.0) if sign > 0 else 0.0, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("n", [1, 5, 64])  # alone, in a loop's rest, in its vectorized part
def test_nan_is_not_hidden(n: int) -> None:
    x = np.zeros(n, dtype=np.float32)
    x[n // 2] = np.nan
    for values in _compute(x):
        assert np.isnan(values[n // 2])
        assert np.isnan(values).sum() == 1
