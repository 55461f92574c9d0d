"""Kernels that work on rows: packs, losses in place, vectorized loops, and packed copies.

The results of all kernels are compared with the reference in test_against_reference. Packed copies
of parameters are current in every mini-batch.
"""

from __future__ import annotations

import platform
import re
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import Compiled, compiled, write_module
from dynbatch.harness.compiler.object_code import get_host_target, optimize, verify
from dynbatch.harness.compiler.pointers import floats_at, get_address
from dynbatch.harness.contracts.model import Model, ModelSizes, draw_initial_weights
from dynbatch.harness.engine.backends.compiled import memory, steps
from dynbatch.harness.engine.backends.compiled.memory import Parameters, enlarge_matrix
from dynbatch.harness.engine.backends.stepwise.kernels import KERNELS
from dynbatch.harness.engine.cpu_kernels import loss_kernels, memory_kernels, row_kernels
from dynbatch.harness.engine.cpu_kernels.context import BYTES_COPIED
from dynbatch.harness.engine.cpu_kernels.loss_kernels import N_LANES, restore_logits
from dynbatch.harness.engine.cpu_kernels.memory_kernels import allocate_aligned, pack_columns
from dynbatch.harness.engine.cpu_kernels.own_matmuls import BLOCK, count_padded, multiply_packed
from dynbatch.harness.engine.cpu_kernels.vectors import (
    COLUMNS,
    LANES,
    MAX_ROWS,
    load_matmul_kernels,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.instances import build, draw_trees, random_instances
from tests.support.kernel_calls import Reported, run_kernel

Patch = pytest.MonkeyPatch
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


def test_a_loss_keeps_its_digits_if_logits_are_large() -> None:
    logits, label = (_rows(64, 5) + 1e4).astype(np.float32), np.arange(64) % 5
    powers = np.exp(logits.astype(np.float64) - 1e4)
    exact = -np.log(powers[np.arange(64), label] / powers.sum(axis=1))
    loss, log_sum = np.empty((64, 1), np.float32), np.empty((64, 1), np.float32)
    run_kernel(loss_kernels.pick_neg_log_softmax, (logits, label, loss), (5,), 64)
    np.testing.assert_allclose(loss[:, 0], exact, rtol=1e-5)
    of_torch = torch.empty(64, 1)
    given = [torch.from_numpy(logits), torch.from_numpy(label)]
    KERNELS["pick_neg_log_softmax"](None, given, of_torch)
    np.testing.assert_allclose(of_torch[:, 0], exact, rtol=1e-5)
    operands = logits, logits, label, loss, log_sum
    run_kernel(loss_kernels.compute_softmax_loss, operands, (5, 0, 1), 64)
    np.testing.assert_allclose(loss[:, 0], exact, rtol=1e-5)


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


# --- packed copies ---

TREES = ModelSizes(LANES, {"words": 11, "classes": LANES}, embedding_size=5)
PAIRS = ModelSizes(LANES + 3, {"source_words": 9, "target_words": LANES}, embedding_size=5)
N_STEPS = 3


@compiled
def _multiply_packed(
    kernels: int, x: int, x_row: int, n: int, w: int, k: int, m: int, out: int, out_row: int,
    start: int,
) -> None:  # fmt: skip
    multiply_packed(kernels, x, x_row, n, w, k, m, out, out_row, start, out_row)


def multiply(x: Floats, weight: Floats, out: Floats, *, adds: bool) -> None:
    k, m = weight.shape
    packed = allocate_aligned((k, count_padded(m)))
    packed.fill(np.nan)  # padding that is read would show
    pack_columns(get_address(weight), k, m, get_address(packed))
    _multiply_packed(
        int(load_matmul_kernels()[1].ctypes.data), get_address(x), x.strides[0], len(x),
        get_address(packed), k, m, get_address(out), out.strides[0], get_address(out) * adds,
    )  # fmt: skip


SIZES = (LANES, BLOCK, BLOCK + LANES, 3 * BLOCK - LANES, 1, BLOCK - 1, 2 * BLOCK + LANES + 3)


@pytest.mark.parametrize("columns", [size for size in SIZES if size % COLUMNS == 0])
@pytest.mark.parametrize("adds", [False, True])
def test_rows_are_multiplied_as_numpy_does(columns: int, adds: bool) -> None:
    """For any number of rows, also if rows of x and out are parts of wider ones."""
    rng = np.random.default_rng(columns)
    weight = rng.standard_normal((7, columns), dtype=np.float32)
    for n in (0, 1, MAX_ROWS, MAX_ROWS + 1, 4 * MAX_ROWS - 1):
        x = rng.standard_normal((n, 9), dtype=np.float32)[:, 1:8]
        wide = rng.standard_normal((n + 1, columns + 3), dtype=np.float32)
        expected = wide.astype(np.float64)
        out, rows = wide[:n, 2 : columns + 2], expected[:n, 2 : columns + 2]
        rows[:] = x.astype(np.float64) @ weight + adds * rows
        multiply(x, weight, out, adds=adds)
        np.testing.assert_allclose(wide, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def packs_all(monkeypatch: Patch) -> None:
    """Pack matrices of any size, on any processor; copies are current for any number of rows."""
    monkeypatch.setattr(steps, "is_packed", lambda k, m: m % COLUMNS == 0)
    for name in ("PACKED_FROM", "PACKED_FROM_IN_TRAINING"):
        monkeypatch.setattr(steps, name, 1)


def started(
    model: Model, mode: str = "train", blas: str = "auto", threads: int = 1
) -> tuple[Adapter, list[object]]:
    """Return an adapter of the compiled backend, and three instances."""
    instances: list[object] = draw_trees(TREES, (1, 9, 4))
    if model.name == "seq2seq":
        instances = random_instances("sentence_pair", (5, 1, 3), PAIRS, 0, 0.0)
    switches, weights = Switches(backend="compiled", blas=blas), draw_initial_weights(model, 0)
    return prepared(model, weights, switches, mode=mode, threads=threads), instances


def check(adapter: Adapter, model: Model, instances: list[object], mode: str = "train") -> None:
    """Compare a mini-batch with the reference at the current parameters, and update them."""
    reference = run_reference(model, adapter.parameters(), instances, mode)
    found = run(adapter, instances, update=mode == "train")
    assert disagreements(found, reference) == []


of_models = pytest.mark.parametrize(
    "model", [build("tree_lstm", TREES), build("seq2seq", PAIRS)], ids=lambda model: model.name
)


@pytest.mark.usefixtures("packs_all")
@of_models
@pytest.mark.parametrize(("blas", "threads"), [("auto", 1), ("auto", 2), ("openblas", 1)])
def test_every_mini_batch_has_current_copies(model: Model, blas: str, threads: int) -> None:
    """Also in the step after an update; nothing is packed without the engine's kernels."""
    adapter, instances = started(model, blas=blas, threads=threads)
    for _ in range(N_STEPS):
        check(adapter, model, instances)
    packed = adapter.engine.backend._parameters._packed
    assert bool(packed) == (blas == "auto")


@pytest.mark.usefixtures("packs_all")
@of_models
def test_inference_packs_once(model: Model, monkeypatch: Patch) -> None:
    adapter, instances = started(model, "infer")
    check(adapter, model, instances, "infer")
    monkeypatch.setattr(memory, "pack_columns", None)  # another copy would fail
    check(adapter, model, instances[:2], "infer")
    check(adapter, model, instances, "infer")


def test_in_training_only_mini_batches_of_many_rows_are_packed(monkeypatch: Patch) -> None:
    """Copies are current again after mini-batches that did not use them.

    Mini-batches of one sentence trained at half the speed when they packed after each update.
    """
    packed: list[object] = []
    monkeypatch.setattr(steps, "is_packed", lambda k, m: m % LANES == 0)
    monkeypatch.setattr(steps, "PACKED_FROM_IN_TRAINING", 64)
    monkeypatch.setattr(memory, "pack_columns", lambda *given: packed.append(pack_columns(*given)))
    model = build("tree_lstm", TREES)
    adapter, few = started(model)
    many = few * 10
    for instances in (many, many, few, few, many, few, many):
        packed.clear()
        check(adapter, model, instances)
        assert bool(packed) == (instances is many)


@pytest.mark.usefixtures("packs_all")
def test_with_wide_vectors_stages_of_all_rows_are_not_packed_in_training(
    monkeypatch: Patch,
) -> None:
    packed = {}
    for lanes in (8, 16):
        monkeypatch.setattr(steps, "LANES", lanes)
        model = build("tree_lstm", TREES)
        adapter, instances = started(model)
        check(adapter, model, instances)
        packed[lanes] = set(adapter.engine.backend._parameters._packed)
    assert set() < packed[16] < packed[8]
