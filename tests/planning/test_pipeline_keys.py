"""A key of the pipeline that nobody reads is an error, not a run of something else."""

from __future__ import annotations

import pytest

from harness.errors import ConfigError
from harness.planning.requests import KEYS, check_keys
from harness.values.places import CONF_DIR


def test_every_key_that_is_known_is_taken() -> None:
    given = {"scale": "smoke", "device": "cpu", "threads": 2, "conf_dir": str(CONF_DIR)}
    given |= {"data_root": "data", "results_dir": "here"}
    check_keys(given | {"budget": "45m"})
    check_keys(given | {"records": "elsewhere"})
    check_keys({"nodes": {"name": "h200", "n_cpus": 16, "memory_gib": 120}})
    assert set(KEYS) == {*given, "budget", "records", "nodes"}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("scal", "--config scal is unknown, did you mean scale?; known"),
        ("quirk", "is unknown; known"),
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


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("scale", None, "--config scale= is empty; give a value, or leave scale out"),
        ("scale", "", "--config scale= is empty"),
        ("scale", "huge", "choose one of smoke, medium, paper"),
        ("device", "gpu", "choose one of cpu, cuda"),
        ("threads", 0, "--config threads=0 is not allowed; give a value of at least 1"),
        ("threads", -1, "threads=-1"),
        ("threads", 1.5, "threads=1.5 is not allowed; give a whole number"),
        ("threads", "many", "threads=many is not allowed; give a whole number"),
        ("threads", True, "threads=True is not allowed; give a whole number"),
        ("results_dir", 2026, "--config results_dir=2026 is read as no text; write results_dir=./"),
        ("data_root", "x" * 300, "whose names have at most 255"),
        ("conf_dir", "/nowhere", "--config conf_dir=/nowhere has no bench.yaml; name a copy of"),
        ("budget", 45, "budget=45 is no length of time; write 45m"),
        ("budget", "9" * 400 + "h", "a year at most"),
    ],
)
def test_a_wrong_value_is_told(key: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_keys({key: value})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
