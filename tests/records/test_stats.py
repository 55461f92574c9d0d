"""Statistics on samples and rounds with known results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
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
    assert covers < 0.95


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
def test_an_interval_above_five_percent_of_the_median_is_wide(
    values: list[float], is_wide: bool
) -> None:
    assert summarize_rounds(values).is_wide == is_wide
