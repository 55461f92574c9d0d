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

from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.contracts.choice import Candidate, Choice, Tell
from harness.contracts.policy import policy_names, why_not_by_auto
from harness.engine.switches import CHOICES, Switches
from harness.errors import ConfigError, UnsupportedTrial
from systems.on_core.laboratory import Batches, Laboratory
from systems.on_core.racing import ENOUGH_S, EQUAL, LEAST_ROUNDS, Race, race

N_TRIED = 5  # candidates, and all others within WORTH of the least prediction, up to MOST_TRIED
MOST_TRIED, WORTH = 8, 1.2
LEAST_ARITHMETIC = 0.9  # operators by themselves over whole cells: MV-RNN takes 0.95 of its time
N_MINI_BATCHES = 3  # each candidate is tried on


def candidates_of(switches: Switches) -> list[Candidate]:
    """Return all policies at all granularities, with reasons of those that are no candidates.

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
    """Name the switch that has no meaning at a granularity, which makes another system."""
    if granularity == "vertex":
        return None
    for name, lost in (
        ("layout", switches.lays_out_subgraphs),
        ("share_equal_inputs", switches.share_equal_inputs),
    ):
        if lost:
            return f"{name}={str(getattr(switches, name)).lower()} is for vertex granularity"
    return None


def choose(
    candidates: Iterable[Candidate],
    lab: Laboratory,
    n_mini_batches: int,
    tell: Tell = lambda words: None,
) -> Choice:
    """Choose by schedules, predictions and a race.

    n_mini_batches: how many there are; at most N_MINI_BATCHES are raced on. tell: takes a line
    before whatever takes its time.

    Raises UnsupportedTrial where no candidate can be run.
    """
    known = predicted(candidates, lab, tell)
    able = [one for one in known if one.predicted_s is not None]
    if not able:
        why = next((one.why_not for one in known if one.why_not), "there is no policy")
        raise UnsupportedTrial(f"policy=auto has nothing to choose from: {why}")
    worth = _worth_trying(able)
    n_used = _n_raced_on(worth, n_mini_batches)
    tell(
        f"{len(worth)} of {len(able)} candidates run {n_used} mini-batches in turns, for at most"
        f" {ENOUGH_S:g} s or {LEAST_ROUNDS} rounds"
    )
    found = race(len(worth), n_used, lambda i, k: lab.run(worth[i], k))
    taken = _taken(found, worth)
    tried = {
        one: replace(
            one,
            tried_s=found.mini_batch_s(i),
            n_tries=len(found.turns_s[i]) // n_used,
            behind=found.over(i, taken).median - 1,
            is_chosen=i == taken,
        )
        for i, one in enumerate(worth)
    }
    choice = Choice(
        candidates=tuple(tried.get(one, one) for one in known),
        n_mini_batches=n_used,
        n_tries=found.n_rounds,
        ended=found.ended,
    )
    tell(choice.words)
    return choice


def _worth_trying(able: Sequence[Candidate]) -> list[Candidate]:
    """Return those with the least predictions."""
    ordered = sorted(able, key=lambda one: one.predicted_s or 0.0)
    most = WORTH * (ordered[0].predicted_s or 0.0)
    near = [one for one in ordered[:MOST_TRIED] if (one.predicted_s or 0.0) <= most]
    return near if len(near) > N_TRIED else ordered[:N_TRIED]


def _n_raced_on(worth: Iterable[Candidate], n_mini_batches: int) -> int:
    """Return how many mini-batches let the fewest rounds end in time, by predictions."""
    rounds_s = LEAST_ROUNDS * sum(one.predicted_s or 0.0 for one in worth)
    in_time = N_MINI_BATCHES
    if rounds_s * in_time > ENOUGH_S:
        in_time = max(1, int(ENOUGH_S / rounds_s))
    return min(n_mini_batches, N_MINI_BATCHES, in_time)


def _taken(found: Race, worth: Sequence[Candidate]) -> int:
    """Return the fastest, or one as fast with fewer batches; of equals the one predicted less."""
    leader = found.leader()
    equal = [i for i in found.running if i == leader or found.over(i, leader).high <= 1 + EQUAL]
    return min(equal, key=lambda i: (worth[i].granularity != "vertex", worth[i].n_batches, i))


def predicted(
    candidates: Iterable[Candidate], lab: Laboratory, tell: Tell = lambda words: None
) -> list[Candidate]:
    """Every candidate with its schedule and what it should take, where it can be run."""
    found = list(candidates)
    least: float | None = None  # prediction, and what of it is no batch and no scheduling
    least_fixed_s = 0.0
    for granularity in dict.fromkeys(one.granularity for one in found):
        mine = [place for place, one in enumerate(found) if one.granularity == granularity]
        asked = [place for place in mine if found[place].why_not is None]
        if asked:
            tell(f"{granularity} granularity: {len(asked)} policies schedule a mini-batch")
        batches = _scheduled(found, asked, lab)
        if not batches:
            continue
        too_slow = _too_slow([found[place] for place in batches], found, least_fixed_s)
        if too_slow is not None:
            for place in batches:
                found[place] = replace(found[place], why_not=too_slow)
            continue
        tell(f"{granularity} granularity: compiled, and a batch of each type measured")
        fewest = min(batches, key=lambda place: found[place].n_batches or 0)
        fixed_s, cost_s = lab.cost(granularity, found[fewest])
        for place, n_of_type in batches.items():
            batches_s = sum(n * cost_s[t] for t, n in n_of_type.items())
            whole_s = (found[place].scheduling_s or 0.0) + fixed_s + batches_s
            found[place] = replace(found[place], predicted_s=whole_s)
            if least is None or whole_s < least:
                least, least_fixed_s = whole_s, fixed_s
    return found


def _scheduled(found: list[Candidate], asked: Iterable[int], lab: Laboratory) -> dict[int, Batches]:
    """Put in `found` what scheduling takes; batches by type of those that can be run."""
    batches: dict[int, Batches] = {}
    for place in asked:
        try:
            seconds, n_of_type = lab.schedule(found[place])
        except UnsupportedTrial as error:
            found[place] = replace(found[place], why_not=str(error))
            continue
        n_batches = sum(n_of_type.values())
        found[place] = replace(found[place], scheduling_s=seconds, n_batches=n_batches)
        batches[place] = n_of_type
    return batches


def _too_slow(mine: Iterable[Candidate], found: Iterable[Candidate], fixed_s: float) -> str | None:
    """Why a granularity needs no measuring, and so no compiling: it cannot win.

    fixed_s: what another granularity takes but for scheduling and batches.
    """
    whole = [one for one in found if one.predicted_s is not None]
    least = min(whole, key=lambda one: one.predicted_s or 0.0, default=None)
    if least is None:
        return None
    without_batches_s = min(one.scheduling_s or 0.0 for one in mine) + LEAST_ARITHMETIC * fixed_s
    if without_batches_s < (least.predicted_s or 0.0):
        return None
    return f"scheduling and arithmetic alone would take longer than all of {least.words}"
