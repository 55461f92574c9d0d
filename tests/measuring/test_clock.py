"""Time is read by a clock that the test moves, so every figure is exact."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.contracts.system import Clock, Counters, Parameters, Result, RunSettings, System
from harness.measuring.clock import NullClock, PhaseClock, Sample, collector_paused, timed
from harness.measuring.passes import (
    MAX_PASSES,
    MeanCounters,
    instances_per_s,
    mean_counters,
    phase_medians,
    time_passes,
    warm_up,
)
from harness.trials.spec import Timing

MS = 1_000_000


class FakeTime:
    """Stands still until it is moved; counts its readings."""

    def __init__(self) -> None:
        self.now = 5_000 * MS
        self.n_readings = 0

    def __call__(self) -> int:
        self.n_readings += 1
        return self.now

    def move(self, milliseconds: float) -> None:
        self.now += round(milliseconds * MS)


class Scripted(System):
    """Takes as long for each phase as a mini-batch says, and for loading, which is not timed."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__(RunSettings("train", "cpu", 1, 1, 0.1, 0))
        self.time = time
        self.events: list[str] = []

    def prepare(self, model: Any, weights: Any) -> None:
        raise NotImplementedError

    def load(self, instances: Sequence[Any]) -> None:
        self.events.append("load")
        self.time.move(1000)
        self.costs = instances

    def run(self, clock: Clock, *, update: bool = True) -> None:
        self.events.append("run")
        for phase, cost in zip(("construct", "forward"), self.costs, strict=True):
            self.time.move(cost)
            clock.mark(phase)
        self.time.move(0.5)  # after the last mark

    def result(self) -> Result:
        return Result(0.0, np.zeros(0), {}, Counters(n_batches=len(self.events), n_launches=None))

    def parameters(self) -> Parameters:
        return {}

    def synchronize(self) -> None:
        self.events.append("synchronize")


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def clock_of(time: FakeTime, synchronize: Callable[[], None] = lambda: None) -> PhaseClock:
    return PhaseClock(synchronize, time)


def test_phases_and_total_are_exact(time: FakeTime) -> None:
    clock = clock_of(time)
    clock.start()
    time.move(3)
    clock.mark("construct")
    time.move(4)
    clock.mark("forward")
    time.move(5)
    sample = clock.stop()
    assert sample.total_s == pytest.approx(0.012, abs=1e-12)
    assert sample.phases_s == pytest.approx({"construct": 0.003, "forward": 0.004}, abs=1e-12)


def test_a_phase_marked_twice_is_added_up(time: FakeTime) -> None:
    clock = clock_of(time)
    clock.start()
    for cost, phase in ((1, "construct"), (2, "forward"), (4, "construct")):
        time.move(cost)
        clock.mark(phase)
    assert clock.stop().phases_s == pytest.approx({"construct": 0.005, "forward": 0.002})


def test_runs_do_not_leak_into_each_other(time: FakeTime) -> None:
    clock = clock_of(time)
    clock.start()
    time.move(1)
    clock.mark("update")
    clock.stop()
    time.move(500)
    clock.start()
    time.move(2)
    clock.mark("forward")
    assert clock.stop() == Sample(pytest.approx(0.002), pytest.approx({"forward": 0.002}))


def test_every_reading_comes_after_a_synchronise(time: FakeTime) -> None:
    readings_at_sync: list[int] = []
    clock = clock_of(time, lambda: readings_at_sync.append(time.n_readings))
    clock.start()
    clock.mark("forward")
    clock.stop()
    assert readings_at_sync == [0, 1, 2]
    assert time.n_readings == 3


def test_time_of_synchronising_counts(time: FakeTime) -> None:
    clock = clock_of(time, lambda: time.move(7))
    clock.start()
    clock.mark("forward")
    assert clock.stop().phases_s["forward"] == pytest.approx(0.007)


