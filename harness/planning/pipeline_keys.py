"""The keys of `snakemake --config`: what a pipeline's run may be told."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from harness.errors import ConfigError

KEYS = (
    "scale",
    "device",
    "threads",
    "data_root",
    "results_dir",
    "conf_dir",
    "records",
    "budget",
)


def check_keys(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a key that is not known, and for two that contradict each other."""
    for key in config:
        if key not in KEYS:
            close = get_close_matches(str(key), KEYS, n=1)
            meant = f", did you mean {close[0]}?" if close else ""
            raise ConfigError(f"--config {key} is unknown{meant}; known are {', '.join(KEYS)}")
    if config.get("records") and config.get("budget"):
        raise ConfigError("--config records=... measures nothing; leave budget out")
