"""Blocks: what is compared is measured in one job, in interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.planning.artefacts import PlannedTrial
from harness.planning.blocks import Block, blocks_of, runtime_min
from harness.planning.ordering import point_of
from harness.planning.sittings import Sitting, sittings_of
from harness.trials.spec import Limits, TrialSpec

MakeSpec = Callable[..., TrialSpec]


@pytest.fixture
def sittings(make_spec: MakeSpec) -> tuple[Sitting, ...]:
    """A table of three systems in two rounds, a headline of two of them in three, and another."""

    def plan(systems: str, rounds: int, sizes: tuple[int, ...]) -> list[PlannedTrial]:
        return [
            PlannedTrial(
                make_spec(system=system, batch_size=size),
                {"system": system, "batch_size": size},
                (),
                rounds,
            )
            for size in sizes
            for system in systems
        ]

    plans = {"table": plan("abc", 2, (8, 16)), "headline": plan("ab", 3, (8, 16))}
    return sittings_of({**plans, "apart": plan("ab", 2, (32,))})


def a_second(_: TrialSpec) -> float:
    return 1.0


def points(block: Block) -> set[str]:
    return {point_of(sitting.trials[0].spec) for sitting in block.sittings}


@pytest.mark.parametrize("block_s", [0.1, 10.0, 1e6])
def test_each_step_is_in_one_block_and_a_point_in_no_two(
    sittings: tuple[Sitting, ...], block_s: float
) -> None:
    blocks = blocks_of(sittings, block_s, a_second)
    steps = [step for block in blocks for step in block.steps]
    assert sorted(steps) == sorted(step for sitting in sittings for step in sitting.steps)
    assert len(set(steps)) == len(steps)
    assert sum(len(points(block)) for block in blocks) == len(set().union(*map(points, blocks)))


def test_rounds_interleave_within_a_block(sittings: tuple[Sitting, ...]) -> None:
    for block in blocks_of(sittings, 1e6, a_second):
        rounds = [sitting.round for sitting in block.sittings]
        assert rounds == sorted(rounds)


def test_a_block_is_as_long_as_asked_or_as_its_point(sittings: tuple[Sitting, ...]) -> None:
    """A point of the table and the headline takes 8 steps: two rounds of three, and one of two."""
    assert [len(points(b)) for b in blocks_of(sittings, 0.1, a_second)] == [1, 1, 1]
    together = blocks_of(sittings, 16.0, a_second)
    assert sorted(len(points(b)) for b in together) == [1, 2]
    assert sorted(len(points(b)) for b in blocks_of(sittings, 15.9, a_second)) == [1, 1, 1]


def test_what_no_artefact_shares_stands_apart(sittings: tuple[Sitting, ...]) -> None:
    wanted = {block.artefacts for block in blocks_of(sittings, 1e6, a_second)}
    assert wanted == {frozenset({"table", "headline"}), frozenset({"apart"})}


def test_a_name_is_that_of_its_work(sittings: tuple[Sitting, ...]) -> None:
    names = [block.name for block in blocks_of(sittings, 1e6, a_second)]
    assert names == [block.name for block in blocks_of(sittings, 1e6, a_second)]
    assert len(set(names)) == len(names)
    assert all("/" not in name for name in names)
    assert {block.name for block in blocks_of(sittings[:-1], 1e6, a_second)} != set(names)


def test_a_job_may_take_three_times_as_planned_and_one_trial_its_limit(make_spec: MakeSpec) -> None:
    specs = [make_spec(limits=Limits(time_s=600.0)), make_spec(limits=Limits(time_s=60.0))]
    assert runtime_min(specs, lambda _: 120.0) == 5 + round((3 * 240 + 600) / 60)
