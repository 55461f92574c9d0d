"""Compile with numba, and keep machine code only as long as nothing that it inlines has changed.

numba's own file cache looks at the file of the function alone: after an edit of a helper in another
file it would go on running the old machine code, and a record would not be of the source it names.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core import types
from numba.core.caching import FunctionCache, IndexDataCacheFile

Function = TypeVar("Function", bound=Callable[..., Any])
CONSTANTS = (bool, int, float, str, tuple)  # a global of these becomes part of the machine code


@functools.cache
def stamp_of(names: tuple[str, ...]) -> str:
    """Hash the source of these imported modules and of all that they take from their own package.

    What a compiled function can inline stands among its module's globals: functions and classes,
    whose modules are followed, and constants, whose values count.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += _homes_of(vars(sys.modules[name]).values(), name.partition(".")[0])
    for name in sorted(seen):
        digest.update(_source_of(sys.modules[name]))
        constants = {k: v for k, v in vars(sys.modules[name]).items() if not k.startswith("__")}
        kept = sorted((k, repr(v)) for k, v in constants.items() if isinstance(v, CONSTANTS))
        digest.update(repr(kept).encode())
    return digest.hexdigest()


def _homes_of(values: Iterable[object], package: str) -> list[str]:
    """Names of the package's modules that these functions, classes and modules come from."""
    homes = [
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        for value in values
    ]
    return [
        home
        for home in homes
        if isinstance(home, str) and home.partition(".")[0] == package and home in sys.modules
    ]


def _source_of(module: ModuleType) -> bytes:
    return Path(module.__file__).read_bytes() if module.__file__ else b""


class _StampedCache(FunctionCache):
    """numba's cache of one function, stale as soon as anything that it can inline changes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file = IndexDataCacheFile(  # type: ignore[no-untyped-call]
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=stamp_of((function.__module__,)),
        )


def compiled(function: Function) -> Function:
    """Return `function`, compiled at its first call for each combination of argument types."""
    return compiled_with(constants=False)(function)


def compiled_with(*, constants: bool = True, **options: Any) -> Callable[[Function], Function]:
    """As `compiled`, with options of numba.njit.

    constants: whether it is compiled again for every constant that compiled code calls it with. A
    loop of a constant width is faster; for what has none, once is enough (multiply: 0.5 s each).
    """

    def compile_it(function: Function) -> Function:
        dispatcher = numba.njit(**options)(function)
        if not constants:
            _take_no_constants(dispatcher)
        try:
            dispatcher._cache = _StampedCache(function)
        except RuntimeError:
            # No folder can be written: it is compiled anew in each process.
            return cast(Function, dispatcher)
        return cast(Function, dispatcher)

    return compile_it


def _take_no_constants(dispatcher: Any) -> None:
    """Make calls from compiled code choose by types alone: int64, not the literal 64."""
    by_literals = dispatcher.get_call_template
    type_of: Callable[[Any], Any] = types.unliteral

    def by_types(args: Iterable[Any], kws: dict[str, Any]) -> Any:
        return by_literals(tuple(map(type_of, args)), {k: type_of(v) for k, v in kws.items()})

    dispatcher.get_call_template = by_types
