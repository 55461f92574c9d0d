"""PyTorch on lattices: where rows lie, when words are computed, and that no batch is wasted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
import torch

from harness.contracts.model import ModelSizes
from harness.models.parts.lattices import joined_arcs
from harness.values.instances import Lattice
from systems.on_torch.parts.lattice_rows import LatticeRows, batch_points, lattice_rows
from tests.support.lattices import LATTICES
from tests.support.run_adapter import random_lattice

CPU = torch.device("cpu")
SIZES = ModelSizes(6, {"words": 11, "characters": 8, "classes": 4})
MINI_BATCHES = (
    LATTICES,
    LATTICES[2:3],
    tuple(random_lattice(n, SIZES, np.random.default_rng(n)) for n in (9, 1, 14, 14, 3)),
)


@pytest.fixture(params=MINI_BATCHES, ids=["small", "no words", "random"])
def lattices(request: pytest.FixtureRequest) -> Sequence[Lattice]:
    return request.param


@pytest.fixture
def plan(lattices: Sequence[Lattice]) -> LatticeRows:
    return lattice_rows(lattices, CPU)


def test_every_state_has_a_row_and_keeps_its_label(
    plan: LatticeRows, lattices: Sequence[Lattice]
) -> None:
    tags = np.concatenate([lattice.tags for lattice in lattices])
    assert sorted(plan.order) == list(range(len(tags)))
    assert plan.labels.tolist() == tags[plan.order].tolist()


def test_every_arc_of_the_lattices_is_planned_once(
    plan: LatticeRows, lattices: Sequence[Lattice]
) -> None:
    """Characters by the rows of both states and their ids, and so words."""
    arcs = joined_arcs(lattices)
    wanted = set(zip(arcs.source, arcs.target, arcs.rank > 0, arcs.token, strict=True))
    order, rows = plan.order, range(plan.k, len(plan.order))
    before, ids = plan.before.tolist(), plan.characters.tolist()
    found = [(order[b], order[r], False, i) for b, r, i in zip(before, rows, ids, strict=True)]
    ends = zip(plan.sources.tolist(), plan.targets.tolist(), plan.words.tolist(), strict=True)
    found += [(order[source], order[target], True, i) for source, target, i in ends]
    assert len(found) == len(arcs.source)
    assert set(found) == wanted


def test_nothing_is_read_before_it_is_complete(plan: LatticeRows) -> None:
    """Words first, then characters: a state is complete when its last arc is."""
    missing = np.bincount(plan.targets, minlength=len(plan.order)) + 1  # and its character
    missing[: plan.k] = 0
    rows, words = (np.cumsum([0, *sizes]) for sizes in (plan.sizes, plan.word_sizes))
    for step in plan.steps:
        if step.words is not None:
            batch = slice(*words[step.words : step.words + 2])
            assert not missing[plan.sources[batch]].any()
            np.subtract.at(missing, plan.targets[batch].numpy(), 1)
        own = np.arange(*rows[step.number : step.number + 2])
        before = plan.before[own - plan.k].numpy()
        assert before.tolist() == (rows[step.number - 1] + np.arange(len(own))).tolist()
        assert not missing[before].any()
        missing[own] -= 1
        assert step.joins == np.isin(plan.targets, own).any()
    assert not missing.any()


@pytest.mark.parametrize("seed", range(20))
def test_no_fewer_batches_of_words_do(seed: int) -> None:
    """Against all choices of steps, for words of few steps."""
    random = np.random.default_rng(seed)
    n_steps, n_words = 8, int(random.integers(0, 7))
    begins = random.integers(0, n_steps - 2, n_words)
    ends = np.minimum(begins + 2 + random.integers(0, 3, n_words), n_steps - 1)
    newest = np.full(n_steps, -1)
    np.maximum.at(newest, ends, begins)
    points = batch_points(newest).tolist()
    assert serves(points, begins, ends)
    for fewer in combinations(range(n_steps), max(0, len(points) - 1)):
        assert not serves(fewer, begins, ends) or not points


def serves(points: Sequence[int], begins: np.ndarray, ends: np.ndarray) -> bool:
    """Whether every word has a step behind its begin and up to its end."""
    return all(
        any(begin < point <= end for point in points)
        for begin, end in zip(begins, ends, strict=True)
    )
