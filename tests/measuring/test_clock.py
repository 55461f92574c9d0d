"""Clocks, tested with a fake source of time so that every expected value is exact."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from dynbatch.harness.measuring.clock import (
    NullClock,
    PhaseClock,
    Sample,
    measure_empty_sample_s,
    pause_collector,
    time_call,
)
from tests.support.fake_time import FakeTime


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def clock_of(time: FakeTime, synchronize: Callable[[], None] = lambda: None) -> PhaseClock:
    return PhaseClock(synchronize, time)


def test_phases_and_total_are_exact_and_a_phase_marked_twice_is_added_up(time: FakeTime) -> None:
    clock = clock_of(time)
    clock.start()
    for cost, phase in ((1, "construct"), (2, "forward"), (4, "construct")):
        time.move(cost)
        clock.mark(phase)
    time.move(5)
    sample = clock.stop()
    assert sample.total_s == pytest.approx(0.012, abs=1e-12)
    assert sample.phases_s == pytest.approx({"construct": 0.005, "forward": 0.002}, abs=1e-12)


def test_divided_shares_are_booked_and_remainder_goes_to_next_mark(time: FakeTime) -> None:
    clock = clock_of(time)
    clock.start()
    time.move(2)
    clock.mark("construct")
    time.move(8)
    clock.divide({"schedule": 0.25, "forward": 0.5})
    time.move(1)
    clock.mark("construct")
    clock.divide({})
    sample = clock.stop()
    booked = {"construct": 0.005, "schedule": 0.002, "forward": 0.004}
    assert sample.phases_s == pytest.approx(booked)
    assert sum(booked.values()) == pytest.approx(sample.total_s)


def test_shares_of_a_whole_run_are_not_booked(time: FakeTime) -> None:
    clock = clock_of(time)
    clock.start(marked=False)
    time.move(8)
    clock.divide({"forward": 0.5})
    assert clock.stop().phases_s == {}


@pytest.mark.parametrize(
    "shares", [{"forward": -0.1}, {"forward": 0.6, "schedule": 0.5}, {"waiting": 0.5}]
)
def test_invalid_shares_are_rejected(time: FakeTime, shares: dict[str, float]) -> None:
    clock = clock_of(time)
    clock.start()
    for one in (clock, NullClock()):
        with pytest.raises(ValueError, match=r"invalid shares|unknown phase"):
            one.divide(shares)


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


def test_a_clock_refuses_misuse(time: FakeTime) -> None:
    clock = clock_of(time)
    for use in (lambda: clock.mark("forward"), clock.stop, lambda: clock.divide({"forward": 0.5})):
        with pytest.raises(RuntimeError, match="not running"):
            use()
    clock.start()
    with pytest.raises(RuntimeError, match="already running"):
        clock.start()
    whole = clock_of(time)
    whole.start(marked=False)
    for one in (clock, whole, NullClock()):
        with pytest.raises(ValueError, match="unknown phase 'compute'"):
            one.mark("compute")


def test_timing_includes_pending_asynchronous_work(time: FakeTime) -> None:
    synchronized_at: list[int] = []

    def synchronize() -> None:
        synchronized_at.append(time.n_readings)
        time.move(30)

    def work() -> str:
        time.move(4)
        return "done"

    assert time_call(work, synchronize, time) == ("done", pytest.approx(0.034))
    assert synchronized_at == [0, 1], "a reading before the work of others was waited for"


def test_the_collector_rests_in_the_timed_region_only() -> None:
    assert gc.isenabled()
    with pause_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


class Ticking(FakeTime):
    """Source of time whose readings take time and are rounded to whole steps."""

    def __init__(self, cost_ns: int, step_ns: int) -> None:
        super().__init__()
        self.cost_ns, self.step_ns = cost_ns, step_ns

    def __call__(self) -> int:
        self.now += self.cost_ns
        return super().__call__() // self.step_ns * self.step_ns


@pytest.mark.parametrize(
    ("cost_ns", "step_ns", "found_s"), [(50, 1, 5e-8), (50, 1000, 1e-6), (0, 1, 0.0)]
)
def test_an_empty_sample_is_a_reading_or_a_step_of_the_clock(
    cost_ns: int, step_ns: int, found_s: float
) -> None:
    found = measure_empty_sample_s(lambda: None, Ticking(cost_ns, step_ns))
    assert found == pytest.approx(found_s)


def test_waiting_for_a_device_is_part_of_an_empty_sample(time: FakeTime) -> None:
    assert measure_empty_sample_s(lambda: time.move(0.02), time) == pytest.approx(2e-5)
