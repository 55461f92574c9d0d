"""Programs of instructions, and the interpreter that runs a stage's batches with them.

A program is an array of int64 for each stage. For each batch, the interpreter sets a few registers:
the first row of the batch, and the number of its rows. A step computes the addresses of its
operands from these registers and the table of array addresses, and calls its kernel with them. A
program depends on plans only, never on a mini-batch, because arrays of the layout describe the
batches.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from dynbatch.harness.compiler.compiled import compiled, get_address
from dynbatch.harness.compiler.object_code import Loaded, load_cached
from dynbatch.harness.compiler.pointers import (
    add_to_word,
    call,
    count_cycles,
    put_word,
    read_half_word,
    read_word,
)
from dynbatch.harness.compiler.registry import hash_modules, helper
from dynbatch.harness.engine.backends.compiled.arguments import (
    AddressTable,
    Argument,
    ArgumentKind,
    Instruction,
    Operand,
)
from dynbatch.harness.engine.backends.compiled.checking import check_instruction
from dynbatch.harness.engine.backends.compiled.steps import StageWriter
from dynbatch.harness.engine.cpu_kernels.context import (
    BYTES_COPIED,
    LAUNCHES,
    MOVING_TICKS,
    N_THREADS,
    OPERANDS,
    PLACES,
    REGISTERS,
    ROWS,
    TALLY,
    THREAD,
    Register,
    Taken,
    share,
)
from dynbatch.harness.engine.cpu_kernels.elementwise import SYMBOL, Group, write_group
from dynbatch.harness.engine.cpu_kernels.team import wait_at_barrier
from dynbatch.harness.engine.cpu_kernels.vectors import LANES
from dynbatch.harness.engine.lowering.plan import Plan

# A program: the first function's id, the number of functions, a head for each, then steps.
FIRST_FUNCTION, N_FUNCTIONS, HEADS = range(3)
BEGIN, END, STARTS, FIRST_ROW, EDGES = range(5)
N_OF_HEAD = 5
# A step: its length, its kernel, the rows that a thread takes (Taken), the register with their
# number; two entries of runs (or -1): if the batch has a run, the step is skipped, or its bytes are
# not counted; bytes per row, flags, the numbers of operands and of lists of `apart`; then these
# operands and lists, and constants.
LENGTH, KERNEL, ROWS_TAKEN, COUNT, UNLESS_RUN, BYTES_UNLESS_RUN, N_BYTES, FLAGS = range(8)
N_OPERANDS, N_APART = 8, 9
N_OF_STEP = 10
MOVES, WHOLE_ONLY, COUNTS_ITSELF = 1, 2, 4
# An operand: its entry in the table, the register with its row, bytes between rows, bytes to its
# first column; for rows that are read in place if the batch has a run: entries of runs (else -1)
# and of states, bytes between states, and the register with the row in the batch.
PLACE, REGISTER, PITCH, OFFSET, RUNS, STATES, STATE_PITCH, ROW_IN_BATCH = range(8)
N_OF_OPERAND = 8


@compiled
def run_program(context: int, program: int, batches: int, n_batches: int) -> None:
    """Run a stage for batches (type id, position); position < 0 means all rows in one call."""
    for i in range(n_batches):
        function = read_half_word(batches, 2 * i) - read_word(program, FIRST_FUNCTION)
        if 0 <= function < read_word(program, N_FUNCTIONS):
            head = program + 8 * (HEADS + N_OF_HEAD * function)
            if read_word(head, BEGIN) < read_word(head, END):
                _run_batch(context, program, head, read_half_word(batches, 2 * i + 1))
        wait_at_barrier(context)


@helper
def _run_batch(context: int, program: int, head: int, position: int) -> None:
    places, r = read_word(context, PLACES), read_word(context, REGISTERS)
    starts, first_row = (
        read_word(places, 2 * read_word(head, STARTS)),
        2 * read_word(head, FIRST_ROW),
    )
    is_whole = position < 0
    batch = read_word(places, first_row + 1) if is_whole else position
    begin = 0 if is_whole else read_word(starts, batch)
    n = read_word(starts, batch if is_whole else batch + 1) - begin
    state_row = read_word(read_word(places, first_row), 0 if is_whole else batch)
    edges = read_word(places, 2 * read_word(head, EDGES)) if read_word(head, EDGES) >= 0 else 0
    put_word(r, Register.BATCH, batch)
    thread, n_threads = read_word(context, THREAD), read_word(context, N_THREADS)
    own_at, own_n = share(n, ROWS, thread, n_threads)
    _take(r, begin, state_row, own_at, own_n, edges)
    taken: int = Taken.SHARE
    at, end = program + 8 * read_word(head, BEGIN), program + 8 * read_word(head, END)
    while at < end:
        if n_threads > 1:
            wanted = _decide_taken(places, at, batch)
            if wanted != taken:
                wait_at_barrier(context)
                taken = wanted
                if taken == Taken.SHARE:
                    _take(r, begin, state_row, own_at, own_n, edges)
                else:
                    n_all = n if taken == Taken.ALL or thread == 0 else 0
                    _take(r, begin, state_row, 0, n_all, edges)
        _run_step(context, places, r, at, batch, is_whole)
        at += 8 * read_word(at, LENGTH)


@helper
def _take(r: int, begin: int, state_row: int, at: int, n: int, edges: int) -> None:
    """Set the registers to these rows of the batch."""
    put_word(r, Register.AT, at)
    put_word(r, Register.START, begin + at)
    put_word(r, Register.STATE_ROW, state_row + at)
    put_word(r, Register.N, n)
    if edges != 0:
        edge_start = read_word(edges, begin + at)
        put_word(r, Register.EDGE_START, edge_start)
        put_word(r, Register.EDGE_AT, edge_start - read_word(edges, begin))
        put_word(r, Register.N_EDGES, read_word(edges, begin + at + n) - edge_start)


@helper
def _decide_taken(places: int, step: int, batch: int) -> int:
    """Return the rows that a thread takes in a step: all if vertices add to a common row."""
    wanted = read_word(step, ROWS_TAKEN)
    if wanted != Taken.UNLESS_APART:
        return wanted
    n = read_word(step, N_APART)
    is_apart = n > 0
    first = N_OF_STEP + N_OF_OPERAND * read_word(step, N_OPERANDS)
    for k in range(n):
        is_apart &= read_word(read_word(places, 2 * read_word(step, first + k)), batch) != 0
    return Taken.SHARE if is_apart else Taken.UNLESS_APART


@helper
def _run_step(context: int, places: int, r: int, step: int, batch: int, is_whole: bool) -> None:
    tally, flags, n = (
        read_word(context, TALLY),
        read_word(step, FLAGS),
        read_word(r, read_word(step, COUNT)),
    )
    if _has_run(places, read_word(step, UNLESS_RUN), batch) or (
        flags & WHOLE_ONLY and not is_whole
    ):
        return
    n_operands, operands = read_word(step, N_OPERANDS), read_word(context, OPERANDS)
    for k in range(n_operands):
        _put_operand(places, r, step + 8 * (N_OF_STEP + N_OF_OPERAND * k), operands + 16 * k, batch)
    began = count_cycles() if flags & MOVES else 0
    constants = step + 8 * (N_OF_STEP + N_OF_OPERAND * n_operands + read_word(step, N_APART))
    call(read_word(step, KERNEL), (context, operands, constants, n))
    if not flags & COUNTS_ITSELF:
        add_to_word(tally, LAUNCHES, 1)
    if not _has_run(places, read_word(step, BYTES_UNLESS_RUN), batch):
        add_to_word(tally, BYTES_COPIED, n * read_word(step, N_BYTES))
    if flags & MOVES:
        add_to_word(tally, MOVING_TICKS, count_cycles() - began)


@helper
def _has_run(places: int, runs: int, batch: int) -> bool:
    """Return whether the children of a batch are consecutive.

    Args:
        runs: An entry of the table, or -1.
    """
    return runs >= 0 and read_word(read_word(places, 2 * runs), batch) >= 0


@helper
def _put_operand(places: int, r: int, operand: int, to: int, batch: int) -> None:
    """Write the address of an operand's first row, and the bytes between its rows."""
    pitch = read_word(operand, PITCH)
    begin = read_word(places, 2 * read_word(operand, PLACE)) + pitch * read_word(
        r, read_word(operand, REGISTER)
    )
    runs = read_word(operand, RUNS)
    if runs >= 0:
        first = read_word(read_word(places, 2 * runs), batch)
        if first >= 0:
            begin = read_word(places, 2 * read_word(operand, STATES)) + first * read_word(
                operand, STATE_PITCH
            )
            begin += pitch * read_word(r, read_word(operand, ROW_IN_BATCH))
    put_word(to, 0, begin + read_word(operand, OFFSET))
    put_word(to, 1, pitch)


