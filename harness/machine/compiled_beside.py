"""A function that a process runs as machine code where it has a compiler anyway, else with NumPy.

Graphs are made in every framework's process: most of these would load a compiler (half a second,
60 MB) for nothing else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])
COMPILER = "numba"
_FOUND: dict[Callable[..., object], Any] = {}  # what was imported, which is asked for again


def beside_a_compiler(plain: Function, module: str) -> Function:
    """Return the function of the same name in `module`, if the compiler is loaded, else `plain`.

    Both return the same (tests compare them).
    """
    if COMPILER not in sys.modules:
        return plain
    found: Function | None = _FOUND.get(plain)
    if found is None:
        found = _FOUND[plain] = getattr(importlib.import_module(module), plain.__name__)
    return found
