"""Compile with numba, and cache the machine code by the text of every file in this folder.

numba's own file cache looks at the file of the function alone: after an edit of a helper in another
file it would go on running the old machine code, and a record would not be of the source it names.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def _folder_stamp() -> str:
    """Hash of all Python files beside this one."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _FolderCache(FunctionCache):
    """numba's cache of one function, stale as soon as any file of the folder changes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file = IndexDataCacheFile(  # type: ignore[no-untyped-call]
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=_folder_stamp(),
        )


def compiled(function: Function) -> Function:
    """Return `function`, compiled at its first call for each combination of argument types."""
    dispatcher = numba.njit(function)
    try:
        dispatcher._cache = _FolderCache(function)
    except RuntimeError:
        # No folder can be written: it is compiled anew in each process.
        return cast(Function, dispatcher)
    return cast(Function, dispatcher)
