"""Paths of this repository; only this file derives them from its own path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF_DIR = ROOT / "conf"


def find_data_root(environment: Mapping[str, str]) -> Path:
    """Return the directory of the datasets: BENCH_DATA, or `data` if it is unset or empty."""
    return Path(environment.get("BENCH_DATA") or "data").expanduser()
