"""Facts about a Python source file, without running it: imports, a hash, and tables.

Comments, docstrings and layout are not part of the code, because they do not affect a run.
Functions that read a file raise ConfigError, which names the file, if it is not valid Python.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.caches import cache_on_disk
from dynbatch.harness.values.paths import IMPORT_ROOT

# Fields without effect at run time: prefix "u" of a string, and comments for type checkers.
_LEFT_OUT = ("kind", "type_comment", "type_ignores")
_ANNOTATIONS = ("annotation", "returns")
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORT_IN_TEXT = re.compile(r"^(?:from|import) +(\w+(?:\.\w+)*)", re.MULTILINE)


def hash_code(path: Path) -> bytes:
    """Hash the code of a Python source file, equally in every version of Python."""
    with _convert_syntax_errors(path):
        return bytes.fromhex(_hash_code(path, ""))


@contextmanager
def _convert_syntax_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except SyntaxError as error:
        location = f"{path}, line {error.lineno}"
        raise ConfigError(f"{location}: invalid Python: {error.msg}; fix the file") from error


@cache_on_disk
def _hash_code(content: bytes, _: str) -> str:
    return hashlib.sha256(" ".join(_flatten_tree(ast.parse(content))).encode()).hexdigest()


def _flatten_tree(value: Any) -> Iterator[str]:
    """Yield the text of a syntax tree, unlike ast.dump equally in every version of Python."""
    if isinstance(value, ast.AST):
        yield type(value).__name__
        for name, inner in ast.iter_fields(value):
            if name == "body" and isinstance(value, _WITH_DOCSTRING):
                inner = inner[ast.get_docstring(value, clean=False) is not None :]
            if inner is not None and inner != [] and name not in _LEFT_OUT:
                yield f"{name}="
                yield from _flatten_tree(inner)
        yield ";"
    elif isinstance(value, list):
        yield "["
        for inner in value:
            yield from _flatten_tree(inner)
        yield "]"
    else:
        yield repr(value)


def find_mentions(path: Path, module: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the absolute names of modules that a file may import, and all its string constants.

    Some names may not be modules. Imports in string constants are included, because they may be
    generated source code that the file runs.
    """
    with _convert_syntax_errors(path):
        imports, texts = _find_mentions(path, _find_package(path, module))
    return tuple(imports), tuple(texts)


@cache_on_disk
def _find_mentions(content: bytes, package: str) -> list[list[str]]:
    tree = ast.parse(content)
    imports = [name for names in _find_imports(tree, package).values() for name in names]
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = [node.value for node in nodes if isinstance(node.value, str)]
    return [[*imports, *(name for text in texts for name in find_imports_in_text(text))], texts]


def find_compiled_modules(path: Path, module: str) -> tuple[str, ...]:
    """Return the modules whose functions or constants may be part of a file's compiled functions.

    Imports that only annotations use are excluded.
    """
    with _convert_syntax_errors(path):
        return tuple(_find_compiled_modules(path, _find_package(path, module)))


@cache_on_disk
def _find_compiled_modules(content: bytes, package: str) -> list[str]:
    tree = ast.parse(content)
    run, all_of_it = _collect_names(_walk_code(tree)), _collect_names(ast.walk(tree))
    imports = _find_imports(tree, package).items()
    # Names that the file does not use may be imported from it by other files.
    return [n for bound, names in imports if bound in run or bound not in all_of_it for n in names]


def _find_package(path: Path, module: str) -> str:
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def find_imports_in_text(text: str) -> tuple[str, ...]:
    """Return the modules imported by the lines of a text, if it is source code."""
    return tuple(_IMPORT_IN_TEXT.findall(text))


def _find_imports(tree: ast.Module, package: str) -> dict[str, list[str]]:
    """Return the imported modules by the name that each import binds."""
    imports: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                imports.setdefault(bound, []).append(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _resolve_import(node, package)
            for alias in node.names:
                # `from a import b` loads a.b if b is a module; otherwise no module has that name.
                bound = alias.asname or alias.name
                imports.setdefault(bound, []).extend((base, f"{base}.{alias.name}"))
    return imports


def _resolve_import(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parent = ".".join(parts[: len(parts) - node.level + 1])
    return f"{parent}.{node.module}" if node.module else parent


def _collect_names(nodes: Iterator[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _walk_code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all its descendants except annotations."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in _ANNOTATIONS:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    yield from _walk_code(inner)


def read_table_entries(path: Path, table: str) -> dict[str, str]:
    """Return the source of each entry of a module's dictionary by its key, a string literal.

    The result is empty if the module defines no dictionary of that name.

    Raises:
        ConfigError: The file is not valid Python.
    """
    with _convert_syntax_errors(path):
        return dict(_read_table_entries(path, table))


@cache_on_disk
def _read_table_entries(content: bytes, table: str) -> dict[str, str]:
    for statement in ast.parse(content).body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as entries)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as entries)
            ) if name == table:
                return {
                    key.value: ast.unparse(value)
                    for key, value in zip(entries.keys, entries.values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
    return {}


_FOUND: dict[tuple[str, tuple[str, ...]], ModuleSpec] = {}


def find_module_file(name: str) -> Path | None:
    """Find the file of a module without importing it; None if it is not Python source."""
    spec = _find_spec(name, tuple(sys.path))
    origin = None if spec is None else spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _find_spec(name: str, search: tuple[str, ...]) -> ModuleSpec | None:
    """Return Python's specification of a module; only modules that exist are cached."""
    spec = _FOUND.get((name, search))
    if spec is not None:
        return spec
    parent_name, _, _ = name.rpartition(".")
    if parent_name:
        parent = _find_spec(parent_name, search)
        places = None if parent is None else parent.submodule_search_locations
        # A module that is not a package has no submodules: most such names are functions.
        spec = None if places is None else PathFinder.find_spec(name, list(places))
    else:
        # The project first: an editable installation may not add it to the path.
        spec = PathFinder.find_spec(name, [str(IMPORT_ROOT), *search])
    if spec is not None:
        _FOUND[name, search] = spec
    return spec
