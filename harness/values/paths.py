"""Paths of this project; only this file derives them from its own path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dynbatch.harness.values.packages import PACKAGE

# In a checkout, PACKAGE has links to the directories in ROOT; in a wheel, it is ROOT itself.
ROOT = Path(__file__).resolve().parents[2]
IMPORT_ROOT = ROOT if (ROOT / PACKAGE).is_dir() else ROOT.parent  # directory on the module path
CONF_DIR = ROOT / "conf"
SNAKEFILE = ROOT / "workflow" / "Snakefile"


def is_checkout() -> bool:
    """Return whether the code is in a checkout, and not installed from a wheel."""
    return (ROOT / "pyproject.toml").is_file()


def find_data_root(environment: Mapping[str, str]) -> Path:
    """Return the directory of the datasets: BENCH_DATA, or `data` if it is unset or empty."""
    return Path(environment.get("BENCH_DATA") or "data").expanduser()


def shorten_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path its shortest end, in whole names, that no other path has."""
    parts = {path: Path(path).parts for path in paths}
    distinct = set(parts.values())
    return {path: str(Path(*_shorten(own, distinct - {own}))) for path, own in parts.items()}


def _shorten(own: tuple[str, ...], others: set[tuple[str, ...]]) -> tuple[str, ...]:
    ends = (own[-n:] for n in range(1, len(own)))
    return next((end for end in ends if all(o[-len(end) :] != end for o in others)), own)
