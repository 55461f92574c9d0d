"""The hash of a trial's measured code: what its worker process imports from this repository."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from harness.trial import TrialSpec

WORKER = "harness.measure"
_OWN_PACKAGES = ("harness", "systems", "datasets")
_ROOT = Path(__file__).resolve().parents[1]
_POLICIES = "harness.policies"


def source_sha256(spec: TrialSpec) -> str:
    """Hash the measured code of a trial: the harness's worker and the system, model and loader.

    Modules are followed through their import statements without importing any of them. Policies
    are found by name when they run, so the one that a trial names counts as imported.
    """
    roots = [WORKER, spec.adapter, spec.model_module, spec.loader]
    roots += [f"{_POLICIES}.{name}" for name in _texts((spec.policy, spec.system_options))]
    return hash_files(imported_files(roots))


def harness_versions() -> dict[str, str]:
    """Versions of what every system shares; `harness` is the worker's own code."""
    numpy = importlib.metadata.version("numpy")
    core = hash_files(imported_files([WORKER]))[:12]
    return {"python": platform.python_version(), "numpy": numpy, "harness": core}


def imported_files(roots: Iterable[str]) -> dict[str, Path]:
    """Return the files of the modules `roots` and of all they import, by module name.

    Followed are this repository's packages and those of the roots themselves.
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
            waiting += imports_of(path, name)
            waiting += [name.rpartition(".")[0]] if "." in name else []
    return files


def hash_files(files: Mapping[str, Path]) -> str:
    """Hash modules by name and content, so that moving the repository changes nothing."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode())
        digest.update(_content_sha256(path, path.stat().st_mtime_ns))
    return digest.hexdigest()


def module_file(name: str) -> Path | None:
    """Find the file of a module without importing anything; None for what is not Python source."""
    # The repository first: an editable installation need not put it on the path.
    search = [str(_ROOT), *sys.path]
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


def imports_of(path: Path, name: str) -> tuple[str, ...]:
    """Names that a module's import statements may load, as absolute module names."""
    is_package = path.name == "__init__.py"
    return _imports(path, path.stat().st_mtime_ns, name if is_package else name.rpartition(".")[0])


@cache
def _imports(path: Path, _changed_ns: int, package: str) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            # `from a import b` loads a.b where b is a module; where it is none, no file is found.
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parent = ".".join(parts[: len(parts) - node.level + 1])
    return f"{parent}.{node.module}" if node.module else parent


@cache
def _content_sha256(path: Path, _changed_ns: int) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


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
