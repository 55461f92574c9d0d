"""policy=auto: its choice is as fast as that of trying all candidates, within timing noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynbatch.harness.contracts.choice import Candidate, Choice
from dynbatch.harness.contracts.policy import explain_auto_exclusion, list_policy_names
from dynbatch.harness.contracts.system import RunSettings
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError, UnsupportedTrial
from dynbatch.harness.measuring.clock import make_stopwatch
from dynbatch.harness.records.record import read_record, write_record
from dynbatch.harness.terminal.reporting import format_summary
from dynbatch.systems.on_core.choosing import (
    EQUAL,
    LEAST_ROUNDS,
    MAX_TRIED,
    choose,
    list_candidates,
)
from dynbatch.systems.on_core.laboratory import Batches
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import example
from tests.support.fake_time import FakeTime
from tests.support.records import plain_record
from tests.support.refusals import check_line

SECONDS = st.floats(1e-6, 1.0, allow_nan=False)


@dataclass
class MadeUp:
    """Costs of candidates, and the calls so far."""

    scheduling_s: Mapping[str, float]  # by candidate
    batches: Mapping[str, Batches]  # their number by type, by candidate
    cost_s: Mapping[str, Mapping[int, float]]  # of a batch by type, by granularity
    fixed_s: Mapping[str, float]  # without scheduling and batches, by granularity
    off: Mapping[str, float] = field(default_factory=dict)  # actual over predicted time
    asked: list[str] = field(default_factory=list)

    def schedule(self, candidate: Candidate) -> tuple[float, Batches]:
        self.asked.append(f"schedule {candidate.words}")
        return self.scheduling_s[candidate.words], self.batches[candidate.words]

    def measure_cost(
        self, granularity: str, fewest: Candidate
    ) -> tuple[float, Mapping[int, float]]:
        self.asked.append(f"cost {granularity}")
        return self.fixed_s[granularity], self.cost_s[granularity]

    def run(self, candidate: Candidate, k: int) -> float:
        return self.whole_s(candidate) * (1 + k)

    def whole_s(self, candidate: Candidate) -> float:
        words, granularity = candidate.words, candidate.granularity
        costs = self.cost_s[granularity]
        batches_s = sum(n * costs[t] for t, n in self.batches[words].items())
        whole_s = self.scheduling_s[words] + self.fixed_s[granularity] + batches_s
        return whole_s * self.off.get(words, 1.0)


CANDIDATES = [
    Candidate(policy=policy, granularity=granularity)
    for granularity in ("vertex", "operator")
    for policy in ("a", "b", "c", "d")
]
WORDS = [one.words for one in CANDIDATES]
TYPES = (0, 1, 2)


@st.composite
def worlds(draw: st.DrawFn) -> MadeUp:
    batches = st.fixed_dictionaries({t: st.integers(0, 500) for t in TYPES})
    costs = st.fixed_dictionaries(dict.fromkeys(TYPES, st.floats(0.0, 1e-3)))
    vertex_s, more = draw(SECONDS), draw(st.floats(0.9, 5.0))  # about as much arithmetic, or more
    return MadeUp(
        draw(st.fixed_dictionaries(dict.fromkeys(WORDS, SECONDS))),
        draw(st.fixed_dictionaries(dict.fromkeys(WORDS, batches))),
        draw(st.fixed_dictionaries({"vertex": costs, "operator": costs})),
        {"vertex": vertex_s, "operator": vertex_s * more},
    )


@given(worlds())
def test_additive_costs_give_the_same_choice_as_exhaustive_search(world: MadeUp) -> None:
    best = min(map(world.whole_s, CANDIDATES))
    assert world.whole_s(choose(CANDIDATES, world, 3).chosen) <= best * (1 + EQUAL) * (1 + 1e-9)


@given(worlds(), st.data())
def test_predictions_may_be_wrong_about_all_that_is_tried(
    world: MadeUp, data: st.DataObject
) -> None:
    """The race decides between the tried candidates; predictions only select them."""
    predicted = choose(CANDIDATES, world, 1)
    names = [one.words for one in predicted.tried]
    wrong = data.draw(st.fixed_dictionaries(dict.fromkeys(names, st.floats(0.2, 5.0))))
    choice = choose(CANDIDATES, replace(world, off=wrong), 1)
    assert [one.words for one in choice.candidates if one.tried_s] == [
        one.words for one in predicted.candidates if one.tried_s
    ]
    least = min(world.whole_s(one) * wrong[one.words] for one in predicted.tried)
    assert choice.chosen.tried_s <= least * (1 + EQUAL) * (1 + 1e-9)


@given(worlds())
def test_choice_lists_every_candidate_and_is_deterministic(world: MadeUp) -> None:
    choice = choose(CANDIDATES, world, 2)
    assert [one.words for one in choice.candidates] == WORDS
    assert 1 <= len(choice.tried) <= MAX_TRIED
    assert all(one.predicted_s is not None for one in choice.tried)
    assert all(one.why_not or one.predicted_s is not None for one in choice.candidates)
    assert choose(CANDIDATES, world, 2) == choice


def even_world(**changed: float) -> MadeUp:
    """Return equal costs, except for the scheduling of some candidates."""
    return MadeUp(
        dict.fromkeys(WORDS, 0.01) | {name.replace("_", " "): s for name, s in changed.items()},
        {name: {1: 10} for name in WORDS},
        {name: {1: 0.001} for name in ("vertex", "operator")},
        dict.fromkeys(("vertex", "operator"), 0.02),
    )


def test_a_granularity_whose_schedules_take_too_long_is_never_compiled() -> None:
    slow = dict.fromkeys(WORDS[4:], 1.0)
    world = even_world(**slow)
    choice = choose(CANDIDATES, world, 1)
    assert "cost operator" not in world.asked
    reasons = {one.granularity: one.why_not for one in choice.candidates}
    assert reasons["vertex"] is None
    assert reasons["operator"] == (
        "scheduling and arithmetic would already take longer than a at vertex granularity"
    )


def test_unsupported_granularity_is_skipped() -> None:
    class VertexOnly(MadeUp):
        def schedule(self, candidate: Candidate) -> tuple[float, Batches]:
            if candidate.granularity == "operator":
                raise UnsupportedTrial("no such kernels")
            return super().schedule(candidate)

    world = VertexOnly(**{name: getattr(even_world(), name) for name in MadeUp.__annotations__})
    choice = choose(CANDIDATES, world, 1)
    assert choice.chosen.granularity == "vertex"
    assert choice.candidates[-1].why_not == "no such kernels"
    with pytest.raises(UnsupportedTrial, match="no candidates: no such kernels"):
        choose(CANDIDATES[4:], world, 1)


def test_the_first_of_equals_is_chosen_and_every_step_is_reported() -> None:
    printed: list[str] = []
    choice = choose(CANDIDATES, even_world(), 2, printed.append)
    assert choice.chosen.words == WORDS[0]
    assert (choice.ended, choice.n_tries, len(choice.tried)) == ("equal", LEAST_ROUNDS, len(WORDS))
    assert [line.split()[0] for line in printed[:-1]] == [*["vertex"] * 2, *["operator"] * 2, "8"]
    assert printed[-1] == choice.words


@pytest.mark.parametrize(("slower", "n_mini_batches"), [(1, 3), (5, 1), (2.5, 2), (1000, 1)])
def test_large_mini_batches_are_raced_on_in_smaller_numbers(
    slower: float, n_mini_batches: int
) -> None:
    """Eight candidates of 0.04 s take 5 rounds of 3 mini-batches in 4.8 s."""
    world = even_world()
    fixed_s = dict.fromkeys(("vertex", "operator"), 0.02 + (slower - 1) * 0.04)
    choice = choose(CANDIDATES, replace(world, fixed_s=fixed_s), 4)
    assert (choice.n_mini_batches, choice.n_tries) == (n_mini_batches, LEAST_ROUNDS)


FEWER = {"b at vertex": 8, "c at vertex": 7, "d at operator": 2}


def test_of_those_as_fast_the_one_with_the_fewest_batches_is_taken() -> None:
    """Operators are not chosen, although they have fewer batches, nor are slower candidates."""
    world = even_world()
    batches = {f"{name} granularity": {1: n} for name, n in FEWER.items()}
    slow = {"b at vertex granularity": 1 + EQUAL / 2, "c at vertex granularity": 1 + 2 * EQUAL}
    free = {"vertex": {1: 0.0}, "operator": {1: 0.0}}
    changed = replace(world, batches={**world.batches, **batches}, cost_s=free, off=slow)
    choice = choose(CANDIDATES, changed, 1)
    assert choice.chosen.words == "b at vertex granularity"
    assert choice.tried[0].words == "a at vertex granularity"
    behind = {one.words: one.behind for one in choice.tried}
    assert behind["a at vertex granularity"] == pytest.approx(1 / (1 + EQUAL / 2) - 1)
    assert behind["b at vertex granularity"] == 0.0


def test_candidates_are_all_policies_without_exclusion_reason() -> None:
    found = list_candidates(Switches())
    able = {one.policy for one in found if one.why_not is None}
    assert able == {name for name in list_policy_names() if explain_auto_exclusion(name) is None}
    assert {"agenda", "depth", "frontier", "critical_share", "sufficient"} <= able
    assert not able & {"unbatched", "beam_20", "fsm_sort"}
    assert {one.granularity for one in found if one.why_not is None} == {"vertex", "operator"}


@pytest.mark.parametrize(
    ("switches", "why_not"),
    [
        (Switches(layout="pq", fusion=False), "layout=pq needs granularity=vertex"),
        (Switches(deduplicate_inputs=True), "deduplicate_inputs=true needs granularity=vertex"),
    ],
)
def test_switches_of_vertices_leave_operators_out(switches: Switches, why_not: str) -> None:
    reasons = {one.why_not for one in list_candidates(switches) if one.granularity == "operator"}
    assert why_not in reasons
    assert None not in reasons


def test_profiling_with_auto_policy_is_refused() -> None:
    asked = RunSettings("train", "cpu", 1, 4, 0.1, 0, "auto", options={"profile": True})
    with pytest.raises(ConfigError, match="profile=true changes; set profile=false"):
        Adapter(asked)


def chosen_on_engine() -> tuple[Adapter, Choice]:
    """Choose with a clock that makes all runs equally long, so the first candidate is chosen."""
    model, instances, weights = example("tree_lstm")
    time = FakeTime()

    def now_ns() -> int:
        time.move(1)
        return time()

    system = Adapter(RunSettings("train", "cpu", 1, 2, 0.1, 0, "auto"))
    system.prepare(model, weights)
    choice = system.choose([instances, instances[:1]], make_stopwatch(system.synchronize, now_ns))
    system.compile_for(instances)
    for name, value in system.parameters().items():
        np.testing.assert_array_equal(value, weights[name])
    return system, choice


def test_the_engine_runs_as_was_chosen_and_choosing_changes_no_weight() -> None:
    system, choice = chosen_on_engine()
    assert (choice.n_mini_batches, choice.n_tries) == (2, LEAST_ROUNDS)
    chosen = choice.chosen
    assert (chosen.policy, chosen.granularity) == ("agenda", "vertex")
    options = system.effective_options()
    assert (options["policy"], options["granularity"]) == ("agenda", "vertex")
    assert system.counters().n_batches == chosen.n_batches
    assert chosen_on_engine()[1] == choice


def test_a_record_keeps_the_choice(tmp_path: Path) -> None:
    one = replace(CANDIDATES[0], n_batches=7, scheduling_s=1e-3, predicted_s=2e-3, tried_s=3e-3)
    one = replace(one, n_tries=3, behind=0.0, is_chosen=True)
    left_out = replace(CANDIDATES[1], why_not="it is slow")
    choice = Choice(candidates=(one, left_out), n_mini_batches=1, n_tries=3, ended="time")
    record = plain_record(changes={"policy_choice": choice, "policy_search_s": 1.5})
    path = tmp_path / "r0.json"
    write_record(path, record)
    assert read_record(path) == record
    check_line(choice.words, ("a at vertex granularity: 3 ms", "1 of 1 candidates", "time limit"))
    assert f"{choice.words}, in 1.5 s" in format_summary(record, path)
    with pytest.raises(ValueError, match="no candidate was tried"):
        Choice(candidates=(left_out,), n_mini_batches=1, n_tries=3)
