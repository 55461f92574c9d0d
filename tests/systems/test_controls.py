"""Control systems (matmuls only, memory copy), and refusals that all systems share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, draw_initial_weights, trace_functions
from dynbatch.harness.engine import torch_cuda
from dynbatch.harness.errors import ConfigError
from dynbatch.systems import copies, products
from dynbatch.systems.on_dynet import autobatch
from dynbatch.systems.on_torch import bounds, compiled, eager, fused, levels
from dynbatch.systems.products import ParameterMatmul, count_rows, list_matmuls
from tests.support.engine_models import EXAMPLES
from tests.support.fake_time import NullClock
from tests.support.refusals import check_line
from tests.support.run_adapter import CASES, small_settings, started

Patch = pytest.MonkeyPatch
PROGRAMS = [CASES[name].model for name in ("birnn", "stack_rnn")]


def products_in(name: str) -> list[tuple[ParameterMatmul, int]]:
    """Return all products of an example, and their numbers of rows in its mini-batch."""
    model, instances = EXAMPLES[name]
    found = [p for f in trace_functions(model).values() for p in list_matmuls(f)]
    mini_batch = model.mini_batch(instances)
    return [(product, count_rows(product, mini_batch)) for product in found]


def prepared(
    name: str, mode: str = "train", **options: Any
) -> tuple[products.Adapter, Sequence[Any]]:
    model, instances = EXAMPLES[name]
    return started(products.Adapter, model, mode, **options), instances


@pytest.mark.parametrize(("mode", "n_forward", "n_backward"), [("train", 1, 1), ("infer", 1, 0)])
def test_each_product_is_computed_once_a_phase_and_its_work_is_reported(
    mode: str, n_forward: int, n_backward: int, monkeypatch: Patch
) -> None:
    adapter, instances = prepared("tree_lstm", mode)
    assert adapter.effective_options()["last mini-batch"] == "0 GFLOP"
    calls: dict[str, list[int]] = {"forward": [], "backward": []}
    monkeypatch.setattr(products, "forward", lambda *a: calls["forward"].append(a[4]))
    monkeypatch.setattr(products, "backward", lambda *a: calls["backward"].append(a[5]))
    adapter.compile_for(instances)
    adapter.load(instances)
    clock, phases = NullClock(), list[str]()
    clock.mark = phases.append  # type: ignore[method-assign]
    adapter.run(clock)
    n_rows = [n for _, n in products_in("tree_lstm")]
    n_flop = sum(2 * p.k * p.m * n for p, n in products_in("tree_lstm"))
    n_flop *= n_forward + 2 * n_backward
    assert adapter.effective_options()["last mini-batch"] == f"{n_flop / 1e9:.3g} GFLOP"
    assert calls == {"forward": n_rows * n_forward, "backward": n_rows * n_backward}
    assert phases == ["construct", "forward", "backward"][: 3 if mode == "train" else 2]


def test_reloading_known_instances_skips_counting(monkeypatch: Patch) -> None:
    adapter, instances = prepared("tree_lstm")
    adapter.compile_for(instances)
    counted: list[Any] = []
    monkeypatch.setattr(products, "count_rows", lambda *given: counted.append(given) or 1)
    adapter.load(instances)
    assert counted == []
    adapter.load(list(instances))  # a new list has another id
    assert len(counted) == len(products_in("tree_lstm"))


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 5, products.EVERY_ROW])
@pytest.mark.parametrize(("k", "m"), [(3, 4), (160, 128)])
def test_pieces_add_up(at_once: int, k: int, m: int) -> None:
    """Also by packed copies, which pieces of large matrices use."""
    random, matmuls = np.random.default_rng(0), products.CpuMatmuls("auto", 1, at_once)
    x, weight, y = (
        random.standard_normal(shape, dtype=np.float32) for shape in ((12, k), (k, m), (12, m))
    )
    dx, dy, gradient = x.copy(), y.copy(), np.empty_like(weight)
    matmuls.forward(x, weight, y, 12)
    np.testing.assert_allclose(y, x @ weight, rtol=1e-4, atol=1e-4)
    matmuls.backward(dx, weight, dy, gradient, 12, True)
    np.testing.assert_allclose(gradient, x.T @ dy, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(dx, dy @ weight.T, rtol=1e-4, atol=1e-4)
    assert len(matmuls._packed) == (2 if k > 3 else 0)


@pytest.mark.parametrize(("threads", "n", "packs"), [(1, 12, True), (1, 13, False), (2, 12, False)])
def test_the_bound_packs_what_the_engine_packs_on_one_thread(
    threads: int, n: int, packs: bool, monkeypatch: Patch
) -> None:
    """The engine's own kernels have one thread, and libraries are faster for many rows."""
    monkeypatch.setattr(products, "PACKED_ROWS", 12)
    matmuls = products.CpuMatmuls("auto", threads, products.EVERY_ROW)
    x, weight = np.ones((n, 160), np.float32), np.ones((160, 128), np.float32)
    y = np.empty((n, 128), np.float32)
    matmuls.forward(x, weight, y, n)
    np.testing.assert_array_equal(y, np.full((n, 128), 160, np.float32))
    assert bool(matmuls._packed) == packs