NO_PLACE = -1


class StageProgram:
    """Program of one stage for some vertex functions.

    Args:
        profile: Count ticks of instructions that only move data.

    Attributes:
        instructions: The instructions of each function.
        argument: The address of the program.
    """

    def __init__(
        self, plans: Mapping[int, Plan], stage: str, addresses: AddressTable, *, profile: bool
    ) -> None:
        parameters = addresses.memory.parameters
        shapes = {name: value.shape for name, value in parameters.values.items()}
        self._place_of, self._profile = addresses.place_of, profile
        self.instructions = {
            t: StageWriter(t, plan, stage, shapes, parameters.has_own_kernels).write()
            for t, plan in plans.items()
        }
        for instructions in self.instructions.values():
            for instruction in instructions:
                check_instruction(instruction, addresses.memory)
        self._words = self._write(plans)
        self.argument, self.function = get_address(self._words), run_program.address

    def _write(self, plans: Mapping[int, Plan]) -> NDArray[np.int64]:
        first = min(plans, default=0)
        n_functions = max(plans, default=-1) + 1 - first
        body: list[int] = []
        heads = np.zeros((n_functions, N_OF_HEAD), dtype=np.int64)
        begin = HEADS + heads.size
        for t, plan in plans.items():
            head = heads[t - first]
            head[BEGIN] = begin + len(body)
            for instruction in self.instructions[t]:
                body += self._encode(instruction)
            head[END] = begin + len(body)
            head[STARTS] = self._place_of(Argument(ArgumentKind.STARTS, type_id=t))
            head[FIRST_ROW] = self._place_of(Argument(ArgumentKind.FIRST_ROW, type_id=t))
            has_edges = any(node.op == "gather_each" for node in plan.nodes)
            edges = Argument(ArgumentKind.EDGE_START, type_id=t) if has_edges else None
            head[EDGES] = self._find_place(edges)
        return np.array([first, n_functions, *heads.ravel().tolist(), *body], dtype=np.int64)

    def _find_place(self, argument: Argument | None) -> int:
        return NO_PLACE if argument is None else self._place_of(argument)

    def _encode(self, source: Instruction) -> list[int]:
        flags = MOVES * (source.moves and self._profile)
        flags |= WHOLE_ONLY * source.whole_only | COUNTS_ITSELF * source.counts_itself
        encoded = [
            0, find_kernel_address(source.kernel), source.taken, source.count,
            self._find_place(source.unless), self._find_place(source.bytes_unless),
            source.bytes_per_row, flags, len(source.operands), len(source.apart),
        ]  # fmt: skip
        for operand in source.operands:
            encoded += self._encode_operand(operand)
        encoded += [self._place_of(argument) for argument in source.apart]
        encoded += source.constants
        encoded[LENGTH] = len(encoded)
        return encoded

    def _encode_operand(self, operand: Operand) -> list[int]:
        encoded = [self._place_of(operand.array), operand.register, operand.pitch, operand.offset]
        run = operand.run
        if run is None:
            return [*encoded, NO_PLACE, 0, 0, 0]
        return [*encoded, *map(self._place_of, (run.runs, run.states)), run.pitch, run.at]


def find_kernel_address(kernel: Any) -> int:
    """Return the address of a kernel's or a group's machine code."""
    if isinstance(kernel, Group):
        return _load_group(kernel).find_address(SYMBOL)
    address: int = kernel.address
    return address


@functools.cache
def _load_group(group: Group) -> Loaded:
    """Load a group's machine code, without LLVM's passes.

    These passes do not make it faster, but take half of the compilation time.
    """
    key = repr((hash_modules((write_group.__module__,)), LANES, group))
    return load_cached(key, lambda: _write_ir(group), as_written=True)


def _write_ir(group: Group) -> str:
    module = ir.Module()
    write_group(module, group, LANES)
    return str(module)
