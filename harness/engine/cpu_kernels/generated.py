"""Generated modules: written once to a folder of their own, imported, and compiled by numba."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from harness.engine.cpu_kernels import fast_math
from harness.machine.compiled import stamp_of


def cache_folder() -> Path:
    """Where generated kernels are kept between processes, since compiling one takes about a
    second.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dynamic-batching-kernels"


def load_generated(
    source: str, entry: str, modules: Sequence[ModuleType] = ()
) -> Callable[..., None]:
    """Import a function of generated source from a file, which numba's on-disk cache needs.

    modules: what the source calls, besides fast_math; when that changes it is compiled anew.
    """
    called = tuple(module.__name__ for module in (fast_math, *modules))
    digest = hashlib.sha256((stamp_of(called) + source).encode()).hexdigest()[:16]
    folder = cache_folder()
    path = folder / f"fused_{digest}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
                file.write(source)
            Path(file.name).replace(path)
    except OSError:  # no writable home: compile anew in every process
        path = Path(tempfile.mkdtemp()) / path.name
        path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load the generated kernel {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # numba's cache finds a kernel's globals by this name
    spec.loader.exec_module(module)
    function: Callable[..., None] = getattr(module, entry)
    return function
