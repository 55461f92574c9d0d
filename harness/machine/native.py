"""Compiled functions that threads and compiled code call by address, and their errors.

numba's own C callbacks take Python's lock to print an error, and then go on as if there were none.
These are called as numba's compiled code calls itself (numba.core.callconv.CPUCallConv): what comes
back is a code, and the address of what describes the error, so that a thread without Python's lock
can hand both to one that has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import sigutils, types
from numba.core.callconv import excinfo_ptr_t
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from harness.machine.collector import collector_resting
from harness.machine.compiled import stamp_of
from harness.machine.machine_code import MachineCode
from harness.machine.pipeline import Straight

cgutils: Any = untyped_cgutils
DONE = 0  # the code of a call that raised nothing
_CODE, _WORD = ir.IntType(32), ir.IntType(64)


class Native:
    """A compiled function of integers that returns nothing. address: of its machine code.

    Its errors have constants in them, or nothing: for numbers there would have to be memory.
    """

    @global_compiler_lock  # type: ignore[untyped-decorator]
    def __init__(self, function: Callable[..., Any], signature: str, options: dict[str, Any]):
        self.__wrapped__ = function
        arguments, _ = sigutils.normalize_signature(signature)  # type: ignore[no-untyped-call]
        compiled_for = types.void(*arguments)
        cache: Any = MachineCode(function, stamp_of((function.__module__, __name__)))
        found = cache.load_overload(compiled_for, cpu_target.target_context)
        if found is None:
            found = _compiled(function, arguments, options)
            cache.save_overload(compiled_for, found)
        self._kept = found  # the machine code lives as long
        self.address = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)


def _compiled(function: Callable[..., Any], arguments: Any, options: dict[str, Any]) -> Any:
    """As numba.njit does, but for passes and wrappers: neither Python nor C calls the function."""
    flags: Any = Flags()  # type: ignore[no-untyped-call]
    cpu_target.options.parse_as_flags(flags, options)  # type: ignore[no-untyped-call]
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.nrt = False
    contexts = cpu_target.typing_context, cpu_target.target_context
    compile_it: Any = compile_extra
    library: Any = _library(cpu_target.target_context.codegen(), function.__qualname__)
    library.enable_object_caching()
    given: dict[str, Any] = {"library": library, "pipeline_class": Straight}
    with collector_resting():
        return compile_it(*contexts, function, arguments, types.void, flags, {}, **given)


class _Library(JITCodeLibrary):
    """Optimises once; numba does so three times, to lose counts of references in between.

    Loops that count none come out as fast, and sooner.
    """

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        codegen: Any = self._codegen
        passes, builder = codegen._module_pass_manager()
        passes.run(self._final_module, builder)


_library: Any = _Library


def native(signature: str, **options: Any) -> Callable[[Callable[..., Any]], Native]:
    """Compile at once, for `call_native`; numba.njit's options.

    The function makes no arrays, of which somebody would have to count who holds them.
    """
    return lambda function: Native(function, signature, options)


def _call_native(_typing: Any, _address: Any, described: Any, arguments: Any) -> Any:
    """Call the function at an address with a tuple of int64.

    Returns DONE, or a code, and writes to the two words at `described` the code and where its error
    is described.
    """
    signature = types.int64(types.intp, types.intp, arguments)

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        address, described, packed = values
        found = cgutils.unpack_tuple(builder, packed)
        result = cgutils.alloca_once(builder, context.call_conv.get_return_type(types.none).pointee)
        error = cgutils.alloca_once(builder, excinfo_ptr_t)
        kinds = [result.type, error.type, *(value.type for value in found)]
        function = builder.inttoptr(address, ir.FunctionType(_CODE, kinds).as_pointer())
        code = builder.call(function, [result, error, *found])
        status = context.call_conv._get_return_status(builder, code, builder.load(error))
        with cgutils.if_unlikely(builder, status.is_error):
            words = builder.inttoptr(described, _WORD.as_pointer())
            builder.store(builder.sext(code, _WORD), words)
            where = builder.gep(words, [ir.Constant(_WORD, 1)])
            builder.store(builder.ptrtoint(status.excinfoptr, _WORD), where)
        return builder.select(status.is_error, builder.sext(code, _WORD), ir.Constant(_WORD, DONE))

    return signature, generate


def _call_number(_typing: Any, _address: Any, arguments: Any) -> Any:
    """Call the compiled function of int64 that returns one, at an address; its errors go on."""
    signature = types.int64(types.intp, arguments)

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        address, packed = values
        kinds = tuple(types.int64 for _ in arguments)
        kind = context.call_conv.get_function_type(types.int64, kinds)
        function = builder.inttoptr(address, kind.as_pointer())
        given = cgutils.unpack_tuple(builder, packed)
        status, found = context.call_conv.call_function(
            builder, function, types.int64, kinds, given
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return found

    return signature, generate


@functools.cache
def address_for_numbers(function: Any, n: int) -> int:
    """Where the machine code of a compiled function is, for `call_number` with n numbers."""
    kinds = (types.int64,) * n
    function.compile(kinds)
    found = function.overloads[kinds]
    unliteral: Any = types.unliteral
    if unliteral(found.signature.return_type) != types.int64:
        raise TypeError(f"{function.__name__} returns {found.signature.return_type}, not int64")
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    return address


def _raise_again(_typing: Any, _code: Any, _where: Any) -> Any:
    """Raise the error of a code, described at an address, as if it had been raised here."""

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        code, where = values
        described = builder.inttoptr(where, excinfo_ptr_t)
        status = context.call_conv._get_return_status(
            builder, builder.trunc(code, _CODE), described
        )
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(types.int64, types.intp), generate


# As values, since a checker of types takes an intrinsic for a function of its first argument, too.
call_native: Any = intrinsic(_call_native)
call_number: Any = intrinsic(_call_number)
raise_again: Any = intrinsic(_raise_again)
