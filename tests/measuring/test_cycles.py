"""Cycles: when a system has had enough passes, and what blocks gain over sequential rounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from dynbatch.harness.measuring.cycles import (
    EXTENSION,
    MAX_TURNS,
    Progress,
    estimate_error,
    find_fastest,
    list_unsettled,
    shuffle,
)
from dynbatch.harness.measuring.turns import PassReport
from dynbatch.harness.records.stats import compute_standard_error, summarize_rounds
from dynbatch.harness.records.turns import compute_ratio
from dynbatch.harness.trials.spec import Timing

Speed = Callable[[int, int], float]  # seconds of a member's pass in a cycle
# Simulated machine: the slowdown of a pass at a time, in seconds of work.
Machine = Callable[[np.random.Generator, np.ndarray], np.ndarray]


def run_cycles(timings: list[Timing], speed: Speed) -> dict[int, Progress]:
    """Run cycles until no member needs further passes."""
    progress = {number: Progress(timing) for number, timing in enumerate(timings)}
    for cycle in range(10 * MAX_TURNS):
        active = list_unsettled(progress)
        if not active:
            return progress
        for number in active:
            seconds = speed(number, cycle)
            progress[number].add(cycle, PassReport(seconds, seconds, False))
    raise AssertionError("the cycles do not end")


def timing(**values: float) -> Timing:
    return Timing(**{"min_seconds": 0.0, "min_passes": 3, "max_seconds": 1e6, **values})


def test_orders_are_random_and_reproducible() -> None:
    orders = [tuple(shuffle(range(3), "block", cycle)) for cycle in range(600)]
    assert orders == [tuple(shuffle([2, 0, 1], "block", cycle)) for cycle in range(600)]
    counts = Counter(orders)
    assert len(counts) == 6
    # Binomial: 100 of 600 each, with a standard deviation of 9.
    assert all(60 < n < 140 for n in counts.values())


def test_passes_go_on_until_the_ratio_is_known() -> None:
    rng = np.random.default_rng(0)
    noise = rng.lognormal(sigma=0.05, size=(2, 10_000))
    found = run_cycles(
        [timing(min_seconds=1e3)] * 2, lambda number, cycle: 1e2 * float(noise[number, cycle])
    )
    error = estimate_error(found[1], found[0])
    assert error <= 0.01 or found[1].timed_s >= EXTENSION * 1e3
    assert len(found[1].whole) > 10
    alone = run_cycles([timing(min_seconds=1e3)], lambda _, cycle: 1e2 * float(noise[0, cycle]))[0]
    assert estimate_error(alone) <= 0.01 or alone.timed_s >= EXTENSION * 1e3


def test_what_slows_both_alike_needs_no_further_passes() -> None:
    rng = np.random.default_rng(0)
    slowdown = rng.lognormal(sigma=0.5, size=10_000)
    speeds = timing(min_seconds=0.1, min_passes=5)
    pair = run_cycles([speeds] * 2, lambda number, cycle: (1 + number) * float(slowdown[cycle]))
    assert [len(each.whole) for each in pair.values()] == [5, 5]


def test_a_settled_system_rests_while_others_go_on() -> None:
    rng = np.random.default_rng(0)
    noise = rng.lognormal(sigma=0.1, size=10_000)
    speeds = [timing(min_seconds=200.0)] * 3
    found = run_cycles(
        speeds, lambda number, cycle: 10 * (1 + number) * float(noise[cycle] if number == 2 else 1)
    )
    n_passes = [len(each.whole) for each in found.values()]
    assert n_passes[1] < n_passes[2] <= n_passes[0], "the fastest is the base of all others"


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ({"min_seconds": 10.0}, EXTENSION * 10.0 + 1),
        ({"min_seconds": 1e5, "max_seconds": 30.0}, 31.0),
        ({"min_seconds": 1e7, "max_seconds": 1e7}, MAX_TURNS),
    ],
)
def test_passes_have_bounds(values: dict[str, float], most: float) -> None:
    rng = np.random.default_rng(0)
    noise = rng.lognormal(sigma=3.0, size=10_000)
    found = run_cycles([timing(**values)], lambda _, cycle: min(1.0, float(noise[cycle])))
    assert found[0].timed_s <= most
    assert found[0].n_turns <= MAX_TURNS


def test_disturbed_cycles_are_no_evidence() -> None:
    own, base = Progress(timing()), Progress(timing())
    for cycle in (0, 2, 3, 4, 6, 7, 8, 10, 11):
        own.add(cycle, PassReport(3.0 if cycle in (4, 7, 11) else 2.0, 2.0, cycle in (4, 7)))
        base.add(cycle, PassReport(1.0, 1.0, cycle == 11))
    assert estimate_error(own) == estimate_error(own, base) == 0.0
    for cycle, seconds in ((2, 1.2), (3, 1.0), (4, 3.0), (6, 1.5)):
        own.whole[cycle] = PassReport(seconds, seconds, False)
    assert estimate_error(own, base) > 0.0


@pytest.mark.parametrize("start", range(6))
def test_every_part_has_a_pass_of_each_kind(start: int) -> None:
    progress = Progress(timing(min_passes=1))
    cycle = start
    while list_unsettled({0: progress}):
        progress.add(cycle, PassReport(1.0, 1.0, False))
        cycle += 1
    assert progress.whole
    assert progress.n_turns > len(progress.whole)


def test_members_of_a_later_part_are_compared_with_the_first_ones_anchor() -> None:
    """Its budget is spent, and a newcomer is faster; still, they share their cycles."""
    limits = timing(max_seconds=10.0, min_passes=3)
    anchor, newcomer = Progress(limits), Progress(limits)
    for cycle in range(9):
        anchor.add(cycle, PassReport(2.0, 2.0, False))
    members = {0: anchor, 1: newcomer}
    for cycle in range(9, 30):
        active = list_unsettled(members, base=0)
        for number in active:
            members[number].add(cycle, PassReport(2.0 - number, 2.0 - number, False))
        if not active:
            break
    assert find_fastest(members) == 1
    assert len(anchor.whole.keys() & newcomer.whole.keys()) >= 3


def test_the_standard_error_is_that_of_a_median() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(2000, 40))
    estimated = np.median([compute_standard_error(values) for values in draws])
    assert estimated == pytest.approx(np.std(np.median(draws, axis=1)), rel=0.1)
    assert compute_standard_error([1.0] * 5) == math.inf


def drift(rng: np.random.Generator, now_s: np.ndarray) -> np.ndarray:
    """Slow, by up to half, over ten minutes."""
    return 1 + 0.25 * np.sin(now_s / 600 * 2 * np.pi + rng.uniform(0, 2 * np.pi))


def steps(rng: np.random.Generator, now_s: np.ndarray) -> np.ndarray:
    """Switch between two clock rates, every 40 s on average."""
    changes = np.cumsum(rng.exponential(40, size=1000))
    return 1 + 0.2 * (np.searchsorted(changes, now_s) % 2)


def bursts(rng: np.random.Generator, now_s: np.ndarray) -> np.ndarray:
    """Slow down threefold in one pass of ten."""
    return 1 + 2.0 * (rng.random(now_s.shape) < 0.1)


def measure_in_turns(rng: np.random.Generator, machine: Machine) -> float:
    """Return the ratio of two systems, 2 in truth, from a block on a simulated machine.

    Each process has an effect of its own with two humps, such as the place of its memory.
    """
    slowdown = machine(rng, np.arange(1000.0))
    noise = rng.lognormal(sigma=0.01, size=(2, 1000))
    processes = np.array([1.0, 2.0]) * rng.choice([0.99, 1.01], size=2)
    found = run_cycles(
        [timing(min_seconds=10.0, min_passes=10)] * 2,
        lambda number, cycle: float(
            processes[number] * noise[number, cycle] * slowdown[2 * cycle + number]
        ),
    )
    own, base = (
        {cycle: (done.seconds, done.is_disturbed) for cycle, done in found[number].whole.items()}
        for number in (1, 0)
    )
    return compute_ratio(own, base)


def measure_one_by_one(rng: np.random.Generator, machine: Machine) -> float:
    """Return the same ratio from two processes, one after the other."""
    slowdown = machine(rng, np.arange(60.0))
    processes = np.array([2.0, 1.0]) * rng.choice([0.99, 1.01], size=2)
    seconds = [
        processes[k] * slowdown[at : at + 20] * rng.lognormal(sigma=0.01, size=20)
        for k, at in enumerate((0, 40))
    ]
    return float(np.median(seconds[0]) / np.median(seconds[1]))


@pytest.mark.parametrize("machine", [drift, steps, bursts])
def test_intervals_of_blocks_cover_the_truth_and_are_narrower(machine: Machine) -> None:
    rng = np.random.default_rng(3)
    covered: list[bool] = []
    spreads: list[tuple[float, float]] = []
    for _ in range(200):
        turns, sequence = (
            summarize_rounds([measure(rng, machine) for _ in range(6)])
            for measure in (measure_in_turns, measure_one_by_one)
        )
        covered.append(turns.low <= 2.0 <= turns.high)
        spreads.append((turns.high - turns.low, sequence.high - sequence.low))
    # With 200 blocks, three standard errors of the fraction are 0.046.
    assert 0.92 <= np.mean(covered) <= 1.0
    in_turns, one_by_one = np.median(spreads, axis=0)
    assert in_turns <= one_by_one * (1.3 if machine is bursts else 1.0)
