"""Robust statistics of turns and rounds: medians, their intervals, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

INTERVAL_ROUNDS = 6  # fewer rounds have no 95% interval: the range of 5 covers 93.75%
CONFIDENCE = 0.95
WIDEST = 0.05  # width of an interval, relative to the number
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

    @property
    def is_wide(self) -> bool:
        """Return whether the interval is wider than WIDEST of the median."""
        if self.low is None or self.high is None:
            return False
        return self.high - self.low > WIDEST * abs(self.median)


def name_interval(n_rounds: int) -> str:
    """Return the meaning of `low` and `high` for a number of rounds; empty for a single one."""
    if n_rounds < 2:
        return ""
    return RANGE if n_rounds < INTERVAL_ROUNDS else INTERVAL


def summarize_rounds(round_medians: ArrayLike) -> Summary:
    """Compute the median of rounds, with their range or its 95% interval.

    Samples of one process are correlated, so they do not affect the interval.
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


# Standard error of a median from the interquartile range, for normally distributed values:
# sqrt(pi / 2) / 1.349.
ERROR_OF_MEDIAN = 0.929
SHOW_SPREAD = 6  # the interquartile range of fewer values is often far too small


def compute_standard_error(values: ArrayLike) -> float:
    """Return the standard error of a median; infinite for fewer values than show their spread."""
    array = np.asarray(values, dtype=np.float64)
    if array.size < SHOW_SPREAD:
        return math.inf
    low, high = np.quantile(array, (0.25, 0.75))
    return float(ERROR_OF_MEDIAN * (high - low) / math.sqrt(array.size))


CLOCK_SHARE = 0.01  # largest fraction of a sample that the clock itself may take


def is_too_short(samples_s: Sequence[float], timer_overhead_s: float) -> bool:
    """Return whether the clock takes too large a fraction of the samples."""
    return bool(len(samples_s)) and timer_overhead_s > CLOCK_SHARE * float(np.median(samples_s))
