"""Generated modules: written once to a folder of their own, imported, and compiled by numba."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.machine.compiled import stamp_of
from harness.machine.source_code import imports_in_text


def cache_folder() -> Path:
    """Where generated kernels are kept between processes, since compiling one takes about a
    second.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dynamic-batching-kernels"


def called_by(source: str) -> tuple[str, ...]:
    """Modules of ours that generated source imports; what it calls of them is compiled into it."""
    ours = __name__.partition(".")[0]
    names = {name for name in imports_in_text(source) if name.partition(".")[0] == ours}
    return tuple(sorted(names))


def load_generated(source: str, entry: str) -> Callable[..., None]:
    """Import a function of generated source from a file, which numba's on-disk cache needs.

    When what the source imports of ours changes, it is compiled anew.
    """
    called = called_by(source)
    for name in called:
        importlib.import_module(name)
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
