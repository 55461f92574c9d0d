"""A race: candidates run in turns until it is clear who is fastest, or that it makes no difference.

What slows a machine down for a while slows the candidates of one turn alike: so they take turns at
every mini-batch, and times are compared within a turn. How two compare is the median of their
ratios over turns, and known up to an interval that holds whatever the noise is like: that of the
sign test, whose ends are two of the ratios in order. A candidate that is behind drops out,
as in Maron and Moore, "Hoeffding races", NIPS 1993.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

EQUAL = 0.015  # of the time: what is less is no difference
LEAST_ROUNDS, MOST_ROUNDS = 5, 200
ENOUGH_S = 10.0  # of running, all candidates together
HOPELESS, HOPELESS_ROUNDS = 1.25, 2  # how far behind, in each turn so far, ends it early
WIDTH = 3.0  # of the interval, in standard deviations of the sign test: 99.7 % where it is large
LOOKS = 8  # at every round, then whenever there are an eighth more

Ended = Literal["clear", "equal", "time"]
Run = Callable[[int, int], float]  # seconds of mini-batch k by candidate i


@dataclass(frozen=True, slots=True)
class Interval:
    """A median of ratios, and what it is between."""

    low: float
    median: float
    high: float


@dataclass(slots=True)
class Race:
    """turns_s: of each candidate, the seconds of its turns, at one mini-batch after the other.

    running: those that are not known to be behind. ended: how it did.
    """

    turns_s: list[list[float]]
    n_mini_batches: int
    running: list[int] = field(default_factory=list)
    ended: Ended = "time"

    @property
    def n_rounds(self) -> int:
        """Turns at every mini-batch, of those that ran to the end."""
        return max(map(len, self.turns_s)) // self.n_mini_batches

    def mini_batch_s(self, one: int) -> float:
        """What a mini-batch takes: the median of each, and their mean."""
        n, turns_s = self.n_mini_batches, self.turns_s[one]
        return statistics.mean(statistics.median(turns_s[k::n]) for k in range(n))

    def leader(self) -> int:
        """Who is fastest of those that run, by the median of their parts of every turn."""
        sums = [sum(times) for times in zip(*(self.turns_s[i] for i in self.running), strict=True)]
        parts = {
            i: statistics.median(s / whole for s, whole in zip(self.turns_s[i], sums, strict=True))
            for i in self.running
        }
        return min(self.running, key=lambda i: parts[i])

    def over(self, one: int, other: int) -> Interval:
        """How much longer one takes than another, over the turns that both ran."""
        pairs = zip(self.turns_s[one], self.turns_s[other], strict=False)
        return interval([mine / base if base else 1.0 for mine, base in pairs])


def interval(ratios: Sequence[float]) -> Interval:
    """The median, and the two of them in order that it lies between; all of few."""
    ordered, n = sorted(ratios), len(ratios)
    place = max(0, math.floor((n - WIDTH * math.sqrt(n)) / 2))
    return Interval(ordered[place], statistics.median(ordered), ordered[n - 1 - place])


def race(n_candidates: int, n_mini_batches: int, run: Run) -> Race:
    """Run candidates in turns until one is known to be the fastest or as fast, or time is over.

    run: takes the number of a candidate and of a mini-batch.
    """
    found = Race([[] for _ in range(n_candidates)], n_mini_batches, list(range(n_candidates)))
    spent_s = 0.0
    while found.n_rounds < LEAST_ROUNDS or (spent_s < ENOUGH_S and found.n_rounds < MOST_ROUNDS):
        running = list(found.running)
        for k in range(n_mini_batches):
            shift = (found.n_rounds + k) % len(running)  # nobody is always behind the same one
            turn = {i: run(i, k) for i in running[shift:] + running[:shift]}
            for i, seconds in turn.items():
                found.turns_s[i].append(seconds)
            spent_s += sum(turn.values())
        if found.n_rounds % max(1, found.n_rounds // LOOKS) == 0 and _is_decided(found):
            break
    return found


def _is_decided(found: Race) -> bool:
    """Let those drop out that are behind by more than EQUAL; whether none is ahead by more."""
    leader = found.leader()
    over = {i: found.over(i, leader) for i in found.running}
    is_early = found.n_rounds < LEAST_ROUNDS
    if found.n_rounds >= HOPELESS_ROUNDS:
        behind = HOPELESS if is_early else 1 + EQUAL
        found.running = [i for i in found.running if i == leader or over[i].low <= behind]
    others = [over[i].low for i in found.running if i != leader]
    if (is_early and others) or any(low < 1 - EQUAL for low in others):
        return False
    found.ended = "clear" if all(low > 1 for low in others) else "equal"
    return True
