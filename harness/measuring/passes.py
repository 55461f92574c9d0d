"""Passes over the fixed list of mini-batches: warm-up, and the timed ones of each turn."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np

from dynbatch.harness.contracts.system import PHASES, Counters, Phase, System
from dynbatch.harness.machine.noise import Scheduling, read_scheduling
from dynbatch.harness.measuring.clock import Now, PhaseClock, Sample, now_ns, pause_collector
from dynbatch.harness.measuring.turns import LAST, MARKED, WHOLE, PassReport, Turns
from dynbatch.harness.records.turns import Turn
from dynbatch.harness.trials.spec import Timing

TURN_S = 0.05  # least timed work of a turn
# After other systems have run, a pass finds none of its data in the CPU's caches, which costs about
# a millisecond. A turn of shorter passes begins with one that is not timed.
COLD_S = 0.05
MAX_PER_TURN = 1000  # passes
CLOCK_DIGITS = 9  # digits of seconds that the clock resolves
# CPU time between a worker's turns: it reads its next turn and this harness's counters.
WAITING_S = 1e-3
AGREEING_PASSES, AGREEMENT = 2, 0.05  # consecutive warm passes, and their largest relative spread


class Passes:
    """Runner of passes over mini-batches that records the loss of each run and the untimed gaps.

    Attributes:
        untimed_gap_s: Untimed seconds before each run, mostly for loading, in the order of runs.
        losses: Loss of each run, in the order of runs.
    """

    def __init__(self, system: System, now_ns: Now = now_ns) -> None:
        self.system, self.now_ns = system, now_ns
        self.untimed_gap_s = array("d")
        self.losses = array("d")
        self._clock = PhaseClock(system.synchronize, now_ns)

    def run(
        self,
        mini_batches: Sequence[Sequence[Any]],
        *,
        marked: bool = False,
        after: Callable[[], None] = lambda: None,
    ) -> list[Sample]:
        """Load and run the mini-batches in turn.

        Args:
            marked: Whether the clock reads the marks of phases.
            after: Called after each run.
        """
        samples = []
        for mini_batch in mini_batches:
            began = self.now_ns()
            self._ask()
            self.system.load(mini_batch)
            started = self._clock.start(marked=marked)
            self.system.run(self._clock)
            samples.append(self._clock.stop())
            self.untimed_gap_s.append((started - began) * 1e-9)
            after()
        return samples

    def _ask(self) -> None:
        """Record the loss of the last run, unless it has been recorded."""
        if len(self.losses) < len(self.untimed_gap_s):
            self.losses.append(self.system.last_loss())

    def summarize_runs(self, n_warm: int) -> tuple[Sequence[float], float]:
        """Return the losses of all runs, and the median untimed gap in seconds.

        Args:
            n_warm: Number of first runs whose gaps do not count.
        """
        self._ask()
        return self.losses, float(np.median(self.untimed_gap_s[n_warm:]))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Result of the warm-up.

    Attributes:
        n_passes: Number of passes.
        last_s: Seconds of the last pass; 0 without any.
        counters: Counters of each mini-batch in the first pass.
    """

    n_passes: int
    last_s: float
    counters: tuple[Counters, ...]


def warm_up(passes: Passes, mini_batches: Sequence[Sequence[Any]], timing: Timing) -> WarmUp:
    """Run untimed passes until the last ones take equally long.

    At least `timing.n_warmup` passes run, and none if that is 0. No further pass starts after
    `timing.max_warmup` passes or `timing.max_warmup_s` seconds.
    """
    counters: list[Counters] = []
    passes_s: list[float] = []

    def count() -> None:
        if not passes_s:
            counters.append(passes.system.counters())

    began = passes.now_ns()
    with pause_collector():
        while not _is_warm(timing, passes_s, (passes.now_ns() - began) * 1e-9):
            samples = passes.run(mini_batches, after=count)
            passes_s.append(sum(sample.total_s for sample in samples))
    return WarmUp(len(passes_s), passes_s[-1] if passes_s else 0.0, tuple(counters))


def _is_warm(timing: Timing, passes_s: Sequence[float], elapsed_s: float) -> bool:
    if len(passes_s) < timing.n_warmup:
        return False
    last = passes_s[-AGREEING_PASSES:]
    agree = len(last) == AGREEING_PASSES and max(last) - min(last) <= AGREEMENT * min(last)
    is_enough = len(passes_s) >= timing.max_warmup or elapsed_s >= timing.max_warmup_s
    return timing.n_warmup == 0 or agree or is_enough


