"""What holds for generated code alone: where it runs, what it counts, how many calls it takes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from harness.contracts.model import initial_weights
from harness.engine.backend import backend_class, choose_backend
from harness.engine.backends.compiled import backend as compiled
from harness.engine.backends.compiled import parameters
from harness.engine.cpu_kernels import blas, cycles
from harness.engine.cpu_kernels.blas import multiplying
from harness.engine.switches import Switches
from harness.errors import UnsupportedTrial
from harness.oracle import run_reference
from harness.values.places import ROOT
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import (
    NoClock,
    disagreements,
    interpreted_kernels,
    prepared,
    run,
)
from tests.support.sketches import Sketch


def test_generated_code_is_not_for_cuda() -> None:
    with pytest.raises(UnsupportedTrial, match=r"not for device=cuda; use backend=stepwise"):
        choose_backend(Switches(backend="compiled"), "cuda")


def test_only_generated_code_tells_what_it_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedTrial, match=r"profile=true .*use backend=compiled on a CPU"):
        choose_backend(Switches(backend="stepwise", profile=True), "cpu")
    monkeypatch.setattr(cycles, "READABLE", False)
    assert choose_backend(Switches(), "cpu") is compiled.Backend
    with pytest.raises(UnsupportedTrial, match="counter of x86 processors"):
        choose_backend(Switches(profile=True), "cpu")


def test_without_a_library_that_multiplies_there_is_no_generated_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blas, "LIBRARY", None)
    with pytest.raises(UnsupportedTrial, match="no library with sgemm was found"):
        choose_backend(Switches(), "cpu")
    assert choose_backend(Switches(backend="stepwise"), "cpu") is backend_class("stepwise")


def test_without_a_compiler_there_is_no_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told what to install."""
    name = "harness.engine.backends.compiled.backend"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(UnsupportedTrial, match=r"backend=compiled needs numba, .*; install it"):
        choose_backend(Switches(), "cpu")


def test_torchs_operators_multiply_with_libraries_of_their_own() -> None:
    with pytest.raises(UnsupportedTrial, match=r"libraries of its own; use blas=auto"):
        choose_backend(Switches(backend="stepwise", blas="openblas"), "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["openblas", "torch"])
def test_it_computes_the_same_with_any_library(library: str) -> None:
    switches = Switches(blas=library)
    try:
        choose_backend(switches, "cpu")
    except UnsupportedTrial as error:
        pytest.skip(str(error))
    model, instances, weights = example("tree_lstm")
    adapter = prepared(model, weights, switches)
    found = run(adapter, instances)
    assert disagreements(found, run_reference(model, weights, instances, "train")) == []
    assert adapter.in_force()["blas"] == multiplying(library, 1).names


@pytest.mark.parametrize("name", ["lattice_lstm", "gated_lattice_lstm", "tree_lstm", "mv_rnn"])
def test_equal_plans_are_counted_alike(name: str) -> None:
    """Whoever runs them, in one call or batch by batch."""
    model, instances, weights = example(name)
    fused, apart = [], []
    with interpreted_kernels():
        for loop in ("compiled", "python"):
            fused.append(run(prepared(model, weights, Switches(loop=loop)), instances).counters)
            switches = Switches(loop=loop, fusion=False)
            apart.append(run(prepared(model, weights, switches), instances).counters)
    apart.append(run(prepared(model, weights, Switches(backend="stepwise")), instances).counters)
    assert fused[0] == fused[1]
    assert apart[0] == apart[1] == apart[2]


@pytest.mark.parametrize("name", ["lattice_lstm", "tree_lstm"])
@pytest.mark.slow
def test_machine_code_agrees_with_the_oracle_in_one_call_and_batch_by_batch(name: str) -> None:
    model, instances, weights = example(name)
    oracle = run_reference(model, weights, instances, "train")
    for loop in ("compiled", "python"):
        adapter = prepared(model, weights, Switches(loop=loop), "agenda")
        assert disagreements(run(adapter, instances), oracle) == [], loop
        calls = {"compiled": "one call a pass", "python": "one call a batch"}[loop]
        assert adapter.in_force()["calls"] == calls


def test_functions_that_keep_joining_get_loops_of_their_own() -> None:
    model, _ = EXAMPLES["child_sum"]
    weights = initial_weights(model, 7)
    with interpreted_kernels():
        adapter = prepared(model, weights, Switches(granularity="operator"), "agenda")
        calls = []
        for n_children in range(2, 10):
            leaves = [("vertex", []) for _ in range(n_children)]
            mini_batch = [Sketch([*leaves, ("vertex", list(range(n_children)))])]
            result = run(adapter, mini_batch)
            assert disagreements(result, run_reference(model, weights, mini_batch, "train")) == []
            calls.append(adapter.in_force()["calls"])
    assert calls[0] == "one call a pass"
    assert calls[-1] == "one function at a time"
    assert sorted(calls) == calls


def test_generated_code_runs_where_torch_is_not_installed() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from harness.contracts.model import initial_weights\n"
        "from tests.support.engine_models import EXAMPLES\n"
        "from tests.support.engine_runs import interpreted_kernels, prepared, run\n"
        "model, instances = EXAMPLES['tree_lstm']\n"
        "with interpreted_kernels():\n"
        "    adapter = prepared(model, initial_weights(model, 7))\n"
        "    run(adapter, instances, update=True)\n"
        "print(adapter.in_force()['backend'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["compiled"]


@pytest.mark.parametrize(("n_times", "copies"), [(1, False), (60, True)])
def test_few_rows_are_multiplied_with_weights_as_they_lie(
    monkeypatch: pytest.MonkeyPatch, n_times: int, copies: bool
) -> None:
    """A copy of W^T is made for a mini-batch where it pays, and then after every update."""
    model, instances, weights = example("tree_lstm")
    many, made, transpose = list(instances) * n_times, [], parameters.transpose

    def counted(matrix: Any, out: Any) -> None:
        made.append(matrix.shape)
        transpose(matrix, out)

    monkeypatch.setattr(parameters, "transpose", counted)
    with interpreted_kernels():
        adapter = prepared(model, weights)
        for _ in range(2):
            n_before = len(made)
            now = {k: np.array(v) for k, v in adapter.parameters().items()}
            found = run(adapter, many)
            assert disagreements(found, run_reference(model, now, many, "train")) == []
            assert (len(made) > n_before) == copies
            adapter.run(NoClock())
