"""`policy=auto`: which policy, at which granularity, runs a model and its inputs fastest here.

1. Every candidate schedules one mini-batch: what that takes, and how many batches of each type.
   A granularity at which that alone takes longer than all of another's is left out: its code need
   not be compiled.
2. What a batch costs on this machine is measured for each granularity (batch_costs): a candidate is
   predicted to take its scheduling, and its batches at what they cost.
3. The candidates with the least predictions are tried whole, in turn, on a few mini-batches; the
   one that takes least is taken. A prediction only says who is worth trying, so that an error of it
   costs nothing unless it is larger than what lies between the best and N_TRIED others.

Candidates are all policies that do not say why not (harness.contracts.policy), at every granularity
that the switches allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from harness.contracts.choice import Candidate, Choice
from harness.contracts.policy import policy_names, why_not_by_auto
from harness.engine.switches import CHOICES, Switches
from harness.errors import ConfigError, UnsupportedTrial

N_TRIED = 5  # candidates
N_MINI_BATCHES = 3  # each candidate is tried on
LEAST_TRIES, MOST_TRIES = 3, 40  # of a mini-batch by a candidate
ENOUGH_S = 2.0  # of trying, all candidates together

Batches = Mapping[int, int]  # how many batches of each type


class Laboratory(Protocol):
    """Where candidates are measured; all seconds are of one mini-batch."""

    def schedule(self, candidate: Candidate) -> tuple[float, Batches]:
        """What construct and schedule take on the first mini-batch, and its batches by type.

        Raises UnsupportedTrial where its granularity cannot be run here.
        """

    def cost(self, granularity: str, fewest: Candidate) -> tuple[float, Mapping[int, float]]:
        """Seconds of forward and backward but for batches, and of one more batch of each type.

        fewest: the candidate of this granularity with the fewest batches.
        """

    def run(self, candidate: Candidate, k: int) -> float:
        """Seconds of mini-batch k from construct to backward."""


def candidates_of(switches: Switches) -> list[Candidate]:
    """All policies at all granularities, with why some are none.

    Raises ConfigError for switches beside which there is nothing to choose by.
    """
    if switches.profile:
        raise ConfigError(
            "policy=auto chooses by the time that runs take, which profile=true changes; give"
            " profile=false, or name a policy"
        )
    found = []
    for granularity in CHOICES["granularity"]:
        lost = _lost_at(granularity, switches)
        for policy in policy_names():
            why_not = why_not_by_auto(policy) or lost
            found.append(Candidate(policy=policy, granularity=granularity, why_not=why_not))
    return found


def _lost_at(granularity: str, switches: Switches) -> str | None:
    """Which switch has no meaning at a granularity, so that it would be another system."""
    if granularity == "vertex":
        return None
    for name, lost in (
        ("layout", switches.lays_out_subgraphs),
        ("share_equal_inputs", switches.share_equal_inputs),
    ):
        if lost:
            return f"{name}={str(getattr(switches, name)).lower()} is for vertex granularity"
    return None


def choose(candidates: Iterable[Candidate], lab: Laboratory, n_mini_batches: int) -> Choice:
    """Choose by schedules, predictions and tries.

    n_mini_batches: how many there are; at most N_MINI_BATCHES are tried.

    Raises UnsupportedTrial where no candidate can be run.
    """
    known = predicted(candidates, lab)
    able = [one for one in known if one.predicted_s is not None]
    if not able:
        why = next((one.why_not for one in known if one.why_not), "there is no policy")
        raise UnsupportedTrial(f"policy=auto has nothing to choose from: {why}")
    worth = sorted(able, key=lambda one: one.predicted_s or 0.0)[:N_TRIED]
    n_used = min(n_mini_batches, N_MINI_BATCHES)
    tried_s, n_tries = tried(worth, lab, n_used)
    least = dict(zip(worth, tried_s, strict=True))
    return Choice(
        candidates=tuple(
            replace(one, tried_s=least[one]) if one in least else one for one in known
        ),
        n_mini_batches=n_used,
        n_tries=n_tries,
    )


def predicted(candidates: Iterable[Candidate], lab: Laboratory) -> list[Candidate]:
    """Every candidate with its schedule and what it should take, where it can be run."""
    found: list[Candidate] = []
    batches: dict[Candidate, Batches] = {}
    for one in candidates:
        if one.why_not is None:
            try:
                seconds, n_of_type = lab.schedule(one)
            except UnsupportedTrial as error:
                one = replace(one, why_not=str(error))
            else:
                n_batches = sum(n_of_type.values())
                one = replace(one, scheduling_s=seconds, n_batches=n_batches)
                batches[one] = n_of_type
        found.append(one)
    for granularity in dict.fromkeys(one.granularity for one in batches):
        mine = [one for one in batches if one.granularity == granularity]
        too_slow = _too_slow(mine, found)
        if too_slow is None:
            fewest = min(mine, key=lambda one: one.n_batches or 0)
            fixed_s, cost_s = lab.cost(granularity, fewest)
        for one in mine:
            if too_slow is None:
                batches_s = sum(n * cost_s[t] for t, n in batches[one].items())
                whole_s = (one.scheduling_s or 0.0) + fixed_s + batches_s
                known = replace(one, predicted_s=whole_s)
            else:
                known = replace(one, why_not=too_slow)
            found[found.index(one)] = known
    return found


def _too_slow(mine: Iterable[Candidate], found: Iterable[Candidate]) -> str | None:
    """Why a granularity needs no measuring, and so no compiling: its schedules take too long."""
    whole = [one for one in found if one.predicted_s is not None]
    least = min(whole, key=lambda one: one.predicted_s or 0.0, default=None)
    if least is None or any((one.scheduling_s or 0.0) < (least.predicted_s or 0.0) for one in mine):
        return None
    return f"scheduling alone would take longer than all of {least.words}"


def tried(
    worth: Sequence[Candidate], lab: Laboratory, n_mini_batches: int
) -> tuple[list[float], int]:
    """Mean over mini-batches of the fastest run of each, by candidate; and how many runs of each.

    Candidates take turns, so that what slows the machine down for a while meets all of them.
    """
    least = [[float("inf")] * n_mini_batches for _ in worth]
    spent_s, n_tries = 0.0, 0
    while n_tries < LEAST_TRIES or (spent_s < ENOUGH_S and n_tries < MOST_TRIES):
        for k in range(n_mini_batches):
            for mine, candidate in zip(least, worth, strict=True):
                seconds = lab.run(candidate, k)
                spent_s += seconds
                mine[k] = min(mine[k], seconds)
        n_tries += 1
    return [sum(mine) / n_mini_batches for mine in least], n_tries
