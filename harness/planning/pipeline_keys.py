"""The keys of `snakemake --config`: what a pipeline's run may be told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, meant
from harness.planning.budget import seconds_of
from harness.planning.grid import SCALES
from harness.planning.nodes import nodes_of
from harness.trials.spec import DEVICES
from harness.values.bounds import check_count
from harness.values.path_texts import check_path_text

WORDS = {"scale": SCALES, "device": DEVICES}
PATHS = ("data_root", "results_dir", "conf_dir", "records")
KEYS = (*WORDS, "threads", *PATHS, "budget", "nodes")


def check_keys(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown key, a wrong value, and two keys that contradict each other.

    Snakemake reads values as YAML: `results_dir=2026` is a number, and `scale=` is nothing.
    """
    for key in config:
        if key not in KEYS:
            known = f"{meant(str(key), KEYS)}; known are {', '.join(KEYS)}"
            raise ConfigError(f"--config {key} is unknown{known}")
    for key, value in config.items():
        _check_value(key, value)
    nodes_of(config)
    if "records" in config and "budget" in config:
        raise ConfigError("--config records=... measures nothing; leave budget out")


def _check_value(key: str, value: Any) -> None:
    if value is None or value == "":
        raise ConfigError(f"--config {key}= is empty; give a value, or leave {key} out")
    if key == "threads":
        check_count("--config threads", value, 1)
    elif key == "budget":
        seconds_of(str(value))
    elif key in WORDS and value not in WORDS[key]:
        raise ConfigError(
            f"--config {key}={value} is not allowed; choose one of {', '.join(WORDS[key])}"
        )
    elif key in PATHS:
        _check_path(key, value)


def _check_path(key: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"--config {key}={value} is read as no text; write {key}=./NAME")
    check_path_text(f"--config {key}", value)
    if key == "conf_dir" and not Path(value, "bench.yaml").is_file():
        raise ConfigError(f"--config conf_dir={value} has no bench.yaml; name a copy of conf/")
