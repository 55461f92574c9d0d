"""Arrays of the compiled backend begin at a cache line."""

from __future__ import annotations

import numpy as np
import pytest

from harness.engine.backends.compiled.memory import grown
from harness.engine.backends.compiled.parameters import Parameters
from harness.engine.cpu_kernels.memory_kernels import LINE_BYTES, copied, empty

SHAPES = [(3, 5), (7,), (129, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_an_array_begins_at_a_line(shape: tuple[int, ...], dtype: type) -> None:
    arrays = [empty(shape, dtype) for _ in range(20)]
    assert all(array.ctypes.data % LINE_BYTES == 0 for array in arrays)
    assert all(array.shape == shape and array.dtype == dtype for array in arrays)
    assert all(array.flags.c_contiguous and array.flags.writeable for array in arrays)


def test_a_copy_has_the_values_and_owns_them() -> None:
    values = np.arange(6, dtype=np.float64).reshape(2, 3).T
    found = copied(values)
    values[0, 0] = 9.0
    np.testing.assert_array_equal(found, [[0, 3], [1, 4], [2, 5]])


def test_parameters_gradients_copies_and_grown_buffers_begin_at_a_line() -> None:
    weights = {f"w{k}": np.ones((k, 3), np.float32) for k in range(1, 9)}
    parameters = Parameters(weights, 1)
    arrays = list(parameters.values.values())
    arrays += [parameters.gradient(name) for name in weights]
    arrays += [parameters.transposed(name, up_to_date=True) for name in weights]
    arrays += [grown(np.empty((0, k), np.float32), 5) for k in range(1, 9)]
    assert all(array.ctypes.data % LINE_BYTES == 0 for array in arrays)
