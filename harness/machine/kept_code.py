"""Bytecode of this repository's modules, kept beside its machine code.

Where Python is told to write none (PYTHONDONTWRITEBYTECODE, as in containers) every process would
compile all that it imports of ours anew. Packages that are installed have theirs.
"""

from __future__ import annotations

import functools
import hashlib
import marshal
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from types import CodeType

from harness.machine.caches import cache_folder, forget_the_oldest
from harness.machine.kept import keep, kept

FOLDER = "bytecode"
MOST_ENTRIES = 10_000
PACKAGES = ("harness", "systems", "datasets")


class KeptCode(SourceFileLoader):
    """Loads a module's bytecode by a hash of its text, and keeps what it compiles."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of a module; raises as any other import does."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        folder = _folder()
        if folder is None:
            return self.source_to_code(source, path)
        place = folder / _name_of(source, path)
        stored = kept(place)
        if stored is not None:
            code: CodeType = marshal.loads(stored)
            return code
        code = self.source_to_code(source, path)
        keep(place, marshal.dumps(code))
        forget_the_oldest(folder, MOST_ENTRIES)
        return code


@functools.cache
def _folder() -> Path | None:
    return cache_folder(FOLDER)


def _name_of(source: bytes, path: str) -> str:
    digest = hashlib.sha256(MAGIC_NUMBER)
    for part in (str(sys.flags.optimize), path):
        digest.update(f"{part}\0".encode())
    digest.update(source)
    return digest.hexdigest()


def keep_code_of(root: Path) -> None:
    """Have the packages in a folder loaded so from now on, where Python writes no bytecode."""
    if not sys.dont_write_bytecode:
        return
    loaders = (
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (KeptCode, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
    ours = tuple(str(root / package) for package in PACKAGES)
    find = FileFinder.path_hook(*loaders)

    def find_ours(path: str) -> FileFinder:
        if not any(path == one or path.startswith(f"{one}/") for one in ours):
            raise ImportError(f"{path} is not ours", path=path)
        return find(path)  # type: ignore[return-value]

    sys.path_hooks.insert(0, find_ours)
    for path in [path for path in sys.path_importer_cache if path.startswith(ours)]:
        del sys.path_importer_cache[path]
