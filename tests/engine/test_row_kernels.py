"""Kernels that work on rows: packs, losses in place, and vectorized loops.

The results of all kernels are compared with the reference in test_against_reference.
"""

from __future__ import annotations

import platform
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import Compiled, compiled, write_module
from dynbatch.harness.compiler.object_code import get_host_target, optimize, verify
from dynbatch.harness.compiler.pointers import floats_at, get_address
from dynbatch.harness.engine.backends.compiled.memory import Parameters, enlarge_matrix
from dynbatch.harness.engine.cpu_kernels import loss_kernels, memory_kernels, row_kernels
from dynbatch.harness.engine.cpu_kernels.context import BYTES_COPIED
from dynbatch.harness.engine.cpu_kernels.loss_kernels import N_LANES, restore_logits
from tests.support.kernel_calls import Reported, run_kernel

Floats = NDArray[np.float32]
X86 = platform.machine() in ("x86_64", "AMD64")
rng = np.random.default_rng(0)


def _rows(n: int, width: int) -> Floats:
    return rng.standard_normal((n, width), dtype=np.float32)


def _in_wider(n: int, width: int) -> Floats:
    """Return rows of a wider matrix, with NaN in all columns that must not be read or written."""
    whole = np.full((n, width + 2), np.nan, np.float32)
    rows = whole[:, 1 : 1 + width]
    rows[:] = _rows(n, width)
    return rows


def _is_alone(rows: Floats) -> bool:
    """Return whether nothing outside the rows of `_in_wider` was written."""
    whole = rows.base
    return int(np.isnan(whole).sum()) == whole.size - rows.size


# --- moving ---


def test_a_parameter_is_packed_by_one_thread() -> None:
    source, packed = _rows(5, 7), _rows(5, 9)
    before = packed.copy()
    for thread in (1, 0):
        reported = Reported(thread, 2)
        run_kernel(row_kernels.pack, (source[:, 2:], packed[:, 4:]), (4 * 3, 5), 0, reported)
        assert reported.tally[BYTES_COPIED] == (4 * 3 * 5 if thread == 0 else 0)
        if thread == 1:
            np.testing.assert_array_equal(packed, before)
    before[:, 4:7] = source[:, 2:5]
    np.testing.assert_array_equal(packed, before)


# --- softmax ---


@compiled
def _largest(x: int, n: int, out: int) -> None:
    floats_at(out)[0] = loss_kernels.find_maximum(floats_at(x), n)


@pytest.mark.parametrize("n", [1, 5, N_LANES - 1, N_LANES, N_LANES + 1, 300, 10_000])
def test_the_largest_is_found_wherever_it_is(n: int) -> None:
    out, x = np.empty(1, np.float32), -1.0 - np.abs(_rows(1, n)[0])
    for k in {0, n // 2, n - 1, max(0, n - n % N_LANES - 1)}:
        one = x.copy()
        one[k] = -0.5
        _largest(get_address(one), n, get_address(out))
        assert out[0] == -0.5


@pytest.mark.parametrize("n_classes", [1, 6, 300])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("leaves_gradient", [True, False])
def test_softmax_loss_and_in_place_gradient(
    has_bias: bool, leaves_gradient: bool, n_classes: int
) -> None:
    left, bias, rows = _in_wider(5, n_classes), _rows(1, n_classes)[0], np.arange(5)
    left *= 3
    label = np.array([0, 5, 2, 2, 1], np.int64) % n_classes
    logits = left + (bias.astype(np.float64) if has_bias else 0.0)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances = powers / powers.sum(axis=1, keepdims=True)
    loss, log_sum = np.empty((5, 1), np.float32), np.empty((5, 1), np.float32)
    constants = n_classes, int(has_bias), int(leaves_gradient)
    run_kernel(loss_kernels.compute_softmax_loss, (left, bias, label, loss, log_sum), constants, 5)
    assert _is_alone(left)
    np.testing.assert_allclose(loss[:, 0], -np.log(chances[rows, label]), rtol=1e-5, atol=2e-6)
    if not leaves_gradient:
        np.testing.assert_allclose(left, logits, rtol=1e-5, atol=1e-6)
        return
    gradient = chances.copy()
    gradient[rows, label] -= 1.0
    np.testing.assert_allclose(left, gradient, atol=1e-6)
    recovered = restore_logits(left.copy(), label, loss, log_sum)
    np.testing.assert_allclose(recovered, logits, rtol=1e-4, atol=1e-4)


def test_logits_far_below_the_largest_are_recovered_as_far_as_float32_goes() -> None:
    given = np.array([[0.0, -200.0, 1.0]], np.float32)
    left, loss, log_sum = given.copy(), np.empty((1, 1), np.float32), np.empty((1, 1), np.float32)
    label = np.array([0])
    run_kernel(loss_kernels.compute_softmax_loss, (left, left, label, loss, log_sum), (3, 0, 1), 1)
    recovered = restore_logits(left, label, loss, log_sum)
    np.testing.assert_allclose(recovered[0, [0, 2]], given[0, [0, 2]], atol=1e-6)
    assert recovered[0, 1] < -80.0


# --- vectorized loops ---

ADDS, MAXIMUM, PRODUCTS = r"v?addps", r"v?(max|cmp\w*)ps", r"v?(mulps|fn?m\w+ps)"
VECTORIZED: dict[Any, str] = {
    row_kernels.add_up_rows: ADDS,
    row_kernels.sum_edges: ADDS,
    row_kernels.sum_children: ADDS,
    row_kernels.sum_elements: ADDS,
    row_kernels.apply: PRODUCTS,
    row_kernels.apply_transposed: PRODUCTS,
    row_kernels.compute_outer: PRODUCTS,
    row_kernels.scatter_add: ADDS,
    loss_kernels.compute_softmax_loss: MAXIMUM,
    loss_kernels.pick_neg_log_softmax: PRODUCTS,
    loss_kernels.compute_softmax_gradient: PRODUCTS,
    loss_kernels.compute_softmax: PRODUCTS,
    loss_kernels.compute_layer_norm: PRODUCTS,
    memory_kernels.update_parameters: PRODUCTS,
    memory_kernels.update_rows: r"v?(subps|fn?m\w+ps)",
}


@pytest.mark.skipif(not X86, reason="names of instructions are those of x86")
@pytest.mark.parametrize("kernel", VECTORIZED, ids=lambda kernel: kernel.__name__)
def test_a_loop_over_a_row_takes_several_elements_at_once(kernel: Compiled[..., Any]) -> None:
    module, machine = verify(str(write_module([kernel])), get_host_target())
    optimize(module, machine)
    assert re.search(rf"\t{VECTORIZED[kernel]}\t", machine.emit_assembly(module))


def test_memory_begins_at_a_line_of_the_cache() -> None:
    weights = {f"w{k}": np.ones((k, 3), np.float32) for k in range(1, 9)}
    parameters = Parameters(weights, 1)
    arrays = [memory_kernels.allocate_aligned((3, k), np.uint16) for k in range(1, 20)]
    arrays += parameters.values.values()
    arrays += [parameters.provide_gradient(name) for name in weights]
    arrays += [parameters.provide_transposed(name, up_to_date=True) for name in weights]
    arrays += [enlarge_matrix(np.empty((0, k), np.float32), 5) for k in range(1, 9)]
    assert all(array.ctypes.data % memory_kernels.LINE_BYTES == 0 for array in arrays)
    assert all(array.flags.c_contiguous and array.flags.writeable for array in arrays)
