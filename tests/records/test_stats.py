"""Statistics on samples and rounds with known results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.records.stats import (
    DRIFT_PASSES,
    INTERVAL,
    INTERVAL_ROUNDS,
    RANGE,
    Summary,
    compute_relative_iqr,
    compute_relative_spread,
    find_sample_warnings,
    name_interval,
    sum_passes,
    summarize_rounds,
)

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.float64]]
STEADY = [0.010, 0.020] * 12
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
    assert summary.low is not None
    assert summary.high is not None
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


def test_passes_are_summed() -> None:
    assert sum_passes([1.0, 2.0, 3.0, 4.0], 2).tolist() == [3.0, 7.0]
    with pytest.raises(ValueError, match="expected a multiple"):
        sum_passes([1.0, 2.0, 3.0], 2)


def test_relative_iqr() -> None:
    assert compute_relative_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert compute_relative_iqr([0.0, 0.0]) == 0.0


def test_mini_batches_of_unlike_size_are_no_spread() -> None:
    assert compute_relative_spread(STEADY, 2) == 0.0
    assert compute_relative_spread(STEADY, 1) > 0.1


CLOCK_S = 1e-7
warnings_of = partial(find_sample_warnings, timer_overhead_s=CLOCK_S)


def noisy(n: int, spread: float = 0.001) -> list[float]:
    """Return samples of about 10 ms, evenly spread and in random order."""
    values = np.linspace(1 - spread, 1 + spread, n)
    return list(0.01 * np.random.default_rng(0).permutation(values))


def noisy_with_a_slow_one() -> list[float]:
    return [0.05, *noisy(60)[1:]]


WIDE = [0.0085, 0.01, 0.0115]
STEPS = [0.01] * 20 + [0.0103] * 20
WARNINGS: dict[str, tuple[list[float], int, tuple[str, ...]]] = {
    "two steady mini-batches": (STEADY, 2, ()),
    "none": ([], 2, ()),
    "noise": (noisy(60), 1, ()),
    "one that does not move the median": (noisy_with_a_slow_one(), 1, ()),
    "a wide spread of few": (WIDE * 3, 1, ("wide_interval",)),
    "a wide spread of many, whose median is known well": (WIDE * 40, 1, ()),
    "a trend whose end is no other number": ([*STEPS, *[0.0107] * 20], 1, ()),
    "a trend upwards": ([*STEPS, *[0.0111] * 20], 1, ("drift",)),
    "a trend downwards": ([0.0109] * 20 + [0.0106] * 20 + [0.01] * 20, 1, ("drift",)),
    "too few for a trend": ([0.01] * (DRIFT_PASSES - 2) + [0.0107], 1, ()),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_samples_are_warned_of_as_far_as_the_median_is_uncertain(name: str) -> None:
    samples, n_mini_batches, expected = WARNINGS[name]
    assert warnings_of(samples, n_mini_batches) == expected


def test_outliers_that_move_the_median_pass_are() -> None:
    # In every pass, a different one of four mini-batches takes five times as long, so that a pass
    # takes twice as long; otherwise mini-batches are steady.
    samples = 0.01 * np.ones((40, 4)) * np.linspace(0.99, 1.01, 40)[:, None]
    samples[np.arange(40), np.arange(40) % 4] *= 5
    assert "outliers" in warnings_of(list(samples.ravel()), 4)
    few = 0.01 * np.ones((40, 4)) * np.linspace(0.99, 1.01, 40)[:, None]
    few[:6, 0] *= 5
    assert "outliers" not in warnings_of(list(few.ravel()), 4)


def test_two_samples_far_apart_are_no_outliers_of_each_other() -> None:
    samples = np.full((2, 20), 0.01) * np.linspace(0.999, 1.001, 40).reshape(2, 20)
    samples[1, 3] *= 3
    assert "outliers" not in warnings_of(list(samples.ravel()), 20)


def test_samples_below_clock_resolution_are_too_short() -> None:
    samples = [1e-4] * 9
    assert find_sample_warnings(samples, 1, 0.99e-6) == ()
    assert find_sample_warnings(samples, 1, 1.01e-6) == ("too_short",)
