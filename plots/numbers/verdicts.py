"""Verdicts: whether numbers keep to the rule that was written before they were measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from harness.planning.claims import ANY, MEDIAN, Rule
from harness.records.stats import Summary
from plots.numbers.points import Measured

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
NOT_SHOWN = "not shown"  # an interval holds the threshold, so that either may be true
NOT_MEASURABLE = "not measurable here"


def decide(rule: Rule, measured: Sequence[Measured]) -> tuple[Measured, str]:
    """Return the number that decides, or why there is none, and the verdict.

    A point keeps to the rule where its whole interval does, and breaks it where no end does; a
    single round has its median alone. Points without a number decide nothing: the rule is kept or
    broken in spite of them, or nobody can tell.
    """
    told = [one for one in measured if one.summary is not None]
    missing = [one for one in measured if one.summary is None]
    if rule.of_points == MEDIAN:
        if missing:
            return missing[0], NOT_MEASURABLE
        middle = _median(told)
        return middle, _verdict(rule, middle)
    ranked = sorted(told, key=lambda one: margin(rule, one))
    # Any: one that keeps to the rule is enough. All: one that breaks it is.
    order = [REPRODUCED, NOT_SHOWN, NOT_REPRODUCED]
    if rule.of_points == ANY:
        ranked.reverse()
    else:
        order.reverse()
    for verdict in order:
        found = next((one for one in ranked if _verdict(rule, one) == verdict), None)
        if found is not None and (verdict == order[0] or not missing):
            return found, verdict
    return missing[0], NOT_MEASURABLE


def _verdict(rule: Rule, measured: Measured) -> str:
    """The verdict on one number."""
    if margin(rule, measured) >= 1:
        return REPRODUCED
    low, high = ends(measured.summary) if measured.summary is not None else (0.0, 0.0)
    is_below = rule.at_least is not None and high < rule.at_least
    is_above = rule.at_most is not None and low > rule.at_most
    return NOT_REPRODUCED if is_below or is_above else NOT_SHOWN


def margin(rule: Rule, measured: Measured) -> float:
    """How many times over a number keeps to the rule at the end of its interval that is worst."""
    summary = measured.summary
    if summary is None:
        return 0.0
    low, high = ends(summary)
    above = low / rule.at_least if rule.at_least else math.inf
    below = (rule.at_most / high if high > 0 else math.inf) if rule.at_most else math.inf
    return min(above, below)


def ends(summary: Summary) -> tuple[float, float]:
    """The interval; the median itself where a single round has none."""
    if summary.low is None or summary.high is None:
        return summary.median, summary.median
    return summary.low, summary.high


def _median(measured: Sequence[Measured]) -> Measured:
    """Medians over points of their numbers, and of either end of their intervals."""
    summaries = [one.summary for one in measured if one.summary is not None]
    low, high = (statistics.median(end) for end in zip(*map(ends, summaries), strict=True))
    has_interval = all(summary.low is not None for summary in summaries)
    whole = Summary(
        statistics.median(summary.median for summary in summaries),
        low if has_interval else None,
        high if has_interval else None,
        min(summary.n_rounds for summary in summaries),
    )
    warnings = sorted({name for one in measured for name in one.warnings})
    return Measured("ok", whole, tuple(warnings))
