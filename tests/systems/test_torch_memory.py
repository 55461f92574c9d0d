"""No mini-batch outlives the next: Python looks for no cycles while passes are timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from harness.contracts.model import initial_weights
from harness.contracts.system import RunSettings, System
from harness.measuring.clock import NullClock
from systems.on_torch.eager import Adapter as Eager
from systems.on_torch.fused import Adapter as Fused
from systems.on_torch.levels import Adapter as Levels
from systems.on_torch.torchfold import Adapter as TorchFold
from tests.support.run_adapter import CASES


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only the collector of cycles would free, once it is asked."""
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
        *((Levels, case) for case in ("bilstm_char", "seq2seq", "parser")),
        *((Levels, case) for case in ("lattice_lstm", "lattice_gru", "gated_lattice_lstm")),
        *((Fused, case) for case in ("var_lstm", "bilstm")),
        *((Eager, case) for case in ("tree_lstm", "tree_gru", "mv_rnn", "var_lstm")),
        (Eager, "gated_lattice_lstm"),
        *((TorchFold, case) for case in ("tree_lstm", "tree_fc_cavs", "tree_gru")),
    ],
)
def test_no_tensor_is_left_to_the_collector(
    adapter: type[System], case: str, garbage: list[object]
) -> None:
    system = adapter(
        RunSettings(mode="train", device="cpu", threads=1, batch_size=2, learning_rate=0.1, seed=0)
    )
    system.prepare(CASES[case].model, initial_weights(CASES[case].model, seed=0))
    gc.collect()
    garbage.clear()  # of building
    for _ in range(3):
        system.load(CASES[case].instances)
        system.run(NullClock())
    gc.collect()
    assert [type(one) for one in garbage if isinstance(one, torch.Tensor)] == []
