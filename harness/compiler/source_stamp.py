"""A hash of all that a compiled function is made of: the code of its module, and what that uses."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from harness.compiler.sources import check_unchanged
from harness.machine.source_code import code_sha256, compiled_in

# A global of these becomes part of the machine code.
CONSTANTS = (bool, int, float, str, tuple, np.generic)
COMPILERS = ("llvmlite", "numpy")


@functools.cache
def stamp_of(names: tuple[str, ...]) -> str:
    """Hash the code of these imported modules and of all that they use of ours, or of their own.

    What a compiled function can inline stands among its module's globals: what is imported, whose
    modules are followed whatever it is, and constants, whose values count. The versions of those
    that compile, and of Python, count, too.
    """
    digest = hashlib.sha256(" ".join([sys.version, *map(version, COMPILERS)]).encode())
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
        if path:
            check_unchanged(path)
            digest.update(code_sha256(Path(path)))
        constants = {k: v for k, v in vars(sys.modules[name]).items() if not k.startswith("__")}
        spelled = sorted((k, _spell(v)) for k, v in constants.items())
        digest.update(repr([pair for pair in spelled if pair[1]]).encode())
    return digest.hexdigest()


def _spell(value: Any) -> str:
    """Return the value of a constant, or the name of a function or class that a module chose.

    Return nothing for all else: a package has those of its modules that were imported so far.
    """
    if isinstance(value, CONSTANTS):
        return repr(value)
    name = getattr(value, "__qualname__", "")
    return f"{value.__module__}.{name}" if name else ""


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
