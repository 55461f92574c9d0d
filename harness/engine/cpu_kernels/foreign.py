"""Calls of C functions from compiled code, by addresses that come as data."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _call(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call the function at an address with the entries of a tuple; what it returns is left alone.

    Arguments arrive as what they are typed as: integers of 64 bits, np.int32, np.float32.
    """
    signature = types.void(types.intp, arguments)

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        found = cgutils.unpack_tuple(builder, values[1])  # type: ignore[no-untyped-call]
        function = ir.FunctionType(ir.VoidType(), [value.type for value in found])
        builder.call(builder.inttoptr(values[0], function.as_pointer()), found)
        return context.get_dummy_value()

    return signature, generate


call: Any = intrinsic(_call)
