"""Statistics with known results: passes of turns, ratios within cycles, and rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dynbatch.harness.records.stats import (
    INTERVAL,
    INTERVAL_ROUNDS,
    RANGE,
    Summary,
    is_too_short,
    name_interval,
    summarize_rounds,
)
from dynbatch.harness.records.turns import (
    are_mostly_disturbed,
    collect_turn_seconds,
    compute_cpu_share,
    compute_pass_s,
    compute_ratio,
)
from tests.support.records import turn

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
# Errors of a round around a true median of 0.
DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "long tails": lambda rng, size: rng.standard_t(2, size=size),
    "skewed": lambda rng, size: rng.lognormal(sigma=0.5, size=size) - 1,
    "now and then disturbed": lambda rng, size: (
        rng.normal(size=size) + 5 * (rng.random(size) < 0.1) * rng.random(size)
    ),
}


def ends(summary: Summary) -> tuple[float, float]:
    return summary.low, summary.high


def test_few_rounds_have_their_range_and_it_is_called_that() -> None:
    summary = summarize_rounds([10.0, 12.0, 11.0, 30.0, 9.0])
    assert (summary.median, name_interval(summary.n_rounds)) == (11.0, RANGE)
    assert ends(summary) == (9.0, 30.0)


def test_six_rounds_give_an_interval_inside_the_range() -> None:
    summary = summarize_rounds([10.0, 12.0, 11.0, 30.0, 9.0, 13.0])
    assert summary.n_rounds == INTERVAL_ROUNDS
    assert name_interval(summary.n_rounds) == INTERVAL
    low, high = ends(summary)
    assert 9.0 < low < 10.0, "between the smallest and the next"
    assert 13.0 < high < 30.0


def test_equal_rounds_have_ends_of_no_width() -> None:
    for n in (5, 7):
        assert ends(summarize_rounds([7.0] * n)) == (7.0, 7.0)


def test_rounds_have_no_order() -> None:
    values = np.random.default_rng(1).normal(100, 5, size=9)
    assert summarize_rounds(values) == summarize_rounds(values[::-1])


def coverage(draw: Draw, n_rounds: int, n_times: int) -> float:
    """Return the fraction of simulated measurements whose interval contains the true median."""
    drawn = draw(np.random.default_rng(n_rounds), (n_times, n_rounds))
    truth = 0.0 if draw is not DISTRIBUTIONS["now and then disturbed"] else disturbed_median()
    found = [ends(summarize_rounds(values)) for values in drawn]
    return float(np.mean([low <= truth <= high for low, high in found]))


def disturbed_median() -> float:
    draw = DISTRIBUTIONS["now and then disturbed"]
    return float(np.median(draw(np.random.default_rng(0), (1000, 1000))))


@pytest.mark.parametrize("n_rounds", [6, 7, 8, 10, 15])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_interval_holds_the_truth_as_often_as_it_says(name: str, n_rounds: int) -> None:
    # With 3,000 measurements, three standard errors of the fraction are 0.012.
    assert 0.935 <= coverage(DISTRIBUTIONS[name], n_rounds, n_times=3000) <= 0.985


@pytest.mark.parametrize(("n_rounds", "covers"), [(2, 0.5), (3, 0.75), (5, 0.9375)])
def test_range_of_few_rounds_has_lower_coverage(n_rounds: int, covers: float) -> None:
    found = coverage(DISTRIBUTIONS["normal"], n_rounds, n_times=3000)
    assert found == pytest.approx(covers, abs=0.03)


def test_one_round_has_no_ends_and_none_is_an_error() -> None:
    one = summarize_rounds([5.0])
    assert (one.low, one.high, name_interval(one.n_rounds)) == (None, None, "")
    with pytest.raises(ValueError, match="no round"):
        summarize_rounds([])


def test_samples_below_clock_resolution_are_too_short() -> None:
    assert not is_too_short([1e-4] * 9, timer_overhead_s=0.99e-6)
    assert is_too_short([1e-4] * 9, timer_overhead_s=1.01e-6)
    assert not is_too_short([], timer_overhead_s=1.0)


@pytest.mark.parametrize(
    ("values", "is_wide"),
    [
        ([1.0], False),
        ([0.98, 1.0, 1.029], False),
        ([0.97, 1.0, 1.021], True),
        ([-0.97, -1.0, -1.021], True),
    ],
)
def test_an_interval_above_five_percent_is_wide(values: list[float], is_wide: bool) -> None:
    assert summarize_rounds(values).is_wide == is_wide


def test_a_turn_of_several_passes_is_their_median() -> None:
    passes_s = [3.0, 3.0, 9.0, 5.0]  # three in the first turn, one in the second
    seconds = collect_turn_seconds(passes_s, [turn(0, 3), turn(2, 1, is_disturbed=True)])
    assert seconds == {0: (3.0, False), 2: (5.0, True)}


def test_without_turns_every_pass_is_one() -> None:
    assert collect_turn_seconds([3.0, 7.0], ()) == {0: (3.0, False), 1: (7.0, False)}


def test_turns_must_have_as_many_passes_as_there_are_times() -> None:
    with pytest.raises(ValueError, match="3 passes in turns: expected 2"):
        collect_turn_seconds([1.0, 2.0], [turn(0), turn(1, 2)])


@pytest.mark.parametrize(
    ("disturbed", "expected"),
    [
        ((), 3.0),
        ((4,), 2.5),  # of 1, 2, 3, 4
        ((3, 4), 2.0),
        ((2, 3, 4), 3.0),  # only two would remain
    ],
)
def test_disturbed_turns_count_only_if_needed(disturbed: Sequence[int], expected: float) -> None:
    seconds = {k: (k + 1.0, k in disturbed) for k in range(5)}
    assert compute_pass_s(seconds) == expected


def test_a_ratio_is_within_cycles_and_both_members_of_a_cycle_are_left_out() -> None:
    own = {0: (2.0, False), 1: (20.0, True), 2: (4.0, False), 3: (8.0, False), 9: (1.0, False)}
    base = {0: (1.0, False), 1: (10.0, False), 2: (2.2, False), 3: (3.0, True), 5: (1.0, False)}
    # Cycles 1 and 3 have a disturbed member; only two would remain, so that all four count.
    assert compute_ratio(own, base) == pytest.approx((2.0 + 2.0) / 2)
    own[4], base[4] = (3.0, False), (1.0, False)
    assert compute_ratio(own, base) == pytest.approx(2.0)
    assert compute_ratio({0: (1.0, False)}, {1: (1.0, False)}) is None
    assert compute_ratio({0: (1.0, False)}, {0: (0.0, False)}) is None


@given(
    st.lists(
        st.tuples(st.floats(0.1, 10), st.floats(0.1, 10), st.booleans(), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    st.floats(0.1, 10),
)
def test_the_rule_is_symmetric_and_what_slows_a_whole_cycle_cancels(
    cycles: list[tuple[float, float, bool, bool]], slowdown: float
) -> None:
    own = {k: (a, doubt) for k, (a, _, doubt, _) in enumerate(cycles)}
    base = {k: (b, doubt) for k, (_, b, _, doubt) in enumerate(cycles)}
    ratio = compute_ratio(own, base)
    assert ratio is not None
    slower = [
        {k: (s * (slowdown if k % 2 else 1), d) for k, (s, d) in side.items()}
        for side in (own, base)
    ]
    assert compute_ratio(*slower) == pytest.approx(ratio)
    if len(cycles) % 2 or ratio == 1:  # the median of an even number is a mean
        marks = sum(not (a or b) for *_, a, b in cycles)
        if (marks if marks >= 3 else len(cycles)) % 2:
            assert compute_ratio(base, own) == pytest.approx(1 / ratio)


def test_a_round_is_disturbed_if_more_than_half_of_its_turns_are() -> None:
    for n_disturbed, is_disturbed in ((2, False), (3, True)):
        turns = [turn(cycle, is_disturbed=cycle < n_disturbed) for cycle in range(4)]
        assert are_mostly_disturbed(turns) == is_disturbed


def test_cpu_share() -> None:
    assert compute_cpu_share([turn(0, cpu_s=0.5), turn(1, cpu_s=1.5)]) == pytest.approx(1.0)
    assert compute_cpu_share([]) is None
