"""Programs of instructions, and the interpreter that runs a stage's batches with them.

A program is an array of int64 for each stage. For each batch, the interpreter sets a few registers:
the first row of the batch, and the number of its rows. A step computes the addresses of its
operands from these registers and the table of array addresses, and calls its kernel with them. A
program depends on plans only, never on a mini-batch, because arrays of the layout describe the
batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from harness.compiler.compiled import address_of, compiled
from harness.compiler.object_code import Loaded, load_kept
from harness.compiler.pointers import add_to_word, call, count_cycles, half_word, put_word, word
from harness.compiler.registry import helper, stamp_of
from harness.engine.backends.compiled.arguments import (
    OF_PARAMETERS,
    Argument,
    Found,
    Instruction,
    Kind,
    Operand,
)
from harness.engine.backends.compiled.checking import check_instruction
from harness.engine.backends.compiled.steps import StageWriter
from harness.engine.cpu_kernels.context import (
    ALL,
    AT,
    BATCH,
    BYTES_COPIED,
    EDGE_AT,
    EDGE_START,
    LAUNCHES,
    MOVING_TICKS,
    N_EDGES,
    N_THREADS,
    OPERANDS,
    PLACES,
    REGISTERS,
    ROWS,
    SHARE,
    START,
    STATE_ROW,
    TALLY,
    THREAD,
    UNLESS_APART,
    N,
    Register,
    share,
)
from harness.engine.cpu_kernels.elementwise import SYMBOL, Group, write_group
from harness.engine.cpu_kernels.team import Call, meet
from harness.engine.cpu_kernels.vectors import LANES
from harness.engine.lowering.plan import BufferName, Plan
from harness.values.arrays import IntArray

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
MOVES, WHOLE_ONLY, MEETS, COUNTS_ITSELF = 1, 2, 4, 8
# An operand: its entry in the table, the register with its row, bytes between rows, bytes to its
# first column; for rows that are read in place if the batch has a run: entries of runs (else -1)
# and of states, bytes between states, and the register with the row in the batch.
PLACE, REGISTER, PITCH, OFFSET, RUNS, STATES, STATE_PITCH, ROW_IN_BATCH = range(8)
N_OF_OPERAND = 8


@compiled
def run_program(context: int, program: int, batches: int, n_batches: int) -> None:
    """Run a stage for batches (type id, position); position < 0 means all rows in one call."""
    for i in range(n_batches):
        function = half_word(batches, 2 * i) - word(program, FIRST_FUNCTION)
        if 0 <= function < word(program, N_FUNCTIONS):
            head = program + 8 * (HEADS + N_OF_HEAD * function)
            if word(head, BEGIN) < word(head, END):
                _run_batch(context, program, head, half_word(batches, 2 * i + 1))
        if word(context, N_THREADS) > 1:
            meet(context)


@helper
def _run_batch(context: int, program: int, head: int, position: int) -> None:
    places, r = word(context, PLACES), word(context, REGISTERS)
    starts, first_row = word(places, 2 * word(head, STARTS)), 2 * word(head, FIRST_ROW)
    is_whole = position < 0
    batch = word(places, first_row + 1) if is_whole else position
    begin = 0 if is_whole else word(starts, batch)
    n = word(starts, batch if is_whole else batch + 1) - begin
    state_row = word(word(places, first_row), 0 if is_whole else batch)
    edges = word(places, 2 * word(head, EDGES)) if word(head, EDGES) >= 0 else 0
    put_word(r, BATCH, batch)
    thread, n_threads = word(context, THREAD), word(context, N_THREADS)
    own_at, own_n = share(n, ROWS, thread, n_threads)
    _take(r, begin, state_row, own_at, own_n, edges)
    taken = SHARE
    at, end = program + 8 * word(head, BEGIN), program + 8 * word(head, END)
    while at < end:
        if n_threads > 1:
            wanted = _wanted(places, at, batch)
            if wanted != taken:
                meet(context)
                taken = wanted
                if taken == SHARE:
                    _take(r, begin, state_row, own_at, own_n, edges)
                else:
                    n_all = n if taken == ALL or thread == 0 else 0
                    _take(r, begin, state_row, 0, n_all, edges)
        _run_step(context, places, r, at, batch, is_whole)
        at += 8 * word(at, LENGTH)


@helper
def _take(r: int, begin: int, state_row: int, at: int, n: int, edges: int) -> None:
    """Set the registers to these rows of the batch."""
    put_word(r, AT, at)
    put_word(r, START, begin + at)
    put_word(r, STATE_ROW, state_row + at)
    put_word(r, N, n)
    if edges != 0:
        edge_start = word(edges, begin + at)
        put_word(r, EDGE_START, edge_start)
        put_word(r, EDGE_AT, edge_start - word(edges, begin))
        put_word(r, N_EDGES, word(edges, begin + at + n) - edge_start)


@helper
def _wanted(places: int, step: int, batch: int) -> int:
    """Return the rows that a thread takes in a step: all if vertices add to a common row."""
    wanted = word(step, ROWS_TAKEN)
    if wanted != UNLESS_APART:
        return wanted
    n = word(step, N_APART)
    is_apart = n > 0
    first = N_OF_STEP + N_OF_OPERAND * word(step, N_OPERANDS)
    for k in range(n):
        is_apart &= word(word(places, 2 * word(step, first + k)), batch) != 0
    return SHARE if is_apart else UNLESS_APART


@helper
def _run_step(context: int, places: int, r: int, step: int, batch: int, is_whole: bool) -> None:
    tally, flags, n = word(context, TALLY), word(step, FLAGS), word(r, word(step, COUNT))
    if _has_run(places, word(step, UNLESS_RUN), batch) or (flags & WHOLE_ONLY and not is_whole):
        return
    n_operands, operands = word(step, N_OPERANDS), word(context, OPERANDS)
    for k in range(n_operands):
        _put_operand(places, r, step + 8 * (N_OF_STEP + N_OF_OPERAND * k), operands + 16 * k, batch)
    began = count_cycles() if flags & MOVES else 0
    constants = step + 8 * (N_OF_STEP + N_OF_OPERAND * n_operands + word(step, N_APART))
    call(word(step, KERNEL), (context, operands, constants, n))
    if not flags & COUNTS_ITSELF:
        add_to_word(tally, LAUNCHES, 1)
    if not _has_run(places, word(step, BYTES_UNLESS_RUN), batch):
        add_to_word(tally, BYTES_COPIED, n * word(step, N_BYTES))
    if flags & MOVES:
        add_to_word(tally, MOVING_TICKS, count_cycles() - began)
    if flags & MEETS and word(context, N_THREADS) > 1:
        meet(context)


@helper
def _has_run(places: int, runs: int, batch: int) -> bool:
    """Return whether the children of a batch are consecutive.

    Args:
        runs: An entry of the table, or -1.
    """
    return runs >= 0 and word(word(places, 2 * runs), batch) >= 0


@helper
def _put_operand(places: int, r: int, operand: int, to: int, batch: int) -> None:
    """Write the address of an operand's first row, and the bytes between its rows."""
    pitch = word(operand, PITCH)
    begin = word(places, 2 * word(operand, PLACE)) + pitch * word(r, word(operand, REGISTER))
    runs = word(operand, RUNS)
    if runs >= 0:
        first = word(word(places, 2 * runs), batch)
        if first >= 0:
            begin = word(places, 2 * word(operand, STATES)) + first * word(operand, STATE_PITCH)
            begin += pitch * word(r, word(operand, ROW_IN_BATCH))
    put_word(to, 0, begin + word(operand, OFFSET))
    put_word(to, 1, pitch)


