"""A budget: what is measured in it, in whole rounds of artefacts, what matters most first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.planning.budget import Step, seconds_of, within


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45m", 2700), ("1h30m", 5400), ("90s", 90), ("1.5h", 5400), (" 2m30s ", 150)],
)
def test_lengths_of_time_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "45", "m", "0m", "-5m", "5 m", "30m1h", "soon"])
def test_what_is_no_length_of_time_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is no length of time; write 45m, 1h30m or 90s"):
        seconds_of(text)


def steps(*names: str, n_rounds: int) -> list[Step]:
    return [Step(name, round_) for name in names for round_ in range(n_rounds)]


HEADLINE, TABLE = steps("a", "b", n_rounds=2), steps("b", "c", "d", n_rounds=2)
ARTEFACTS = {"headline": HEADLINE, "table": TABLE}
TEN = dict.fromkeys([*HEADLINE, *TABLE], 10.0)


@pytest.mark.parametrize(
    ("budget_s", "expected"),
    [
        (20, {"a0", "b0"}),
        (39, {"a0", "b0"}),  # the table's first round does not fit
        (40, {"a0", "b0", "c0", "d0"}),
        (60, {"a0", "b0", "c0", "d0", "a1", "b1"}),
        (80, {"a0", "b0", "c0", "d0", "a1", "b1", "c1", "d1"}),
    ],
)
def test_one_round_of_everything_comes_first(budget_s: float, expected: set[str]) -> None:
    found = within(budget_s, ARTEFACTS, TEN)
    assert {f"{step.name}{step.round}" for step in found} == expected


def test_what_does_not_fit_leaves_room_for_what_does() -> None:
    seconds = TEN | {Step("a", 0): 100.0}
    assert within(35, ARTEFACTS, seconds) == {Step("b", 0), Step("c", 0), Step("d", 0)}


def test_a_budget_for_nothing_is_said_with_what_is_needed() -> None:
    words = "too short for a round of anything; the shortest, of headline, takes about 20 s"
    with pytest.raises(ConfigError, match=words):
        within(19, ARTEFACTS, TEN)


def test_where_nothing_is_missing_every_budget_is_enough() -> None:
    assert within(1, {}, {}) == frozenset()


@given(
    st.dictionaries(
        st.sampled_from("pqr"),
        st.lists(st.builds(Step, st.sampled_from("abcde"), st.integers(0, 2)), unique=True),
    ),
    st.floats(1, 100),
    st.lists(st.floats(0.5, 20), min_size=15, max_size=15),
)
def test_it_is_kept_and_rounds_are_whole(
    artefacts: dict[str, list[Step]], budget_s: float, costs: list[float]
) -> None:
    every = [Step(name, round_) for name in "abcde" for round_ in range(3)]
    seconds = dict(zip(every, costs, strict=True))
    try:
        chosen = within(budget_s, artefacts, seconds)
    except ConfigError:
        chosen = frozenset()
    assert sum(seconds[step] for step in chosen) <= budget_s + 1e-6
    rounds = [
        {step for step in missing if step.round == k}
        for missing in artefacts.values()
        for k in range(3)
    ]
    assert chosen == frozenset().union(*(whole for whole in rounds if whole <= chosen))
