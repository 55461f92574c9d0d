"""A key of the pipeline that nobody reads is an error, not a run of something else."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError
from harness.planning.pipeline_keys import KEYS, check_keys


def test_every_key_that_is_known_is_taken() -> None:
    for key in KEYS:
        check_keys({key: "x"})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("scal", "--config scal is unknown, did you mean scale?; known"),
        ("nonsense", "is unknown; known"),
    ],
)
def test_an_unknown_one_is_said_with_those_that_are_known(key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_keys({"scale": "smoke", key: 1})
    assert words in str(caught.value)
    assert all(known in str(caught.value) for known in KEYS)


def test_a_budget_means_nothing_where_nothing_is_measured() -> None:
    with pytest.raises(ConfigError, match="measures nothing; leave budget out"):
        check_keys({"records": "x", "budget": "45m"})
