"""Programs: what the machine reads, an array of int64 for each stage.

The words are named in interpreter.py. A program depends on plans alone: nothing of it is written
for a mini-batch, since the layout's arrays say where batches are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from harness.engine.backends.compiled import interpreter as machine
from harness.engine.backends.compiled.arguments import (
    Argument,
    EdgeStartOf,
    FirstRowOf,
    StartsOf,
)
from harness.engine.backends.compiled.instructions import Instruction, Operand

NO_PLACE = -1
PlaceOf = Callable[[Argument], int]
AddressOf = Callable[[object], int]


def encode(
    instruction: Instruction, place_of: PlaceOf, address_of: AddressOf, *, profile: bool
) -> list[int]:
    """Return an instruction as words; profile: see write_program."""
    one = instruction

    def optional(argument: Argument | None) -> int:
        return NO_PLACE if argument is None else place_of(argument)

    flags = machine.MOVES * (one.moves and profile) | machine.WHOLE_ONLY * one.whole_only
    flags |= machine.MEETS * one.meets | machine.COUNTS_ITSELF * one.counts_itself
    words = [
        0, address_of(one.kernel), one.taken, one.count, optional(one.unless),
        optional(one.bytes_unless), one.bytes_per_row, flags, len(one.operands), len(one.apart),
    ]  # fmt: skip
    for operand in one.operands:
        words += _encode_operand(operand, place_of)
    words += [place_of(argument) for argument in one.apart]
    words += one.constants
    words[machine.LENGTH] = len(words)
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
        instructions: of each vertex function that has any.
        has_edges: whether a function reads any number of children.
        place_of: the place of an array in the table of addresses.
        address_of: the address of a kernel's machine code.
        profile: whether ticks of instructions that only move data are counted.
    """
    first = min(instructions, default=0)
    n_functions = max(instructions, default=-1) + 1 - first
    body: list[int] = []
    heads = np.zeros((n_functions, machine.N_OF_HEAD), dtype=np.int64)
    begin = machine.HEADS + heads.size
    for t, steps in instructions.items():
        head = heads[t - first]
        head[machine.BEGIN] = begin + len(body)
        for one in steps:
            body += encode(one, place_of, address_of, profile=profile)
        head[machine.END] = begin + len(body)
        head[machine.STARTS], head[machine.FIRST_ROW] = map(place_of, (StartsOf(t), FirstRowOf(t)))
        head[machine.EDGES] = place_of(EdgeStartOf(t)) if has_edges(t) else NO_PLACE
    return np.array([first, n_functions, *heads.ravel().tolist(), *body], dtype=np.int64)
