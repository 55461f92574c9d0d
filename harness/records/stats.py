"""Robust statistics of samples and rounds, and the warnings that travel with a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

UNSTABLE_IQR = 0.10  # interquartile range / median, as in torch.utils.benchmark
OUTLIER_Z = 14.83  # modified z-score: ten scaled median absolute deviations, as in hyperfine
OUTLIER_SHARE = 0.25  # and at least so far from the median: very even samples flag trifles else
TOO_SHORT_S = 1e-3  # as in pyperf
DRIFT = 0.05  # change of the median from the first third to the last
FEW_ROUNDS = 3
_N_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Summary:
    """A median over rounds with its 95 % confidence interval (None from a single round)."""

    median: float
    low: float | None
    high: float | None
    n_rounds: int


def summarise(round_medians: ArrayLike, seed: int = 0) -> Summary:
    """Median of the rounds' medians; the interval is a percentile bootstrap over rounds.

    Samples of one process are correlated, so they never widen or narrow the interval.
    """
    values = np.asarray(round_medians, dtype=np.float64)
    if values.size == 0:
        raise ValueError("there is no round to summarise; give at least one")
    median = float(np.median(values))
    if values.size == 1:
        return Summary(median, None, None, 1)
    low, high = np.quantile(_resampled_medians(values, seed), (0.025, 0.975))
    return Summary(median, float(low), float(high), values.size)


def summarise_ratio(numerator: ArrayLike, denominator: ArrayLike, seed: int = 0) -> Summary:
    """Ratio of two medians over rounds with its bootstrap interval (None from single rounds)."""
    above = np.asarray(numerator, dtype=np.float64)
    below = np.asarray(denominator, dtype=np.float64)
    ratio = float(np.median(above) / np.median(below))
    n_rounds = min(above.size, below.size)
    if n_rounds < 2:
        return Summary(ratio, None, None, n_rounds)
    ratios = _resampled_medians(above, seed) / _resampled_medians(below, seed + 1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Summary(ratio, float(low), float(high), n_rounds)


def _resampled_medians(values: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    chosen = np.random.default_rng(seed).integers(values.size, size=(_N_RESAMPLES, values.size))
    medians: NDArray[np.float64] = np.median(values[chosen], axis=1)
    return medians


def pass_totals(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    """Seconds of each whole pass, from samples in the order they were taken."""
    if n_mini_batches < 1 or len(samples_s) % n_mini_batches:
        raise ValueError(f"{len(samples_s)} samples are no whole passes of {n_mini_batches}")
    totals: NDArray[np.float64] = _passes(samples_s, n_mini_batches).sum(axis=1)
    return totals


def relative_iqr(values: ArrayLike) -> float:
    """Interquartile range divided by the median."""
    low, median, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
    return float((high - low) / median) if median > 0 else 0.0


def relative_spread(samples_s: Sequence[float], n_mini_batches: int) -> float:
    """Half the interquartile range of the samples, each relative to its own mini-batch's median."""
    return relative_iqr(_normalised(samples_s, n_mini_batches)) / 2


def sample_warnings(samples_s: Sequence[float], n_mini_batches: int) -> tuple[str, ...]:
    """Return what is doubtful about one round's samples.

    Mini-batches differ in size, so each sample is compared with others of the same mini-batch.
    """
    if not samples_s:
        return ()
    relative = _normalised(samples_s, n_mini_batches).ravel()
    found = {
        "unstable_iqr": relative_iqr(relative) > UNSTABLE_IQR,
        "outliers": _has_outliers(relative),
        "too_short": float(np.median(samples_s)) < TOO_SHORT_S,
        "drift": _drifts(_normalised(samples_s, n_mini_batches)),
    }
    return tuple(name for name, doubtful in found.items() if doubtful)


def round_warnings(n_rounds: int) -> tuple[str, ...]:
    """Return what is doubtful about a number of rounds."""
    return ("few_rounds",) if n_rounds < FEW_ROUNDS else ()


def _passes(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    return np.asarray(samples_s, dtype=np.float64).reshape(-1, n_mini_batches)


def _normalised(samples_s: Sequence[float], n_mini_batches: int) -> NDArray[np.float64]:
    passes = _passes(samples_s, n_mini_batches)
    medians = np.median(passes, axis=0)
    return passes / np.where(medians > 0, medians, 1.0)


def _has_outliers(values: NDArray[np.float64]) -> bool:
    deviations = np.abs(values - np.median(values))
    spread = float(np.median(deviations))
    if spread == 0:
        return False
    far = 0.6745 * deviations / spread > OUTLIER_Z
    return bool(np.any(far & (deviations > OUTLIER_SHARE * np.median(values))))


def _drifts(passes: NDArray[np.float64]) -> bool:
    third = len(passes) // 3
    if third == 0:
        return False
    first, last = np.median(passes[:third]), np.median(passes[-third:])
    return bool(abs(last - first) > DRIFT * first)
