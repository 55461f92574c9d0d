"""Rejected numbers and paths of users, and the messages."""

from __future__ import annotations

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.values.checked import check_count, check_number, check_path_text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "n=-1 is not allowed: expected a value of at least 0"),
        (6, "n=6 is not allowed: expected a value of at least 0 and at most 5"),
        (1.0, "n=1.0 is not allowed: expected a whole number"),
        (True, "n=true is not allowed: expected a whole number"),
        ("1", "n='1' is not allowed: expected a whole number"),
    ],
)
def test_invalid_count_is_refused(value: object, words: str) -> None:
    for bound in (0, 5):
        check_count("n", bound, 0, 5)
    with pytest.raises(ConfigError) as fault:
        check_count("n", value, 0, 5)
    assert str(fault.value) == words


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), -0.1, 5.1, True, "1"])
def test_invalid_number_is_refused(value: object) -> None:
    check_number("x", 1, 0, 5)
    with pytest.raises(ConfigError, match="is not allowed: expected a"):
        check_number("x", value, 0, 5)


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 256, "é" * 128, "/x" * 1800])
def test_invalid_path_text_is_refused(text: str) -> None:
    check_path_text("out", "x" * 255)
    with pytest.raises(ConfigError, match=r"^out"):
        check_path_text("out", text)
