"""What all writers of LLVM IR share: types, functions and loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

INT32, WORD, FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
FLOAT_BYTES, WORD_BYTES = 4, 8


@contextmanager
def loop(builder: ir.IRBuilder, begin: Any, end: Any, step: Any) -> Iterator[Any]:
    """Write a loop whose body is what is written within; gives begin, begin + step, ... < end."""
    before = builder.block
    body, behind = builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", begin, end), body, behind)
    builder.position_at_end(body)
    number = builder.phi(WORD)
    number.add_incoming(begin, before)
    yield number
    following = builder.add(number, step)
    number.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), body, behind)
    builder.position_at_end(behind)


def begin_function(module: ir.Module, name: str, n_arguments: int) -> tuple[ir.IRBuilder, Any]:
    """Begin a function of int64 that returns nothing; returns its builder and its arguments."""
    kind = ir.FunctionType(ir.VoidType(), [WORD] * n_arguments)
    function = ir.Function(module, kind, name)
    return ir.IRBuilder(function.append_basic_block()), function.args
