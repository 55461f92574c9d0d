"""Packed copies of parameters: their products, and that every mini-batch has current ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled
from dynbatch.harness.compiler.pointers import get_address
from dynbatch.harness.contracts.model import Model, ModelSizes, draw_initial_weights
from dynbatch.harness.engine.backends.compiled import memory, steps
from dynbatch.harness.engine.cpu_kernels.memory_kernels import allocate_aligned, pack_columns
from dynbatch.harness.engine.cpu_kernels.own_matmuls import BLOCK, count_padded, multiply_packed
from dynbatch.harness.engine.cpu_kernels.vectors import (
    COLUMNS,
    LANES,
    MAX_ROWS,
    load_matmul_kernels,
)
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.models.seq2seq import Seq2Seq
from dynbatch.harness.models.tree_lstm import TreeLSTM
from dynbatch.harness.reference import run_reference
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.instances import draw_trees, random_instances

Patch = pytest.MonkeyPatch
TREES = ModelSizes(LANES, {"words": 11, "classes": LANES}, embedding_size=5)
PAIRS = ModelSizes(LANES + 3, {"source_words": 9, "target_words": LANES}, embedding_size=5)
N_STEPS = 3


@compiled
def _multiply_packed(
    kernels: int, x: int, x_row: int, n: int, w: int, k: int, m: int, out: int, out_row: int,
    start: int,
) -> None:  # fmt: skip
    multiply_packed(kernels, x, x_row, n, w, k, m, out, out_row, start, out_row)


def multiply(
    x: NDArray[np.float32], weight: NDArray[np.float32], out: NDArray[np.float32], *, adds: bool
) -> None:
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
    if isinstance(model, Seq2Seq):
        instances = random_instances("sentence_pair", (5, 1, 3), PAIRS, 0, 0.0)
    switches, weights = Switches(backend="compiled", blas=blas), draw_initial_weights(model, 0)
    return prepared(model, weights, switches, mode=mode, threads=threads), instances


def check(adapter: Adapter, model: Model, instances: list[object], mode: str = "train") -> None:
    """Compare a mini-batch with the reference at the current parameters, and update them."""
    reference = run_reference(model, adapter.parameters(), instances, mode)
    found = run(adapter, instances, update=mode == "train")
    assert disagreements(found, reference) == []


of_models = pytest.mark.parametrize(
    "model", [TreeLSTM(TREES), Seq2Seq(PAIRS)], ids=lambda model: model.name
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
    model = TreeLSTM(TREES)
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
        model = TreeLSTM(TREES)
        adapter, instances = started(model)
        check(adapter, model, instances)
        packed[lanes] = set(adapter.engine.backend._parameters._packed)
    assert set() < packed[16] < packed[8]