def compute_mean_counters(counters: Sequence[Counters]) -> dict[str, float | None]:
    """Return the mean per mini-batch of each counter; None unless all mini-batches have it."""
    names = [item.name for item in fields(Counters)]
    return {name: _compute_mean([getattr(counter, name) for counter in counters]) for name in names}


def _compute_mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return float(np.mean(known)) if known and len(known) == len(counts) else None


@dataclass(frozen=True, slots=True)
class TimedSamples:
    """Times of unmarked (whole) and of marked runs in order of time, and the unmarked turns.

    Arrays have the times of tens of thousands of runs, because they are in a system's peak memory.

    Attributes:
        runs_s: Seconds of the unmarked runs.
        phases_s: Seconds of each phase in the marked runs.
        inside_s: CPU seconds of this process in its turns.
        outside_s: CPU seconds of this process between its turns.
    """

    runs_s: Sequence[float]
    phases_s: Mapping[str, Sequence[float]]
    turns: tuple[Turn, ...]
    inside_s: float
    outside_s: float

    def sum_passes(self, n_mini_batches: int) -> tuple[float, ...]:
        """Return the seconds of each unmarked pass over `n_mini_batches` mini-batches."""
        passes_s = np.reshape(self.runs_s, (-1, n_mini_batches)).sum(axis=1)
        return tuple(round(seconds, CLOCK_DIGITS) for seconds in passes_s.tolist())


def take_turns(
    passes: Passes,
    mini_batches: Sequence[Sequence[Any]],
    turns: Turns,
    n_threads: int,
    warm_s: float,
    read: Callable[..., Scheduling] = read_scheduling,
) -> TimedSamples:
    """Run timed passes whenever this system has its turn; loading a mini-batch is not timed.

    A turn is one pass, or as many as fill TURN_S; short passes follow one that is not timed.

    Args:
        n_threads: Threads that the system may compute with.
        warm_s: Seconds of a warm pass, which the first turn expects; 0 if unknown.
        read: Reads the scheduling counters of this process, around the passes of each turn.
    """
    runs_s = array("d")
    phases_s: dict[str, array[float]] = {}
    taken: list[Turn] = []
    outside_s, inside_s, median_s = 0.0, 0.0, warm_s
    with pause_collector():
        after = read()
        while (order := turns.wait()).kind != LAST:
            before = read(at_start=True)
            outside_s += max(0.0, before.cpu_s - after.cpu_s - WAITING_S)
            if median_s < COLD_S:
                passes.run(mini_batches)
                before = read(at_start=True)
            n_passes = choose_n_passes(median_s)
            began = passes.now_ns()
            is_marked = order.kind == MARKED
            samples = [passes.run(mini_batches, marked=is_marked) for _ in range(n_passes)]
            wall_s = (passes.now_ns() - began) * 1e-9
            after = read()
            inside_s += after.cpu_s - before.cpu_s
            for sample in chain(*samples):
                if not is_marked:
                    runs_s.append(sample.total_s)
                for phase, phase_s in sample.phases_s.items():
                    phases_s.setdefault(phase, array("d")).append(phase_s)
            seconds = [sum(sample.total_s for sample in each) for each in samples]
            turn = build_turn(order.cycle, n_passes, wall_s, n_threads, after.since(before))
            if order.kind == WHOLE:
                taken.append(turn)
            median_s = float(np.median(seconds))
            turns.report(PassReport(median_s, sum(seconds), turn.is_disturbed))
    return TimedSamples(runs_s, phases_s, tuple(taken), inside_s, outside_s)


def choose_n_passes(median_s: float) -> int:
    return 1 if median_s <= 0 else max(1, min(MAX_PER_TURN, math.ceil(TURN_S / median_s)))


def build_turn(cycle: int, n_passes: int, wall_s: float, n_threads: int, spent: Scheduling) -> Turn:
    return Turn(
        cycle=cycle,
        n_passes=n_passes,
        wall_s=round(wall_s, CLOCK_DIGITS),
        cpu_s=round(spent.cpu_s, CLOCK_DIGITS),
        steal_s=round(spent.steal_s, CLOCK_DIGITS),
        wait_s=round(spent.wait_s, CLOCK_DIGITS),
        n_switches=spent.n_switches,
        is_disturbed=spent.is_disturbed(wall_s, n_threads),
    )


def compute_phase_medians(
    phases_s: Mapping[str, Sequence[float]], separable: Sequence[str]
) -> dict[Phase, float | None]:
    """Return the median seconds per mini-batch of each phase; None if it is not separable."""
    return {
        phase: float(np.median(phases_s[phase]))
        if phase in separable and phase in phases_s
        else None
        for phase in PHASES
    }
