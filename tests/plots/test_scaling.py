"""Fitted exponents are those of the data, with an interval that is honest about few points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.planning.artefacts import Choices, PlannedTrial
from harness.planning.compose import Composer
from plots.figures import scaling
from plots.numbers.gather import gather
from plots.numbers.power_law import MOST_FITTED, T_95, fitted
from tests.support.artefacts import lines_of, measured, run_draw


@given(st.floats(-3, 3), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_an_exact_law_is_found_exactly(exponent: float, factor: float, n: int) -> None:
    xs = [2.0**k for k in range(n)]
    law = fitted(xs, [factor * x**exponent for x in xs])
    assert law is not None
    assert law.exponent == pytest.approx(exponent, abs=1e-6)
    assert law.at(8.0) == pytest.approx(factor * 8.0**exponent, rel=1e-6)
    assert (law.start, law.end) == (xs[max(0, n - MOST_FITTED)], xs[-1])
    if n > 2:
        assert law.low == pytest.approx(exponent, abs=1e-4)


def test_fixed_costs_at_small_sizes_do_not_hide_the_growth() -> None:
    xs = [4.0**k for k in range(7)]
    law = fitted(xs, [10 + x for x in xs])
    assert law is not None
    assert 0.9 < law.exponent <= 1.0


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Of 2 000 noisy lines the true exponent is within in 95 %, give or take what chance allows."""
    random, xs = np.random.default_rng(0), [1.0, 4.0, 16.0, 64.0]
    n_within = 0
    for _ in range(2000):
        law = fitted(xs, [x**0.7 * np.exp(0.1 * random.standard_normal()) for x in xs])
        assert law is not None
        assert law.low is not None
        assert law.high is not None
        n_within += law.low <= 0.7 <= law.high
    assert 0.935 < n_within / 2000 < 0.965


@pytest.mark.parametrize(
    ("xs", "ys"), [([1.0], [1.0]), ([1.0, 2.0], [0.0, 1.0]), ([2.0, 2.0], [1.0, 3.0]), ([], [])]
)
def test_no_law_goes_through_too_little(xs: list[float], ys: list[float]) -> None:
    assert fitted(xs, ys) is None


def test_two_points_have_an_exponent_and_no_interval() -> None:
    law = fitted([1.0, 2.0], [1.0, 2.0])
    assert law is not None
    assert law.words == "1.00"
    assert list(T_95) == sorted(T_95, reverse=True)


def test_points_along_an_axis_differ_in_nothing_else(choices: Choices, composer: Composer) -> None:
    def change(trial: PlannedTrial, _: int) -> dict[str, Any]:
        size = trial.settings["batch_size"]
        return {"instances_per_s": size / (1e-3 * size**0.5), "peak_memory_bytes": None}

    trials = measured("scaling", choices, composer, change)
    artefact = gather("scaling", choices, trials)
    points = scaling.points_along(artefact, "batch_size", "vertex")
    assert {point.settings["batch_size"] for point in points} == {4, 16, 64}
    assert {point.settings["hidden_size"] for point in points} == {64}
    points = scaling.points_along(artefact, "hidden_size", "vertex")
    assert {point.settings["batch_size"] for point in points} == {16}
    assert run_draw("scaling", choices) == 0
    rows = lines_of(choices.results_dir / "figures" / "scaling.csv")
    exponents = {
        (row["axis"], row["system"]): float(row["value"])
        for row in rows
        if row["quantity"] == "exponent of mini_batch_ms"
    }
    assert exponents["batch_size", "vertex"] == pytest.approx(0.5)
    assert {row["status"] for row in rows if row["quantity"] == "peak_memory_mib"} == {"not told"}
