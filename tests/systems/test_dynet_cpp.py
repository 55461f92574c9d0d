"""DyNet's programs in C++: pieces of weights, graphs, and the clock in them.

All systems are compared with the reference in test_systems_agree, which covers the columns, too.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.contracts.model import Model, draw_initial_weights
from dynbatch.harness.contracts.system import load_adapter
from dynbatch.systems.on_dynet import build
from dynbatch.systems.on_dynet.cpp import adapter as cpp
from dynbatch.systems.on_dynet.lstm_gates import MAX_FUSED
from tests.support.fake_time import NullClock
from tests.support.instances import build as build_model
from tests.support.processes import run_python
from tests.support.run_adapter import CASES, SIZES, UNEQUAL, small_settings, started

NATIVE = build.SOURCE_BUILDS["cpu"]
NOT_BUILT = build.explain_missing_build()
ON_BUILD = pytest.mark.skipif(NOT_BUILT is not None, reason=str(NOT_BUILT))
NAMES = (
    *("tree_lstm", "tree_lstm_child_sum", "tree_fc_fold", "tree_fc_cavs", "lattice_lstm"),
    *("var_lstm_layers", "bilstm_layers", "bilstm_char", "seq2seq", "seq2seq_at_once", "parser"),
)
NEXT_PASS = "--- next pass"
MODELS = {name: CASES[name].model for name in NAMES}
LARGE_SIZES = [replace(UNEQUAL, hidden_size=size) for size in (MAX_FUSED, MAX_FUSED + 1)]
LARGE = [build_model("lattice_lstm", sizes) for sizes in LARGE_SIZES]


@pytest.mark.parametrize("model", [*MODELS.values(), *LARGE], ids=lambda model: model.name)
def test_weights_are_joined_again_from_their_pieces(model: Model) -> None:
    weights, own_inputs = draw_initial_weights(model, seed=0), cpp.PROGRAMS[model.name]
    found = pieces_of(model)
    assert set(own_inputs.tables) & set(weights) <= set(found)
    for whole, (n, axis) in own_inputs.cuts.items():
        if whole in own_inputs.fused:
            continue
        parts = [found[f"{whole}.{k}"] for k in range(n)]
        assert len({part.shape for part in parts}) == 1
        assert np.array_equal(np.concatenate(parts, axis=axis), weights[whole])
    again = cpp.join_pieces(weights, own_inputs, lambda piece: found[piece.name])
    assert set(again) == set(weights)
    for weight, values in weights.items():
        assert np.array_equal(again[weight], values), weight


@pytest.mark.parametrize(("model", "is_fused"), list(zip(LARGE, (True, False), strict=True)))
def test_matrices_of_gates_are_joined_once_if_one_operator_computes_all(
    model: Model, is_fused: bool
) -> None:
    """A graph that joined them would copy them in every mini-batch, and their gradients back."""
    weights, found = draw_initial_weights(model, seed=0), pieces_of(model)
    for name in ("W_char", "U_char", "W_word", "U_word"):
        f, i, o, g = np.split(weights[name], 4, axis=-1)
        if is_fused:
            assert np.array_equal(found[name], np.concatenate([i, f, o, g], axis=-1))
        else:
            parts = [found[f"{name}.{k}"] for k in range(4)]
            assert np.array_equal(np.concatenate(parts, axis=-1), weights[name])
        assert (name in found) == is_fused


def pieces_of(model: Model) -> Mapping[str, Any]:
    weights = draw_initial_weights(model, seed=0)
    return dict(cpp.split_weights(weights, cpp.PROGRAMS[model.name]))


def test_a_model_without_a_program_is_skipped() -> None:
    reason = cpp.Adapter.skip(build_model("tree_gru", SIZES), small_settings())
    assert "PROGRAMS has no model tree_gru; choose one of bilstm, " in str(reason)
    reason = cpp.Adapter.skip(MODELS["parser"], small_settings(batching="manual"))
    assert "MANUAL has no model parser; choose one of bilstm" in str(reason)


PASSES = [*((name, "instance") for name in NAMES), ("bilstm_layers", "manual")]


def print_batches(adapter: str, autobatch: str) -> None:
    """Let DyNet print every batch of a training pass of each model, in the order of execution."""
    build_of = {} if adapter == cpp.__name__ else {"build": "source"}
    for name, batching in PASSES:
        options = {"autobatch": autobatch, "batching": batching, **build_of}
        system = started(load_adapter(adapter), MODELS[name], **options)
        system.load(CASES[name].instances)
        library = ctypes.CDLL(str(NATIVE / "libdynet.so"))
        ctypes.c_int.in_dll(library, "_ZN5dynet14profiling_flagE").value = 2
        print(NEXT_PASS, flush=True)
        system.run(NullClock())


@cache
def batches_of(adapter: str, autobatch: str) -> list[list[str]]:
    """Return the lines of each of PASSES, run in one process; forward calls start with a line."""
    program = f"import sys\nfrom {__name__} import print_batches\nprint_batches(*sys.argv[1:])"
    printed = run_python("-c", program, adapter, autobatch, OMP_NUM_THREADS="1")
    _, *passes = re.sub(r" @ 0x\w+", "", printed).split(f"{NEXT_PASS}\n")
    line = re.compile(r"^(?:Forward Call|BatchSize:.*)$", re.MULTILINE)
    return [line.findall(one) for one in passes]


@pytest.mark.slow
@pytest.mark.dynet
@ON_BUILD
@pytest.mark.parametrize("autobatch", ["agenda", "depth"])
@pytest.mark.parametrize("place", range(len(PASSES)), ids=["-".join(one) for one in PASSES])
def test_graphs_are_those_of_python_after_a_clock(place: int, autobatch: str) -> None:
    """The first node of every forward call, which reads the clock, is the only difference."""
    found = batches_of(cpp.__name__, autobatch)[place]
    calls = [k for k, line in enumerate(found) if line == "Forward Call"]
    assert calls
    for call in calls:
        assert found[call + 1] == "BatchSize:1 first"
    clocks = Counter({"BatchSize:1 first": len(calls)})
    expected = batches_of("dynbatch.systems.on_dynet.autobatch", autobatch)[place]
    assert Counter(found) - clocks == Counter(expected)
