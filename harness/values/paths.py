"""Names and paths of this project's package; only this file derives them from its own path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from dynbatch.harness.errors import ConfigError

PACKAGE = __name__.partition(".")[0]


def is_part_of(module: str, directories: Collection[str]) -> bool:
    """Return whether a module is in one of these top-level directories of this project."""
    package, _, inner = module.partition(".")
    return package == PACKAGE and inner.partition(".")[0] in directories


def find_adapter_package(adapter: str) -> str:
    """Return an adapter's package: on_torch for dynbatch.systems.on_torch.levels, or my_system.

    Older records have names without the first package: systems.on_torch.levels.
    """
    return strip_package(adapter).partition(".")[0]


def strip_package(adapter: str) -> str:
    """Return an adapter's name without our package: on_torch.levels, or my_system.fast."""
    return adapter.removeprefix(f"{PACKAGE}.").removeprefix("systems.")


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
    return expand_home("BENCH_DATA", environment.get("BENCH_DATA") or "data")


def expand_home(key: str, path: str) -> Path:
    """Return the path of a key, in which ~ or ~USER is replaced by a home directory.

    Raises:
        ConfigError: There is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{key}={path}: the user of ~ is unknown; write the whole path") from None


def shorten_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return for each path its shortest end, in whole names, that no other path has."""
    parts = {path: Path(path).parts for path in paths}
    distinct = set(parts.values())
    return {path: str(Path(*_shorten(own, distinct - {own}))) for path, own in parts.items()}


def _shorten(own: tuple[str, ...], others: set[tuple[str, ...]]) -> tuple[str, ...]:
    ends = (own[-n:] for n in range(1, len(own)))
    return next((end for end in ends if all(o[-len(end) :] != end for o in others)), own)
