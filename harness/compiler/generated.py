"""Generated modules: text that becomes a module of this process, with no file that could differ."""

from __future__ import annotations

import hashlib
import importlib
import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from harness.compiler.source_stamp import stamp_of
from harness.machine.source_code import imports_in_text


def load_generated(text: str, entry: str) -> Callable[..., Any]:
    """Run a text as a module, once in a process; returns one of its functions.

    The module is named after the text and all that it imports of ours: machine code that is kept
    of its functions, under that name, is found again by other processes, and not after an edit.
    """
    modules = _ours_of(text)
    for name in modules:
        importlib.import_module(name)
    digest = hashlib.sha256((stamp_of(modules) + text).encode()).hexdigest()[:32]
    name = f"generated_{digest}"
    if name not in sys.modules:
        sys.modules[name] = _run(name, text)
    found: Callable[..., Any] = getattr(sys.modules[name], entry)
    return found


def _ours_of(text: str) -> tuple[str, ...]:
    """Return the modules of ours that a text imports; what it calls becomes part of its code."""
    package = __name__.partition(".")[0]
    names = {name for name in imports_in_text(text) if name.partition(".")[0] == package}
    return tuple(sorted(names))


def _run(name: str, text: str) -> ModuleType:
    module, file = ModuleType(name), f"<{name}>"
    # Compilers read a function's text there, and messages show it; without a time it stays there.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))
    return module
