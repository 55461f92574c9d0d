"""Generated modules: written once to a folder of their own, imported, and compiled by numba."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from harness.machine.caches import cache_folder
from harness.machine.compiled import stamp_of
from harness.machine.source_code import imports_in_text

FOLDER = "kernels"


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
    path = _written(source, f"fused_{digest}.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load the generated kernel {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # numba's cache finds a kernel's globals by this name
    spec.loader.exec_module(module)
    function: Callable[..., None] = getattr(module, entry)
    return function


def _written(source: str, name: str) -> Path:
    """The file that has the source: in the user's cache, since compiling takes about a second."""
    folder = cache_folder(FOLDER)
    try:
        if folder is not None:
            path = folder / name
            if not path.exists():
                with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
                    file.write(source)
                Path(file.name).replace(path)
            return path
    except OSError:  # a full disk
        pass
    path = Path(tempfile.mkdtemp()) / name  # compiled anew in every process
    path.write_text(source)
    return path
