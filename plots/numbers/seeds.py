"""A learned policy from several seeds: the median over seeds, and their range."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from plots.numbers.points import NOT_PLANNED, Measured

SEED = "learning.seed"  # a setting of trials and of counts


def over_seeds(measured: Sequence[Measured]) -> Measured:
    """The median over seeds, with the smallest and the largest seed as its interval.

    One seed alone keeps its own interval, that over rounds. A seed without a number leaves none.
    """
    if not measured:
        return Measured(NOT_PLANNED)
    if len(measured) == 1:
        return measured[0]
    failed = next((one for one in measured if one.summary is None), None)
    if failed is not None:
        return failed
    summaries = [one.summary for one in measured if one.summary is not None]
    medians = [one.median for one in summaries]
    spread = replace(
        summaries[0], median=statistics.median(medians), low=min(medians), high=max(medians)
    )
    warnings = tuple(sorted({name for one in measured for name in one.warnings}))
    return Measured("ok", spread, warnings)
