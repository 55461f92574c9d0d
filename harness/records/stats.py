"""Robust statistics of samples and rounds: medians, and how far they may be from the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

INTERVAL_ROUNDS = 6  # from fewer no interval covers 95 %: the range of 5 covers 93.75 %
CONFIDENCE = 0.95
RANGE, INTERVAL = "range", "95 % interval"


@dataclass(frozen=True, slots=True)
class Summary:
    """A median over rounds, and two ends around it (None from a single round).

    low, high: the smallest and the largest round where there are fewer than INTERVAL_ROUNDS, else
    a 95 % interval of the median.
    """

    median: float
    low: float | None
    high: float | None
    n_rounds: int


def ends_of(n_rounds: int) -> str:
    """What the ends around a median of that many rounds are, in words."""
    if n_rounds < 2:
        return ""
    return RANGE if n_rounds < INTERVAL_ROUNDS else INTERVAL


def summarise(round_medians: ArrayLike) -> Summary:
    """Median of the rounds' medians, with their range or its 95 % interval.

    Samples of one process are correlated, so they never widen or narrow the interval.
    """
    values = np.sort(np.asarray(round_medians, dtype=np.float64))
    if values.size == 0:
        raise ValueError("there is no round to summarise; give at least one")
    median = float(np.median(values))
    if values.size == 1:
        return Summary(median, None, None, 1)
    if values.size < INTERVAL_ROUNDS:
        return Summary(median, float(values[0]), float(values[-1]), values.size)
    return Summary(median, *_interval_of_median(values), values.size)


def _interval_of_median(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """Return a 95 % interval of the median, between order statistics (Hettmansperger and Sheather).

    The k-th value from either end encloses the median with a probability that depends on n and k
    alone. Between the last k that encloses it often enough and the next is interpolated.
    """
    n = len(ordered)
    k = max(k for k in range(1, n // 2 + 1) if _enclosing(n, k) >= CONFIDENCE)
    wider, narrower = _enclosing(n, k), _enclosing(n, k + 1)
    share = (wider - CONFIDENCE) / (wider - narrower)
    inwards = (n - k) * share / (k + (n - 2 * k) * share)
    low = (1 - inwards) * ordered[k - 1] + inwards * ordered[k]
    high = (1 - inwards) * ordered[n - k] + inwards * ordered[n - k - 1]
    return float(low), float(high)


def _enclosing(n: int, k: int) -> float:
    """Probability that the k-th smallest and the k-th largest of n values enclose the median."""
    outside: int = sum(math.comb(n, j) for j in range(k))
    return float(1 - 2 * outside / 2**n)


def pass_totals(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    """Seconds of each whole pass, from samples in the order they were taken."""
    totals: NDArray[np.float64] = passes_of(samples_s, n_mini_batches).sum(axis=1)
    return totals


def passes_of(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    """Samples (passes, mini-batches), from samples in the order they were taken."""
    if n_mini_batches < 1 or len(samples_s) % n_mini_batches:
        raise ValueError(f"{len(samples_s)} samples are no whole passes of {n_mini_batches}")
    return np.asarray(samples_s, dtype=np.float64).reshape(-1, n_mini_batches)


def relative_to_mini_batch(passes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each sample over the median of its mini-batch, since mini-batches differ in size."""
    medians = np.median(passes, axis=0)
    relative: NDArray[np.float64] = passes / np.where(medians > 0, medians, 1.0)
    return relative


def relative_iqr(values: ArrayLike) -> float:
    """Interquartile range divided by the median."""
    low, median, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / median) if median > 0 else 0.0


def relative_spread(samples_s: Sequence[float], n_mini_batches: int) -> float:
    """Half the interquartile range of the samples, each relative to its own mini-batch's median."""
    return relative_iqr(relative_to_mini_batch(passes_of(samples_s, n_mini_batches))) / 2


OUTLIER_Z = 14.83  # modified z-score: ten scaled median absolute deviations, as in hyperfine
OUTLIER_SHARE = 0.25  # and at least so far from the median: very even samples flag trifles else
OUTLIERS_MOVE = 0.01  # of the median pass, when they are left out
UNSTABLE = 0.10  # half of the interval in which the median of all such passes lies, over it
DRIFT = 0.05  # of the median pass, had the last third of passes been all
DRIFT_PASSES = 6  # a third of fewer is one pass
CLOCK_SHARE = 0.01  # of a sample
NOTCH = 1.57  # of McGill, Tukey and Larsen: 95 % intervals of medians, from interquartile ranges


def sample_warnings(
    samples_s: Sequence[float], n_mini_batches: int, empty_sample_s: float
) -> tuple[str, ...]:
    """Return what is doubtful about one round's samples, which are of whole passes.

    empty_sample_s: what the clock shows where nothing is done.
    """
    if not samples_s:
        return ()
    passes = passes_of(samples_s, n_mini_batches)
    found = {
        "unstable_iqr": _uncertainty(passes) > UNSTABLE,
        "outliers": _moved_by_outliers(passes) > OUTLIERS_MOVE,
        "too_short": empty_sample_s > CLOCK_SHARE * float(np.median(passes)),
        "drift": _moved_by_drift(passes) > DRIFT,
    }
    return tuple(name for name, doubtful in found.items() if doubtful)


def _median_pass(passes: NDArray[np.float64]) -> float:
    return float(np.median(passes.sum(axis=1)))


def _change(median: float, other: float) -> float:
    """How far a number is from the reported one, over that."""
    return abs(other - median) / median if median > 0 else 0.0


def _uncertainty(passes: NDArray[np.float64]) -> float:
    """Half the 95 % interval of the median pass, over it, as the passes' quartiles tell."""
    return NOTCH * relative_iqr(passes.sum(axis=1)) / float(np.sqrt(len(passes)))


def _moved_by_outliers(passes: NDArray[np.float64]) -> float:
    """How far the median pass moves when samples far from their mini-batch's others are left out.

    In their place stands the median of those that stay, so that a pass stays whole.
    """
    relative = relative_to_mini_batch(passes)
    deviations = np.abs(relative - np.median(relative))
    spread = float(np.median(deviations))
    if spread == 0:
        return 0.0
    far = (0.6745 * deviations / spread > OUTLIER_Z) & (deviations > OUTLIER_SHARE)
    far &= ~far.all(axis=0)  # of two samples that are far from each other either may be right
    stays = np.where(far, np.nan, passes)
    without = np.where(far, np.nanmedian(stays, axis=0), passes)
    return _change(_median_pass(without), _median_pass(passes))


def _moved_by_drift(passes: NDArray[np.float64]) -> float:
    """How far the median of the last third of passes is from that of all; 0 for too few passes."""
    if len(passes) < DRIFT_PASSES:
        return 0.0
    return _change(_median_pass(passes), _median_pass(passes[-(len(passes) // 3) :]))