def test_a_clock_refuses_misuse(time: FakeTime) -> None:
    clock = clock_of(time)
    with pytest.raises(RuntimeError, match="not running"):
        clock.mark("forward")
    with pytest.raises(RuntimeError, match="not running"):
        clock.stop()
    clock.start()
    with pytest.raises(RuntimeError, match="runs already"):
        clock.start()
    with pytest.raises(ValueError, match="compute is no phase"):
        clock.mark("compute")
    with pytest.raises(ValueError, match="compute is no phase"):
        NullClock().mark("compute")


def test_work_is_timed_with_what_it_leaves_running(time: FakeTime) -> None:
    synchronized_at: list[int] = []

    def synchronize() -> None:
        synchronized_at.append(time.n_readings)
        time.move(30)

    def work() -> str:
        time.move(4)
        return "done"

    assert timed(work, synchronize, time) == ("done", pytest.approx(0.034))
    assert synchronized_at == [0, 1], "a reading before the work of others was waited for"


def test_the_collector_rests_in_the_timed_region_only() -> None:
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def samples_of(time: FakeTime, costs: Sequence[Sequence[float]], **timing: Any) -> list[Sample]:
    values = {"min_seconds": 0.0, "min_passes": 1, "max_seconds": 1e9} | timing
    return time_passes(Scripted(time), costs, Timing(**values), now_ns=time)


def test_loading_is_not_timed(time: FakeTime) -> None:
    samples = samples_of(time, [(1, 2), (3, 4)])
    assert [sample.total_s for sample in samples] == pytest.approx([0.0035, 0.0075])


@pytest.mark.parametrize(("min_passes", "n_samples"), [(1, 2), (3, 6)])
def test_passes_are_whole_and_at_least_min_passes(
    time: FakeTime, min_passes: int, n_samples: int
) -> None:
    assert len(samples_of(time, [(1, 2), (3, 4)], min_passes=min_passes)) == n_samples


def test_passes_go_on_until_min_seconds_of_timed_work(time: FakeTime) -> None:
    # A pass is 11 ms of timed work and 2 s of loading, which does not count.
    assert len(samples_of(time, [(1, 2), (3, 4)], min_seconds=0.023)) == 6


def test_max_seconds_end_it_after_one_pass(time: FakeTime) -> None:
    assert len(samples_of(time, [(1, 2), (3, 4)], min_passes=50, max_seconds=1.0)) == 2


def test_a_system_that_takes_no_time_does_not_run_for_ever(time: FakeTime) -> None:
    assert len(samples_of(time, [(0, 0)], min_seconds=1e9)) == MAX_PASSES


def test_warm_up_reads_no_time_and_counts_the_first_pass(time: FakeTime) -> None:
    system = Scripted(time)
    counters = warm_up(system, [(1, 1), (1, 1)], n_passes=3)
    assert time.n_readings == 0
    assert len(counters) == 2
    assert system.events.count("run") == 6
    assert warm_up(system, [(1, 1)], n_passes=0) == []


def test_counters_are_means_and_unknown_stays_unknown() -> None:
    counters = [Counters(3, None, 10), Counters(4, 2, 20)]
    assert mean_counters(counters) == MeanCounters(n_batches=3.5, bytes_copied=15.0)
    assert mean_counters([]) == MeanCounters(None, None, None, None)


def test_phase_medians_are_per_mini_batch_and_honest_about_what_is_unknown() -> None:
    samples = [Sample(1.0, {"forward": seconds, "update": 1.0}) for seconds in (1.0, 2.0, 9.0)]
    medians = phase_medians(samples, ("forward", "backward"))
    assert medians == {
        "construct": None,
        "schedule": None,
        "forward": 2.0,
        "backward": None,  # never marked
        "update": None,  # marked, but the system does not claim to tell it apart
    }


def test_instances_per_s_divides_by_the_median_pass() -> None:
    samples_s = [1.0, 2.0, 1.0, 3.0, 10.0, 20.0]  # passes of 3, 4 and 30 seconds
    assert instances_per_s(samples_s, 2, n_instances=8) == 2.0
    assert instances_per_s([0.0, 0.0], 2, n_instances=8) is None
