"""Hash of a trial's measured code: the modules of this repository that its worker imports.

C++ sources in a directory `programs` belong to the modules next to it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dynbatch.harness.contracts.networks import find_network_modules
from dynbatch.harness.engine.switches import DEFAULT_BACKENDS
from dynbatch.harness.machine.source_code import find_mentions, find_module_file, hash_code
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.values.nested import find_texts
from dynbatch.harness.values.paths import PACKAGE

WORKER = "dynbatch.harness.measuring.worker"
_MODULE_NAME = re.compile(r"\w+(\.\w+)+\.?")
_MODULE_BELOW = re.compile(r"(\.\w+)+")
_TABLE = re.compile(r"\w+(\.\w+)*:\w+")


def hash_trial_source(spec: TrialSpec) -> str:
    """Hash the measured code of a trial: the harness's worker, the system, model and loader.

    Import statements are followed without importing modules. If a file has the name of one of the
    project's packages in a string, it may import modules of that package by name at run time.
    Modules whose names occur in the trial or its adapter (a policy, a model) then count as
    imported, and so do modules below them whose names the file has after a dot (the module
    `backend` in a backend's directory). If it has the name of a table of networks, the modules
    count whose table has the trial's model.
    """
    return SourceHashes().hash_trial(spec)


class SourceHashes:
    """Cache of the trials' hashes, which is valid while no file changes."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._read: ReadModule = functools.cache(_read_module)
        self._sha256_of: Callable[[Path], bytes] = functools.cache(_hash_file)

    def hash_trial(self, spec: TrialSpec) -> str:
        """Return source_sha256 of a trial."""
        names = (
            *(spec.policy, spec.model, spec.adapter, spec.model_module, spec.loader),
            spec.device,
        )
        key = json.dumps([*names, spec.system_options], sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = self._compute_hash(spec)
        return self._known[key]

    def hash_modules(self, roots: Iterable[str], named: Collection[str]) -> str:
        """Hash modules, everything they import, and the C++ sources that these compile.

        Args:
            named: See find_imported_files.
        """
        files = find_imported_files(roots, named, self._read)
        for name, path in list(files.items()):
            files |= _find_programs(name, path)
        return hash_files(files, self._sha256_of)

    def _compute_hash(self, spec: TrialSpec) -> str:
        roots = [WORKER, spec.adapter, spec.model_module, spec.loader]
        named = {
            *find_texts((spec.policy, spec.model, spec.system_options)),
            *(name.rpartition(".")[2] for name in roots),
        }
        if spec.system_options.get("backend", "auto") == "auto":
            named.update(DEFAULT_BACKENDS.get(spec.device, ()))
        adapter = self._read(spec.adapter)
        if adapter is not None:
            named.update(adapter.texts)
        return self.hash_modules(roots, named)


def read_harness_versions() -> dict[str, str]:
    """Return the versions that all systems share; `harness` is a hash of the worker's code."""
    numpy = importlib.metadata.version("numpy")
    core = hash_files(find_imported_files([WORKER]))[:12]
    return {"python": platform.python_version(), "numpy": numpy, "harness": core}


@dataclass(frozen=True, slots=True)
class SourceModule:
    """Facts about a module's file.

    Attributes:
        imports: Modules that it may import.
        texts: Its string constants.
        packages: String constants that may name packages, whose modules it may import by name.
        below: String constants with the names of modules below those, such as ".backend".
        tables: String constants that may name tables of networks.
    """

    path: Path
    imports: tuple[str, ...]
    texts: tuple[str, ...]
    packages: tuple[str, ...]
    below: tuple[str, ...]
    tables: tuple[str, ...]


ReadModule = Callable[[str], SourceModule | None]


def _read_module(name: str) -> SourceModule | None:
    """Return the facts about a module's file; None if it is not Python source."""
    path = find_module_file(name)
    if path is None:
        return None
    imports, texts = find_mentions(path, name)
    packages = (text.rstrip(".") for text in texts if _MODULE_NAME.fullmatch(text))
    below = (text for text in texts if _MODULE_BELOW.fullmatch(text))
    # Without duplicates; a module's packages count as imported.
    return SourceModule(
        path=path,
        imports=tuple(dict.fromkeys((*imports, *filter(None, [name.rpartition(".")[0]])))),
        texts=texts,
        packages=tuple(dict.fromkeys(packages)),
        below=tuple(dict.fromkeys(below)),
        tables=tuple(dict.fromkeys(filter(_TABLE.fullmatch, texts))),
    )


def find_imported_files(
    roots: Iterable[str], named: Collection[str] = (), read: ReadModule = _read_module
) -> dict[str, Path]:
    """Return the files of modules and of everything they import, by module name.

    Only this project's package and those of the roots are followed.

    Args:
        named: Names of modules that count as imported if a file has their package in a string.
        read: Returns the facts about a module, perhaps from a cache.
    """
    names = [name for name in named if name.isidentifier()]
    waiting = list(roots)
    followed = {PACKAGE, *(name.partition(".")[0] for name in waiting)}
    files: dict[str, Path] = {}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        module = read(name) if name.partition(".")[0] in followed else None
        if module is not None:
            files[name] = module.path
            waiting += [*module.imports, *_find_by_name(module, names)]
            waiting += _find_networks(module, names, followed)
    return files


def _find_programs(name: str, path: Path) -> dict[str, Path]:
    """Return the C++ sources that the modules of a module's directory compile."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    sources = (path.parent / "programs").glob("*.*")
    return {f"{package}.programs/{p.name}": p for p in sources if p.suffix in (".cc", ".h")}


def _find_by_name(module: SourceModule, names: Collection[str]) -> Iterator[str]:
    for package in module.packages:
        yield package
        yield from (f"{package}.{name}{end}" for name in names for end in ("", *module.below))


def _find_networks(
    module: SourceModule, models: Collection[str], followed: Collection[str]
) -> Iterator[str]:
    """Yield the modules with networks of the models in the tables that a module uses."""
    for table in module.tables:
        if re.split("[.:]", table)[0] in followed:
            modules = find_network_modules(table)
            yield from (modules[model] for model in models if model in modules)


def _hash_file(path: Path) -> bytes:
    return hash_code(path) if path.suffix == ".py" else _hash_content(path)


def hash_files(files: Mapping[str, Path], sha256_of: Callable[[Path], bytes] = _hash_file) -> str:
    """Hash modules by name and code, independently of the repository's location.

    Comments and docstrings of Python source do not count; for other files the content counts.
    """
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode())
        digest.update(sha256_of(path))
    return digest.hexdigest()


def hash_contents(files: Mapping[str, Path]) -> str:
    """Hash files by name and content, for pages that quote code."""
    return hash_files(files, _hash_content)


def _hash_content(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
