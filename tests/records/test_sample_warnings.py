"""Warnings: of what moves the number that is reported, and of nothing else."""

from __future__ import annotations

from functools import partial

import numpy as np

from harness.records.stats import DRIFT_PASSES, sample_warnings

CLOCK_S = 1e-7
STEADY = [0.010, 0.020] * 12
warnings_of = partial(sample_warnings, empty_sample_s=CLOCK_S)


def noisy(n: int, spread: float = 0.001) -> list[float]:
    """Samples of 10 ms in no order, evenly spread."""
    values = np.linspace(1 - spread, 1 + spread, n)
    return list(0.01 * np.random.default_rng(0).permutation(values))


def test_steady_samples_have_no_warning() -> None:
    assert warnings_of(STEADY, 2) == ()
    assert warnings_of([], 2) == ()
    assert warnings_of(noisy(60), 1) == ()


def test_one_slow_sample_does_not_move_the_median_and_is_no_warning() -> None:
    slow = noisy(60)
    slow[30] = 0.05
    assert warnings_of(slow, 1) == ()


def test_outliers_that_move_the_median_pass_are() -> None:
    # In every pass another one of four mini-batches takes five times as long: each of them is
    # steady but for that, and every pass is twice as long as without.
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


def test_a_wide_spread_matters_as_far_as_the_median_is_uncertain() -> None:
    wide = [0.0085, 0.01, 0.0115]
    assert warnings_of(wide * 3, 1) == ("unstable_iqr",)
    assert warnings_of(wide * 40, 1) == (), "of many passes the median is known well"


def test_too_short_is_what_the_clock_cannot_tell() -> None:
    samples = [1e-4] * 9
    assert sample_warnings(samples, 1, 0.99e-6) == ()
    assert sample_warnings(samples, 1, 1.01e-6) == ("too_short",)


def test_a_trend_matters_as_far_as_its_end_is_another_number() -> None:
    steps = [0.01] * 20 + [0.0103] * 20
    assert warnings_of([*steps, *[0.0107] * 20], 1) == ()
    assert warnings_of([*steps, *[0.0111] * 20], 1) == ("drift",)
    downwards = [0.0109] * 20 + [0.0106] * 20 + [0.01] * 20
    assert warnings_of(downwards, 1) == ("drift",)


def test_of_few_passes_no_trend_can_be_told() -> None:
    few = [0.01] * (DRIFT_PASSES - 2) + [0.0107]
    assert warnings_of(few, 1) == ()
