"""`policy=auto`: selection of the fastest policy and granularity for a workload on this machine.

1. Every candidate schedules one mini-batch. This gives its scheduling time and the number of
   batches of each type. A granularity whose scheduling takes longer than a whole mini-batch at
   another one is excluded, so that its code need not be compiled.
2. For each granularity the cost of a batch is measured on this machine (Laboratory.cost). The
   prediction for a candidate is its scheduling time plus the cost of its batches.
3. The candidates with the lowest predictions run a few whole mini-batches in turns, and the fastest
   is chosen. A prediction only selects the candidates that are tried: an error of it costs nothing
   unless it is larger than the gap between the best candidate and N_TRIED others.

Candidates are all policies that allow it (harness.contracts.policy.why_not_by_auto), at every
granularity that the switches allow.
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
LEAST_ARITHMETIC = 0.9  # time of single operators relative to whole cells; MV-RNN: 0.95
N_MINI_BATCHES = 3  # per candidate


def candidates_of(switches: Switches) -> list[Candidate]:
    """Return all policies at all granularities, with the reasons why some cannot be chosen.

    Raises:
        ConfigError: If the switch `profile` is on, which changes the times to choose by.
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
    """Return the reason if a switch has no effect at a granularity: it makes another system."""
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
    """Choose a candidate by schedules, predictions and a race.

    Args:
        candidates: all policies at all granularities.
        lab: runs and times the candidates.
        n_mini_batches: number of available mini-batches; at most N_MINI_BATCHES are raced on.
        tell: callback that takes a progress line before each step that takes time.

    Raises:
        UnsupportedTrial: If no candidate can run.
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
    """Return the candidates with the lowest predictions."""
    ordered = sorted(able, key=lambda one: one.predicted_s or 0.0)
    most = WORTH * (ordered[0].predicted_s or 0.0)
    near = [one for one in ordered[:MOST_TRIED] if (one.predicted_s or 0.0) <= most]
    return near if len(near) > N_TRIED else ordered[:N_TRIED]


def _n_raced_on(worth: Iterable[Candidate], n_mini_batches: int) -> int:
    """Return the number of mini-batches whose LEAST_ROUNDS rounds fit ENOUGH_S, by predictions."""
    rounds_s = LEAST_ROUNDS * sum(one.predicted_s or 0.0 for one in worth)
    in_time = N_MINI_BATCHES
    if rounds_s * in_time > ENOUGH_S:
        in_time = max(1, int(ENOUGH_S / rounds_s))
    return min(n_mini_batches, N_MINI_BATCHES, in_time)


def _taken(found: Race, worth: Sequence[Candidate]) -> int:
    """Return the index of the chosen candidate among those as fast as the leader.

    Whole cells are preferred, then fewer batches, then the lower prediction.
    """
    leader = found.leader()
    equal = [i for i in found.running if i == leader or found.over(i, leader).high <= 1 + EQUAL]
    return min(equal, key=lambda i: (worth[i].granularity != "vertex", worth[i].n_batches, i))


def predicted(
    candidates: Iterable[Candidate], lab: Laboratory, tell: Tell = lambda words: None
) -> list[Candidate]:
    """Return every candidate with its predicted seconds, or with the reason why it cannot run."""
    found = list(candidates)
    least: float | None = None  # prediction; least_fixed_s is its part besides batches, scheduling
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
    """Schedule a mini-batch by each candidate, and store the times in `found`.

    Returns:
        Number of batches by type, for each index of a candidate that can run.
    """
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
    """Return the reason if a granularity cannot win, and so need not be compiled and measured.

    Args:
        mine: candidates of this granularity.
        found: all candidates.
        fixed_s: seconds of another granularity except scheduling and batches.
    """
    whole = [one for one in found if one.predicted_s is not None]
    least = min(whole, key=lambda one: one.predicted_s or 0.0, default=None)
    if least is None:
        return None
    without_batches_s = min(one.scheduling_s or 0.0 for one in mine) + LEAST_ARITHMETIC * fixed_s
    if without_batches_s < (least.predicted_s or 0.0):
        return None
    return f"scheduling and arithmetic alone would take longer than all of {least.words}"
