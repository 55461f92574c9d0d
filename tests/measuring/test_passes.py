"""Clock, warm-up and timed passes, with a fake source of time: every value is exact."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from dynbatch.harness.contracts.system import Clock, Counters
from dynbatch.harness.machine.noise import Scheduling
from dynbatch.harness.measuring.clock import (
    PhaseClock,
    Sample,
    measure_empty_sample_s,
    pause_collector,
    time_call,
)
from dynbatch.harness.measuring.cycles import MAX_TURNS
from dynbatch.harness.measuring.passes import (
    WAITING_S,
    Passes,
    TimedSamples,
    WarmUp,
    compute_mean_counters,
    compute_phase_medians,
    take_turns,
    warm_up,
)
from dynbatch.harness.trials.spec import Timing
from tests.support.fake_time import FakeTime, Scripted
from tests.support.measured import OwnTurns


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def clock(time: FakeTime) -> PhaseClock:
    return PhaseClock(lambda: None, time)


def test_phases_and_total_are_exact_and_a_phase_marked_twice_is_added_up(
    time: FakeTime, clock: PhaseClock
) -> None:
    clock.start()
    for cost, phase in ((1, "construct"), (2, "forward"), (4, "construct")):
        time.move(cost)
        clock.mark(phase)
    time.move(5)
    sample = clock.stop()
    assert sample.total_s == pytest.approx(0.012, abs=1e-12)
    assert sample.phases_s == pytest.approx({"construct": 0.005, "forward": 0.002}, abs=1e-12)


def test_divided_shares_are_booked_and_remainder_goes_to_next_mark(
    time: FakeTime, clock: PhaseClock
) -> None:
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


def test_shares_of_a_whole_run_are_not_booked(time: FakeTime, clock: PhaseClock) -> None:
    clock.start(marked=False)
    time.move(8)
    clock.divide({"forward": 0.5})
    assert clock.stop().phases_s == {}


@pytest.mark.parametrize(
    "shares", [{"forward": -0.1}, {"forward": 0.6, "schedule": 0.5}, {"waiting": 0.5}]
)
def test_invalid_shares_are_rejected(clock: PhaseClock, shares: dict[str, float]) -> None:
    clock.start()
    with pytest.raises(ValueError, match=r"invalid shares|unknown phase"):
        clock.divide(shares)


def test_runs_do_not_leak_into_each_other(time: FakeTime, clock: PhaseClock) -> None:
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
    clock = PhaseClock(lambda: readings_at_sync.append(time.n_readings), time)
    clock.start()
    clock.mark("forward")
    clock.stop()
    assert readings_at_sync == [0, 1, 2]
    assert time.n_readings == 3


def test_a_clock_refuses_misuse(time: FakeTime, clock: PhaseClock) -> None:
    for use in (lambda: clock.mark("forward"), clock.stop, lambda: clock.divide({"forward": 0.5})):
        with pytest.raises(RuntimeError, match="not running"):
            use()
    clock.start()
    with pytest.raises(RuntimeError, match="already running"):
        clock.start()
    whole = PhaseClock(lambda: None, time)
    whole.start(marked=False)
    for refusing in (clock, whole):
        with pytest.raises(ValueError, match="unknown phase 'compute'"):
            refusing.mark("compute")


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


# --- passes ---

TWO = [(10, 20), (30, 40)]  # a pass is 101 ms of timed work and 2 s of loading, which is not timed
IDLE = Scheduling(cpu_s=0.0, steal_s=0.0, wait_s=0.0, n_switches=0, n_paused=0)


def timed_of(
    system: Scripted,
    costs: Sequence[Sequence[float]],
    read: Any = lambda **_: IDLE,
    warm_s: float = 0.0,
    **timing: Any,
) -> TimedSamples:
    values = {"min_seconds": 0.0, "min_passes": 3, "max_seconds": 1e7} | timing
    turns = OwnTurns(Timing(**values))
    return take_turns(Passes(system, system.time), costs, turns, 1, warm_s, read)


def test_loading_is_not_timed(time: FakeTime) -> None:
    found = timed_of(Scripted(time), TWO)
    n_passes = len(found.runs_s) // 2
    assert [*found.runs_s] == pytest.approx([0.0305, 0.0705] * n_passes)
    assert [*found.phases_s["forward"]] == pytest.approx([0.02, 0.04])
    assert found.sum_passes(2) == pytest.approx([0.101] * n_passes)


@pytest.mark.parametrize(
    ("costs", "timing", "n_passes"),
    [
        (TWO, {"min_passes": 1}, (1, 1)),
        (TWO, {"min_passes": 3}, (3, 1)),
        (TWO, {"min_passes": 5}, (5, 2)),
        (TWO, {"min_passes": 1, "min_seconds": 0.35}, (5, 2)),
        (TWO, {"min_passes": 50, "max_seconds": 0.15}, (1, 1)),  # one of each kind
        ([(100, 0)], {"min_seconds": 1e6}, None),  # limited
    ],
)
def test_passes_are_whole_and_as_many_as_asked_for(
    time: FakeTime,
    costs: Sequence[Sequence[float]],
    timing: dict[str, float],
    n_passes: tuple[int, int] | None,
) -> None:
    timed = timed_of(Scripted(time), costs, **timing)
    if n_passes is None:
        assert len(timed.turns) == pytest.approx(MAX_TURNS * 3 / 4, abs=1)
    else:
        n_samples = len(timed.runs_s), len(timed.phases_s["forward"])
        assert n_samples == tuple(n * len(costs) for n in n_passes)


@pytest.mark.parametrize(
    ("costs", "warm_s", "n_passes", "n_marked", "n_untimed"),
    [
        ((1, 1), 0.0, [1, 20, 20], 20, 4),
        ((30, 30), 0.0, [1, 1, 1], 1, 1),
        ((20, 0), 0.02, [3, 3, 3], 3, 4),
        ((60, 0), 0.06, [1, 1, 1], 1, 0),
    ],
)
def test_short_passes_fill_a_turn_after_one_that_is_not_timed(
    time: FakeTime,
    costs: tuple[int, int],
    warm_s: float,
    n_passes: list[int],
    n_marked: int,
    n_untimed: int,
) -> None:
    """The first turn knows how long a pass takes only from the warm-up."""
    system = Scripted(time)
    timed = timed_of(system, [costs], warm_s=warm_s)
    assert [turn.n_passes for turn in timed.turns] == n_passes
    assert len(timed.runs_s) == sum(n_passes)
    assert len(timed.phases_s["forward"]) == n_marked
    assert system.events.count("run") == sum(n_passes) + n_marked + n_untimed


def test_a_turn_has_the_counters_of_its_time(time: FakeTime) -> None:
    """Each turn takes 2.101 s with loading: 50 ms of waiting are above 2 % of it."""
    waits_s = iter([0.0, 0.0, 0.0, 0.05, 0.05, 0.05, 0.05, 0.09, 0.09, 0.5])

    def read(**_: bool) -> Scheduling:
        return replace(IDLE, wait_s=next(waits_s))

    timed = timed_of(Scripted(time), TWO, read)
    assert [turn.wait_s for turn in timed.turns] == pytest.approx([0.05, 0.04, 0.41])
    assert [turn.is_disturbed for turn in timed.turns] == [True, False, True]
    assert [turn.cycle for turn in timed.turns] == [0, 2, 3]


def test_cpu_time_between_turns_is_counted(time: FakeTime) -> None:
    """The counters advance by a second in a turn and by 0.2 s between turns."""
    readings = iter([0.0, 0.2, 0.2, 1.2, 1.4, 2.4, 2.6, 3.6, 3.8, 4.8])

    def read(**_: bool) -> Scheduling:
        return replace(IDLE, cpu_s=next(readings))

    timed = timed_of(Scripted(time), TWO, read)
    assert timed.inside_s == pytest.approx(4.0)
    assert timed.outside_s == pytest.approx(4 * (0.2 - WAITING_S))


class Forgetful(Scripted):
    """System that keeps nothing of its runs, so that all memory of the passes is the harness's."""

    def run(self, clock: Clock, *, update: bool = True) -> None:
        super().run(clock, update=update)
        self.events.clear()