NO_PLACE = -1
PlaceOf = Callable[[Argument], int]
AddressOf = Callable[[object], int]


def encode(
    instruction: Instruction, place_of: PlaceOf, address_of: AddressOf, *, profile: bool
) -> list[int]:
    """Encode an instruction as words.

    Args:
        profile: See write_program.
    """
    one = instruction

    def optional(argument: Argument | None) -> int:
        return NO_PLACE if argument is None else place_of(argument)

    flags = MOVES * (one.moves and profile) | WHOLE_ONLY * one.whole_only
    flags |= MEETS * one.meets | COUNTS_ITSELF * one.counts_itself
    words = [
        0, address_of(one.kernel), one.taken, one.count, optional(one.unless),
        optional(one.bytes_unless), one.bytes_per_row, flags, len(one.operands), len(one.apart),
    ]  # fmt: skip
    for operand in one.operands:
        words += _encode_operand(operand, place_of)
    words += [place_of(argument) for argument in one.apart]
    words += one.constants
    words[LENGTH] = len(words)
    return words


def _encode_operand(operand: Operand, place_of: PlaceOf) -> list[int]:
    words = [place_of(operand.array), operand.register, operand.pitch, operand.offset]
    run = operand.run
    if run is None:
        return [*words, NO_PLACE, 0, 0, 0]
    return [*words, place_of(run.runs), place_of(run.states), run.pitch, run.at]


