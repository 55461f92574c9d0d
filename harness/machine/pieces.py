"""Compiled functions that other compiled code calls by name, and holds no copy of.

numba links all that a function calls into it, and optimises it there once more: most of what a
stage of a model compiled were kernels that had been compiled before. A piece is compiled once for
its types, under a name that stays the same in all processes; where machine code that calls it comes
from the disk, so does the piece, before.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import binding
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from harness.machine.bare import Bare
from harness.machine.compiled import stamp_of
from harness.machine.machine_code import MachineCode
from harness.machine.parts import without_entries

cgutils: Any = untyped_cgutils


@dataclass(frozen=True, slots=True)
class Piece:
    """A function of a module, for types of arguments. Calling it loads or compiles it.

    symbol: the name that machine code calls it by. It is kept with that machine code, which is of
    no use once any text that it was made of has changed.
    """

    module: str
    name: str
    kinds: tuple[Any, ...]
    symbol: str

    def __call__(self) -> Any:
        """Make the name known; returns what numba compiled."""
        return _loaded(self)


def _piece(function: Callable[..., Any], kinds: tuple[Any, ...]) -> Piece:
    module, name = function.__module__, function.__name__
    words = f"{module}.{name} {stamp_of((module,))} {kinds!r}"
    symbol = f"{name}_{hashlib.sha256(words.encode()).hexdigest()[:32]}"
    return Piece(module, name, kinds, symbol)


@functools.cache
def _loaded(piece: Piece) -> Any:
    dispatcher = getattr(importlib.import_module(piece.module), piece.name)
    found = _machine_code(dispatcher, piece)
    address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    binding.add_symbol(piece.symbol, address)
    return found


@global_compiler_lock  # type: ignore[untyped-decorator]
def _machine_code(dispatcher: Any, piece: Piece) -> Any:
    """What is kept of it, else compiled now."""
    stamp = f"{stamp_of((piece.module, __name__))} piece"
    cache: Any = MachineCode(dispatcher.py_func, stamp)
    found = cache.load_overload(piece.kinds, dispatcher.targetctx)
    if found is None:
        found = without_entries(dispatcher._compiler, piece.kinds)
        cache.save_overload(piece.kinds, found)
    return found


@functools.cache
def by_name(dispatcher: Any) -> Any:
    """Return what compiled code calls in place of a compiled function of a module's top level."""
    function: Callable[..., Any] = dispatcher.py_func

    def call_it(_typing: Any, *kinds: Any) -> Any:
        given = tuple(map(_plain, kinds))
        piece = _piece(function, tuple(map(_stood_for, given)))
        signature = piece().signature

        def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
            # Called again when the machine code that is made here is read from the disk.
            context.active_code_library._reload_init.add(piece)
            kind = context.call_conv.get_function_type(signature.return_type, signature.args)
            called = cgutils.get_or_insert_function(builder.module, kind, piece.symbol)
            status, found = context.call_conv.call_function(
                builder, called, signature.return_type, given, values
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return found

        return signature.return_type(*given), generate

    parameters = inspect.signature(function).parameters.values()
    typing = inspect.Parameter("_typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named: Any = call_it
    named.__signature__ = inspect.Signature([typing, *parameters])
    return intrinsic(call_it)


def _plain(kind: Any) -> Any:
    """int64 for the constant 64: one piece serves all constants."""
    unliteral: Any = types.unliteral
    return unliteral(kind)


def _stood_for(kind: Any) -> Any:
    """Pieces are compiled for numba's arrays, and called with bare ones, too."""
    return kind.array if isinstance(kind, Bare) else kind
