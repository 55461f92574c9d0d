"""Checks of operands when a program is written, because a wrong word is a wrong address.

The checks cover rows and registers of all operands, columns of operands that have a width, and all
columns that groups of elementwise operators read and write. Other kernels are responsible for their
constants.
"""

from __future__ import annotations

from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine.backends.compiled.arguments import (
    INDEX_BYTES,
    Argument,
    ArgumentKind,
    Instruction,
    Operand,
)
from dynbatch.harness.engine.backends.compiled.memory import Memory
from dynbatch.harness.engine.cpu_kernels.context import MAX_OPERANDS, Register
from dynbatch.harness.engine.cpu_kernels.elementwise import N_OPERANDS, Group, RowKind
from dynbatch.harness.engine.lowering import plan as plans
from dynbatch.harness.vertex.operators import EDGE

_STATE_ROWS = (Register.STATE_ROW, Register.ZERO)  # ZERO: an index names the row
_ROWS = {
    (plans.MemoryKind.SCRATCH, False): (Register.AT,),
    (plans.MemoryKind.SCRATCH, True): (Register.EDGE_AT,),
    (plans.MemoryKind.SAVED, False): (Register.START,),
    (plans.MemoryKind.SAVED, True): (Register.EDGE_START,),
}


def check_instruction(instruction: Instruction, memory: Memory) -> None:
    """Check that the operands of an instruction are inside the rows of their arrays.

    Raises:
        ValueError: An operand is outside, or a group has the wrong operands.
    """
    if len(instruction.operands) > MAX_OPERANDS:
        raise ValueError(
            f"{instruction.name}: expected at most {MAX_OPERANDS} operands,"
            f" got {len(instruction.operands)}"
        )
    for operand in instruction.operands:
        _check_operand(instruction, operand, memory)
    if isinstance(instruction.kernel, Group):
        _check_group(instruction, instruction.kernel, memory)


def _check_operand(instruction: Instruction, operand: Operand, memory: Memory) -> None:
    array = operand.array
    if array.is_of_layout or array.kind is ArgumentKind.APART:
        room = max(operand.pitch, INDEX_BYTES)
        _check_range(instruction, operand, operand.offset + INDEX_BYTES, room)
        if operand.pitch % INDEX_BYTES or operand.offset % INDEX_BYTES:
            raise ValueError(
                f"{instruction.name}: expected offset and pitch of {operand} in multiples of"
                f" {INDEX_BYTES} bytes"
            )
        return
    last = operand.offset + max(operand.width, FLOAT_BYTES)
    if array.kind is not ArgumentKind.BUFFER:
        _check_range(instruction, operand, last, max(array.find(memory).nbytes, FLOAT_BYTES))
        return
    row_bytes = _count_row_bytes(array, memory)
    _check_range(instruction, operand, last, row_bytes)
    is_whole = operand.register is Register.ZERO and operand.pitch == 0
    if operand.pitch != row_bytes and not is_whole:
        raise ValueError(
            f"{instruction.name}: expected a pitch of {row_bytes} bytes, got {operand}"
        )
    if not is_whole and operand.register not in _list_registers(array, memory):
        raise ValueError(f"{instruction.name}: {operand} has the wrong register")
    if operand.run is not None and operand.run.pitch != _count_row_bytes(
        operand.run.states, memory
    ):
        raise ValueError(
            f"{instruction.name}: the pitch of {operand} ({operand.run.pitch} bytes) differs from"
            " that of its states"
        )


def _check_range(instruction: Instruction, operand: Operand, last: int, room: int) -> None:
    if not 0 <= operand.offset < last <= room:
        raise ValueError(
            f"{instruction.name}: {operand} ends at byte {last}, but the row has {room}"
        )


def _count_row_bytes(array: Argument, memory: Memory) -> int:
    return FLOAT_BYTES * int(array.find(memory).shape[1])


def _list_registers(array: Argument, memory: Memory) -> tuple[Register, ...]:
    """Return the registers that may hold the first row of a batch in a buffer."""
    if array.of.is_shared:
        return _STATE_ROWS
    if array.of.is_gathered:
        return Register.START, Register.EDGE_START
    buffer = memory.plans[array.type_id].buffers[array.of]
    return _ROWS.get((buffer.memory, buffer.domain == EDGE), _STATE_ROWS)


def _check_group(instruction: Instruction, group: Group, memory: Memory) -> None:
    """Check that the columns of every load and store are inside their rows."""
    n_expected = sum(N_OPERANDS[kind] for kind in group.rows)
    first = 2 if group.periodic else 1
    if (
        len(instruction.operands) != n_expected
        or len(instruction.constants) != first + group.n_columns
    ):
        raise ValueError(
            f"{instruction.name}: expected {n_expected} operands and {group.n_columns} columns"
        )
    at, rows = 0, []
    for kind in group.rows:
        rows.append((instruction.operands[at], kind))
        at += N_OPERANDS[kind]
    for row, column in (*group.loads, *((store.row, store.column) for store in group.stores)):
        operand, kind = rows[row]
        width = (
            instruction.constants[1]
            if group.periodic and kind is RowKind.SAME
            else instruction.constants[0]
        )
        last = operand.offset + instruction.constants[first + column] + FLOAT_BYTES * width
        is_buffer = operand.array.kind is ArgumentKind.BUFFER
        room = operand.pitch if is_buffer else operand.array.find(memory).nbytes
        _check_range(instruction, operand, last, room)