def test_timed_runs_take_little_memory(time: FakeTime) -> None:
    """The peak memory of a system has that of its samples, whose number the run time decides."""
    tracemalloc.start()
    timed = timed_of(Forgetful(time), [(0.5, 0.5)] * 100, min_passes=30)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    n_runs = len(timed.runs_s) * 4 / 3  # every fourth turn has marks
    assert n_runs == pytest.approx(4000)
    assert used_bytes < 50 * n_runs


class Device(Scripted):
    """Asynchronous device: the host continues, and each synchronization takes 10 ms."""

    def synchronize(self) -> None:
        super().synchronize()
        self.time.move(10)


def test_marks_are_neither_waited_for_nor_read_in_unmarked_turns(time: FakeTime) -> None:
    system = Device(time)
    runs = timed_of(system, [(10, 20)])
    # A run takes 30.5 ms; the wait at its end always counts, those at marks only in marked runs.
    assert [*runs.runs_s] == pytest.approx([0.0405] * len(runs.runs_s))
    phases_s = {phase: [*seconds] for phase, seconds in runs.phases_s.items()}
    assert phases_s.keys() == {"construct", "forward"}
    assert phases_s["construct"] == pytest.approx([0.020] * 2)
    assert phases_s["forward"] == pytest.approx([0.030] * 2)
    begin = ["load", "synchronize", "run"]
    whole, marked = [*begin, "synchronize"], [*begin, *["synchronize"] * 3]
    # Without a warm pass, the first turn cannot know how long a pass takes and has one. Passes are
    # shorter than 50 ms, so that turns begin with one that is not timed, and two fill a turn.
    assert system.events[: 2 * len(whole)] == 2 * whole
    second_turn = [*whole, *marked, *marked]
    assert system.events[2 * len(whole) :][: len(second_turn)] == second_turn


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
        ([100], 2),  # two that agree
        ([300, 200, 104, 103, 101], 4),
        ([100, 200, 100, 100], 4),  # a slow one restarts the count
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
    assert warmed(time, [200, 100]).last_s == pytest.approx(0.1005)
    assert warmed(time, growing, n_warmup=12).n_passes == 12, "more than the most, as was asked"
    # Loading takes a second, so that no second pass starts.
    assert warmed(time, growing, max_warmup_s=1.0).n_passes == 1
    assert warmed(time, growing, max_warmup_s=1.0, n_warmup=3).n_passes == 3
    assert warmed(time, [100], n_warmup=0) == WarmUp(0, 0.0, ())


def test_counters_are_those_of_the_first_pass(time: FakeTime) -> None:
    system = Scripted(time)
    found = warm_up(Passes(system, time), [(1, 1), (1, 1)], Timing(max_warmup_s=1e7))
    assert found.n_passes == 2
    assert [one.n_batches for one in found.counters] == [4, 8]  # events so far
    assert system.events.count("run") == 4


def test_counters_are_means_and_unknown_stays_unknown() -> None:
    counters = [Counters(3, None, 10), Counters(4, 2, 20)]
    unknown = dict.fromkeys(item.name for item in fields(Counters))
    assert compute_mean_counters(counters) == unknown | {"n_batches": 3.5, "bytes_copied": 15.0}
    assert compute_mean_counters([]) == unknown


def test_phase_medians_are_none_for_unmeasured_phases() -> None:
    phases_s = {"forward": [1.0, 2.0, 9.0], "update": [1.0, 1.0, 1.0]}
    medians = compute_phase_medians(phases_s, ("forward", "backward"))
    assert medians == {
        "construct": None,
        "schedule": None,
        "forward": 2.0,
        "backward": None,  # never marked
        "update": None,  # marked, but not among the phases that the system separates
    }
