"""Compile with numba, and keep machine code only as long as nothing that it inlines has changed.

numba's own file cache looks at the file of the function alone: after an edit of a helper in another
file it would go on running the old machine code, and a record would not be of the source it names.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
import numpy as np
from numba.core import types

from harness.machine.machine_code import MachineCode
from harness.machine.parts import Part
from harness.machine.source_code import code_sha256, compiled_in

Function = TypeVar("Function", bound=Callable[..., Any])
# A global of these becomes part of the machine code.
CONSTANTS = (bool, int, float, str, tuple, np.generic)
COMPILERS = (numba.__version__, llvmlite.__version__, np.__version__)


@functools.cache
def stamp_of(names: tuple[str, ...]) -> str:
    """Hash the code of these imported modules and of all that they use of ours, or of their own.

    What a compiled function can inline stands among its module's globals: what is imported, whose
    modules are followed whatever it is, and constants, whose values count. The versions of those
    that compile count, too.
    """
    digest = hashlib.sha256(" ".join(COMPILERS).encode())
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += _taken_from(name)
    for name in sorted(seen):
        path = _file_of(name)
        digest.update(code_sha256(Path(path)) if path else b"")
        constants = {k: v for k, v in vars(sys.modules[name]).items() if not k.startswith("__")}
        kept = sorted((k, repr(v)) for k, v in constants.items() if isinstance(v, CONSTANTS))
        digest.update(repr(kept).encode())
    return digest.hexdigest()


def _taken_from(name: str) -> list[str]:
    """Modules of this package, or of its own, that a module's functions may hold once compiled.

    By its text, since of a number or a set that was imported nothing tells where it came from.
    """
    path, packages = _file_of(name), {one.partition(".")[0] for one in (name, __name__)}
    homes = compiled_in(Path(path), name) if path else ()
    return [home for home in homes if home.partition(".")[0] in packages and home in sys.modules]


def _file_of(name: str) -> str | None:
    """Where a module's text lies; generated ones lie nowhere, and are named after their text."""
    return getattr(sys.modules[name], "__file__", None)


def compiled(function: Function) -> Function:
    """Return `function`, compiled at its first call for each combination of argument types."""
    return compiled_with(constants=False)(function)


def inlined(function: Function) -> Function:
    """As `compiled`, for what is called from compiled code alone and becomes part of its callers.

    An array is passed as seven numbers: a dozen of them take longer than a small function does.
    """
    return compiled_with(constants=False, forceinline=True)(function)


def compiled_with(*, constants: bool = True, **options: Any) -> Callable[[Function], Function]:
    """As `compiled`, with options of numba.njit.

    constants: whether it is compiled again for every constant that compiled code calls it with. A
    loop of a constant width is faster; for what has none, once is enough (multiply: 0.5 s each).
    """

    def compile_it(function: Function) -> Function:
        # Whoever calls it, and is compiled first: numba's callees take over what is not said.
        # Nobody calls it from C, which numba would compile another entry for.
        dispatcher = numba.njit(**{"_nrt": True, "no_cfunc_wrapper": True, **options})(function)
        stamp = stamp_of((function.__module__,))
        dispatcher._cache = MachineCode(function, stamp)
        part = Part(dispatcher, stamp, _as_it_is if constants else types.unliteral)
        dispatcher.get_call_template = part.get_call_template
        dispatcher.get_overload = part.get_overload
        return cast(Function, dispatcher)

    return compile_it


def _as_it_is(kind: Any) -> Any:
    return kind
