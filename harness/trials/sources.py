"""The hash of a trial's measured code: what its worker process imports from this repository."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from harness.machine.source_code import code_sha256, mentioned
from harness.trials.spec import TrialSpec
from harness.values.places import ROOT

WORKER = "harness.measuring.worker"
_OWN_PACKAGES = ("harness", "systems", "datasets")
_MODULE_NAME = re.compile(r"\w+(\.\w+)+\.?")
_MODULE_BELOW = re.compile(r"(\.\w+)+")


def source_sha256(spec: TrialSpec) -> str:
    """Hash the measured code of a trial: the harness's worker and the system, model and loader.

    Modules are followed through their import statements without importing any of them. Where a
    file names one of our packages in a string, modules of it are found by name when it runs: those
    whose name the trial or its adapter says (a policy, a model) count as imported, and below them
    what the file says behind a dot (the module `backend` of a backend's folder).
    """
    roots = [WORKER, spec.adapter, spec.model_module, spec.loader]
    said = {*_texts((spec.policy, spec.model, spec.system_options)), *_last_parts(roots)}
    adapter = module_file(spec.adapter)
    if adapter is not None:
        _, texts = mentioned(adapter, spec.adapter)
        said.update(texts)
    return hash_files(imported_files(roots, said))


class SourceHashes:
    """Hashes of many trials while no file changes: one for all of a system and a workload."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, spec: TrialSpec) -> str:
        """Return source_sha256 of a trial."""
        names = (spec.policy, spec.model, spec.adapter, spec.model_module, spec.loader)
        key = json.dumps([*names, spec.system_options], sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = source_sha256(spec)
        return self._known[key]


def harness_versions() -> dict[str, str]:
    """Versions of what every system shares; `harness` is the worker's own code."""
    numpy = importlib.metadata.version("numpy")
    core = hash_files(imported_files([WORKER]))[:12]
    return {"python": platform.python_version(), "numpy": numpy, "harness": core}


def imported_files(roots: Iterable[str], said: Collection[str] = ()) -> dict[str, Path]:
    """Return the files of the modules `roots` and of all they import, by module name.

    Followed are this repository's packages and those of the roots themselves. said: names of
    modules that count as imported when a file names their package in a string.
    """
    waiting = list(roots)
    followed = {*_OWN_PACKAGES, *(name.partition(".")[0] for name in waiting)}
    files: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in files or name.partition(".")[0] not in followed:
            continue
        path = module_file(name)
        if path is not None:
            files[name] = path
            imports, texts = mentioned(path, name)
            waiting += [*imports, *_named_in(texts, said)]
            waiting += [name.rpartition(".")[0]] if "." in name else []
    return files


def _named_in(texts: Collection[str], said: Collection[str]) -> Iterator[str]:
    names = [name for name in said if name.isidentifier()]
    ends = ["", *(text for text in texts if _MODULE_BELOW.fullmatch(text))]
    for text in texts:
        if _MODULE_NAME.fullmatch(text):
            package = text.rstrip(".")
            yield package
            yield from (f"{package}.{name}{end}" for name in names for end in ends)


def _last_parts(names: Iterable[str]) -> Iterator[str]:
    return (name.rpartition(".")[2] for name in names)


def hash_files(files: Mapping[str, Path]) -> str:
    """Hash modules by name and code, so that moving the repository changes nothing.

    Comments and docstrings of Python source are left out; of other files the content counts.
    """
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode())
        digest.update(code_sha256(path) if path.suffix == ".py" else _content_sha256(path))
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


_FOUND: dict[tuple[str, tuple[str, ...]], Path] = {}


def module_file(name: str) -> Path | None:
    """Find the file of a module without importing anything; None for what is not Python source."""
    key = (name, tuple(sys.path))
    if key not in _FOUND:
        path = _find(name)
        if path is None:  # it may come to be
            return None
        _FOUND[key] = path
    return _FOUND[key]


def _find(name: str) -> Path | None:
    # The repository first: an editable installation need not put it on the path.
    search = [str(ROOT), *sys.path]
    spec = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)


def _texts(value: object) -> Iterator[str]:
    """All strings inside a value made of mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
