"""What numba compiled, kept between processes: an entry of our own cache for each signature.

numba's own cache trusts its files: an empty one ends every later run with EOFError, and a changed
bit in one of them, which is machine code, with a segmentation fault or a wrong number.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.serialize import dumps

from harness.machine.caches import cache_folder, forget_the_oldest
from harness.machine.kept import keep, kept

FOLDER = "machine_code"
MOST_ENTRIES = 10_000  # of some 50 KB


class NotKeptError(Exception):
    """Machine code that would have to be compiled, where only what is kept is wanted."""


_ONLY_KEPT = ContextVar("only_kept", default=False)


@contextmanager
def only_kept() -> Iterator[None]:
    """Raise NotKeptError in place of compiling anything that could be kept."""
    before = _ONLY_KEPT.set(True)
    try:
        yield
    finally:
        _ONLY_KEPT.reset(before)


class _Nowhere:
    """Stands for numba's choice of a folder, which is not used."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file  # named by numba's warning of a function that cannot be kept

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Nowhere:
        """Serve every function."""
        return cls(function, file)

    def get_disambiguator(self) -> str:
        """Of functions of one name: entries have the function's hash in their names."""
        return ""

    def get_source_stamp(self) -> None:
        """Entries have a stamp of their own."""

    def get_cache_path(self) -> str:
        """No folder."""
        return ""

    def ensure_cache_path(self) -> None:
        """`keep` makes the folder."""


class Results(CompileResultCacheImpl):
    """numba's way to pack and unpack what it compiled."""

    _locator_classes: list[type[object]] = [_Nowhere]  # noqa: RUF012 - as numba declares it


class MachineCode(FunctionCache):
    """A cache of one function, which numba asks for each signature that it is called with.

    stamp: of all that the function may inline; machine code with another one is not found.
    """

    _impl_class = Results

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file = _Entries(function, stamp)  # type: ignore[assignment]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was kept, None where nothing is; raises NotKeptError within only_kept."""
        found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        if found is None and _ONLY_KEPT.get():
            raise NotKeptError(self._name)
        return found


class _Entries:
    """The place that numba saves a function's machine code to and loads it from, by signature."""

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        self._prefix = _digest(f"{function.__module__}.{function.__qualname__} {stamp}")

    def load(self, key: Any) -> Any:
        """Return what was saved under an equal key, None where there is nothing intact."""
        place = self._place(key)
        stored = kept(place) if place is not None else None
        if stored is None:
            return None
        found, data = pickle.loads(stored)
        return data if found == key else None

    def save(self, key: Any, data: Any) -> None:
        """Keep it, where a folder can be used."""
        place = self._place(key)
        if place is not None:
            keep(place, dumps((key, data)))  # type: ignore[no-untyped-call]
            forget_the_oldest(place.parent, MOST_ENTRIES)

    def flush(self) -> None:
        """Delete all entries of the function, which is about to be compiled anew."""
        folder = cache_folder(FOLDER)
        for path in folder.glob(f"{self._prefix}.*") if folder else ():
            path.unlink(missing_ok=True)

    def _place(self, key: Any) -> Path | None:
        folder = cache_folder(FOLDER)
        return folder / f"{self._prefix}.{_digest(repr(key))}" if folder else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
