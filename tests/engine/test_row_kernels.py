"""Kernels that work on rows: results, and vectorized loops."""

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
WIDTHS = (1, 9, 37, 300)
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
    assert whole is not None
    return int(np.isnan(whole).sum()) == whole.size - rows.size


def _counted(*counts: int) -> NDArray[np.int64]:
    """Return the first edge of each vertex; the numbering does not start at 0."""
    return np.cumsum([4, *counts]).astype(np.int64)


# --- sums ---


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
def test_rows_are_added_up_from_anywhere_in_wider_ones(n: int) -> None:
    x, out, written = _rows(12, 7), np.full(3, 5.0, np.float32), np.zeros(1, np.int64)
    run_kernel(row_kernels.add_up_rows, (x[2:, 1:], out, written), (3, 1), n)
    assert written[0] == 1
    np.testing.assert_allclose(out, x[2 : 2 + n, 1:4].sum(axis=0), rtol=1e-5, atol=1e-6)
    run_kernel(row_kernels.add_up_rows, (x, out, written), (3, 1), n)
    both = x[2 : 2 + n, 1:4].sum(axis=0) + x[:n, :3].sum(axis=0)
    np.testing.assert_allclose(out, both, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("per_vertex", [1, 3])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_add_up_columns_of_their_own(n_threads: int, per_vertex: int, width: int) -> None:
    x, written = _in_wider(6, per_vertex * width), np.zeros(n_threads, np.int64)
    out = np.full(2 * width, np.nan, np.float32)
    for thread in range(n_threads):
        reported = Reported(thread, n_threads)
        run_kernel(row_kernels.add_up_rows, (x, out, written), (width, per_vertex), 6, reported)
    expected = x.reshape(-1, width).sum(axis=0)
    np.testing.assert_allclose(out[:width], expected, rtol=1e-5, atol=1e-5)
    assert np.isnan(out[width:]).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_edges_are_summed_and_spread(width: int) -> None:
    edges, counts = _counted(2, 0, 3), (2, 0, 3)
    of_edges, out = _in_wider(5, width), _in_wider(3, width)
    run_kernel(row_kernels.sum_edges, (of_edges, edges, out), (width,), 3)
    rows = [of_edges[:2].sum(axis=0), np.zeros(width), of_edges[2:].sum(axis=0)]
    np.testing.assert_allclose(out, rows, rtol=1e-6, atol=1e-6)
    states, index = _in_wider(7, width), np.array([9, 9, 9, 9, 6, 0, 1, 1, 5], np.int64)
    run_kernel(row_kernels.sum_children, (states, index, edges, out), (width,), 3)
    rows = [states[[6, 0]].sum(axis=0), np.zeros(width), states[[1, 1, 5]].sum(axis=0)]
    np.testing.assert_allclose(out, rows, rtol=1e-6, atol=1e-6)
    run_kernel(row_kernels.spread, (out, edges, of_edges), (4 * width,), 3)
    np.testing.assert_array_equal(of_edges, np.repeat(out, counts, axis=0))
    assert _is_alone(out)
    assert _is_alone(of_edges)


@pytest.mark.parametrize("width", WIDTHS)
def test_elements_are_summed_and_one_is_repeated(width: int) -> None:
    x, total = _in_wider(4, width), _in_wider(4, 1)
    run_kernel(row_kernels.sum_elements, (x, total), (width,), 4)
    np.testing.assert_allclose(total[:, 0], x.sum(axis=1), rtol=1e-5, atol=1e-5)
    run_kernel(row_kernels.expand, (total, x), (width,), 4)
    np.testing.assert_array_equal(x, np.repeat(total, width, axis=1))
    assert _is_alone(x)
    assert _is_alone(total)


@pytest.mark.parametrize(("k", "width"), [(1, 1), (3, 9), (37, 5), (16, 32)])
def test_a_row_meets_a_matrix_of_its_own(k: int, width: int) -> None:
    x, y = _in_wider(3, k), _in_wider(3, width)
    matrix = _in_wider(3, k * width)
    run_kernel(row_kernels.compute_outer, (x, y, matrix), (k, width), 3)
    np.testing.assert_allclose(matrix.reshape(3, k, width), x[:, :, None] * y[:, None, :])
    whole = matrix.reshape(3, k, width).astype(np.float64)
    run_kernel(row_kernels.apply, (x, matrix, y), (k, width), 3)
    np.testing.assert_allclose(y, np.einsum("nk,nkm->nm", x, whole), rtol=1e-5, atol=1e-5)
    run_kernel(row_kernels.apply_transposed, (y, matrix, x), (width, k), 3)
    np.testing.assert_allclose(x, np.einsum("nm,nkm->nk", y, whole), rtol=1e-4, atol=1e-4)
    assert all(map(_is_alone, (x, y, matrix)))


# --- moving ---


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_are_brought_looked_up_and_copied(width: int) -> None:
    states, index = _rows(9, width), np.array([[8, 0], [3, 3], [1, 8]], np.int64)
    copies, out = np.full((4, 2 * width), np.nan, np.float32), _in_wider(3, width)
    run_kernel(row_kernels.gather, (states, index, copies), (2, 4 * width), 3)
    np.testing.assert_array_equal(copies[:3], states[index].reshape(3, -1))
    assert np.isnan(copies[3]).all()
    run_kernel(row_kernels.look_up, (states, index[:, 0].copy(), out), (4 * width,), 3)
    np.testing.assert_array_equal(out, states[index[:, 0]])
    run_kernel(row_kernels.copy, (copies[:, width:], out), (4 * width,), 3)
    np.testing.assert_array_equal(out, states[index[:, 1]])
    run_kernel(row_kernels.fill, (out,), (width, 1), 3)
    np.testing.assert_array_equal(out, 1.0)
    assert _is_alone(out)


@pytest.mark.parametrize("width", WIDTHS)
def test_gradients_are_added_to_rows_that_are_named_twice(width: int) -> None:
    target, index = _rows(5, width), np.array([[4, 0], [4, 4], [1, 0]], np.int64)
    source, expected = _in_wider(3, 2 * width), target.copy()
    np.add.at(expected, index, source.reshape(3, 2, width))
    run_kernel(row_kernels.scatter_add, (target, index, source), (2, width), 3)
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-6)
    run_kernel(row_kernels.scatter_add, (target, index[:, 1:], source), (1, width), 3)
    np.add.at(expected, index[:, 1], source[:, :width])
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-6)


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


