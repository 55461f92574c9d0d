"""A race ends as soon as possible, and with noise its choice is never far from the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from dynbatch.harness.contracts.choice import Candidate
from dynbatch.systems.on_core.choosing import (
    ENOUGH_S,
    EQUAL,
    HOPELESS_ROUNDS,
    LEAST_ROUNDS,
    MAX_ROUNDS,
    choose,
    compute_interval,
    run_race,
)
from dynbatch.systems.on_core.laboratory import Batches

FAR_BEHIND = 0.03  # allowed slowdown of a choice, relative to the fastest
N_DRAWS = 1000


def test_the_interval_is_between_the_ratios_of_the_sign_test() -> None:
    assert compute_interval([3.0, 1.0, 2.0]).low == 1.0
    found = compute_interval([float(x) for x in range(1, 101)])
    assert (found.low, found.median, found.high) == (36.0, 50.5, 65.0)


def test_one_alone_runs_once() -> None:
    found = run_race(1, 2, lambda i, k: 0.1)
    assert (found.ended, found.n_rounds) == ("clear", 1)


def test_slow_candidate_runs_no_more_than_needed() -> None:
    seconds = [0.010, 0.020, 0.0105]
    found = run_race(3, 1, lambda i, k: seconds[i])
    assert [len(turns) for turns in found.turns_s] == [LEAST_ROUNDS, HOPELESS_ROUNDS, LEAST_ROUNDS]
    assert (found.ended, found.running) == ("clear", [0])


def test_negligible_difference_ends_the_race() -> None:
    seconds = [0.010, 0.010 * (1 - EQUAL / 2)]
    runs: list[int] = []
    found = run_race(2, 1, lambda i, k: runs.append(i) or seconds[i])
    assert (found.ended, found.n_rounds, found.find_leader()) == ("clear", LEAST_ROUNDS, 1)
    assert found.running == [0, 1]
    assert runs[:4] == [0, 1, 1, 0], "who goes first changes from turn to turn"


@pytest.mark.parametrize(
    ("scale_s", "n_rounds"), [(1e-6, MAX_ROUNDS), (ENOUGH_S / 40, 20), (ENOUGH_S, LEAST_ROUNDS)]
)
def test_without_an_end_in_sight_it_ends_when_time_is_over(scale_s: float, n_rounds: int) -> None:
    turns = [0, 0]

    def run(i: int, k: int) -> float:
        turns[i] += 1
        return scale_s * (1.1 if (turns[i] + i) % 2 else 0.9)  # the faster one alternates

    found = run_race(2, 1, run)
    assert (found.ended, found.n_rounds) == ("time", n_rounds)


def test_slowdown_of_a_whole_turn_does_not_affect_the_result() -> None:
    """Times differ by a factor of three between turns, and by 4 % between candidates."""
    rng = np.random.default_rng(0)
    slow = rng.uniform(1.0, 3.0, 1000)
    turns = [0, 0]

    def run(i: int, k: int) -> float:
        turns[i] += 1
        return 0.01 * slow[turns[i]] * (1.04 if i == 0 else 1.0)

    found = run_race(2, 1, run)
    assert (found.ended, found.find_leader(), found.n_rounds) == ("clear", 1, LEAST_ROUNDS)


@dataclass
class NoisyLaboratory:
    """Timings of a machine with background load.

    Every reading is off by 3 %, and one in twenty by up to one half. Speed drifts by 8 % over some
    hundred readings. Occasionally another process takes a part of the CPU for 30 readings. The
    measured cost of a batch is off by 10 % for all candidates, and a prediction by another 5 %.
    """

    seconds: Mapping[str, float]
    rng: np.random.Generator
    n_read: int = 0
    slow_until: int = 0
    slow_by: float = 1.0

    def schedule(self, candidate: Candidate) -> tuple[float, Batches]:
        n_batches = 1e4 * self.seconds[candidate.policy] * self.rng.lognormal(0.0, 0.05)
        return 0.0, {1: round(n_batches)}

    def measure_cost(
        self, granularity: str, fewest: Candidate
    ) -> tuple[float, Mapping[int, float]]:
        return 0.0, {1: 1e-4 * self.rng.lognormal(0.0, 0.1)}

    def run(self, candidate: Candidate, k: int) -> float:
        self.n_read += 1
        if self.n_read > self.slow_until:
            self.slow_by = 1.0
            if self.rng.random() < 0.01:
                self.slow_until = self.n_read + 30
                self.slow_by = self.rng.uniform(1.1, 2.0)
        drift = 1.0 + 0.08 * np.sin(self.n_read / 60.0)
        noise = self.rng.lognormal(0.0, 0.03)
        if self.rng.random() < 0.05:
            noise *= self.rng.uniform(1.0, 1.5)
        return self.seconds[candidate.policy] * drift * self.slow_by * noise


@pytest.mark.slow
def test_choice_under_machine_noise_is_close_to_the_best() -> None:
    rng = np.random.default_rng(2026)
    policies = [f"policy {i}" for i in range(6)]
    candidates = [Candidate(policy=policy, granularity="vertex") for policy in policies]
    behind = []
    for _ in range(N_DRAWS):
        whole_s = 10 ** rng.uniform(-2.3, -1)  # 5 to 100 ms
        seconds = dict(zip(policies, whole_s * rng.uniform(1.0, 1.25, len(policies)), strict=True))
        choice = choose(candidates, NoisyLaboratory(seconds, rng), 3)
        behind.append(seconds[choice.chosen.policy] / min(seconds.values()) - 1)
    assert max(behind) <= FAR_BEHIND
    assert np.median(behind) <= EQUAL
