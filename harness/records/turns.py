"""Turns of a timed system in a block: which of them count, its time, and ratios within cycles.

One symmetric rule leaves out disturbed turns: a turn in which the process was kept from its CPU for
more than 2 % of the time does not count, and neither does the turn of another system in the same
cycle when the two are compared. If fewer than ENOUGH turns would remain, all count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from statistics import median  # much faster than NumPy's for a few numbers, with equal results

import numpy as np
from pydantic import BaseModel, ConfigDict

from dynbatch.harness.records.stats import compute_standard_error

ENOUGH = 3  # turns, or cycles of a pair
NORMAL_95 = 1.96  # standard errors in half of a 95% interval


class Turn(BaseModel):
    """Turn of a system in one cycle of a block: one or more unmarked passes.

    Attributes:
        wall_s: Seconds of the turn, with the time between runs.
        cpu_s: CPU seconds of all threads of the process.
        steal_s: Seconds that the hypervisor took from the machine's CPUs.
        wait_s: Seconds that threads of the process were ready but had no CPU.
        n_switches: Involuntary context switches of the process.
        is_disturbed: Whether it was kept from its CPUs for more than 2 % of wall_s; the rule is in
            docs/measuring.md.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cycle: int
    n_passes: int
    wall_s: float
    cpu_s: float
    steal_s: float
    wait_s: float
    n_switches: int
    is_disturbed: bool


Seconds = Mapping[int, tuple[float, bool]]  # seconds of a pass and is_disturbed, by cycle


def collect_turn_seconds(passes_s: Sequence[float], turns: Sequence[Turn]) -> Seconds:
    """Return each turn's median pass by cycle; without turns, every pass is one of its own."""
    if not turns:
        return {k: (seconds, False) for k, seconds in enumerate(passes_s)}
    n_passes = sum(turn.n_passes for turn in turns)
    if n_passes != len(passes_s):
        raise ValueError(f"{n_passes} passes in turns: expected {len(passes_s)}, as in passes_s")
    rest = iter(passes_s)
    return {turn.cycle: (median(islice(rest, turn.n_passes)), turn.is_disturbed) for turn in turns}


def compute_pass_s(seconds: Seconds) -> float:
    """Return the median seconds of a pass over the turns that count."""
    return median(_select_counting(list(seconds.values())))


def are_mostly_disturbed(turns: Sequence[Turn]) -> bool:
    """Return whether more than half of the turns were disturbed."""
    return 2 * sum(turn.is_disturbed for turn in turns) > len(turns)


def compute_half_width(seconds: Seconds) -> float | None:
    """Return about half the 95% interval of the median turn, relative to it; None for few turns."""
    counting = _select_counting(list(seconds.values()))
    error = compute_standard_error(np.log(np.maximum(counting, 1e-12)))
    return NORMAL_95 * error if math.isfinite(error) else None


def compute_ratio(own: Seconds, base: Seconds) -> float | None:
    """Return the median of the ratios within cycles; None without a shared cycle or a time."""
    pairs = [
        (own[cycle][0] / base[cycle][0], own[cycle][1] or base[cycle][1])
        for cycle in own.keys() & base.keys()
        if base[cycle][0] > 0
    ]
    return median(_select_counting(pairs)) if pairs else None


def _select_counting(values: Sequence[tuple[float, bool]]) -> list[float]:
    """Select the undisturbed values; all of them if fewer than ENOUGH would remain."""
    undisturbed = [value for value, is_disturbed in values if not is_disturbed]
    return undisturbed if len(undisturbed) >= ENOUGH else [value for value, _ in values]


def compute_cpu_share(turns: Sequence[Turn]) -> float | None:
    """Return the CPU seconds per second of the turns; None without turns."""
    wall_s = sum(turn.wall_s for turn in turns)
    return sum(turn.cpu_s for turn in turns) / wall_s if wall_s > 0 else None