@pytest.mark.parametrize("n_bytes", [copies.LEAST_BYTES, 2**20, 2**24])
def test_copy_control_counts_bytes_read_and_written(n_bytes: int, monkeypatch: Patch) -> None:
    monkeypatch.setattr(copies, "COPIED_BYTES", 2**24)  # for a short run
    model, instances = EXAMPLES["tree_lstm"]
    system = started(copies.Adapter, model, n_bytes=n_bytes)
    copied: list[int] = []
    plain = np.copyto

    def copyto(target: Any, source: Any) -> None:
        copied.append(target.nbytes + source.nbytes)
        plain(target, source)

    monkeypatch.setattr(np, "copyto", copyto)
    system.load(instances)
    system.run(NullClock())
    counters = system.counters()
    assert (counters.bytes_touched, counters.n_launches) == (sum(copied), len(copied))
    assert sum(copied) >= 2 * copies.COPIED_BYTES - 2 * n_bytes
    np.testing.assert_array_equal(system._copies._target, system._copies._source)


@pytest.fixture
def as_on_cuda(monkeypatch: Patch) -> None:
    """Let systems of a GPU compute on the CPU with the same code."""
    for name in ("Matmuls", "Copies"):
        kind = getattr(bounds, name)
        monkeypatch.setattr(bounds, name, lambda _, *given, kind=kind: kind("cpu", *given))
    monkeypatch.setattr(torch_cuda, "explain_no_cuda", lambda: None)


@pytest.mark.parametrize("rows_at_once", [0, 5])
def test_matmuls_of_a_gpu_are_those_of_a_cpu(as_on_cuda: None, rows_at_once: int) -> None:
    """Both draw the same numbers; the gradients of rows have memory of their own on a GPU."""
    model, instances = EXAMPLES["child_sum"]
    found = {}
    for device in ("cpu", "cuda"):
        given = small_settings(device=device, rows_at_once=rows_at_once)
        assert products.Adapter.skip(model, given) is None
        adapter = found[device] = products.Adapter(given)
        adapter.synchronize()
        adapter.prepare(model, draw_initial_weights(model, 0))
        adapter.compile_for(instances)
        adapter.load(instances)
        adapter.run(NullClock())
        adapter.synchronize()
    cpu, cuda = found["cpu"], found["cuda"]
    assert cpu.counters() == cuda.counters()
    assert "cuBLAS" in cuda.effective_options()["blas"]
    passing = [index for index, product in enumerate(cpu._products) if product.passes_on]
    assert passing
    for name, which in (("_gradients", range(len(cpu._products))), ("_y", passing)):
        for index in which:
            ours, theirs = getattr(cpu, name)[index], getattr(cuda, name)[index].numpy()
            n = cpu._n_rows[index] if name == "_y" else len(ours)
            np.testing.assert_allclose(ours[:n], theirs[:n], rtol=1e-3, atol=1e-4)
    dx = cuda._matmuls._dx
    last = passing[-1]
    n = cpu._n_rows[last]
    width = cpu._products[last].k
    np.testing.assert_allclose(cpu._x[last][:n], dx[width][:n].numpy(), rtol=1e-3, atol=1e-4)


def test_copies_of_a_gpu_are_large_and_counted(as_on_cuda: None) -> None:
    model, instances = EXAMPLES["tree_lstm"]
    small, large = (small_settings(device="cuda", n_bytes=n_bytes) for n_bytes in (2**17, 2**24))
    assert "measures its launch" in str(copies.Adapter.skip(model, small))
    assert copies.Adapter.skip(model, large) is None
    system = copies.Adapter(large)
    system.synchronize()
    system.prepare(model, draw_initial_weights(model, 0))
    system.load(instances)
    system.run(NullClock())
    system.synchronize()
    assert system.counters().bytes_touched == 2 * copies.COPIED_BYTES
    assert bool((system._copies._target == 1).all())


def test_unsupported_use_of_controls_is_reported(monkeypatch: Patch) -> None:
    model, _ = EXAMPLES["tree_lstm"]
    monkeypatch.setattr(torch_cuda, "explain_no_cuda", lambda: "set device=cpu")
    for adapter in (products.Adapter, copies.Adapter):
        assert "set device=cpu" in str(adapter.skip(model, small_settings(device="cuda")))
    by_openblas = small_settings(device="cuda", blas="openblas")
    assert "blas=openblas is a library for CPUs" in str(products.Adapter.skip(model, by_openblas))
    assert "threads=1" in str(copies.Adapter.skip(model, replace(small_settings(), threads=2)))
    with pytest.raises(ConfigError, match=r"n_bytes=8 is not allowed: expected a .* 4096"):
        copies.Adapter(small_settings(n_bytes=8))
    with pytest.raises(ConfigError, match="blas=mkl is not allowed; choose one of auto"):
        prepared("tree_lstm", blas="mkl")


@pytest.mark.parametrize("model", PROGRAMS, ids=lambda model: model.name)
@pytest.mark.parametrize("module", [autobatch, eager, levels])
def test_programs_are_not_trained(module: ModuleType, model: Model, monkeypatch: Patch) -> None:
    monkeypatch.setattr(autobatch, "_explain_missing_dynet", lambda *_: None)
    reason = module.Adapter.skip(model, small_settings("train"))
    check_line(str(reason), ("mode=train", "set mode=infer"))
    assert module.Adapter.skip(model, small_settings("infer")) is None
    assert module.Adapter.skip(CASES["var_lstm"].model, small_settings("train")) is None


@pytest.mark.parametrize("module", [fused, compiled])
def test_systems_of_lstms_take_no_programs(module: ModuleType) -> None:
    """These systems accept chains, but the models have no LSTM."""
    for model in PROGRAMS:
        assert "LSTM" in str(module.Adapter.skip(model, small_settings("infer")))
