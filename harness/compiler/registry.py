"""Registry of compiled functions, their source text, and a hash of everything they depend on.

`@compiled` functions can also be called from Python; `@helper` ones only by compiled functions.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import importlib
import linecache
import sys
import weakref
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any, TypeVar, overload

import numpy as np

from dynbatch.harness.errors import CompileError
from dynbatch.harness.machine.source_code import (
    find_compiled_modules,
    find_imports_in_text,
    hash_code,
)

Function = TypeVar("Function", bound=Callable[..., Any])

# Functions that are compiled for their callers, with LLVM's fast-math flags.
HELPERS: dict[Any, tuple[str, ...]] = {}
# Those that are never inlined: machine code that is called in many places.
APART: set[Any] = set()
# Functions whose calls the compiler writes itself, and methods of arrays and numbers.
EMITTERS: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


class Compilable:
    """Function that can be called by compiled code and from elsewhere."""

    function: Callable[..., Any]


@overload
def helper(function: Function) -> Function: ...
@overload
def helper(*, fast: tuple[str, ...] = ..., apart: bool = ...) -> Callable[[Function], Function]: ...
def helper(function: Any = None, *, fast: tuple[str, ...] = (), apart: bool = False) -> Any:
    """Allow compiled functions to call this one.

    Args:
        fast: LLVM's fast-math flags.
        apart: never inline it into its callers, which then compile faster.
    """

    def register(target: Function) -> Function:
        register_function(target, fast)
        if apart:
            APART.add(target)
        return target

    return register if function is None else register(function)


def register_function(function: Any, fast: tuple[str, ...]) -> None:
    """Remember a function, and the time of its file; raise CompileError if this was edited."""
    check_unchanged(function.__code__.co_filename)
    HELPERS[function] = fast


def register_emitter(*functions: Any) -> Callable[[Function], Function]:
    """Register a writer of the calls of some functions: f(writer, *arguments)."""

    def register(emit: Function) -> Function:
        EMITTERS.update(dict.fromkeys(functions, emit))
        return emit

    return register


def register_method(*names: str) -> Callable[[Function], Function]:
    """Register a writer of the calls of array and number methods: f(writer, receiver, *rest)."""

    def register(emit: Function) -> Function:
        METHODS.update(dict.fromkeys(names, emit))
        return emit

    return register


# --- source text of functions ------------------------------------------------------------------

_READ_AT: dict[str, int] = {}  # modification time of each file when this process first read it


def check_unchanged(path: str) -> None:
    """Raise CompileError if a file was edited after this process first read it.

    Python and the compiler read a file at different times. Machine code of an old text must not be
    cached under the hash of a new one.
    """
    try:
        time = Path(path).stat().st_mtime_ns
    except OSError:  # a generated module, or one inside an archive
        return
    if _READ_AT.setdefault(path, time) != time:
        raise CompileError(f"{path} was edited after this process read it; restart Python")


@functools.cache
def _parse_source(path: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(path)))


# Syntax trees of functions that were made from a changed one.
_CHANGED: weakref.WeakKeyDictionary[Any, ast.FunctionDef] = weakref.WeakKeyDictionary()


def register_definition(function: Callable[..., Any], definition: ast.FunctionDef) -> None:
    """Use a changed syntax tree as that of a function, which was compiled from it."""
    _CHANGED[function] = definition


def find_definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """Return the syntax tree of a function; raise CompileError if its source is not found."""
    if function in _CHANGED:
        return _CHANGED[function]
    code = function.__code__
    check_unchanged(code.co_filename)
    for node in ast.walk(_parse_source(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            lines = {node.lineno, *(decorator.lineno for decorator in node.decorator_list)}
            if code.co_firstlineno in lines:
                return node
    raise CompileError(f"{code.co_filename} no longer has a function {function.__name__}")


def look_up(function: Callable[..., Any], name: str) -> Any:
    """Return the value of a name that is not a variable of a function."""
    code = function.__code__
    if name in code.co_freevars and function.__closure__:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError as error:
            raise CompileError(f"{name} is not assigned in the function around it") from error
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise CompileError(f"{name} is not defined")


# --- hash of everything that machine code depends on --------------------------------------------

# A global of these types becomes part of the machine code.
CONSTANTS = (bool, int, float, str, tuple, np.generic, np.dtype)
COMPILERS = ("llvmlite", "numpy")
_INSTALLED = {"site-packages", "dist-packages"}


@functools.cache
def hash_modules(names: tuple[str, ...]) -> str:
    """Hash the code of imported modules and of all that they use, except from installed packages.

    A compiled function can only inline globals of its module: imports, whose modules are followed
    in any case, and constants, whose values are hashed. The hash includes the versions of Python
    and of the compilers.
    """
    digest = hashlib.sha256(" ".join([sys.version, *map(version, COMPILERS)]).encode())
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += _list_inlined_modules(name)
    for name in sorted(seen):
        digest.update(_hash_module(name))
    return digest.hexdigest()


_STAMPS: dict[str, bytes] = {}  # of completely imported modules


def _hash_module(name: str) -> bytes:
    """Hash the code of a module and its constants."""
    module, path = sys.modules[name], _find_file(name)
    if path:
        check_unchanged(path)
    if name in _STAMPS:
        return _STAMPS[name]
    digest = hashlib.sha256(hash_code(Path(path)) if path else b"")
    spelled = sorted((k, _spell(v)) for k, v in vars(module).items() if not k.startswith("__"))
    digest.update(repr([pair for pair in spelled if pair[1]]).encode())
    if not getattr(module.__spec__, "_initializing", False):
        _STAMPS[name] = digest.digest()
    return digest.digest()


def _spell(value: Any, *users: Any) -> str:
    """Return the value of a constant, or the name of a class or function with the values it holds.

    A module may select each of them when it is imported. Return an empty string for anything else.

    Args:
        users: Functions that hold the value.
    """
    if isinstance(value, CONSTANTS):
        return repr(value)
    held: list[Any] = []
    function = value.function if isinstance(value, Compilable) else value
    if isinstance(value, type):
        own = sorted((k, v) for k, v in vars(value).items() if not k.startswith("__"))
        held = [(k, v) for k, v in own if isinstance(v, CONSTANTS)]
    elif isinstance(function, FunctionType) and function in HELPERS:
        cells = (
            [] if function in users else [_read_cell(cell) for cell in function.__closure__ or ()]
        )
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        held = [_spell(v, function, *users) for v in (*cells, *defaults)]
    elif not (isinstance(value, BuiltinFunctionType) and value in EMITTERS):
        return ""
    return f"{function.__module__}.{function.__qualname__} {held}"


def _read_cell(cell: CellType) -> Any:
    """Return the value of a name of the function around; CellType if it is unassigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return CellType


