"""Robust statistics of samples and rounds: medians, their intervals, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

INTERVAL_ROUNDS = 6  # fewer rounds have no 95% interval: the range of 5 covers 93.75%
CONFIDENCE = 0.95
RANGE, INTERVAL = "range", "95 % interval"


@dataclass(frozen=True, slots=True)
class Summary:
    """Median over rounds with its range or interval.

    Attributes:
        low: Smallest round if there are fewer than INTERVAL_ROUNDS, otherwise the lower end of the
            median's 95% interval; None for a single round.
        high: Largest round or upper end, in the same way.
    """

    median: float
    low: float | None
    high: float | None
    n_rounds: int


def name_interval(n_rounds: int) -> str:
    """Return the meaning of `low` and `high` for a number of rounds; empty for a single one."""
    if n_rounds < 2:
        return ""
    return RANGE if n_rounds < INTERVAL_ROUNDS else INTERVAL


def summarize_rounds(round_medians: ArrayLike) -> Summary:
    """Compute the median of rounds, with their range or its 95% interval.

    Samples of one process are correlated, so they do not affect the interval.

    Args:
        round_medians: One number per round.

    Raises:
        ValueError: No round is given.
    """
    values = np.sort(np.asarray(round_medians, dtype=np.float64))
    if values.size == 0:
        raise ValueError("no rounds to summarize: expected at least one")
    median = float(np.median(values))
    if values.size == 1:
        return Summary(median, None, None, 1)
    if values.size < INTERVAL_ROUNDS:
        return Summary(median, float(values[0]), float(values[-1]), values.size)
    return Summary(median, *_compute_median_interval(values), values.size)


def _compute_median_interval(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95% interval of the median by interpolation between order statistics.

    The k-th values from both ends enclose the median with a probability that depends only on n
    and k. The interval is interpolated between that of the largest k with at least 95% and the
    next.

    Source: Hettmansperger and Sheather.
    """
    n = len(ordered)
    k = max(k for k in range(1, n // 2 + 1) if _compute_coverage(n, k) >= CONFIDENCE)
    wider, narrower = _compute_coverage(n, k), _compute_coverage(n, k + 1)
    share = (wider - CONFIDENCE) / (wider - narrower)
    inwards = (n - k) * share / (k + (n - 2 * k) * share)
    low = (1 - inwards) * ordered[k - 1] + inwards * ordered[k]
    high = (1 - inwards) * ordered[n - k] + inwards * ordered[n - k - 1]
    return float(low), float(high)


def _compute_coverage(n: int, k: int) -> float:
    """Return the probability that the k-th smallest and largest of n values enclose the median."""
    outside: int = sum(math.comb(n, j) for j in range(k))
    return float(1 - 2 * outside / 2**n)


def sum_passes(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    """Return the seconds of each pass, from samples in order of time."""
    totals: NDArray[np.float64] = split_passes(samples_s, n_mini_batches).sum(axis=1)
    return totals


def split_passes(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    """Return samples as (passes, mini-batches) float64, from samples in order of time.

    Raises:
        ValueError: The samples do not form complete passes.
    """
    if n_mini_batches < 1 or len(samples_s) % n_mini_batches:
        raise ValueError(f"{len(samples_s)} samples: expected a multiple of {n_mini_batches}")
    return np.asarray(samples_s, dtype=np.float64).reshape(-1, n_mini_batches)


def normalize_by_mini_batch(passes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide each sample by the median of its mini-batch, because mini-batches differ in size."""
    medians = np.median(passes, axis=0)
    relative: NDArray[np.float64] = passes / np.where(medians > 0, medians, 1.0)
    return relative


def compute_relative_iqr(values: ArrayLike) -> float:
    """Return the interquartile range divided by the median."""
    low, median, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / median) if median > 0 else 0.0


def compute_relative_spread(samples_s: Sequence[float], n_mini_batches: int) -> float:
    """Return half the interquartile range of samples relative to their mini-batch's median."""
    return (
        compute_relative_iqr(normalize_by_mini_batch(split_passes(samples_s, n_mini_batches))) / 2
    )


OUTLIER_Z = 14.83  # modified z-score: ten scaled median absolute deviations, as in hyperfine
OUTLIER_SHARE = 0.25  # smallest relative deviation: else very even samples flag small differences
OUTLIERS_MOVE = 0.01  # relative change of the median pass without the outliers
UNSTABLE = 0.10  # half width of the median pass's 95% interval, relative to the median
DRIFT = 0.05  # relative change of the median pass if only the last third of passes counts
DRIFT_PASSES = 6  # a third of fewer passes is a single pass
CLOCK_SHARE = 0.01  # largest fraction of a sample that the clock itself may take
NOTCH = 1.57  # McGill, Tukey and Larsen: 95% intervals of medians from interquartile ranges


def find_sample_warnings(
    samples_s: Sequence[float], n_mini_batches: int, timer_overhead_s: float
) -> tuple[str, ...]:
    """Return the warnings about one round's samples, which form complete passes.

    Args:
        timer_overhead_s: Seconds that the clock shows for an empty run.
    """
    if not samples_s:
        return ()
    passes = split_passes(samples_s, n_mini_batches)
    checks = {
        "wide_interval": _compute_uncertainty(passes) > UNSTABLE,
        "outliers": _measure_outlier_shift(passes) > OUTLIERS_MOVE,
        "too_short": timer_overhead_s > CLOCK_SHARE * float(np.median(passes)),
        "drift": _measure_drift(passes) > DRIFT,
    }
    return tuple(name for name, doubtful in checks.items() if doubtful)


def _compute_median_pass(passes: NDArray[np.float64]) -> float:
    return float(np.median(passes.sum(axis=1)))


def _compute_change(median: float, other: float) -> float:
    """Return the deviation of a number from the reported median, relative to the median."""
    return abs(other - median) / median if median > 0 else 0.0


def _compute_uncertainty(passes: NDArray[np.float64]) -> float:
    """Return half the 95% interval of the median pass, relative to it, from quartiles."""
    return NOTCH * compute_relative_iqr(passes.sum(axis=1)) / float(np.sqrt(len(passes)))


def _measure_outlier_shift(passes: NDArray[np.float64]) -> float:
    """Return the relative change of the median pass when outliers are replaced.

    Outliers deviate much from the other samples of their mini-batch. They are replaced by the
    median of the other samples, so that passes remain complete.
    """
    relative = normalize_by_mini_batch(passes)
    deviations = np.abs(relative - np.median(relative))
    spread = float(np.median(deviations))
    if spread == 0:
        return 0.0
    far = (0.6745 * deviations / spread > OUTLIER_Z) & (deviations > OUTLIER_SHARE)
    far &= ~far.all(axis=0)  # if all samples of a mini-batch are outliers, none can be replaced
    stays = np.where(far, np.nan, passes)
    without = np.where(far, np.nanmedian(stays, axis=0), passes)
    return _compute_change(_compute_median_pass(without), _compute_median_pass(passes))


def _measure_drift(passes: NDArray[np.float64]) -> float:
    """Return the relative change of the median pass in the last third; 0 for too few passes."""
    if len(passes) < DRIFT_PASSES:
        return 0.0
    return _compute_change(
        _compute_median_pass(passes), _compute_median_pass(passes[-(len(passes) // 3) :])
    )
