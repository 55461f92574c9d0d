"""Decorator `@compiled`: machine code at the first call, for all functions of a module together."""

from __future__ import annotations

import ctypes
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, Generic, ParamSpec, TypeVar, overload

from llvmlite import ir

import dynbatch.harness.compiler.builtins
import dynbatch.harness.compiler.lanes  # noqa: F401 - registers what the compiler knows of them
from dynbatch.harness.compiler import arrays, pointers
from dynbatch.harness.compiler.builtins import ARENA
from dynbatch.harness.compiler.functions import ERROR, IRModule, Translated
from dynbatch.harness.compiler.kinds import (
    INT,
    NOTHING,
    WORD,
    AnyArray,
    TupleKind,
    describe,
    parse_annotation,
)
from dynbatch.harness.compiler.object_code import Loaded, load_cached, load_ir
from dynbatch.harness.compiler.pointers import FAILED
from dynbatch.harness.compiler.python_calls import Wrapper, list_tuple_classes, make_callable
from dynbatch.harness.compiler.registry import (
    Compilable,
    has_hashed_source,
    hash_modules,
    register_function,
)
from dynbatch.harness.errors import CompileError

P = ParamSpec("P")
R = TypeVar("R")
_BY_MODULE: dict[str, list[Compiled[..., Any]]] = {}
_LOADING = RLock()  # of two threads that call a function first, one loads it
_CALLED: list[Any] = []  # callables of Python, for the lifetime of the process


class Compiled(Compilable, Generic[P, R]):
    """Function as machine code, for arguments of the declared types.

    Args:
        fast: LLVM's fast-math flags.
        without_lock: Python releases its lock during calls; for integers only.
    """

    __name__: str

    def __init__(
        self, function: Callable[P, R], fast: tuple[str, ...], *, without_lock: bool
    ) -> None:
        self.function, self.fast, self.without_lock = function, fast, without_lock
        functools.update_wrapper(self, function)
        if function.__defaults__ or function.__kwdefaults__:
            raise CompileError(f"{self.__module__}.{self.__name__} has defaults; remove them")
        register_function(function, fast)
        if "<locals>" not in function.__qualname__:
            own = _BY_MODULE.setdefault(function.__module__, [])
            own[:] = [*(other for other in own if other.__name__ != self.__name__), self]

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """Kinds of the arguments, from their annotations; CompileError if these are missing."""
        try:
            hints = typing.get_type_hints(self.function, include_extras=True)
            return tuple(parse_annotation(hints[name]) for name in self.names)
        except (KeyError, NameError, CompileError) as error:
            where = f"{self.__module__}.{self.__name__}"
            raise CompileError(f"{where}: missing or unsupported annotation: {error}") from error

    @property
    def named(self) -> Sequence[type]:
        """Classes of the named tuples in the declared return type."""
        return list_tuple_classes(typing.get_type_hints(self.function).get("return"))

    @property
    def names(self) -> Sequence[str]:
        """Names of the arguments."""
        return list(inspect.signature(self.function).parameters)

    @cached_property
    def _loaded(self) -> Loaded:
        is_global = self in _BY_MODULE.get(self.__module__, [])
        if is_global and has_hashed_source(self.function):
            return load_module(self.__module__)
        return load_ir(str(write_module([self])))  # compiled separately, cached by its IR

    @cached_property
    def address(self) -> int:
        """Address of the machine code, for functions of integers only."""
        return self._loaded.find_address(f"{self.__name__}.plain")

    @cached_property
    def _called(self) -> Any:
        if self.without_lock:
            returned = typing.get_type_hints(self.function).get("return")
            kind = ctypes.CFUNCTYPE(
                ctypes.c_int64 if returned is int else None, *[ctypes.c_int64] * len(self.names)
            )
            return kind(self.address)
        address = self._loaded.find_address(f"{self.__name__}.python")
        wrapper, alive = make_callable(self.__name__, address, self.named)
        _CALLED.append((wrapper, alive))
        return wrapper

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        values: Any = arguments
        if named:
            values = inspect.signature(self.function).bind(*arguments, **named).arguments.values()
        result: R = self._called(*values)
        return result


