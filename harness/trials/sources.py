"""The hash of a trial's measured code: what its worker process imports from this repository."""

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

from harness.contracts.networks import modules_of
from harness.contracts.policy import AUTO, policy_names
from harness.engine.switches import DEFAULT_BACKENDS
from harness.machine.source_code import code_sha256, mentioned, module_file
from harness.trials.spec import TrialSpec
from harness.values.nested import texts_in

WORKER = "harness.measuring.worker"
_OWN_PACKAGES = ("harness", "systems", "datasets")
_MODULE_NAME = re.compile(r"\w+(\.\w+)+\.?")
_MODULE_BELOW = re.compile(r"(\.\w+)+")
_TABLE = re.compile(r"\w+(\.\w+)*:\w+")


def source_sha256(spec: TrialSpec) -> str:
    """Hash the measured code of a trial: the harness's worker and the system, model and loader.

    Modules are followed through their import statements without importing any of them. Where a
    file names one of our packages in a string, modules of it are found by name when it runs: those
    whose name the trial or its adapter says (a policy, a model) count as imported, and below them
    what the file says behind a dot (the module `backend` of a backend's folder). Where it names a
    table of networks, those modules count whose table has the trial's model.
    """
    return SourceHashes().of(spec)


class SourceHashes:
    """Hashes of many trials while no file changes: one for all of a system and a workload."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._modules = Modules()
        self._sha256_of: Callable[[Path], bytes] = functools.cache(_sha256_of)

    def of(self, spec: TrialSpec) -> str:
        """Return source_sha256 of a trial."""
        names = (
            *(spec.policy, spec.model, spec.adapter, spec.model_module, spec.loader),
            spec.device,
        )
        key = json.dumps([*names, spec.system_options], sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = self._worked_out(spec)
        return self._known[key]

    def of_modules(self, roots: Iterable[str], said: Collection[str]) -> str:
        """Hash modules and all they import; said: see imported_files."""
        return hash_files(imported_files(roots, said, self._modules), self._sha256_of)

    def _worked_out(self, spec: TrialSpec) -> str:
        roots = [WORKER, spec.adapter, spec.model_module, spec.loader]
        said = {
            *texts_in((spec.policy, spec.model, spec.system_options)),
            *(name.rpartition(".")[2] for name in roots),
        }
        if AUTO in (spec.policy, spec.system_options.get("policy")):
            said.update(policy_names())
        if spec.system_options.get("backend", "auto") == "auto":
            said.update(DEFAULT_BACKENDS.get(spec.device, ()))
        adapter = self._modules.read(spec.adapter)
        if adapter is not None:
            said.update(adapter.texts)
        return self.of_modules(roots, said)


def harness_versions() -> dict[str, str]:
    """Versions of what every system shares; `harness` is the worker's own code."""
    numpy = importlib.metadata.version("numpy")
    core = hash_files(imported_files([WORKER]))[:12]
    return {"python": platform.python_version(), "numpy": numpy, "harness": core}


@dataclass(frozen=True, slots=True)
class Module:
    """What a file says: modules it imports, its texts, and what of them names modules.

    packages: whose modules are found by name. below: names below those. tables: of networks.
    """

    path: Path
    imports: tuple[str, ...]
    texts: tuple[str, ...]
    packages: tuple[str, ...]
    below: tuple[str, ...]
    tables: tuple[str, ...]


class Modules:
    """Modules by name, each looked for and read once: while no file changes."""

    def __init__(self) -> None:
        self._known: dict[str, Module | None] = {}

    def read(self, name: str) -> Module | None:
        """What a module's file says; None for what is not Python source."""
        if name not in self._known:
            path = module_file(name)
            self._known[name] = None if path is None else _module(path, name)
        return self._known[name]


def _module(path: Path, name: str) -> Module:
    imports, texts = mentioned(path, name)
    packages = (text.rstrip(".") for text in texts if _MODULE_NAME.fullmatch(text))
    below = (text for text in texts if _MODULE_BELOW.fullmatch(text))
    # Names that many functions import alike, and all packages that a module is in, once.
    return Module(
        path=path,
        imports=tuple(dict.fromkeys((*imports, *filter(None, [name.rpartition(".")[0]])))),
        texts=texts,
        packages=tuple(dict.fromkeys(packages)),
        below=tuple(dict.fromkeys(below)),
        tables=tuple(dict.fromkeys(filter(_TABLE.fullmatch, texts))),
    )


def imported_files(
    roots: Iterable[str], said: Collection[str] = (), modules: Modules | None = None
) -> dict[str, Path]:
    """Return the files of the modules `roots` and of all they import, by module name.

    Followed are this repository's packages and those of the roots themselves. said: names of
    modules that count as imported when a file names their package in a string. modules: what was
    read before.
    """
    modules = modules or Modules()
    names = [name for name in said if name.isidentifier()]
    waiting = list(roots)
    followed = {*_OWN_PACKAGES, *(name.partition(".")[0] for name in waiting)}
    files: dict[str, Path] = {}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        module = modules.read(name) if name.partition(".")[0] in followed else None
        if module is not None:
            files[name] = module.path
            waiting += [*module.imports, *_found_by_name(module, names)]
            waiting += _networks_of(module, names, followed)
    return files


def _found_by_name(module: Module, names: Collection[str]) -> Iterator[str]:
    for package in module.packages:
        yield package
        yield from (f"{package}.{name}{end}" for name in names for end in ("", *module.below))


def _networks_of(
    module: Module, models: Collection[str], followed: Collection[str]
) -> Iterator[str]:
    """Yield the modules whose networks of the models an adapter looks up in its tables."""
    for table in module.tables:
        if re.split("[.:]", table)[0] in followed:
            found = modules_of(table)
            yield from (found[model] for model in models if model in found)


def _sha256_of(path: Path) -> bytes:
    return code_sha256(path) if path.suffix == ".py" else _content_sha256(path)


def hash_files(files: Mapping[str, Path], sha256_of: Callable[[Path], bytes] = _sha256_of) -> str:
    """Hash modules by name and code, so that moving the repository changes nothing.

    Comments and docstrings of Python source are left out; of other files the content counts.
    """
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode())
        digest.update(sha256_of(path))
    return digest.hexdigest()


def hash_contents(files: Mapping[str, Path]) -> str:
    """Hash files by name and content, for what shows code as it is written."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode())
        digest.update(_content_sha256(path))
    return digest.hexdigest()


def _content_sha256(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()
