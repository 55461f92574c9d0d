"""Programs that XLA compiled, kept between processes: a Tree-LSTM's take half a minute to compile.

JAX's own cache tells of an entry that it cannot read, never replaces it, and compiles anew in every
later process; it writes entries in place, where another process may find half of one.
"""

from __future__ import annotations

from pathlib import Path

import jax
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

from harness.machine.caches import cache_folder, keep, kept
from harness.machine.facts import cpu_fingerprint

FOLDER = "jax"
OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.2,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


class KeptPrograms(CacheInterface):
    """Cache that JAX asks for a compiled program, by a hash of all that it was compiled from.

    Programs of another processor are not found.
    """

    def __init__(self, folder: str) -> None:
        self._path, self._cpu = Path(folder), cpu_fingerprint()

    def get(self, key: str) -> bytes | None:
        """Return what was put; None where it is not there or damaged."""
        return kept(self._path / f"{self._cpu}.{key}")

    def put(self, key: str, value: bytes) -> None:
        """Keep a program, in place of a damaged one, too."""
        keep(self._path / f"{self._cpu}.{key}", value)


def keep_programs() -> None:
    """Have JAX keep what it compiles from now on, where a folder can be used."""
    folder = cache_folder(FOLDER)
    if folder is None:
        return
    for name, value in {"jax_compilation_cache_dir": str(folder), **OPTIONS}.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    compilation_cache.get_file_cache = _kept_below


def _kept_below(path: str) -> tuple[CacheInterface, str]:
    return KeptPrograms(path), path
