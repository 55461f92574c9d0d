"""The timing loop: passes over the fixed list of mini-batches until warm, then timed ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from harness.contracts.system import PHASES, Counters, Phase, System
from harness.measuring.clock import Now, PhaseClock, Sample, collector_paused, now_ns
from harness.records.stats import pass_totals
from harness.trials.spec import Timing

MAX_PASSES = 1000  # enough for any statistic; keeps the records of very fast systems small
AGREEING_PASSES, AGREEMENT = 3, 0.05  # so many passes in a row differ by no more than this share


class Passes:
    """Runs passes over mini-batches, and keeps of every run its loss and what was done before it.

    between_s: seconds from the end of one run to the start of the next, loading above all. losses:
    of each run. Both in the order of runs.
    """

    def __init__(self, system: System, now_ns: Now = now_ns) -> None:
        self.system, self.now_ns = system, now_ns
        self.between_s: list[float] = []
        self.losses: list[float] = []
        self._clock = PhaseClock(system.synchronize, now_ns)

    def run(
        self,
        mini_batches: Sequence[Sequence[Any]],
        *,
        marked: bool = False,
        after: Callable[[], None] = lambda: None,
    ) -> list[Sample]:
        """Load and run one mini-batch after the other, each with the next one named.

        None is named behind the last: every pass prepares its own mini-batches, and all of them.

        Args:
            marked: whether the clock reads the marks of phases.
            after: called after each run.
        """
        samples = []
        for k, mini_batch in enumerate(mini_batches):
            began = self.now_ns()
            self._ask()
            self.system.load(mini_batch)
            if k + 1 < len(mini_batches):
                self.system.upcoming(mini_batches[k + 1])
            started = self._clock.start(marked=marked)
            self.system.run(self._clock)
            samples.append(self._clock.stop())
            self.between_s.append((started - began) * 1e-9)
            after()
        return samples

    def _ask(self) -> None:
        """Ask for the loss of the last run, unless that was done."""
        if len(self.losses) < len(self.between_s):
            self.losses.append(self.system.last_loss())

    def testify(self, n_warm: int) -> tuple[list[float], float]:
        """Return the losses of all runs, and the median seconds before those behind n_warm."""
        self._ask()
        return self.losses, float(np.median(self.between_s[n_warm:]))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Passes before the timed ones, and the counters of each mini-batch of the first."""

    n_passes: int
    counters: tuple[Counters, ...]


def warm_up(passes: Passes, mini_batches: Sequence[Sequence[Any]], timing: Timing) -> WarmUp:
    """Run passes that do not count until the last ones take equally long.

    At least n_warmup are made; none where that is 0. No further pass begins after max_warmup of
    them, or once max_warmup_s have gone by.
    """
    counters: list[Counters] = []
    passes_s: list[float] = []

    def count() -> None:
        if not passes_s:
            counters.append(passes.system.counters())

    began = passes.now_ns()
    with collector_paused():
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


def mean_counters(counters: Sequence[Counters]) -> dict[str, float | None]:
    """Mean per mini-batch of each counter; None unless it is known of every mini-batch."""
    names = [item.name for item in fields(Counters)]
    return {name: _mean([getattr(one, name) for one in counters]) for name in names}


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return float(np.mean(known)) if known and len(known) == len(counts) else None


@dataclass(frozen=True, slots=True)
class Timed:
    """Samples in the order they were taken: of whole runs, and of runs that mark their phases."""

    whole: tuple[Sample, ...]
    marked: tuple[Sample, ...]


def time_passes(
    passes: Passes,
    mini_batches: Sequence[Sequence[Any]],
    timing: Timing,
    between: Callable[[], None] = lambda: None,
) -> Timed:
    """Time passes until `timing` is satisfied; loading a mini-batch is not timed.

    between: done behind each pass that marks no phases, outside of it; what follows is one that
    marks them, of which no speed is told.

    Every second pass marks its phases, so that what slows down while time goes by meets both alike.
    """
    whole: list[Sample] = []
    marked: list[Sample] = []
    n_passes, timed_s = 0, 0.0
    began = passes.now_ns()
    with collector_paused():
        while not _enough(timing, n_passes, timed_s, (passes.now_ns() - began) * 1e-9):
            is_marked = n_passes % 2 == 1
            samples = passes.run(mini_batches, marked=is_marked)
            (marked if is_marked else whole).extend(samples)
            timed_s += sum(sample.total_s for sample in samples)
            n_passes += 1
            if not is_marked:
                between()
    return Timed(tuple(whole), tuple(marked))


def _enough(timing: Timing, n_passes: int, timed_s: float, elapsed_s: float) -> bool:
    if n_passes < 2:  # one of either kind
        return False
    if elapsed_s >= timing.max_seconds or n_passes >= MAX_PASSES:
        return True
    n_whole = (n_passes + 1) // 2
    return n_whole >= timing.min_passes and timed_s >= timing.min_seconds


def instances_per_s(
    samples_s: Sequence[float], n_mini_batches: int, n_instances: int
) -> float | None:
    """Instances of a pass over the median pass; None where the clock saw no time go by."""
    median = float(np.median(pass_totals(samples_s, n_mini_batches)))
    return n_instances / median if median > 0 else None


def phase_medians(samples: Sequence[Sample], told: Sequence[str]) -> dict[Phase, float | None]:
    """Median seconds per mini-batch of each phase that the system tells apart and marked."""
    medians: dict[Phase, float | None] = {}
    for phase in PHASES:
        seconds = [s.phases_s[phase] for s in samples if phase in s.phases_s]
        known = phase in told and bool(seconds)
        medians[phase] = float(np.median(seconds)) if known else None
    return medians
