"""Timing loop: warm-up passes over the fixed list of mini-batches, then timed passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from harness.contracts.system import PHASES, Counters, Phase, System
from harness.measuring.clock import Now, PhaseClock, Sample, now_ns, pause_collector
from harness.records.stats import sum_passes
from harness.trials.spec import Timing

MAX_PASSES = 1000  # enough for any statistic; limits the size of very fast systems' records
AGREEING_PASSES, AGREEMENT = 3, 0.05  # consecutive warm passes, and their largest relative spread


class Passes:
    """Runner of passes over mini-batches that records the loss of each run and the untimed gaps.

    Attributes:
        untimed_gap_s: Untimed seconds before each run, mostly for loading, in the order of runs.
        losses: Loss of each run, in the order of runs.
    """

    def __init__(self, system: System, now_ns: Now = now_ns) -> None:
        self.system, self.now_ns = system, now_ns
        self.untimed_gap_s: list[float] = []
        self.losses: list[float] = []
        self._clock = PhaseClock(system.synchronize, now_ns)

    def run(
        self,
        mini_batches: Sequence[Sequence[Any]],
        *,
        marked: bool = False,
        after: Callable[[], None] = lambda: None,
    ) -> list[Sample]:
        """Load and run the mini-batches in turn, announcing each next one in advance.

        Nothing is announced during the last one: every pass prepares all of its own mini-batches.

        Args:
            marked: Whether the clock reads the marks of phases.
            after: Called after each run.
        """
        samples = []
        for k, mini_batch in enumerate(mini_batches):
            began = self.now_ns()
            self._ask()
            self.system.load(mini_batch)
            if k + 1 < len(mini_batches):
                self.system.prefetch(mini_batches[k + 1])
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

    def summarize_runs(self, n_warm: int) -> tuple[list[float], float]:
        """Return the losses of all runs, and the median untimed gap in seconds.

        Args:
            n_warm: Number of first runs whose gaps do not count.
        """
        self._ask()
        return self.losses, float(np.median(self.untimed_gap_s[n_warm:]))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Number of warm-up passes, and the counters of each mini-batch in the first pass."""

    n_passes: int
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
    return WarmUp(len(passes_s), tuple(counters))


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
    """Samples of unmarked (whole) runs and of runs with marked phases, each in order of time."""

    whole: tuple[Sample, ...]
    marked: tuple[Sample, ...]


def time_passes(
    passes: Passes,
    mini_batches: Sequence[Sequence[Any]],
    timing: Timing,
    between: Callable[[], None] = lambda: None,
) -> TimedSamples:
    """Time passes until `timing` is satisfied; loading a mini-batch is not timed.

    Every second pass marks its phases, so that a slow drift affects both kinds alike.

    Args:
        between: Called after each unmarked pass, outside the timed region. It cannot influence the
            throughput, because the next pass is a marked one.
    """
    whole: list[Sample] = []
    marked: list[Sample] = []
    n_passes, timed_s = 0, 0.0
    began = passes.now_ns()
    with pause_collector():
        while not _is_enough(timing, n_passes, timed_s, (passes.now_ns() - began) * 1e-9):
            is_marked = n_passes % 2 == 1
            samples = passes.run(mini_batches, marked=is_marked)
            (marked if is_marked else whole).extend(samples)
            timed_s += sum(sample.total_s for sample in samples)
            n_passes += 1
            if not is_marked:
                between()
    return TimedSamples(tuple(whole), tuple(marked))


def _is_enough(timing: Timing, n_passes: int, timed_s: float, elapsed_s: float) -> bool:
    if n_passes < 2:  # one of each kind
        return False
    if elapsed_s >= timing.max_seconds or n_passes >= MAX_PASSES:
        return True
    n_whole = (n_passes + 1) // 2
    return n_whole >= timing.min_passes and timed_s >= timing.min_seconds


def compute_throughput(
    samples_s: Sequence[float], n_mini_batches: int, n_instances: int
) -> float | None:
    """Return the throughput of the median pass; None if the clock did not advance."""
    median = float(np.median(sum_passes(samples_s, n_mini_batches)))
    return n_instances / median if median > 0 else None


def compute_phase_medians(
    samples: Sequence[Sample], separable: Sequence[str]
) -> dict[Phase, float | None]:
    """Return the median seconds per mini-batch of each phase; None if it is not separable.

    Args:
        samples: Samples of marked runs.
        separable: Phases that the system separates.
    """
    medians: dict[Phase, float | None] = {}
    for phase in PHASES:
        seconds = [s.phases_s[phase] for s in samples if phase in s.phases_s]
        known = phase in separable and bool(seconds)
        medians[phase] = float(np.median(seconds)) if known else None
    return medians
