"""Warm-up and timed passes with a fake source of time, and statistics of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from harness.contracts.system import Clock, Counters
from harness.measuring.clock import Sample
from harness.measuring.passes import (
    MAX_PASSES,
    Passes,
    TimedSamples,
    WarmUp,
    compute_mean_counters,
    compute_phase_medians,
    compute_throughput,
    time_passes,
    warm_up,
)
from harness.trials.spec import Timing
from tests.support.fake_time import FakeTime, Scripted


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def timed_of(time: FakeTime, costs: Sequence[Sequence[float]], **timing: Any) -> TimedSamples:
    values = {"min_seconds": 0.0, "min_passes": 1, "max_seconds": 1e7} | timing
    return time_passes(Passes(Scripted(time), time), costs, Timing(**values))


def n_passes_of(timed: TimedSamples, n_mini_batches: int = 2) -> tuple[int, int]:
    """Return the numbers of unmarked and marked passes; every pass must be complete."""
    assert len(timed.whole) % n_mini_batches == len(timed.marked) % n_mini_batches == 0
    return len(timed.whole) // n_mini_batches, len(timed.marked) // n_mini_batches


def test_loading_is_not_timed(time: FakeTime) -> None:
    found = timed_of(time, [(1, 2), (3, 4)])
    for samples in (found.whole, found.marked):
        assert [sample.total_s for sample in samples] == pytest.approx([0.0035, 0.0075])


def test_work_between_passes_is_not_timed(time: FakeTime) -> None:
    n_done = 0

    def between() -> None:
        nonlocal n_done
        n_done += 1
        time.move(500)

    timing = Timing(min_seconds=0.0, min_passes=2)
    passes = Passes(Scripted(time), time)
    found = time_passes(passes, [(1, 2), (3, 4)], timing, between)
    assert sum(n_passes_of(found)) == 3
    assert n_done == 2, "never before a pass that a speed is told of"
    for samples in (found.whole[:2], found.whole[2:], found.marked):
        assert [sample.total_s for sample in samples] == pytest.approx([0.0035, 0.0075])


class Ahead(Scripted):
    """System that constructs the next mini-batch during the run of the current one."""

    constructed: Sequence[float] | None = None
    following: Sequence[float] | None = None

    def load(self, instances: Sequence[Any]) -> None:
        super().load(instances)
        self.following = None

    def prefetch(self, instances: Sequence[Any]) -> None:
        self.following = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        if self.constructed is not self.costs:
            self.time.move(self.costs[0])
        self.time.move(self.costs[1])
        self.constructed = self.following
        if self.following is not None:
            self.time.move(self.following[0])


def test_construction_ahead_is_timed_in_same_pass(time: FakeTime) -> None:
    """The first mini-batch of a pass is constructed in its own run, and nothing after the last."""
    costs = [(1, 2), (10, 20), (100, 200)]
    timing = Timing(min_seconds=0.0, min_passes=2)
    found = time_passes(Passes(Ahead(time), time), costs, timing)
    each = [0.013, 0.120, 0.200]
    for samples in (found.whole, found.marked):
        n_passes = len(samples) // len(each)
        assert [one.total_s for one in samples] == pytest.approx(each * n_passes)


TWO = [(1, 2), (3, 4)]  # a pass is 11 ms of timed work and 2 s of loading, which does not count


@pytest.mark.parametrize(
    ("costs", "timing", "n_passes"),
    [
        (TWO, {"min_passes": 1}, (1, 1)),
        (TWO, {"min_passes": 3}, (3, 2)),
        (TWO, {"min_passes": 4}, (4, 3)),
        (TWO, {"min_seconds": 0.023}, (2, 1)),
        (TWO, {"min_passes": 50, "max_seconds": 1.0}, (1, 1)),  # one of each kind
        ([(0, 0)], {"min_seconds": 1e7}, (MAX_PASSES / 2, MAX_PASSES / 2)),  # limited
    ],
)
def test_passes_are_whole_and_as_many_as_asked_for(
    time: FakeTime,
    costs: Sequence[Sequence[float]],
    timing: dict[str, float],
    n_passes: tuple[int, int],
) -> None:
    assert n_passes_of(timed_of(time, costs, **timing), len(costs)) == n_passes


class Device(Scripted):
    """Asynchronous device: the host continues, and each synchronization takes 10 ms."""

    def synchronize(self) -> None:
        super().synchronize()
        self.time.move(10)


def test_marks_are_neither_waited_for_nor_read_in_every_second_pass(time: FakeTime) -> None:
    system = Device(time)
    timing = Timing(min_seconds=0.0, min_passes=3)
    runs = time_passes(Passes(system, time), [(1, 2)], timing)
    # A run takes 3.5 ms; the wait at its end always counts, those at marks only in marked runs.
    assert [sample.total_s for sample in runs.whole] == pytest.approx([0.0135] * 3)
    assert [sample.phases_s for sample in runs.whole] == [{}] * 3
    assert [sample.total_s for sample in runs.marked] == pytest.approx([0.0335] * 2)
    assert runs.marked[0].phases_s == pytest.approx({"construct": 0.011, "forward": 0.012})
    begin = ["load", "synchronize", "run"]
    whole, marked = [*begin, "synchronize"], [*begin, *["synchronize"] * 3]
    assert system.events == 2 * [*whole, *marked] + whole


class Slowing(Scripted):
    """System whose every run takes a millisecond more than the previous one."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.costs = (self.events.count("run"), 0)
        super().run(clock)


