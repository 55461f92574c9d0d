"""PyTorch systems: refused trials, compilation, memory reuse, and time of computing outputs."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._inductor import config as inductor

from dynbatch.harness.contracts.model import Model
from dynbatch.harness.contracts.system import System
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from dynbatch.harness.measuring.clock import NullClock
from dynbatch.systems.on_torch import layers
from dynbatch.systems.on_torch.autograd import Adapter as Autograd
from dynbatch.systems.on_torch.compiled import Adapter as Compiled
from dynbatch.systems.on_torch.eager import Adapter as Eager
from dynbatch.systems.on_torch.fused import Adapter as Fused
from dynbatch.systems.on_torch.geometric import Adapter as Geometric
from dynbatch.systems.on_torch.levels import Adapter as Levels
from dynbatch.systems.on_torch.torchfold import Adapter as TorchFold
from tests.support.instances import draw_trees
from tests.support.processes import run_python
from tests.support.refusals import check_line
from tests.support.run_adapter import CASES, SIZES, assert_alike, found_by, small_settings, started

Patch = pytest.MonkeyPatch


def prepared(
    adapter: type[System], case: str, mode: str = "train", **options: Any
) -> tuple[System, list[Any]]:
    return started(adapter, CASES[case].model, mode, **options), CASES[case].instances


def no_gradient(*_: Any) -> torch.Tensor:
    raise AssertionError("inference computes a gradient")


@pytest.mark.parametrize("case", ["var_lstm", "var_lstm_layers", "bilstm", "seq2seq", "parser"])
def test_inference_finds_the_same_without_gradients(monkeypatch: Patch, case: str) -> None:
    monkeypatch.setattr(layers, "SLICE_ROWS", 3)
    wanted = found_by(*prepared(Levels, case))
    monkeypatch.setattr(layers, "to_loss_gradient", no_gradient)
    found = found_by(*prepared(Levels, case, "infer"))
    assert_alike(found, {name: wanted[name] for name in ("loss", "outputs")}, 1e-6)


@pytest.mark.parametrize("case", ["var_lstm", "seq2seq", "parser"])
def test_outputs_are_those_of_the_weights_before_the_step(case: str) -> None:
    system, instances = prepared(Levels, case)
    before = found_by(system, instances)["outputs"]
    system.run(NullClock(), update=True)
    assert compute_relative_error(system.result().outputs, before) < 1e-6
    assert compute_relative_error(found_by(system, instances)["outputs"], before) > 1e-3


def test_memory_that_is_kept_holds_nothing_of_the_mini_batch_before() -> None:
    """A small mini-batch after a large one has the same results as a first one."""
    system, _ = prepared(Levels, "mv_rnn")
    small, large = draw_trees(SIZES, (3, 1)), draw_trees(SIZES, (9, 4, 13))
    wanted = found_by(system, small)
    found_by(system, large)
    for name, value in found_by(system, small).items():
        assert np.array_equal(value, wanted[name]), name


def test_generated_code_is_in_a_directory_of_the_process(tmp_path: Path) -> None:
    """PyTorch Geometric writes the code of a layer where temporary files are."""
    program = (
        "from dynbatch.systems.on_torch.geometric import Adapter\n"
        "from tests.support.run_adapter import CASES, started\n"
        "started(Adapter, CASES['tree_lstm'].model)"
    )
    run_python("-c", program, TMPDIR=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(("case", "mode"), [("tree_lstm", "train"), ("var_lstm", "infer")])
def test_new_sizes_compile_nothing_again(case: str, mode: str) -> None:
    system, instances = prepared(Compiled, case, mode)
    assert inductor.compile_threads == 1  # a pool would still start in the turns of other systems
    n_before = system.n_compilations()
    assert n_before > 0
    for chosen in (instances, instances[:1], instances[2:], instances[1:3], instances[:2]):
        found_by(system, chosen)
    assert system.n_compilations() == n_before


@pytest.mark.parametrize(
    ("adapter", "case", "words"),
    [
        (Fused, "tree_lstm", "whole sentences"),
        (Fused, "seq2seq", "whole sentences"),
        (Compiled, "tree_gru", "LSTM cells"),
    ],
)
def test_unsupported_trial_has_a_reason(adapter: type[System], case: str, words: str) -> None:
    model: Model = CASES[case].model
    check_line(str(adapter.skip(model, small_settings())), (words, model.name))


def test_no_compiler_is_a_reason(monkeypatch: Patch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "C++ compiler" in str(Compiled.skip(CASES["var_lstm"].model, small_settings()))
    on_cuda = small_settings(device="cuda")
    assert "install gcc, or set CC" in str(Compiled.skip(CASES["var_lstm"].model, on_cuda))
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "clang" else None)
    assert "compiler" not in str(Compiled.skip(CASES["var_lstm"].model, on_cuda))


def test_packed_input_makes_no_buckets() -> None:
    with pytest.raises(ConfigError, match=r"buckets=2 .*input=padded"):
        Fused(small_settings(input="packed", buckets=2))


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """Objects that only the collector of cycles frees, once it is called."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize(
    ("adapter", "case"),
    [
        *((Levels, case) for case in ("tree_lstm", "tree_gru", "mv_rnn", "tree_fc_fold")),
        *((Levels, case) for case in ("tree_lstm_2type", "var_lstm", "bilstm_layers")),
        *((system, "tree_lstm_child_sum") for system in (Levels, Eager, TorchFold)),
        *((Levels, case) for case in ("bilstm_char", "seq2seq", "parser")),
        *((Levels, case) for case in ("lattice_lstm", "lattice_gru", "gated_lattice_lstm")),
        *((Fused, case) for case in ("var_lstm", "bilstm")),
        *((Eager, case) for case in ("tree_lstm", "tree_gru", "mv_rnn", "var_lstm")),
        (Eager, "gated_lattice_lstm"),
        *((Autograd, case) for case in ("tree_lstm", "tree_lstm_2type", "tree_gru")),
        *((TorchFold, case) for case in ("tree_lstm", "tree_fc_cavs", "tree_gru")),
        *((Geometric, case) for case in ("tree_lstm", "tree_lstm_child_sum")),
    ],
)
def test_no_tensor_is_left_to_the_collector(
    adapter: type[System], case: str, garbage: list[object]
) -> None:
    system, instances = prepared(adapter, case)
    gc.collect()
    garbage.clear()  # from building the system
    for _ in range(3):
        system.load(instances)
        system.run(NullClock())
    gc.collect()
    assert [type(one) for one in garbage if isinstance(one, torch.Tensor)] == []
