"""What may be called in compiled functions: others of ours, and what the compiler knows.

`@compiled` functions are called from Python, too; `@helper` ones only by these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

Function = TypeVar("Function", bound=Callable[..., Any])

# Functions that are compiled where they are called, with LLVM's flags of their floats.
HELPERS: dict[Any, tuple[str, ...]] = {}
# Those of them that stay functions of their own: machine code that many places call.
APART: set[Any] = set()
# Functions whose calls the compiler writes itself, and methods of arrays and numbers.
EMITTERS: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


class Compilable:
    """A function that can be called by compiled code and from elsewhere."""

    function: Callable[..., Any]


@overload
def helper(function: Function) -> Function: ...
@overload
def helper(*, fast: tuple[str, ...] = ..., apart: bool = ...) -> Callable[[Function], Function]: ...
def helper(function: Any = None, *, fast: tuple[str, ...] = (), apart: bool = False) -> Any:
    """Let compiled functions call this one.

    Args:
        function: what to compile.
        fast: LLVM's flags of its operations on floats.
        apart: whether it never becomes part of its callers, which are compiled the faster.
    """

    def register(one: Function) -> Function:
        HELPERS[one] = fast
        if apart:
            APART.add(one)
        return one

    return register if function is None else register(function)


def emitter(*functions: Any) -> Callable[[Function], Function]:
    """Let this write the calls of some functions: f(writer, *arguments)."""

    def register(emit: Function) -> Function:
        EMITTERS.update(dict.fromkeys(functions, emit))
        return emit

    return register


def method(*names: str) -> Callable[[Function], Function]:
    """Let this write the calls of methods of arrays and numbers: f(writer, receiver, *rest)."""

    def register(emit: Function) -> Function:
        METHODS.update(dict.fromkeys(names, emit))
        return emit

    return register
