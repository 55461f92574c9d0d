"""Names of places: what Snakemake would misread is refused, all else comes through as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.planning.requests import PLACES, check_places, word

NAMES = [
    "a b",
    "it's",
    'say "so"',
    "$(touch x)",
    "`x`;&|",
    "-n",
    "a: b",
    "a #b",
    "*",
    "[a]",
    "~",
    "ü",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_only_a_shell_would_act_on_is_taken(name: str, tmp_path: Path) -> None:
    check_places({key: tmp_path / name for key in PLACES}, {})
    (tmp_path / name).mkdir()
    check_places({key: tmp_path / name for key in PLACES}, {})


@pytest.mark.parametrize("name", ["{x}", "a{b", "}", "<logs>", "a\nb", "a\tb", "\x7f"])
@pytest.mark.parametrize("key", PLACES)
def test_what_snakemake_would_misread_is_refused_in_one_line(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}=.* has .*; choose another place$") as found:
        check_places({key: f"some/{name}"}, {})
    assert "\n" not in str(found.value)


def test_the_environment_is_asked_where_nothing_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^data_root="):
        check_places({}, {"BENCH_DATA": "{x}"})
    check_places({"data_root": "data"}, {"BENCH_DATA": "{x}"})


@pytest.mark.parametrize("value", [{"a": "b"}, ["a"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^results_dir=.* is read as YAML, and is no text"):
        check_places({"results_dir": value}, {})


@pytest.mark.parametrize("key", ["results_dir", "data_root", "conf_dir"])
def test_a_file_in_the_place_of_a_folder_is_refused(key: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"^{key}=.* is there and is no folder"):
        check_places({key: tmp_path / "file"}, {})
    check_places({"records": tmp_path / "file"}, {})


def test_no_word_is_an_option() -> None:
    assert [word(name) for name in ("-n", "--x", "a-b", "/-n")] == ["./-n", "./--x", "a-b", "/-n"]