def test_children_that_batches_read_in_place_are_copied_once() -> None:
    states, index = _rows(40, 3), np.arange(40).reshape(20, 2)[::-1].astype(np.int64)
    bounds, runs = np.array([0, 9, 12, 20], np.int64), np.array([7, -1, 3, -1], np.int64)
    copies, done = np.full((20, 6), np.nan, np.float32), np.zeros(3, np.int64)
    operands = (states, index.copy(), runs, bounds, copies, done)
    for thread in range(3):
        run_kernel(row_kernels.materialize_views, operands, (2, 12), 3, Reported(thread, 3))
    expected = states[index].reshape(20, 6)
    np.testing.assert_array_equal(copies[:9], expected[:9])
    np.testing.assert_array_equal(copies[12:], expected[12:])
    assert np.isnan(copies[9:12]).all(), "a batch that had copies already"
    assert done.all()
    copies[:] = np.nan
    run_kernel(row_kernels.materialize_views, operands, (2, 12), 3, Reported(1, 3))
    assert np.isnan(copies).all()


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


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return chances


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
    chances = _softmax(logits)
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


@pytest.mark.parametrize("n_classes", [1, 9, 300])
def test_losses_and_gradients_apart(n_classes: int) -> None:
    x, label, dy = _in_wider(4, n_classes), np.array([0, 8, 3, 8]) % n_classes, _rows(4, 1)
    chances, rows = _softmax(x.astype(np.float64)), np.arange(4)
    loss, gradient = _in_wider(4, 1), _in_wider(4, n_classes)
    run_kernel(loss_kernels.pick_neg_log_softmax, (x, label, loss), (n_classes,), 4)
    np.testing.assert_allclose(loss[:, 0], -np.log(chances[rows, label]), rtol=1e-5, atol=1e-6)
    run_kernel(loss_kernels.compute_softmax_gradient, (x, label, dy, gradient), (n_classes,), 4)
    chances[rows, label] -= 1.0
    np.testing.assert_allclose(gradient, chances * dy, atol=1e-6)
    assert _is_alone(loss)
    assert _is_alone(gradient)


@pytest.mark.parametrize("width", WIDTHS)
def test_parts_of_rows_are_normalized_by_themselves(width: int) -> None:
    x, out, gain = _in_wider(4, 3 * width), _in_wider(4, 3 * width), _rows(1, width)[0]
    parts = x.reshape(12, width).astype(np.float64)
    run_kernel(loss_kernels.compute_softmax, (x, out), (width, 3), 4)
    np.testing.assert_allclose(out.reshape(12, width), _softmax(parts), rtol=1e-5, atol=1e-7)
    run_kernel(loss_kernels.compute_layer_norm, (x, gain, out), (width, 3), 4)
    centered = parts - parts.mean(axis=1, keepdims=True)
    deviation = np.sqrt(parts.var(axis=1, keepdims=True) + loss_kernels.EPSILON)
    np.testing.assert_allclose(
        out.reshape(12, width), gain * centered / deviation, rtol=1e-4, atol=1e-5
    )
    assert _is_alone(out)


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


def assembly_of(kernel: Compiled[..., Any]) -> str:
    module, machine = verify(str(write_module([kernel])), get_host_target())
    optimize(module, machine)
    text: str = machine.emit_assembly(module)
    return text


@pytest.mark.skipif(not X86, reason="names of instructions are those of x86")
@pytest.mark.parametrize("kernel", VECTORIZED, ids=lambda kernel: kernel.__name__)
def test_a_loop_over_a_row_takes_several_elements_at_once(kernel: Compiled[..., Any]) -> None:
    assert re.search(rf"\t{VECTORIZED[kernel]}\t", assembly_of(kernel))


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


def test_an_aligned_copy_owns_its_values() -> None:
    values = np.arange(6, dtype=np.float64).reshape(2, 3).T
    found = memory_kernels.copy_aligned(values)
    values[0, 0] = 9.0
    np.testing.assert_array_equal(found, [[0, 3], [1, 4], [2, 5]])
