"""Cycles of a block: which systems run a pass next, and when a system has had enough passes.

A cycle gives every system of the block one pass, in a new random order (randomized complete block
design). A ratio is computed within a cycle, so that what disturbs all systems of a cycle alike
cancels. Every fourth cycle marks the phases; its passes do not count in throughput and ratios.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping

import numpy as np

from dynbatch.harness.measuring.turns import PassReport
from dynbatch.harness.records.stats import compute_standard_error
from dynbatch.harness.trials.spec import Timing

MAX_TURNS = 1000  # of a system in a block, enough for any statistic
MARKED_EVERY, FIRST_MARKED = 4, 1  # cycles 1, 5, 9, ... mark the phases
EXTENSION = 2.0  # most timed seconds for precision, relative to timing.min_seconds


def is_marked(cycle: int) -> bool:
    return cycle % MARKED_EVERY == FIRST_MARKED


def shuffle(members: Collection[int], block: str, cycle: int) -> list[int]:
    """Return the members of a cycle in random order, the same for the same block and cycle."""

    def draw(member: int) -> str:
        return hashlib.sha256(f"{block} {cycle} {member}".encode()).hexdigest()

    return sorted(members, key=draw)


class Progress:
    """Turns of one system of a block so far."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.whole: dict[int, PassReport] = {}
        self.n_turns = 0
        self.timed_s = 0.0

    def add(self, cycle: int, report: PassReport) -> None:
        if not is_marked(cycle):
            self.whole[cycle] = report
        self.n_turns += 1
        self.timed_s += report.timed_s

    def compute_median_s(self) -> float:
        """Return the median seconds of unmarked passes; infinite without one."""
        return float(np.median([p.seconds for p in self.whole.values()] or [math.inf]))

    def has_enough(self, n_cycles: int, standard_error: float) -> bool:
        """Return whether this system needs no further turns.

        Args:
            n_cycles: Number of unmarked cycles, or of those that it shares with its base.
            standard_error: That of the logarithm of its ratio or time.
        """
        timing = self.timing
        if not self.whole or self.n_turns == len(self.whole):  # at least one turn of each kind
            return False
        if self.timed_s >= timing.max_seconds or self.n_turns >= MAX_TURNS:
            return True
        if n_cycles < timing.min_passes or self.timed_s < timing.min_seconds:
            return False
        longest_s = EXTENSION * timing.min_seconds
        return standard_error <= timing.precision or self.timed_s >= longest_s


def list_unsettled(progress: Mapping[int, Progress], base: int | None = None) -> list[int]:
    """Return the members that need further turns.

    The base itself needs no precision if there are others, because its time is in every ratio.

    Args:
        base: Member with which all others are compared, and which has turns until all others have
            enough; None: the fastest one.
    """
    base = find_fastest(progress) if base is None else base
    theirs = progress[base]
    others = [
        member
        for member, own in progress.items()
        if member != base
        and not own.has_enough(
            len(own.whole.keys() & theirs.whole.keys()), estimate_error(own, theirs)
        )
    ]
    is_alone = len(progress) == 1
    error = estimate_error(theirs) if is_alone else 0.0
    if others or not theirs.has_enough(len(theirs.whole), error):
        return [*others, base]
    return []


def find_fastest(progress: Mapping[int, Progress]) -> int:
    return min(progress, key=lambda member: (progress[member].compute_median_s(), member))


def estimate_error(own: Progress, base: Progress | None = None) -> float:
    """Estimate the standard error of the median log-ratio to a base, or of the median log-time."""
    if base is None:
        seconds = [p.seconds for p in own.whole.values() if not p.is_disturbed]
        return compute_standard_error(np.log(np.maximum(seconds, 1e-9)))
    cycles = own.whole.keys() & base.whole.keys()
    pairs = [(own.whole[cycle], base.whole[cycle]) for cycle in cycles]
    logs = [
        math.log(max(a.seconds, 1e-9) / max(b.seconds, 1e-9))
        for a, b in pairs
        if not (a.is_disturbed or b.is_disturbed)
    ]
    return compute_standard_error(logs)
