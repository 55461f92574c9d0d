"""The CUDA backend's kernels in Triton's interpreter, where tiles do not fit the sizes.

tests/engine/test_backends.py runs the same with the tiles that a GPU gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import harness.engine.engine
from harness.contracts.model import Model, ModelSizes, Weights, initial_weights
from harness.contracts.policy import load_policy
from harness.engine.backends.cuda import backend as cuda
from harness.engine.backends.cuda.backend import Backend
from harness.engine.backends.cuda.tiles import MANY, Tile, Tiling
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.vertices import VertexModel
from harness.models.lattice_gru import LatticeGRU
from harness.models.mv_rnn import MVRNN
from harness.models.tree_gru import TreeGRU
from harness.models.tree_lstm import TreeLSTM
from harness.oracle import ReferenceResult, run_reference
from harness.policies.parts.rounds import schedule_in_rounds
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import ONE_BY_ONE
from tests.support.lattices import LATTICES
from tests.support.sketch_trees import trees
from tests.support.walked_backend import PoisonedMemory, WalkedBackend

# Tiles so small that few values fit any; products of more than two rows are of the other kind.
SMALL = Tiling(
    products=((2, Tile(2, 4, 8, spread=True)), (MANY, Tile(16, 16, 16))),
    plain=Tile(8, 4, 1),
    sums=Tile(16, 16, 16),
    wide_rows=Tile(4, 2, 1),
)


class SmallTiles(Backend):
    """Small tiles, and memory that shows what was never written."""

    tiling = SMALL

    def load(self, weights: Weights) -> None:
        self._memory = PoisonedMemory(weights, self._device)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if (reason := Backend.why_not(Switches(), "cpu")) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: SmallTiles)
    with np.errstate(all="ignore"):  # rows that are masked out are computed with all the same
        yield


def check(
    model: Model,
    instances: Sequence[Any],
    switches: Switches | None = None,
    mode: str = "train",
    policy: str = "agenda",
) -> None:
    """One mini-batch against the oracle."""
    switches = switches or Switches()
    weights = initial_weights(model, 7)
    graph_model = VertexModel(
        model, share_equal_inputs=switches.share_equal_inputs, outputs=switches.outputs
    )
    outputs = [] if graph_model.output is None else [graph_model.output]
    train = mode == "train"
    engine = Engine(graph_model.functions, outputs, weights, switches, "cpu", train=train)
    mini_batch = graph_model.mini_batch(instances)
    engine.arrange(mini_batch, schedule_in_rounds(load_policy(policy), mini_batch.graph))
    engine.forward()
    oracle: ReferenceResult = run_reference(model, weights, instances, mode)
    np.testing.assert_allclose(engine.loss(), oracle.loss, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(engine.outputs(), oracle.outputs, rtol=2e-4, atol=2e-5)
    if train:
        engine.backward()
        found = engine.backend.gradients()
        for key, gradient in oracle.gradients.items():
            scale = max(1e-3, float(np.abs(gradient).max(initial=0.0)))
            np.testing.assert_allclose(found[key] / scale, gradient / scale, atol=3e-5, err_msg=key)


@pytest.mark.parametrize("hidden_size", [5, 20, 37])
@pytest.mark.parametrize("kind", [TreeLSTM, TreeGRU])
def test_sizes_need_not_fit_tiles(
    kind: type[TreeLSTM | TreeGRU], hidden_size: int, interpreted: None
) -> None:
    sizes = ModelSizes(hidden_size, {"words": 11, "classes": 5}, embedding_size=hidden_size)
    check(kind(sizes), trees(sizes, (1, 9, 4)))


@pytest.mark.slow
def test_batches_of_one_and_of_hundreds(interpreted: None) -> None:
    sizes = ModelSizes(6, {"words": 11, "classes": 5})
    check(TreeLSTM(sizes), trees(sizes, (1,)))
    check(TreeLSTM(sizes), trees(sizes, [3] * 100))


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_states_with_several_readers(mode: str, interpreted: None) -> None:
    sizes = EXAMPLES["lattice_gru"][0].sizes
    check(LatticeGRU(sizes), list(LATTICES), mode=mode)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_matrix_of_every_vertex(mode: str, interpreted: None) -> None:
    sizes = ModelSizes(5, {"words": 7, "classes": 3})
    check(MVRNN(sizes), trees(sizes, (5, 3)), mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tree_lstm", "child_sum"])
@pytest.mark.parametrize("switches", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_every_switch_in_the_interpreter(
    name: str, switches: dict[str, Any], interpreted: None
) -> None:
    model, instances = EXAMPLES[name]
    check(model, instances, Switches(**switches))


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("switches", ONE_BY_ONE.values(), ids=ONE_BY_ONE)
def test_every_switch_and_model(
    name: str, switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walked by NumPy, since Triton's interpreter takes seconds."""
    if name == "passes_on" and switches.get("outputs") == "vertices":
        pytest.skip("its loss reads states that are not pushed")
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: WalkedBackend)
    model, instances = EXAMPLES[name]
    for mode in ("train", "infer"):
        check(model, instances, Switches(**switches), mode, policy="frontier")


def test_why_it_cannot_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(cuda.util, "find_spec", lambda _: object())
    for switches, device, words in (
        (Switches(profile=True), "cuda", "use backend=compiled on a CPU"),
        (Switches(blas="openblas"), "cuda", "use blas=auto"),
        (Switches(granularity="operator"), "cuda", "use backend=stepwise"),
        (Switches(), "cpu", "TRITON_INTERPRET=1"),
    ):
        assert words in str(Backend.why_not(switches, device))
    monkeypatch.setattr(cuda.util, "find_spec", lambda _: None)
    assert "pip install triton" in str(Backend.why_not(Switches(), "cuda"))
