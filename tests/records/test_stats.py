"""Statistics on samples whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from harness.records.stats import (
    pass_totals,
    relative_iqr,
    relative_spread,
    round_warnings,
    sample_warnings,
    summarise,
    summarise_ratio,
)

STEADY = [0.010, 0.020] * 12


def test_median_over_rounds_with_an_interval_inside_their_range() -> None:
    summary = summarise([10.0, 12.0, 11.0, 30.0, 9.0])
    assert summary.median == 11.0
    assert summary.n_rounds == 5
    assert summary.low is not None
    assert summary.high is not None
    assert 9.0 <= summary.low <= 11.0 <= summary.high <= 30.0


def test_equal_rounds_have_an_interval_of_no_width() -> None:
    assert summarise([7.0] * 5) == summarise([7.0] * 5, seed=9)
    assert (summarise([7.0] * 5).low, summarise([7.0] * 5).high) == (7.0, 7.0)


def test_the_interval_is_the_same_every_time() -> None:
    values = np.random.default_rng(1).normal(100, 5, size=7)
    assert summarise(values) == summarise(values)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(200):
        summary = summarise(rng.normal(100, 5, size=9))
        assert summary.low is not None
        assert summary.high is not None
        covered += summary.low <= 100 <= summary.high
    assert covered >= 170


def test_one_round_has_no_interval_and_none_is_an_error() -> None:
    assert (summarise([5.0]).low, summarise([5.0]).high) == (None, None)
    with pytest.raises(ValueError, match="no round"):
        summarise([])


def test_ratio_of_medians() -> None:
    ratio = summarise_ratio([20.0, 22.0, 21.0], [10.0, 10.0, 11.0])
    assert ratio.median == pytest.approx(2.1)
    assert ratio.low is not None
    assert ratio.high is not None
    assert 20 / 11 <= ratio.low <= 2.1 <= ratio.high <= 2.2
    assert summarise_ratio([4.0], [2.0, 2.0]) == summarise_ratio([4.0], [2.0])


def test_passes_are_summed() -> None:
    assert pass_totals([1.0, 2.0, 3.0, 4.0], 2).tolist() == [3.0, 7.0]
    with pytest.raises(ValueError, match="no whole passes"):
        pass_totals([1.0, 2.0, 3.0], 2)


def test_relative_iqr() -> None:
    assert relative_iqr([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert relative_iqr([0.0, 0.0]) == 0.0


def test_mini_batches_of_unlike_size_are_no_spread() -> None:
    assert relative_spread(STEADY, 2) == 0.0
    assert relative_spread(STEADY, 1) > 0.1


def test_steady_samples_have_no_warning() -> None:
    assert sample_warnings(STEADY, 2) == ()
    assert sample_warnings([], 2) == ()


def test_each_warning_by_itself() -> None:
    rng = np.random.default_rng(0)
    assert sample_warnings([0.0093, 0.01, 0.0107] * 20, 1) == ("unstable_iqr",)
    noisy = 0.01 * rng.permutation(np.linspace(0.999, 1.001, 60))
    assert sample_warnings([*noisy[:30], 0.02, *noisy[30:]], 1) == ("outliers",)
    assert sample_warnings([0.0009] * 9, 1) == ("too_short",)
    assert sample_warnings([0.0011] * 9, 1) == ()
    # A trend within the spread that is allowed, yet the last third differs from the first.
    drifting = [0.01] * 20 + [0.0103] * 20 + [0.0106] * 20
    assert sample_warnings(drifting, 1) == ("drift",)
    assert sample_warnings([0.01] * 20 + [0.0102] * 20 + [0.0104] * 20, 1) == ()


def test_few_rounds() -> None:
    assert round_warnings(2) == ("few_rounds",)
    assert round_warnings(3) == ()
