"""Race of candidates, run in turns until one is clearly the fastest or differences are negligible.

Slowdowns of the machine affect the candidates of one turn alike. Candidates therefore take turns
at every mini-batch, and times are compared within a turn. Two candidates are compared by the median
of their ratios over turns, with the interval of the sign test. Its ends are two of the ordered
ratios, and it holds for any distribution of the noise. A candidate that is clearly slower drops
out.

Source: Maron and Moore, "Hoeffding races", NIPS 1993.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

EQUAL = 0.015  # relative difference that is negligible
LEAST_ROUNDS, MAX_ROUNDS = 5, 200
ENOUGH_S = 10.0  # limit of all running times together
HOPELESS, HOPELESS_ROUNDS = 1.25, 2  # slowdown in every turn so far that drops a candidate early
WIDTH = 3.0  # interval in standard deviations of the sign test: 99.7 % for many turns
LOOKS = 8  # a decision after every round, later after every eighth more of them

Ended = Literal["clear", "equal", "time"]
Run = Callable[[int, int], float]  # seconds of mini-batch k by candidate i


@dataclass(frozen=True, slots=True)
class Interval:
    """Median of ratios, with the interval that contains it."""

    low: float
    median: float
    high: float


@dataclass(slots=True)
class Race:
    """Times of a race and its outcome.

    Attributes:
        turns_s: for each candidate, the seconds of its turns, which go through the mini-batches in
            order.
        running: indices of the candidates that have not dropped out.
        ended: reason for the end of the race.
    """

    turns_s: list[list[float]]
    n_mini_batches: int
    running: list[int] = field(default_factory=list)
    ended: Ended = "time"

    @property
    def n_rounds(self) -> int:
        """Number of rounds (a turn at every mini-batch) of the candidates that ran to the end."""
        return max(map(len, self.turns_s)) // self.n_mini_batches

    def compute_mini_batch_s(self, candidate: int) -> float:
        """Return the seconds of a mini-batch: the mean over mini-batches of their median."""
        n, turns_s = self.n_mini_batches, self.turns_s[candidate]
        return statistics.mean(statistics.median(turns_s[k::n]) for k in range(n))

    def find_leader(self) -> int:
        """Return the fastest running candidate, by the median of its fraction of every turn."""
        sums = [sum(times) for times in zip(*(self.turns_s[i] for i in self.running), strict=True)]
        parts = {
            i: statistics.median(s / whole for s, whole in zip(self.turns_s[i], sums, strict=True))
            for i in self.running
        }
        return min(self.running, key=lambda i: parts[i])

    def compare(self, candidate: int, other: int) -> Interval:
        """Return the ratio of one candidate's time to another's, over the turns that both ran."""
        pairs = zip(self.turns_s[candidate], self.turns_s[other], strict=False)
        return compute_interval([mine / base if base else 1.0 for mine, base in pairs])


def compute_interval(ratios: Sequence[float]) -> Interval:
    """Return the median, and the interval of ordered ratios around it.

    The interval of a few ratios is their range.
    """
    ordered, n = sorted(ratios), len(ratios)
    index = max(0, math.floor((n - WIDTH * math.sqrt(n)) / 2))
    return Interval(ordered[index], statistics.median(ordered), ordered[n - 1 - index])


def run_race(n_candidates: int, n_mini_batches: int, run: Run) -> Race:
    """Run candidates in turns until the fastest is known, others are as fast, or time is over.

    Args:
        run: returns the seconds of a candidate, by its index, on a mini-batch, by its index.
    """
    outcome = Race([[] for _ in range(n_candidates)], n_mini_batches, list(range(n_candidates)))
    spent_s = 0.0
    while outcome.n_rounds < LEAST_ROUNDS or (spent_s < ENOUGH_S and outcome.n_rounds < MAX_ROUNDS):
        running = list(outcome.running)
        for k in range(n_mini_batches):
            shift = (outcome.n_rounds + k) % len(running)  # varies the predecessor of a candidate
            turn = {i: run(i, k) for i in running[shift:] + running[:shift]}
            for i, seconds in turn.items():
                outcome.turns_s[i].append(seconds)
            spent_s += sum(turn.values())
        if outcome.n_rounds % max(1, outcome.n_rounds // LOOKS) == 0 and _is_decided(outcome):
            break
    return outcome


def _is_decided(outcome: Race) -> bool:
    """Drop candidates that are slower by more than EQUAL, and return whether the race is decided.

    It is decided when no candidate is faster than the leader by more than EQUAL.
    """
    leader = outcome.find_leader()
    over = {i: outcome.compare(i, leader) for i in outcome.running}
    is_early = outcome.n_rounds < LEAST_ROUNDS
    if outcome.n_rounds >= HOPELESS_ROUNDS:
        behind = HOPELESS if is_early else 1 + EQUAL
        outcome.running = [i for i in outcome.running if i == leader or over[i].low <= behind]
    others = [over[i].low for i in outcome.running if i != leader]
    if (is_early and others) or any(low < 1 - EQUAL for low in others):
        return False
    outcome.ended = "clear" if all(low > 1 for low in others) else "equal"
    return True
