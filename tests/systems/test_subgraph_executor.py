"""Execution of blocks: results agree with the reference, and copies are exactly as planned."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import yaml

from dynbatch.harness.contracts.model import Model, ModelSizes, Weights, draw_initial_weights
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.measuring.checks.reference_check import compute_relative_error
from dynbatch.harness.models.cell import CELLS, CellModel
from dynbatch.harness.reference import run_reference
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.systems.on_core.subgraph import Adapter, BlockExecutor
from tests.support import engine_runs
from tests.support.engine_models import tree
from tests.support.fake_time import NullClock
from tests.support.instances import PAIRS, build

SIZES = ModelSizes(6, {"words": 5, "classes": 5})
SWITCHES = [
    {"layout": layout, "ahead_of_time": ahead, "pre_gather": pre_gather}
    for layout, ahead, pre_gather in product(("dynet", "pq"), (True, False), (True, False))
]


def prepared(cell: str, **options: object) -> tuple[Adapter, Model, Weights]:
    model = CellModel(SIZES, cell=cell)
    weights = {k: np.float32(2.0) * w for k, w in draw_initial_weights(model, 3).items()}
    adapter = Adapter(RunSettings("infer", "cpu", 1, len(PAIRS), 0.1, 0, options=options))
    adapter.prepare(model, weights)
    return adapter, model, weights


@pytest.mark.parametrize("cell", CELLS)
def test_results_agree_with_the_reference_and_copies_are_as_planned(cell: str) -> None:
    for options in SWITCHES:
        adapter, model, weights = prepared(cell, **options)
        for instances in (PAIRS, PAIRS[1:2], PAIRS[::-1]):  # buffers of several sizes, reused
            adapter.load(instances)
            for _ in range(2):  # counters are for one call
                adapter.run(NullClock())
            result, reference = adapter.result(), run_reference(model, weights, instances, "infer")
            assert compute_relative_error(result.outputs, reference.outputs) < 1e-5, options
            assert result.loss == pytest.approx(reference.loss, abs=1e-4)
            counters, plan = adapter.counters(), adapter.plan
            assert counters.n_copies == plan.n_copies
            assert counters.bytes_copied == plan.count_copied_bytes(len(instances))
            assert counters.n_batches == len(plan.layout.batches)
            assert counters.n_launches == plan.n_launches


def address(executor: BlockExecutor, i: int) -> tuple[int, int]:
    """Return the start and the end of a value in memory."""
    value = executor.read_value(i)
    assert value.flags.c_contiguous
    begin = value.__array_interface__["data"][0]
    return begin, begin + value.nbytes


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("layout", ["dynet", "pq"])
def test_operands_read_in_place_are_one_piece_of_memory(cell: str, layout: str) -> None:
    adapter, _, _ = prepared(cell, layout=layout)
    adapter.load(PAIRS)
    plan, executor = adapter.plan, adapter.executor
    copied = {(copy.batch, copy.operand) for copy in plan.gathers}
    n_in_place = 0
    for place, batch in enumerate(plan.layout.batches):
        in_place = [o for k, o in enumerate(batch.operands) if (place, k) not in copied]
        for values in (batch.members, *in_place):
            if len(set(values)) > 1:
                n_in_place += 1
                places = [address(executor, i) for i in values]
                assert all(end == begin for (_, end), (begin, _) in pairwise(places))
    assert n_in_place >= 1


def test_parameters_gathered_beforehand_are_read_from_there() -> None:
    adapter, _, weights = prepared("lstm", pre_gather=True)
    weights["U_o"][:] = np.nan  # the block has its own copies
    adapter.load(PAIRS)
    adapter.run(NullClock())
    assert np.isfinite(adapter.result().outputs).all()


def test_unsupported_trial_is_skipped_with_a_reason() -> None:
    cell = CellModel(SIZES)
    inference = RunSettings("infer", "cpu", 1, 1, 0.1, 0)
    assert Adapter.skip(cell, inference) is None
    assert "model=cell" in str(Adapter.skip(build("tree_lstm", SIZES), inference))
    assert "mode=infer" in str(Adapter.skip(cell, RunSettings("train", "cpu", 1, 1, 0.1, 0)))
    assert "device=cpu" in str(Adapter.skip(cell, RunSettings("infer", "cuda", 1, 1, 0.1, 0)))


def test_every_preset_is_a_choice_of_its_own() -> None:
    found = [yaml.safe_load(p.read_text()) for p in (CONF_DIR / "system").glob("subgraph_*.yaml")]
    choices = [tuple(sorted(config["options"].items())) for config in found]
    assert len(set(choices)) == len(choices) == 6


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell != "mv"])
def test_the_engine_trains_cells(cell: str) -> None:
    """All cells except the one that joins matrices, which only blocks and the reference have."""
    _, model, weights = prepared(cell)
    adapter = engine_runs.prepared(model, weights, Switches(fusion=False))
    result = engine_runs.run(adapter, PAIRS)
    reference = run_reference(model, weights, PAIRS, "train")
    assert engine_runs.disagreements(result, reference) == []


def test_unsupported_cell_is_reported() -> None:
    with pytest.raises(ConfigError, match="two leaves, got 1; use dataset=complete_trees"):
        CellModel(SIZES).mini_batch([tree([1], [-1], [-1])])
    with pytest.raises(ConfigError, match="cell=mgu is unknown; choose one of gru, lstm, mv"):
        CellModel(SIZES, cell="mgu")
    with pytest.raises(ConfigError, match="embedding_size=5 is not allowed"):
        CellModel(ModelSizes(6, {"words": 5}, embedding_size=5))
