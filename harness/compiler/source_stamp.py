"""A hash of all that a compiled function is made of: the code of its module, and what that uses."""

from __future__ import annotations

import functools
import hashlib
import sys
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from harness.compiler.registry import HELPERS, Compilable
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
        if name not in seen:
            seen.add(name)
            waiting += _taken_from(name)
    for name in sorted(seen):
        digest.update(_stamp_of_one(name))
    return digest.hexdigest()


_STAMPS: dict[str, bytes] = {}  # of modules that are imported to their end


def _stamp_of_one(name: str) -> bytes:
    """Hash the code of a module and its constants."""
    module, path = sys.modules[name], _file_of(name)
    if path:
        check_unchanged(path)
    if name in _STAMPS:
        return _STAMPS[name]
    digest = hashlib.sha256(code_sha256(Path(path)) if path else b"")
    constants = {k: v for k, v in vars(module).items() if not k.startswith("__")}
    spelled = sorted((k, _spell(v)) for k, v in constants.items())
    digest.update(repr([pair for pair in spelled if pair[1]]).encode())
    if not getattr(module.__spec__, "_initializing", False):
        _STAMPS[name] = digest.digest()
    return digest.digest()


def _spell(value: Any) -> str:
    """Return the value of a constant, or the name of a class or of a function that is compiled.

    A module may choose either when it is imported. Return nothing for all else.
    """
    if isinstance(value, CONSTANTS):
        return repr(value)
    function = value.function if isinstance(value, Compilable) else value
    if isinstance(value, type) or (isinstance(function, FunctionType) and function in HELPERS):
        return f"{function.__module__}.{function.__qualname__}"
    return ""


@functools.cache
def _homes_of(name: str) -> tuple[str, ...]:
    path = _file_of(name)
    return compiled_in(Path(path), name) if path else ()


def _taken_from(name: str) -> list[str]:
    """Modules of this package, or of its own, that a module's functions may hold once compiled.

    By its text, since of a number or a set that was imported nothing tells where it came from.
    """
    packages = {one.partition(".")[0] for one in (name, __name__)}
    return [
        home
        for home in _homes_of(name)
        if home.partition(".")[0] in packages and home in sys.modules
    ]


def _file_of(name: str) -> str | None:
    """Where a module's text lies; generated ones lie nowhere, and are named after their text."""
    return getattr(sys.modules[name], "__file__", None)