@functools.cache
def _list_homes(name: str) -> tuple[str, ...]:
    path = _find_file(name)
    return find_compiled_modules(Path(path), name) if path else ()


def _list_inlined_modules(name: str) -> list[str]:
    """Return the modules that a module's functions may inline.

    They are found in its source text, as an imported number or set does not reveal its origin.
    """
    packages = {module_name.partition(".")[0] for module_name in (name, __name__)}
    return [
        home
        for home in _list_homes(name)
        if home in sys.modules and (home.partition(".")[0] in packages or not _is_installed(home))
    ]


def _is_installed(name: str) -> bool:
    """Return True for a module of Python or of an installed package, which is not hashed."""
    path = Path(_find_file(name) or "")
    is_pythons = name.partition(".")[0] in sys.stdlib_module_names
    return is_pythons or path.suffix != ".py" or not _INSTALLED.isdisjoint(path.parts)


def has_hashed_source(function: Callable[..., Any]) -> bool:
    """Return True if `hash_modules` covers a function's text, unlike that of a notebook's cell."""
    name = function.__module__
    return function.__code__.co_filename in (_find_file(name), _name_file(name))


def _find_file(name: str) -> str | None:
    """Return the path of a module's source; None for a generated one, named after its text."""
    return getattr(sys.modules[name], "__file__", None)


# --- generated modules --------------------------------------------------------------------------


def load_generated(text: str, entry: str) -> Callable[..., Any]:
    """Run a text as a module, once per process; return one of its functions.

    The module is named after the text and everything of ours that it imports. Other processes
    therefore find its functions' cached machine code under that name, but not after an edit.
    """
    modules = _list_own_imports(text)
    for name in modules:
        importlib.import_module(name)
    digest = hashlib.sha256((hash_modules(modules) + text).encode()).hexdigest()[:32]
    name = f"generated_{digest}"
    if name not in sys.modules:
        sys.modules[name] = _run(name, text)
    function: Callable[..., Any] = getattr(sys.modules[name], entry)
    return function


def _list_own_imports(text: str) -> tuple[str, ...]:
    """Return our modules that a text imports; the functions it calls become part of its code."""
    package = __name__.partition(".")[0]
    names = {name for name in find_imports_in_text(text) if name.partition(".")[0] == package}
    return tuple(sorted(names))


def _run(name: str, text: str) -> ModuleType:
    module, file = ModuleType(name), _name_file(name)
    # Compilers read a function's text there, and messages show it; without a time it stays cached.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))
    return module


def _name_file(name: str) -> str:
    """Return the file name of a generated module, which messages show."""
    return f"<{name}>"
