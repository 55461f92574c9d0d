"""Sketches detect an error at any position, and ignore rounding."""

from __future__ import annotations

import numpy as np
import pytest

from dynbatch.harness.records.fingerprint import (
    TOLERANCE,
    Fingerprint,
    compute_relative_difference,
    round_numbers,
    select_sketches,
    sketch_array,
    sum_sketches,
)

rng = np.random.default_rng(0)
ARRAY = rng.normal(size=(400, 30))
ONE_ROW = np.zeros((400, 30))
ONE_ROW[7] = rng.normal(size=30)
ONE_ENTRY = np.zeros((400, 30))
ONE_ENTRY[3, 4] = 1.0


def differ(one: np.ndarray, other: np.ndarray) -> float:
    return compute_relative_difference(sketch_array("W", one), sketch_array("W", other))


@pytest.mark.parametrize("shape", [(400, 30), (5,), (3, 4, 5), (0, 4)])
def test_float32_rounding_is_within_tolerance(shape: tuple[int, ...]) -> None:
    array = rng.normal(size=shape)
    assert differ(array.astype(np.float32), array) < 2e-6


@pytest.mark.parametrize("error", [ARRAY, ONE_ROW, ONE_ENTRY, rng.normal(size=(400, 30))])
def test_an_error_of_a_thousandth_is_seen(error: np.ndarray) -> None:
    scaled = error * np.linalg.norm(ARRAY) / np.linalg.norm(error)
    assert differ(ARRAY + 1e-3 * scaled, ARRAY) > TOLERANCE


def test_few_errors_of_a_thousandth_are_missed() -> None:
    """Errors in random directions are detected; a comparison of norms would miss most of them."""
    errors = rng.normal(size=(1000, *ARRAY.shape))
    errors *= 1e-3 * np.linalg.norm(ARRAY) / np.linalg.norm(errors, axis=(1, 2))[:, None, None]
    missed = [differ(ARRAY + error, ARRAY) <= TOLERANCE for error in errors]
    assert np.mean(missed) < 0.02


def test_rows_in_another_order_are_another_array() -> None:
    assert differ(ARRAY[::-1], ARRAY) > TOLERANCE
    assert differ(ARRAY[:, ::-1], ARRAY) > TOLERANCE


def test_signs_depend_on_the_name() -> None:
    assert sketch_array("W", ARRAY)[1:] != sketch_array("U", ARRAY)[1:]
    assert sketch_array("W", ARRAY) == sketch_array("W", ARRAY.copy())


def test_products_of_parts_add_up() -> None:
    parts = [
        {"W": sketch_array("W", part, start)} for part, start in ((ARRAY[:9], 0), (ARRAY[9:], 9))
    ]
    assert sum_sketches(parts)["W"] == pytest.approx(sketch_array("W", ARRAY)[1:], rel=1e-9)


def test_seven_digits_are_kept() -> None:
    assert round_numbers([1.23456789, -9.87654321e-8, 0.0]) == (1.234568, -9.876543e-8, 0.0)


def test_a_mini_batch_beyond_the_sketched_ones_has_its_loss_alone() -> None:
    found = Fingerprint(workload="w", losses=(2.0, -3.0), sketches={"outputs": ((1.0, 0.5),)})
    assert select_sketches(found, 0) == {"loss": (2.0, 2.0), "outputs": (1.0, 0.5)}
    assert select_sketches(found, 1) == {"loss": (3.0, -3.0)}