@overload
def compiled(function: Callable[P, R]) -> Compiled[P, R]: ...
@overload
def compiled(
    *, fast: tuple[str, ...] = (), without_lock: bool = False
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...
def compiled(
    function: Any = None, *, fast: tuple[str, ...] = (), without_lock: bool = False
) -> Any:
    """Compile a function to machine code; see Compiled."""
    if function is None:
        return lambda target: Compiled(target, fast, without_lock=without_lock)
    return Compiled(function, fast, without_lock=without_lock)


def has_compiled(name: str) -> bool:
    """Return True if an imported module has compiled functions."""
    return name in _BY_MODULE


def load_module(name: str) -> Loaded:
    """Load the machine code of all compiled functions that a module has defined so far."""
    with _LOADING:
        return _load(name, tuple(_BY_MODULE[name]))


@functools.cache
def _load(name: str, functions: tuple[Compiled[..., Any], ...]) -> Loaded:
    declared = [
        (function.__name__, [_spell(kind) for kind in function.kinds]) for function in functions
    ]
    key = repr((name, hash_modules((name, __name__)), declared))
    return load_cached(key, lambda: str(write_module(functions)))


def _spell(kind: Any) -> Any:
    """Return the full meaning of an annotation; stamps do not cover modules that only annotate."""
    if isinstance(kind, TupleKind):
        return getattr(kind.named, "_fields", None), [_spell(part) for part in kind.kinds]
    return describe(kind)


def write_module(
    functions: Sequence[Compiled[..., Any]], module: IRModule | None = None
) -> ir.Module:
    """Write the LLVM IR of functions and of all that they call.

    Args:
        module: a module that may already contain some of them; None: a new one.
    """
    module = IRModule() if module is None else module
    for entry in functions:
        _write_entry(module, entry)
    return module.ir


def _write_entry(module: IRModule, entry: Compiled[..., Any]) -> None:
    translated = module.translate(entry.function, entry.kinds, entry.fast)
    release = None
    if ARENA in module.ir.globals:
        release = module.translate(arrays.release, (INT,), ()).function
    returned = (INT,) if translated.raises else (INT, NOTHING, None)
    is_plain = all(kind == INT for kind in entry.kinds) and translated.returned in returned
    if is_plain:
        _write_plain(module, entry.__name__, translated, len(entry.kinds), release)
    if not entry.without_lock:
        wrapper = Wrapper(module, entry.__name__, entry.names)
        wrapper.write(entry.kinds, translated, release)
        if wrapper.named != entry.named:
            raise CompileError(f"{entry.__name__}: the returned tuples differ from the declaration")
    elif translated.raises or not is_plain:
        raise CompileError(f"{entry.__name__}: errors and arrays need Python's lock")


def _write_plain(module: IRModule, name: str, translated: Translated, n: int, release: Any) -> None:
    """Write the function of int64 that others call by its address.

    Its errors become FAILED. Only functions that can raise an error create arrays: all others do
    not touch the memory of arrays, which is not thread-safe.
    """
    returns = translated.returned == INT
    kind = ir.FunctionType(INT.ir if returns else ir.VoidType(), [INT.ir] * n)
    function = ir.Function(module.ir, kind, f"{name}.plain")
    builder = ir.IRBuilder(function.append_basic_block())
    result = builder.call(translated.function, function.args)
    if not returns:
        builder.ret_void()
        return
    value = builder.extract_value(result, 0)
    if translated.raises:
        pointer = module.reserve_words(ERROR)
        is_fine = builder.icmp_signed("==", builder.load(pointer), WORD(0))
        builder.store(WORD(0), pointer)
        value = builder.select(is_fine, value, WORD(FAILED))
        if release is not None:
            arena = module.reserve_words(ARENA, arrays.N_ARENA)
            builder.call(release, [builder.ptrtoint(arena, WORD)])
    builder.ret(value)


@compiled
def get_address(array: AnyArray) -> int:
    """Return the address of an array's elements, in a tenth of NumPy's time."""
    return pointers.get_address(array)
