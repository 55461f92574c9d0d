"""Ahead-of-time compilation of all compiled functions, as part of `make install`.

    python -m dynbatch.harness.commands.compile_ahead

Machine code is cached by a hash of its source, so unchanged functions are not compiled again.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from dynbatch.harness.compiler.compiled import has_compiled, load_module
from dynbatch.harness.compiler.object_code import FOLDER
from dynbatch.harness.contracts.policy import ArrayPolicy
from dynbatch.harness.engine.cpu_kernels.vectors import load_matmul_kernels
from dynbatch.harness.machine.caches import make_cache_folder
from dynbatch.harness.machine.facts import list_usable_cpus
from dynbatch.harness.policies.parts.segments import load_loop
from dynbatch.harness.values.paths import PACKAGE, ROOT

_DECORATED = re.compile(r"^@compiled\b", re.MULTILINE)


def find_modules(root: Path) -> Iterator[str]:
    """Yield the names of all modules of this project that have compiled functions."""
    for folder in ("harness", "systems"):
        for path in sorted((root / folder).rglob("*.py")):
            if _DECORATED.search(path.read_text(encoding="utf-8")):
                yield ".".join((PACKAGE, *path.relative_to(root).with_suffix("").parts))


def compile_module(name: str) -> str | None:
    """Compile a module's functions and cache their machine code.

    Returns:
        "", or the reason why the module was not compiled; None if it has no compiled functions.
    """
    try:
        importlib.import_module(name)
    except ImportError as error:  # of a framework that is not installed
        return f"{name} needs {error.name or error}, which is not installed"
    if not has_compiled(name):
        return None
    load_module(name)
    for value in vars(sys.modules[name]).values():
        if isinstance(value, ArrayPolicy):
            load_module(load_loop(value).__module__)
    return ""


def main() -> int:
    """Compile all modules in parallel, on at most 8 CPUs."""
    began = time.perf_counter()
    names = list(find_modules(ROOT))
    n_processes = min(len(list_usable_cpus()), 8)
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        load_matmul_kernels()
        answers = [answer for answer in pool.map(compile_module, names) if answer is not None]
    for reason in filter(None, answers):
        print(f"not compiled ahead: {reason}")
    seconds, n_compiled = time.perf_counter() - began, answers.count("")
    kept = "cached" if make_cache_folder(FOLDER) is not None else "compiled, but not cached"
    print(f"{n_compiled} modules with compiled functions are {kept} ({seconds:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
