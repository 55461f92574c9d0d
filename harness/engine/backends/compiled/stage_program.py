"""A stage of batches as a program of the machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir

from harness.compiler.addresses import address_of
from harness.compiler.object_code import Loaded, load_kept
from harness.compiler.source_stamp import stamp_of
from harness.engine.backends.compiled.checking import check_instruction
from harness.engine.backends.compiled.found import Found
from harness.engine.backends.compiled.interpreter import run_program
from harness.engine.backends.compiled.program import write_program
from harness.engine.backends.compiled.steps import StageWriter
from harness.engine.cpu_kernels.elementwise import SYMBOL, Group, write_group
from harness.engine.cpu_kernels.team import Call
from harness.engine.cpu_kernels.vectors import LANES
from harness.engine.lowering.plan import Plan
from harness.values.arrays import IntArray


class StageProgram:
    """One stage of some vertex functions.

    instructions: of each function. argument: where the program is. profile: whether the time of
    instructions that only move data is counted.
    """

    def __init__(
        self,
        plans: Mapping[int, Plan],
        stage: str,
        found: Found,
        *,
        half: bool = False,
        profile: bool = False,
    ) -> None:
        values = found.memory.parameters.values
        shapes = {name: value.shape for name, value in values.items()}
        self._found = found
        self.instructions = {
            t: StageWriter(t, plan, stage, shapes, half).write() for t, plan in plans.items()
        }
        for instructions in self.instructions.values():
            for one in instructions:
                check_instruction(one, found.memory)
        self._words = write_program(
            self.instructions,
            lambda t: any(node.op == "gather_each" for node in plans[t].nodes),
            found.place_of,
            address_of_kernel,
            profile=profile,
        )
        self.argument, self.function = address_of(self._words), run_program.address

    def find(self) -> None:
        """Look where the arrays are in this mini-batch."""
        self._found.look()

    def call(self, batches: IntArray) -> Call:
        """The call that runs the stage of every (type, position) in order."""
        self.find()
        return Call(self, np.ascontiguousarray(batches))


def address_of_kernel(kernel: Any) -> int:
    """Where the machine code of a kernel, or of a group, begins."""
    if isinstance(kernel, Group):
        return _load_group(kernel).address(SYMBOL)
    found: int = kernel.address
    return found


@functools.cache
def _load_group(group: Group) -> Loaded:
    """Load a group's machine code; as fast with LLVM's passes, which take half the time."""
    words = repr((stamp_of((write_group.__module__,)), LANES, group))
    return load_kept(words, lambda: _text_of(group), as_written=True)


def _text_of(group: Group) -> str:
    module = ir.Module()
    write_group(module, group, LANES)
    return str(module)
