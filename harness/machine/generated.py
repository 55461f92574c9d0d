"""Generated modules: text that becomes a module of this process, with no file that could differ."""

from __future__ import annotations

import hashlib
import importlib
import linecache
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from harness.machine.caches import cache_folder
from harness.machine.compiled import stamp_of
from harness.machine.forks import in_forks
from harness.machine.machine_code import FOLDER, NotKeptError, only_kept
from harness.machine.source_code import imports_in_text


def called_by(source: str) -> tuple[str, ...]:
    """Modules of ours that generated source imports; what it calls of them is compiled into it."""
    ours = __name__.partition(".")[0]
    names = {name for name in imports_in_text(source) if name.partition(".")[0] == ours}
    return tuple(sorted(names))


def load_all_generated(sources: Sequence[str], entry: str) -> list[Callable[..., Any]]:
    """As load_generated of each, for functions that are `native`.

    What is not kept yet is compiled by as many processes as there are CPUs, which share it by its
    lengths.
    """
    found = dict[str, Callable[..., Any]]()

    def load(source: str) -> None:
        found[source] = load_generated(source, entry)

    wanted = dict.fromkeys(sources)
    for source in wanted:
        with only_kept(), suppress(NotKeptError):
            load(source)
    if cache_folder(FOLDER) is not None:  # else nothing would come back of forks
        in_forks(load, [source for source in wanted if source not in found], len)
    for source in wanted.keys() - found.keys():
        load(source)
    return [found[source] for source in sources]


def load_generated(source: str, entry: str) -> Callable[..., Any]:
    """Run generated source as a module; returns one of its functions.

    The module is named after the text and all that it imports of ours: machine code that is kept
    of its functions, under that name, is found again by other processes, and not after an edit.
    """
    called = called_by(source)
    for name in called:
        importlib.import_module(name)
    digest = hashlib.sha256((stamp_of(called) + source).encode()).hexdigest()[:32]
    module = ModuleType(f"fused_{digest}")
    file = f"<{module.__name__}>"
    # Triton compiles from a function's text, and messages show it; without a time it stays there.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module  # numba's cache finds a kernel's globals by this name
    exec(compile(source, file, "exec"), vars(module))
    function: Callable[..., Any] = getattr(module, entry)
    return function
