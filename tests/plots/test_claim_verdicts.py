"""Verdicts on claims by their rules, from made-up numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from dynbatch.harness.planning.claim_points import STEP
from dynbatch.harness.planning.claims import EACH_STEP, Rule
from dynbatch.plots.tables.claims import (
    IN_PART,
    NOT_MEASURABLE,
    NOT_REPRODUCED,
    NOT_SHOWN,
    REPRODUCED,
    decide,
)

UP = Rule(rationale="made up", at_least=2.0)
DOWN = Rule(rationale="made up", at_most=2.0)
BETWEEN = Rule(rationale="made up", at_least=1.0, at_most=2.0)
ANY_UP = replace(UP, quantifier="any")
MEDIAN_UP, MEAN_UP = replace(UP, quantifier="median"), replace(UP, quantifier="mean")
Ends = tuple[float | None, float, float | None]  # low, value, high
ABOVE, BELOW, ACROSS = (2.1, 3, 4), (1.2, 1.5, 1.8), (1.5, 3, 4)
LOWEST = (1.0, 3, 4)  # its low end is below all others
ONCE = (None, 2.5, None)  # a single round, which decides nothing
OOM = None


def build_points(points: Sequence[Ends | None], n_rounds: int = 6) -> pd.DataFrame:
    """Return a number for each point; None stands for a point that ran out of memory."""
    none, oom = (None, None, None), {"status": "dynet oom", "n_rounds": None}
    rows = [
        dict(zip(("low", "value", "high"), ends or none, strict=True))
        | (oom if ends is None else {"status": "ok", "n_rounds": n_rounds if ends[0] else 1})
        for ends in points
    ]
    data = pd.DataFrame(rows).assign(warnings="", is_partial=False)
    return data.astype({"value": float, "low": float, "high": float, "n_rounds": float})


@pytest.mark.parametrize(
    ("rule", "points", "verdict", "deciding"),
    [
        (UP, [ABOVE], REPRODUCED, ABOVE),
        (UP, [BELOW], NOT_REPRODUCED, BELOW),
        (UP, [ACROSS], NOT_SHOWN, ACROSS),  # only its median is above
        (UP, [ONCE], NOT_SHOWN, ONCE),
        (DOWN, [ABOVE], NOT_REPRODUCED, ABOVE),
        (DOWN, [BELOW], REPRODUCED, BELOW),
        (DOWN, [ACROSS], NOT_SHOWN, ACROSS),
        (BETWEEN, [BELOW], REPRODUCED, BELOW),
        (BETWEEN, [ABOVE], NOT_REPRODUCED, ABOVE),
        (BETWEEN, [(0.5, 1.5, 1.6)], NOT_SHOWN, (0.5, 1.5, 1.6)),
        (BETWEEN, [(0.5, 1.5, 2.6)], NOT_SHOWN, (0.5, 1.5, 2.6)),
        (BETWEEN, [(0.5, 0.6, 0.9)], NOT_REPRODUCED, (0.5, 0.6, 0.9)),
        # All points: the worst decides; all need a number unless one violates the rule.
        (UP, [ABOVE, (3, 4, 5)], REPRODUCED, ABOVE),
        (UP, [ABOVE, OOM], NOT_MEASURABLE, OOM),
        (UP, [BELOW, OOM], NOT_REPRODUCED, BELOW),
        (UP, [OOM], NOT_MEASURABLE, OOM),
        (UP, [ACROSS, OOM], NOT_MEASURABLE, OOM),
        (UP, [LOWEST, BELOW], NOT_REPRODUCED, BELOW),
        # Any point: the best decides; all need a number unless one satisfies the rule.
        (ANY_UP, [ABOVE, BELOW], REPRODUCED, ABOVE),
        (ANY_UP, [LOWEST, BELOW], NOT_SHOWN, LOWEST),
        (ANY_UP, [ABOVE, OOM], REPRODUCED, ABOVE),
        (replace(DOWN, quantifier="any"), [ABOVE, BELOW], REPRODUCED, BELOW),
        # An average of points needs all of them.
        (MEDIAN_UP, [ABOVE, OOM, ABOVE], NOT_MEASURABLE, OOM),
        (MEAN_UP, [ABOVE, OOM, ABOVE], NOT_MEASURABLE, OOM),
    ],
)
def test_a_rule_comes_to_a_verdict(
    rule: Rule, points: Sequence[Ends | None], verdict: str, deciding: Ends | None
) -> None:
    check_verdict(rule, build_points(points), None, verdict, deciding)


def check_verdict(
    rule: Rule, points: pd.DataFrame, no_effect: float | None, verdict: str, deciding: Ends | None
) -> None:
    """Check a verdict and the point that decides it, for points in both orders."""
    for shown in (points, points[::-1]):
        number, found = decide(rule, shown, no_effect)
        assert found == verdict
        if deciding is None:
            assert number.status == "dynet oom"
        else:
            assert number.value == deciding[1]
            assert number.low == deciding[0] or pd.isna(number.low)


ABOUT = replace(UP, tolerance=0.2)  # at least 1.8
FASTER = Rule(rationale="made up", at_least=1.0)
SLOW_DOWN = Rule(rationale="made up", at_most=0.8, tolerance=0.05)
OPPOSITE, EDGE, UNSURE = (0.7, 0.8, 0.9), (1.0, 1.5, 1.8), (0.9, 1.5, 1.8)
WIDE = (0.9, 1.5, 2.5)  # contains both thresholds


@pytest.mark.parametrize(
    ("rule", "points", "verdict", "deciding"),
    [
        (UP, [ABOVE], REPRODUCED, ABOVE),
        (UP, [BELOW], IN_PART, BELOW),
        (UP, [OPPOSITE], NOT_REPRODUCED, OPPOSITE),
        (UP, [EDGE], NOT_SHOWN, EDGE),  # its low end has no effect
        (UP, [UNSURE], NOT_SHOWN, UNSURE),
        (UP, [ACROSS], NOT_SHOWN, ACROSS),
        (UP, [WIDE], NOT_SHOWN, WIDE),
        (ABOUT, [(1.8, 1.9, 2.2)], REPRODUCED, (1.8, 1.9, 2.2)),
        (ABOUT, [(1.7, 1.9, 2.2)], NOT_SHOWN, (1.7, 1.9, 2.2)),
        (ABOUT, [(1.3, 1.7, 1.79)], IN_PART, (1.3, 1.7, 1.79)),
        # Only a direction, and no effect at all: nothing between the range and no effect.
        (FASTER, [BELOW], REPRODUCED, BELOW),
        (FASTER, [UNSURE], NOT_SHOWN, UNSURE),
        (FASTER, [OPPOSITE], NOT_REPRODUCED, OPPOSITE),
        (DOWN, [ABOVE], NOT_REPRODUCED, ABOVE),
        # Below 1 is the claimed direction.
        (SLOW_DOWN, [(0.7, 0.8, 0.84)], REPRODUCED, (0.7, 0.8, 0.84)),
        (SLOW_DOWN, [(0.86, 0.9, 0.95)], IN_PART, (0.86, 0.9, 0.95)),
        (SLOW_DOWN, [OPPOSITE], NOT_SHOWN, OPPOSITE),
        (SLOW_DOWN, [(0.9, 0.95, 1.1)], NOT_SHOWN, (0.9, 0.95, 1.1)),
        (SLOW_DOWN, [BELOW], NOT_REPRODUCED, BELOW),
        # All points: each is at least in part; a point across the range cannot change that.
        (UP, [ABOVE, BELOW], IN_PART, BELOW),
        (UP, [ACROSS, BELOW], IN_PART, BELOW),
        (UP, [ABOVE, ACROSS], NOT_SHOWN, ACROSS),
        (UP, [ABOVE, BELOW, OPPOSITE], NOT_REPRODUCED, OPPOSITE),
        (UP, [WIDE, OPPOSITE], NOT_REPRODUCED, OPPOSITE),
        (UP, [UNSURE, BELOW], NOT_SHOWN, UNSURE),
        (UP, [BELOW, OOM], NOT_MEASURABLE, OOM),  # the other may have the opposite direction
        (UP, [OPPOSITE, OOM], NOT_REPRODUCED, OPPOSITE),
        # Any point: the best one is in part, if no other may be better.
        (ANY_UP, [BELOW, OPPOSITE], IN_PART, BELOW),
        (ANY_UP, [BELOW, UNSURE], IN_PART, BELOW),
        (ANY_UP, [BELOW, ACROSS], NOT_SHOWN, ACROSS),
        (ANY_UP, [ABOVE, WIDE], REPRODUCED, ABOVE),
        (ANY_UP, [OPPOSITE], NOT_REPRODUCED, OPPOSITE),
        (ANY_UP, [BELOW, OOM], NOT_MEASURABLE, OOM),  # the other may reach the range
        # The median.
        (MEDIAN_UP, [OPPOSITE, BELOW, ABOVE], IN_PART, BELOW),
        (MEDIAN_UP, [OPPOSITE, ABOVE, ABOVE], REPRODUCED, ABOVE),
        (MEDIAN_UP, [OPPOSITE, OPPOSITE, ABOVE], NOT_REPRODUCED, OPPOSITE),
        (MEDIAN_UP, [OPPOSITE, UNSURE, ABOVE], NOT_SHOWN, UNSURE),
    ],
)
def test_a_ratio_may_reproduce_a_claim_in_part(
    rule: Rule, points: Sequence[Ends | None], verdict: str, deciding: Ends | None
) -> None:
    check_verdict(rule, build_points(points), 1.0, verdict, deciding)


@pytest.mark.parametrize(
    ("first", "second", "verdict", "deciding"),
    [
        ([ABOVE, OPPOSITE], [BELOW, OPPOSITE], IN_PART, BELOW),
        ([ABOVE, OPPOSITE], [OPPOSITE, (2.2, 3.1, 4)], REPRODUCED, ABOVE),
        ([ABOVE, ABOVE], [OPPOSITE, OPPOSITE], NOT_REPRODUCED, OPPOSITE),
        ([ABOVE, BELOW], [ACROSS, OPPOSITE], NOT_SHOWN, ACROSS),
        ([ABOVE, OOM], [OOM, (2.2, 3.1, 4)], REPRODUCED, ABOVE),
        ([ABOVE, OPPOSITE], [OOM, BELOW], NOT_MEASURABLE, OOM),
        ([ABOVE, OPPOSITE], [OOM, OOM], NOT_MEASURABLE, OOM),
        ([OPPOSITE, OPPOSITE], [OOM, BELOW], NOT_REPRODUCED, OPPOSITE),
    ],
)
def test_each_step_needs_a_point(
    first: Sequence[Ends | None], second: Sequence[Ends | None], verdict: str, deciding: Ends | None
) -> None:
    rule = replace(UP, quantifier=EACH_STEP)
    steps = [{STEP: "first"}] * len(first) + [{STEP: "second"}] * len(second)
    points = build_points([*first, *second]).assign(settings=steps)
    check_verdict(rule, points, 1.0, verdict, deciding)


def test_the_median_is_taken_of_numbers_and_of_their_ends() -> None:
    points = [(2, 3, 5), BELOW, (2.5, 2.6, 9)]
    whole, verdict = decide(MEDIAN_UP, build_points(points))
    assert (whole.value, whole.low, whole.high, whole.n_rounds) == (2.6, 2, 5, 6)
    assert verdict == REPRODUCED
    assert decide(replace(MEDIAN_UP, at_least=2.2), build_points(points))[1] == NOT_SHOWN
    assert decide(replace(MEDIAN_UP, at_least=5.1), build_points(points))[1] == NOT_REPRODUCED
    once, _ = decide(MEDIAN_UP, build_points([ONCE, *points[:2]]))
    assert pd.isna(once.low)


def test_the_mean_is_taken_of_numbers_and_of_their_ends() -> None:
    points = [(2, 3, 5), BELOW, (2.5, 3, 7)]
    whole, verdict = decide(replace(MEAN_UP, at_least=1.9), build_points(points))
    assert (whole.value, whole.low, whole.high) == pytest.approx((2.5, 1.9, 4.6))
    assert verdict == REPRODUCED
    assert decide(MEAN_UP, build_points(points))[1] == NOT_SHOWN


@pytest.mark.parametrize(
    ("n_rounds", "ends", "verdict"),
    [
        (6, (2.1, 2.5, 3.0), REPRODUCED),
        (3, (2.1, 2.5, 3.0), NOT_SHOWN),  # 1.2 to 3.9
        (5, (2.1, 2.5, 3.0), NOT_SHOWN),
        (3, (2.1, 2.1, 2.15), REPRODUCED),  # 2.05 to 2.2
        (3, (1.2, 1.3, 1.35), IN_PART),
        (3, (1.2, 1.3, 1.5), NOT_SHOWN),  # 0.9 to 1.8
        (2, (2.1, 2.1, 2.15), NOT_SHOWN),
        (1, (2.1, 2.1, 2.1), REPRODUCED),  # an exact count
        (1, (1.9, 1.9, 1.9), IN_PART),
    ],
)
def test_few_rounds_need_a_margin(n_rounds: int, ends: Ends, verdict: str) -> None:
    assert decide(UP, build_points([ends], n_rounds), 1.0)[1] == verdict
