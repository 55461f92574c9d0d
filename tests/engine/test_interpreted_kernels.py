"""The CUDA backend's kernels in Triton's interpreter, where tiles do not fit the sizes.

tests/engine/test_backends.py runs the same with the tiles that a GPU gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import harness.engine.engine
from harness.contracts.model import Model, ModelSizes, Weights, initial_weights
from harness.engine.backends.cuda import backend as cuda
from harness.engine.backends.cuda.backend import Backend
from harness.engine.backends.cuda.tiles import MANY, Tile, Tiling
from harness.engine.switches import Switches
from harness.models.lattice_gru import LatticeGRU
from harness.models.mv_rnn import MVRNN
from harness.models.tree_gru import TreeGRU
from harness.models.tree_lstm import TreeLSTM
from harness.oracle import run_reference
from harness.values.precision import TOLERANCES
from tests.support.drawn_trees import trees
from tests.support.engine_models import EXAMPLES
from tests.support.engine_runs import ONE_BY_ONE, disagreements, prepared, run
from tests.support.lattices import LATTICES
from tests.support.walked_backend import PoisonedMemory, WalkedBackend

# Tiles so small that few values fit any; products of more than two rows are of the other kind.
SMALL = Tiling(
    products=((2, Tile(2, 4, 8, spread=True)), (MANY, Tile(16, 16, 16))),
    plain=Tile(8, 4, 1),
    sums=Tile(16, 16, 16),
    wide_rows=Tile(4, 2, 1),
)


TOLERANCE = 3e-5  # of float32, as in the contract of backends


class SmallTiles(Backend):
    """Small tiles, and memory that shows what was never written."""

    tiling = SMALL

    def _make_memory(self, weights: Weights) -> PoisonedMemory:
        return PoisonedMemory(weights, self._device)


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if (reason := Backend.why_not(Switches(), "cpu")) is not None:
        pytest.skip(reason)
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: SmallTiles)
    with np.errstate(all="ignore"):  # rows that are masked out are computed with all the same
        yield


def wrong(
    model: Model,
    instances: Sequence[Any],
    switches: Switches | None = None,
    mode: str = "train",
    policy: str = "agenda",
    tolerances: Sequence[float] = (TOLERANCE,),
) -> list[str]:
    """What of one mini-batch is not the oracle's, within the last of the tolerances.

    Within those before it something must be wrong.
    """
    weights = initial_weights(model, 7)
    adapter = prepared(model, weights, switches, policy, mode)
    oracle = run_reference(model, weights, instances, mode)
    result = run(adapter, instances)
    *too_narrow, wide = (disagreements(result, oracle, tolerance) for tolerance in tolerances)
    assert all(too_narrow)
    return wide


# Below a tile; a tile and some; two tiles and some. Interpreting a size takes seconds.
@pytest.mark.parametrize(("kind", "hidden_size"), [(TreeLSTM, 5), (TreeGRU, 20), (TreeLSTM, 37)])
def test_sizes_need_not_fit_tiles(
    kind: type[TreeLSTM | TreeGRU], hidden_size: int, interpreted: None
) -> None:
    sizes = ModelSizes(hidden_size, {"words": 11, "classes": 5}, embedding_size=hidden_size)
    assert wrong(kind(sizes), trees(sizes, (1, 5, 3))) == []


def test_lower_precision_rounds_the_factors_of_products(interpreted: None) -> None:
    sizes = ModelSizes(20, {"words": 11, "classes": 5})
    switches, tolerances = Switches(precision="bf16"), (TOLERANCE, TOLERANCES["bf16"].array)
    assert wrong(TreeLSTM(sizes), trees(sizes, (5, 3)), switches, tolerances=tolerances) == []


@pytest.mark.slow
def test_batches_of_one_and_of_hundreds(interpreted: None) -> None:
    sizes = ModelSizes(6, {"words": 11, "classes": 5})
    assert wrong(TreeLSTM(sizes), trees(sizes, (1,))) == []
    assert wrong(TreeLSTM(sizes), trees(sizes, [3] * 50)) == []


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_states_with_several_readers(mode: str, interpreted: None) -> None:
    sizes = EXAMPLES["lattice_gru"][0].sizes
    assert wrong(LatticeGRU(sizes), list(LATTICES), mode=mode) == []


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_a_matrix_of_every_vertex(mode: str, interpreted: None) -> None:
    sizes = ModelSizes(5, {"words": 7, "classes": 3})
    assert wrong(MVRNN(sizes), trees(sizes, (5, 3)), mode=mode) == []


# Edges to several children at once change kernels where these do; NumPy walks all pairs below.
IN_THE_INTERPRETER = [
    *(("tree_lstm", switch) for switch in ONE_BY_ONE),
    *(("child_sum", switch) for switch in ("all", "lazy_batching", "fusion", "none")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "switch"), IN_THE_INTERPRETER)
def test_every_switch_in_the_interpreter(name: str, switch: str, interpreted: None) -> None:
    model, instances = EXAMPLES[name]
    assert wrong(model, instances, Switches(**ONE_BY_ONE[switch])) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_switch_and_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walked by NumPy, since Triton's interpreter takes seconds."""
    monkeypatch.setattr(harness.engine.engine, "choose_backend", lambda *_: WalkedBackend)
    model, instances = EXAMPLES[name]
    for switch, mode in product(ONE_BY_ONE, ("train", "infer")):
        switches = Switches(**ONE_BY_ONE[switch])
        if name == "passes_on" and switches.outputs == "vertices":
            continue  # its loss reads states that are not pushed
        assert wrong(model, instances, switches, mode, policy="frontier") == [], (switch, mode)


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
