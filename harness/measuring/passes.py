"""The timing loop: passes over the fixed list of mini-batches until warm, then timed ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from harness.contracts.system import PHASES, Counters, Phase, System
from harness.measuring.clock import Now, PhaseClock, Sample, collector_paused, now_ns
from harness.records.stats import pass_totals
from harness.trials.spec import Timing

MAX_PASSES = 1000  # enough for any statistic; keeps the records of very fast systems small
AGREEING_PASSES, AGREEMENT = 3, 0.05  # so many passes in a row differ by no more than this share


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Passes before the timed ones, and the counters of each mini-batch of the first."""

    n_passes: int
    counters: tuple[Counters, ...]


def warm_up(
    system: System,
    mini_batches: Sequence[Sequence[Any]],
    timing: Timing,
    now_ns: Now = now_ns,
) -> WarmUp:
    """Run passes that do not count until the last ones take equally long.

    At least n_warmup are made; none where that is 0. No further pass begins after max_warmup of
    them, or once max_warmup_s have gone by.
    """
    clock = PhaseClock(system.synchronize, now_ns)
    counters: list[Counters] = []
    passes_s: list[float] = []
    began = now_ns()
    with collector_paused():
        while not _is_warm(timing, passes_s, (now_ns() - began) * 1e-9):
            seconds = 0.0
            for _ in loaded(system, mini_batches):
                clock.start(marked=False)
                system.run(clock)
                seconds += clock.stop().total_s
                if not passes_s:
                    counters.append(system.counters())
            passes_s.append(seconds)
    return WarmUp(len(passes_s), tuple(counters))


def loaded(system: System, mini_batches: Sequence[Sequence[Any]]) -> Iterator[None]:
    """Load one mini-batch after the other, each with the one behind it named.

    None behind the last: every pass prepares its own mini-batches, and all of them.
    """
    for k, mini_batch in enumerate(mini_batches):
        system.load(mini_batch)
        if k + 1 < len(mini_batches):
            system.upcoming(mini_batches[k + 1])
        yield


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
    system: System,
    mini_batches: Sequence[Sequence[Any]],
    timing: Timing,
    now_ns: Now = now_ns,
    between: Callable[[], None] = lambda: None,
) -> Timed:
    """Time passes until `timing` is satisfied; loading a mini-batch is not timed.

    between: done behind each pass that marks no phases, outside of it; what follows is one that
    marks them, of which no speed is told.

    Every second pass marks its phases, so that what slows down while time goes by meets both alike.
    """
    clock = PhaseClock(system.synchronize, now_ns)
    whole: list[Sample] = []
    marked: list[Sample] = []
    n_passes, timed_s = 0, 0.0
    began = now_ns()
    with collector_paused():
        while not _enough(timing, n_passes, timed_s, (now_ns() - began) * 1e-9):
            is_marked = n_passes % 2 == 1
            samples = marked if is_marked else whole
            for _ in loaded(system, mini_batches):
                clock.start(marked=is_marked)
                system.run(clock)
                samples.append(clock.stop())
                timed_s += samples[-1].total_s
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