def test_a_drift_meets_both_kinds_of_passes_alike(time: FakeTime) -> None:
    timing = Timing(min_seconds=0, min_passes=50, max_seconds=1e7)
    runs = time_passes(Passes(Slowing(time), time), [(0, 0)], timing)
    means = [np.mean([sample.total_s for sample in kind]) for kind in (runs.whole, runs.marked)]
    assert means[0] == pytest.approx(means[1], rel=0.01)
    assert (len(runs.whole), len(runs.marked)) == (50, 49)


class WarmingUp(Scripted):
    """System whose passes of one mini-batch take the given milliseconds, then the last value."""

    def __init__(self, time: FakeTime, passes_ms: Sequence[float]) -> None:
        super().__init__(time)
        self.passes_ms = list(passes_ms)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        n_done = self.events.count("run")
        self.costs = (self.passes_ms[min(n_done, len(self.passes_ms) - 1)], 0)
        super().run(clock)


def warmed(time: FakeTime, passes_ms: Sequence[float], **timing: Any) -> WarmUp:
    values = {"max_warmup_s": 1e7} | timing
    return warm_up(Passes(WarmingUp(time, passes_ms), time), [(0, 0)], Timing(**values))


@pytest.mark.parametrize(
    ("passes_ms", "n_passes"),
    [
        ([100], 3),  # three that agree
        ([300, 200, 104, 103, 101], 5),
        ([100, 100, 200, 100, 100], 6),  # a slow one restarts the count
        ([100, 106, 112, 119, 126, 134, 141, 150, 158, 168, 178], 10),  # never: at most ten
    ],
)
def test_warm_up_continues_until_last_passes_agree(
    time: FakeTime, passes_ms: list[float], n_passes: int
) -> None:
    assert warmed(time, passes_ms).n_passes == n_passes


def test_warm_up_has_bounds(time: FakeTime) -> None:
    growing = [100.0 * 1.1**k for k in range(30)]
    assert warmed(time, growing, max_warmup=4).n_passes == 4
    assert warmed(time, [100], n_warmup=7).n_passes == 7
    assert warmed(time, growing, n_warmup=12).n_passes == 12, "more than the most, as was asked"
    # Loading takes a second, so that no second pass starts.
    assert warmed(time, growing, max_warmup_s=1.0).n_passes == 1
    assert warmed(time, growing, max_warmup_s=1.0, n_warmup=3).n_passes == 3
    assert warmed(time, [100], n_warmup=0) == WarmUp(0, ())


def test_counters_are_those_of_the_first_pass(time: FakeTime) -> None:
    system = Scripted(time)
    found = warm_up(Passes(system, time), [(1, 1), (1, 1)], Timing(max_warmup_s=1e7))
    assert found.n_passes == 3
    assert [one.n_batches for one in found.counters] == [4, 8]  # events so far
    assert system.events.count("run") == 6


def test_counters_are_means_and_unknown_stays_unknown() -> None:
    counters = [Counters(3, None, 10), Counters(4, 2, 20)]
    unknown = dict.fromkeys(item.name for item in fields(Counters))
    assert compute_mean_counters(counters) == unknown | {"n_batches": 3.5, "bytes_copied": 15.0}
    assert compute_mean_counters([]) == unknown


def test_phase_medians_are_none_for_unmeasured_phases() -> None:
    samples = [Sample(1.0, {"forward": seconds, "update": 1.0}) for seconds in (1.0, 2.0, 9.0)]
    medians = compute_phase_medians(samples, ("forward", "backward"))
    assert medians == {
        "construct": None,
        "schedule": None,
        "forward": 2.0,
        "backward": None,  # never marked
        "update": None,  # marked, but not among the phases that the system separates
    }


def test_instances_per_s_divides_by_the_median_pass() -> None:
    samples_s = [1.0, 2.0, 1.0, 3.0, 10.0, 20.0]  # passes of 3, 4 and 30 seconds
    assert compute_throughput(samples_s, 2, n_instances=8) == 2.0
    assert compute_throughput([0.0, 0.0], 2, n_instances=8) is None
