"""The timing loop: warm-up, then whole passes over the fixed list of mini-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.contracts.system import PHASES, Counters, Phase, System
from harness.measuring.clock import (
    Now,
    NullClock,
    PhaseClock,
    Sample,
    collector_paused,
    now_ns,
)
from harness.records.stats import pass_totals
from harness.trials.spec import Timing

MAX_PASSES = 1000  # enough for any statistic; keeps the records of very fast systems small


def warm_up(system: System, mini_batches: Sequence[Sequence[Any]], n_passes: int) -> list[Counters]:
    """Run whole passes untimed; returns the counters of each mini-batch of the first pass."""
    clock = NullClock()
    counters: list[Counters] = []
    for index in range(n_passes):
        for mini_batch in mini_batches:
            system.load(mini_batch)
            system.run(clock)
            if index == 0:
                counters.append(system.counters())
    system.synchronize()
    return counters


@dataclass(frozen=True, slots=True)
class MeanCounters:
    """Counters as means per mini-batch; None where a system cannot tell."""

    n_batches: float | None = None
    n_launches: float | None = None
    bytes_copied: float | None = None
    n_copies: float | None = None
    lower_bound: float | None = None


def mean_counters(counters: Sequence[Counters]) -> MeanCounters:
    """Mean per mini-batch of each counter; None unless it is known of every mini-batch."""
    return MeanCounters(
        n_batches=_mean([one.n_batches for one in counters]),
        n_launches=_mean([one.n_launches for one in counters]),
        bytes_copied=_mean([one.bytes_copied for one in counters]),
        n_copies=_mean([one.n_copies for one in counters]),
        lower_bound=_mean([one.lower_bound for one in counters]),
    )


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return float(np.mean(known)) if known and len(known) == len(counts) else None


def time_passes(
    system: System,
    mini_batches: Sequence[Sequence[Any]],
    timing: Timing,
    clock: PhaseClock | None = None,
    now_ns: Now = now_ns,
) -> list[Sample]:
    """Time whole passes until `timing` is satisfied; loading a mini-batch is not timed."""
    clock = clock or PhaseClock(system.synchronize, now_ns)
    samples: list[Sample] = []
    n_passes, timed_s = 0, 0.0
    began = now_ns()
    with collector_paused():
        while not _enough(timing, n_passes, timed_s, (now_ns() - began) * 1e-9):
            for mini_batch in mini_batches:
                system.load(mini_batch)
                clock.start()
                system.run(clock)
                samples.append(clock.stop())
                timed_s += samples[-1].total_s
            n_passes += 1
    return samples


def _enough(timing: Timing, n_passes: int, timed_s: float, elapsed_s: float) -> bool:
    if n_passes == 0:
        return False
    if elapsed_s >= timing.max_seconds or n_passes >= MAX_PASSES:
        return True
    return n_passes >= timing.min_passes and timed_s >= timing.min_seconds


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
