"""Parameters of the compiled backend: what was written is stepped at once, and then forgotten."""

from __future__ import annotations

import numpy as np

from harness.engine.backends.compiled.parameters import Parameters

N = 130  # more than flags of one array


def test_only_written_gradients_are_stepped_and_all_are_forgotten() -> None:
    weights = {f"p{k}": np.full((k % 3 + 1, 5), float(k), np.float32) for k in range(N)}
    parameters = Parameters(weights, 2)
    flags = {name: parameters.written(name) for name in weights}
    for k, name in enumerate(weights):
        parameters.gradient(name)[:] = 2.0
        flags[name][:] = k % 2
    assert all(parameters.written(name) is flags[name] for name in weights), "none moves"
    for name in ("late", "later"):  # join when others have been stepped before
        parameters.update(0.25, [])
        parameters.values[name] = np.ones((4,), np.float32)
        parameters.written(name)[:] = 1
        parameters.gradient(name)[:] = 1.0
    for k, name in enumerate(weights):
        np.testing.assert_array_equal(parameters.values[name], weights[name] - k % 2)
    assert (parameters.values["late"] == 0.75).all()
    assert (parameters.values["later"] == 1).all()
    parameters.clear()
    assert not any(parameters.written(name).any() for name in (*weights, "late", "later"))
