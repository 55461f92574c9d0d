"""Updates of the CUDA backend: steps, grouped words and sums of gradients, in which phase each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dynbatch.harness.engine.backends.cuda.gradients import MAX_PARTS, WANTED_TILES, place_sums
from dynbatch.harness.engine.backends.cuda.kinds import SumKind, TileKind, Tiling, UnbatchedKind
from dynbatch.harness.engine.backends.cuda.updates import build_updates
from dynbatch.harness.engine.backends.cuda.words import GradientOf, PartialOf, group_by_word
from dynbatch.harness.vertex.subgraph.columns import Pack, ParameterPart
from tests.support.walked_backend import walked_setting


@settings(deadline=None)  # the first call compiles
@given(st.lists(st.integers(0, 7)))
def test_positions_are_grouped_by_word(chosen: list[int]) -> None:
    distinct, starts, order = group_by_word(np.array(chosen, dtype=np.int32), 8)
    assert distinct.tolist() == list(dict.fromkeys(chosen))
    groups = [order[a:b].tolist() for a, b in pairwise(starts)]
    assert groups == [[k for k, word in enumerate(chosen) if word == w] for w in distinct]


def test_steps_of_the_same_columns_are_in_different_phases() -> None:
    """As of a parameter that one function reads whole and another one in a pack."""
    first, second = ParameterPart("b", 0, 4), ParameterPart("b", 4, 4)
    packs = [Pack((first, ParameterPart("c", 0, 4))), Pack((second, first))]
    shapes = {"b": (8,), "c": (4,)} | {pack.name: (8,) for pack in packs}
    by_name = {pack.name: pack for pack in packs}
    updates = build_updates([], {"b", *by_name}, (), by_name, shapes)
    steps = [update for update in updates if isinstance(update.kind, TileKind)]
    assert len(steps) == 5
    for phase in range(3):
        columns = [
            (store.columns.array, store.columns.start + k)
            for step in steps
            if step.phase == phase and isinstance(step.kind, TileKind)
            for store in step.kind.stores
            for k in range(step.kind.width)
        ]
        assert len(set(columns)) == len(columns) > 0
    assert max(step.phase for step in steps) == 2


def test_an_update_follows_the_learning_rate() -> None:
    setting = walked_setting("tree_lstm")
    gradients = setting.backend.gradients()
    for rate in (0.5, 0.25):
        before = setting.backend.read_weights()
        setting.engine.update(rate)
        for name, weight in setting.backend.read_weights().items():
            expected = before[name] - np.float32(rate) * gradients[name]
            np.testing.assert_allclose(weight, expected, rtol=1e-6, atol=1e-6)


def make_sum(width: int, *, adds: bool = False, row: int = 0) -> SumKind:
    return SumKind(GradientOf("W"), 512, row, 0, 512, width, (), adds)


def test_few_sums_are_split_and_added_up_in_the_next_phase() -> None:
    placed = place_sums([make_sum(64), make_sum(64, row=512)], 2, Tiling())
    partial, total = placed[:2], placed[2:]
    arrays = [one.kind.gradient for one in partial if isinstance(one.kind, SumKind)]
    assert [one.phase for one in placed] == [2, 2, 3, 3]
    assert len(set(arrays)) == 2
    assert all(isinstance(array, PartialOf) and array.parts == MAX_PARTS for array in arrays)
    assert [one.n_rows for one in total] == [512, 512]


def test_many_sums_stay_whole() -> None:
    n_wide = 8 * WANTED_TILES // (512 // 64)  # blocks of 512 x 64
    (placed,) = place_sums([make_sum(64 * n_wide)], 0, Tiling())
    assert placed == UnbatchedKind(make_sum(64 * n_wide), 0)


def test_sums_that_add_run_one_after_another() -> None:
    placed = place_sums([make_sum(64, adds=True), make_sum(64, adds=True)], 1, Tiling())
    assert [one.phase for one in placed] == [1, 2]
    assert all(one.kind == make_sum(64, adds=True) for one in placed)
