"""Warnings about one round's samples, each by its effect on the number that is reported.

That number is the median pass. A sample far from the others, a wide spread or a trend is worth a
warning only as far as the median would be another without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.records.stats import passes_of, relative_iqr, relative_to_mini_batch

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
