"""Where the text of a function is, and what the names in it stand for outside of it."""

from __future__ import annotations

import ast
import builtins
import functools
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.errors import CompileError

_READ_AT: dict[str, int] = {}  # of each file when it was last changed, as this process first saw it


def check_unchanged(path: str) -> None:
    """Raise CompileError if a file was edited after this process first read it.

    Python and the compiler read a file at different moments. Machine code of an old text must not
    be kept under the hash of a new one.
    """
    try:
        time = Path(path).stat().st_mtime_ns
    except OSError:  # a generated module, or one inside an archive
        return
    if _READ_AT.setdefault(path, time) != time:
        raise CompileError(f"{path} was edited after this process had read it; start Python again")


@functools.cache
def _tree_of(path: str) -> ast.Module:
    return ast.parse("".join(linecache.getlines(path)))


def definition_of(function: Callable[..., Any]) -> ast.FunctionDef:
    """Return the syntax tree of a function; raises CompileError where its text is not there."""
    code = function.__code__
    check_unchanged(code.co_filename)
    for node in ast.walk(_tree_of(code.co_filename)):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            lines = {node.lineno, *(one.lineno for one in node.decorator_list)}
            if code.co_firstlineno in lines:
                return node
    raise CompileError(f"{code.co_filename} has no function {function.__name__} any more")


def look_up(function: Callable[..., Any], name: str) -> Any:
    """Return what a name that is no variable of a function stands for."""
    code = function.__code__
    if name in code.co_freevars and function.__closure__:
        return function.__closure__[code.co_freevars.index(name)].cell_contents
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise CompileError(f"{name} is not defined")
