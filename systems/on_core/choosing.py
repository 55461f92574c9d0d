"""`policy=auto`: selection of the fastest policy and granularity for a workload on this machine.

1. Every candidate schedules one mini-batch. This gives its scheduling time and the number of
   batches of each type. A granularity whose scheduling takes longer than a whole mini-batch at
   another one is excluded, so that its code need not be compiled.
2. For each granularity the cost of a batch is measured on this machine (Laboratory.measure_cost).
   The prediction for a candidate is its scheduling time plus the cost of its batches.
3. The candidates with the lowest predictions run a few whole mini-batches in turns, and the fastest
   is chosen. A prediction only selects the candidates that are tried: an error of it costs nothing
   unless it is larger than the gap between the best candidate and N_TRIED others.

Slowdowns of the machine affect the candidates of one turn alike, so times are compared within a
turn: two candidates by the median of their ratios over turns, with the interval of the sign test,
which holds for any distribution of the noise. A candidate that is clearly slower drops out.

Candidates are all policies that allow it
(dynbatch.harness.contracts.policy.explain_auto_exclusion), at every granularity that the switches
allow.

Source of the race: Maron and Moore, "Hoeffding races", NIPS 1993.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from dynbatch.harness.contracts.choice import Candidate, Choice, Report
from dynbatch.harness.contracts.policy import explain_auto_exclusion, list_policy_names
from dynbatch.harness.engine.switches import CHOICES, Switches
from dynbatch.harness.errors import ConfigError, UnsupportedTrial
from dynbatch.systems.on_core.laboratory import Batches, Laboratory

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


N_TRIED = 5  # candidates, and all others within WORTH of the least prediction, up to MAX_TRIED
MAX_TRIED, WORTH = 8, 1.2
LEAST_ARITHMETIC = 0.9  # time of single operators relative to whole cells; MV-RNN: 0.95
N_MINI_BATCHES = 3  # per candidate


def list_candidates(switches: Switches) -> list[Candidate]:
    """Return all policies at all granularities, with the reasons why some cannot be chosen.

    Raises:
        ConfigError: If the switch `profile` is on, which changes the times to choose by.
    """
    if switches.profile:
        raise ConfigError(
            "policy=auto compares run times, which profile=true changes; set profile=false or"
            " choose a policy"
        )
    candidates = []
    for granularity in CHOICES["granularity"]:
        lost = _explain_lost_switch(granularity, switches)
        for policy in list_policy_names():
            why_not = explain_auto_exclusion(policy) or lost
            candidates.append(Candidate(policy=policy, granularity=granularity, why_not=why_not))
    return candidates


def _explain_lost_switch(granularity: str, switches: Switches) -> str | None:
    """Return the reason if a switch has no effect at a granularity: it makes another system."""
    if granularity == "vertex":
        return None
    for name, lost in (
        ("layout", switches.lays_out_subgraphs),
        ("deduplicate_inputs", switches.deduplicate_inputs),
    ):
        if lost:
            return f"{name}={str(getattr(switches, name)).lower()} needs granularity=vertex"
    return None


def choose(
    candidates: Iterable[Candidate],
    lab: Laboratory,
    n_mini_batches: int,
    report: Report = lambda words: None,
) -> Choice:
    """Choose a candidate by schedules, predictions and a race.

    Args:
        n_mini_batches: number of available mini-batches; at most N_MINI_BATCHES are raced on.
        report: callback that takes a progress line before each step that takes time.

    Raises:
        UnsupportedTrial: If no candidate can run.
    """
    known = predict_times(candidates, lab, report)
    able = [candidate for candidate in known if candidate.predicted_s is not None]
    if not able:
        reason = next(
            (candidate.why_not for candidate in known if candidate.why_not), "no policies found"
        )
        raise UnsupportedTrial(f"policy=auto has no candidates: {reason}")
    worth = _select_promising(able)
    n_used = _count_raced_mini_batches(worth, n_mini_batches)
    report(
        f"{len(worth)} of {len(able)} candidates run {n_used} mini-batches in turn, for at most"
        f" {ENOUGH_S:g} s or {LEAST_ROUNDS} rounds"
    )
    outcome = run_race(len(worth), n_used, lambda i, k: lab.run(worth[i], k))
    taken = _select_winner(outcome, worth)
    tried = {
        candidate: replace(
            candidate,
            tried_s=outcome.compute_mini_batch_s(i),
            n_tries=len(outcome.turns_s[i]) // n_used,
            behind=outcome.compare(i, taken).median - 1,
            is_chosen=i == taken,
        )
        for i, candidate in enumerate(worth)
    }
    choice = Choice(
        candidates=tuple(tried.get(candidate, candidate) for candidate in known),
        n_mini_batches=n_used,
        n_tries=outcome.n_rounds,
        ended=outcome.ended,
    )
    report(choice.words)
    return choice


def _select_promising(able: Sequence[Candidate]) -> list[Candidate]:
    ordered = sorted(able, key=lambda candidate: candidate.predicted_s or 0.0)
    most = WORTH * (ordered[0].predicted_s or 0.0)
    near = [
        candidate for candidate in ordered[:MAX_TRIED] if (candidate.predicted_s or 0.0) <= most
    ]
    return near if len(near) > N_TRIED else ordered[:N_TRIED]


def _count_raced_mini_batches(worth: Iterable[Candidate], n_mini_batches: int) -> int:
    """Return the number of mini-batches whose LEAST_ROUNDS rounds fit ENOUGH_S, by predictions."""
    rounds_s = LEAST_ROUNDS * sum(candidate.predicted_s or 0.0 for candidate in worth)
    in_time = N_MINI_BATCHES
    if rounds_s * in_time > ENOUGH_S:
        in_time = max(1, int(ENOUGH_S / rounds_s))
    return min(n_mini_batches, N_MINI_BATCHES, in_time)


def _select_winner(outcome: Race, worth: Sequence[Candidate]) -> int:
    """Return the index of the chosen candidate among those as fast as the leader.

    Whole cells are preferred, then fewer batches, then the lower prediction.
    """
    leader = outcome.find_leader()
    equal = [
        i for i in outcome.running if i == leader or outcome.compare(i, leader).high <= 1 + EQUAL
    ]
    return min(equal, key=lambda i: (worth[i].granularity != "vertex", worth[i].n_batches, i))


def predict_times(
    candidates: Iterable[Candidate], lab: Laboratory, report: Report = lambda words: None
) -> list[Candidate]:
    """Return every candidate with its predicted seconds, or with the reason why it cannot run."""
    results = list(candidates)
    least: float | None = None  # prediction; least_fixed_s is its part besides batches, scheduling
    least_fixed_s = 0.0
    for granularity in dict.fromkeys(candidate.granularity for candidate in results):
        mine = [
            index for index, candidate in enumerate(results) if candidate.granularity == granularity
        ]
        asked = [index for index in mine if results[index].why_not is None]
        if asked:
            report(f"{granularity} granularity: {len(asked)} policies schedule a mini-batch")
        batches = _schedule_candidates(results, asked, lab)
        if not batches:
            continue
        too_slow = _explain_too_slow([results[index] for index in batches], results, least_fixed_s)
        if too_slow is not None:
            for index in batches:
                results[index] = replace(results[index], why_not=too_slow)
            continue
        report(f"{granularity} granularity: compiles and measures a batch of each type")
        fewest = min(batches, key=lambda index: results[index].n_batches or 0)
        fixed_s, cost_s = lab.measure_cost(granularity, results[fewest])
        for index, n_of_type in batches.items():
            batches_s = sum(n * cost_s[t] for t, n in n_of_type.items())
            whole_s = (results[index].scheduling_s or 0.0) + fixed_s + batches_s
            results[index] = replace(results[index], predicted_s=whole_s)
            if least is None or whole_s < least:
                least, least_fixed_s = whole_s, fixed_s
    return results


def _schedule_candidates(
    candidates: list[Candidate], asked: Iterable[int], lab: Laboratory
) -> dict[int, Batches]:
    """Schedule a mini-batch by each candidate, and store the times in `candidates`.

    Returns:
        Number of batches by type, for each index of a candidate that can run.
    """
    batches: dict[int, Batches] = {}
    for index in asked:
        try:
            seconds, n_of_type = lab.schedule(candidates[index])
        except UnsupportedTrial as error:
            candidates[index] = replace(candidates[index], why_not=str(error))
            continue
        n_batches = sum(n_of_type.values())
        candidates[index] = replace(candidates[index], scheduling_s=seconds, n_batches=n_batches)
        batches[index] = n_of_type
    return batches


def _explain_too_slow(
    mine: Iterable[Candidate], candidates: Iterable[Candidate], fixed_s: float
) -> str | None:
    """Return the reason if a granularity cannot win, and so need not be compiled and measured.

    Args:
        mine: candidates of this granularity.
        fixed_s: seconds of another granularity except scheduling and batches.
    """
    whole = [candidate for candidate in candidates if candidate.predicted_s is not None]
    least = min(whole, key=lambda candidate: candidate.predicted_s or 0.0, default=None)
    if least is None:
        return None
    without_batches_s = (
        min(candidate.scheduling_s or 0.0 for candidate in mine) + LEAST_ARITHMETIC * fixed_s
    )
    if without_batches_s < (least.predicted_s or 0.0):
        return None
    return f"scheduling and arithmetic would already take longer than {least.words}"
