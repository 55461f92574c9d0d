"""Compilation of a program that waits to machine code that runs its fibers.

The compiler's writer translates the program's syntax tree, with variables in frames instead of on
the stack. Requests behave as for Python's generators in dynbatch.harness.programs.fibers, in the
same order, so the log is the same.

Source: ACRoBat (MLSys 2024, section 6) compiles programs ahead of time; its text does not specify
how.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from dynbatch.harness.compiler.compiled import compiled, write_module
from dynbatch.harness.compiler.functions import IRModule
from dynbatch.harness.compiler.kinds import Value
from dynbatch.harness.errors import CompileError
from dynbatch.harness.programs.compiling import fibers
from dynbatch.harness.programs.compiling.constants import (
    Constants,
    TheInstance,
    TheWriter,
    read_type_hints,
)
from dynbatch.harness.programs.compiling.frames import FiberEntry, is_generator
from dynbatch.harness.programs.compiling.lists import LIST, is_kept
from dynbatch.harness.programs.compiling.requests import RequestWriter
from dynbatch.harness.programs.log import CallText


@dataclass(frozen=True, slots=True)
class TranslatedProgram:
    """Compiled program.

    Attributes:
        text: LLVM IR with the function `entry`, which takes the state's address.
        width: number of words of a frame.
    """

    text: str
    width: int
    constants: Constants


def translate_program(program: Callable[..., Any], calls: CallText) -> TranslatedProgram:
    """Translate a model's program.

    Raises:
        CompileError: for code that is not supported.
    """
    function = getattr(program, "__func__", program)
    if not inspect.isfunction(function):
        raise CompileError(f"{program!r} is no function of Python's")
    module = IRModule()
    writer = ProgramWriter(module, function, calls, getattr(program, "__self__", None))
    try:
        writer.write_program()
    except CompileError as error:
        raise writer.locate(error) from error
    except Exception as error:  # raised by the program's own code, such as 1 / 0
        text = f"raises {type(error).__name__}: {error}"
        raise writer.locate(CompileError(text)) from error
    text = str(write_module([ENTRY], module))
    return TranslatedProgram(text, writer.most_slots, writer.constants)


class ProgramWriter(RequestWriter):
    """Writer of a program, and of all functions that it forks."""

    def write_program(self) -> None:
        """Write the program and its branches."""
        function = self.function
        if not isinstance(function, FunctionType) or not is_generator(function):
            raise CompileError("waits for nothing")
        names = self.list_parameters(function)
        kind = read_type_hints(function).get(names[-1])
        if not isinstance(kind, type):
            raise CompileError(f"lacks the class of {names[-1]}: write `{names[-1]}: Chain`, say")
        number, block = self.make_target()
        own = (self.model,) if len(names) == 3 else ()
        values = (*own, TheWriter(), TheInstance(kind))
        self._write_fiber(
            FiberEntry(function, values, number, block, returns=True), is_program=True
        )
        while self.waiting:
            self._write_fiber(self.waiting.pop(), is_program=False)
        self.finish()

    def _write_fiber(self, entry: FiberEntry, *, is_program: bool) -> None:
        """Write a function that fibers start with, and the code that ends them."""
        self.builder.position_at_end(entry.block)
        self.n_slots = fibers.FIRST_SLOT
        self.within.append(entry.function)
        variables = [self.make_variable_like(value) for value in entry.values]
        self.within.pop()
        returned = self.inline(entry.function, variables, places=True)
        if is_program:
            if isinstance(returned, tuple):
                self.refuse("returns neither a vertex nor a list")
            result = returned if is_kept(returned, LIST) else self.make_list((returned,))
            self.call_helper(fibers.end, self.state, self.fiber, self.handle(result))
        else:
            if entry.returns != isinstance(returned, Value):
                self.refuse("does not return a vertex from a branch")
            result = self.to_integer(returned if entry.returns else 0)
            self.call_helper(fibers.join, self.state, self.fiber, result)
        self.stop(fibers.HAS_ENDED)


def _make_entry() -> Any:
    @compiled
    def entry(state: int) -> int:
        return fibers.run(state)

    return entry


ENTRY = _make_entry()