def write_program(
    instructions: Mapping[int, tuple[Instruction, ...]],
    has_edges: Callable[[int], bool],
    place_of: PlaceOf,
    address_of: AddressOf,
    *,
    profile: bool,
) -> NDArray[np.int64]:
    """Return the program of a stage.

    Args:
        instructions: The instructions of each vertex function that has any.
        has_edges: Returns whether a function reads any number of children.
        place_of: Returns the index of an array in the table of addresses.
        address_of: Returns the address of a kernel's machine code.
        profile: Count ticks of instructions that only move data.
    """
    first = min(instructions, default=0)
    n_functions = max(instructions, default=-1) + 1 - first
    body: list[int] = []
    heads = np.zeros((n_functions, N_OF_HEAD), dtype=np.int64)
    begin = HEADS + heads.size
    for t, steps in instructions.items():
        head = heads[t - first]
        head[BEGIN] = begin + len(body)
        for one in steps:
            body += encode(one, place_of, address_of, profile=profile)
        head[END] = begin + len(body)
        head[STARTS] = place_of(Argument(Kind.STARTS, type_id=t))
        head[FIRST_ROW] = place_of(Argument(Kind.FIRST_ROW, type_id=t))
        edges = Argument(Kind.EDGE_START, type_id=t)
        head[EDGES] = place_of(edges) if has_edges(t) else NO_PLACE
    return np.array([first, n_functions, *heads.ravel().tolist(), *body], dtype=np.int64)


def list_stage(stage: str, instructions: Mapping[int, tuple[Instruction, ...]]) -> Iterator[str]:
    """Yield the lines of a stage's program."""
    for type_id, steps in instructions.items():
        yield f"{stage}, function {type_id}"
        for one in steps:
            operands = ", ".join(map(list_operand, one.operands))
            constants = f"; {', '.join(map(str, one.constants))}" if one.constants else ""
            yield f"  {one.name}({operands}{constants}){_conditions(one)}"


def list_operand(operand: Operand) -> str:
    """Format an operand: array, row and first column."""
    text = list_array(operand.array)
    if operand.register != Register.ZERO:
        text += f"[{operand.register.name.lower()}"
        text += f" * {operand.pitch}]"
    if operand.offset:
        text += f" + {operand.offset}"
    return text if operand.run is None else f"{text} or in place"


def list_array(array: Argument) -> str:
    """Format an array by its kind and identity."""
    words = [] if array.kind in OF_PARAMETERS else [str(array.type_id)]
    if array.of != "":
        of = array.of
        words.append(f"{of.role}:{of.of}" if isinstance(of, BufferName) else str(of))
    return f"{array.kind.replace('_', '')}<{' '.join(words)}>"


def _conditions(one: Instruction) -> str:
    words = [f"taken={one.taken.name.lower()}"] if one.taken else []
    words += [f"count={one.count.name.lower()}"] if one.count is not Register.N else []
    words += ["unless in place"] if one.unless is not None else []
    words += ["whole only"] if one.whole_only else []
    return f"  # {', '.join(words)}" if words else ""


class StageProgram:
    """Program of one stage for some vertex functions.

    Args:
        half: Round factors of matmuls to bfloat16.
        profile: Count the time of instructions that only move data.

    Attributes:
        instructions: The instructions of each function.
        argument: The address of the program.
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
        """Update the addresses of arrays for this mini-batch."""
        self._found.look()

    def call(self, batches: IntArray) -> Call:
        """Return the call that runs the stage of every (type, position) in order."""
        self.find()
        return Call(self, np.ascontiguousarray(batches))


def address_of_kernel(kernel: Any) -> int:
    """Return the address of a kernel's or a group's machine code."""
    if isinstance(kernel, Group):
        return _load_group(kernel).address(SYMBOL)
    found: int = kernel.address
    return found


@functools.cache
def _load_group(group: Group) -> Loaded:
    """Load a group's machine code, without LLVM's passes.

    These passes do not make it faster, but take half of the compilation time.
    """
    words = repr((stamp_of((write_group.__module__,)), LANES, group))
    return load_kept(words, lambda: _text_of(group), as_written=True)


def _text_of(group: Group) -> str:
    module = ir.Module()
    write_group(module, group, LANES)
    return str(module)
