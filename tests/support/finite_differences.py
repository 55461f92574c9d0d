"""Gradients by central differences, the independent word on every symbolic gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STEP = 1e-5


def check_gradients(
    loss: Callable[[Mapping[str, Array]], float],
    weights: Mapping[str, Array],
    gradients: Mapping[str, Array],
    n_entries: int | None = None,
) -> None:
    """Compare entries of every gradient (all, or the first and others chosen by a fixed seed).

    Raises AssertionError, naming the parameter, where one is off by more than differences explain.
    """
    assert set(gradients) == set(weights)
    values = {name: np.array(value, dtype=np.float64) for name, value in weights.items()}
    stream = np.random.default_rng(0)
    for name, value in values.items():
        flat, found = value.reshape(-1), np.asarray(gradients[name]).reshape(-1)
        chosen = np.arange(flat.size)
        if n_entries is not None and flat.size > n_entries:
            chosen = np.sort(stream.choice(flat.size, n_entries, replace=False))
        for k in chosen.tolist():
            expected = _difference(loss, values, flat, k)
            close = np.isclose(found[k], expected, rtol=1e-5, atol=1e-7)
            assert close, f"{name}[{k}]: symbolic {found[k]:.10g}, by differences {expected:.10g}"


def _difference(
    loss: Callable[[Mapping[str, Array]], float], values: Mapping[str, Array], flat: Array, k: int
) -> float:
    kept = flat[k]
    flat[k] = kept + STEP
    above = loss(values)
    flat[k] = kept - STEP
    below = loss(values)
    flat[k] = kept
    return (above - below) / (2 * STEP)
