"""Words that several threads read and write: int64 of an array, in one order for all of them."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_ORDER, _ALIGNMENT = "seq_cst", 8
_HAS_PAUSE = platform.machine() in ("x86_64", "AMD64")


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


def _load(_typing: Any, _address: Any) -> Any:
    """The word at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(builder, arguments[0]), _ORDER, _ALIGNMENT)

    return types.int64(types.intp), generate


def _store(_typing: Any, _address: Any, _value: Any) -> Any:
    """Write the word at an address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], _word(builder, arguments[0]), _ORDER, _ALIGNMENT)
        return context.get_dummy_value()

    return types.void(types.intp, types.int64), generate


def _add(_typing: Any, _address: Any, _value: Any) -> Any:
    """Add to the word at an address; returns what it was before."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, arguments[0]), arguments[1], _ORDER)

    return types.int64(types.intp, types.int64), generate


def _pause(_typing: Any) -> Any:
    """Tell the processor that this thread looks again and again: another one of its core gains."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        if _HAS_PAUSE:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(
                cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                    builder.module, kind, name
                ),
                [],
            )
        return context.get_dummy_value()

    return types.void(), generate


# As values, since a checker of types takes an intrinsic for a function of its first argument, too.
load: Any = intrinsic(_load)
store: Any = intrinsic(_store)
add: Any = intrinsic(_add)
pause: Any = intrinsic(_pause)
