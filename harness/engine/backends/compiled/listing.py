"""Programs as text that a person can read: one line an instruction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from harness.engine.backends.compiled.arguments import Argument
from harness.engine.backends.compiled.instructions import Instruction, Operand, Register


def list_stage(stage: str, instructions: Mapping[int, tuple[Instruction, ...]]) -> Iterator[str]:
    """Yield the lines of a stage's program."""
    for type_id, steps in instructions.items():
        yield f"{stage}, function {type_id}"
        for one in steps:
            operands = ", ".join(map(list_operand, one.operands))
            constants = f"; {', '.join(map(str, one.constants))}" if one.constants else ""
            yield f"  {one.name}({operands}{constants}){_conditions(one)}"


def list_operand(operand: Operand) -> str:
    """An operand: array, row and first column."""
    text = list_array(operand.array)
    if operand.register != Register.ZERO:
        text += f"[{operand.register.name.lower()}"
        text += f" * {operand.pitch}]"
    if operand.offset:
        text += f" + {operand.offset}"
    return text if operand.run is None else f"{text} or in place"


def list_array(array: Argument) -> str:
    """An array by its class and what it is of."""
    values = [getattr(array, one.name) for one in fields(array)]  # type: ignore[arg-type]
    words = [f"{one.role}:{one.of}" if hasattr(one, "role") else str(one) for one in values]
    return f"{type(array).__name__.removesuffix('Of').lower()}<{' '.join(words)}>"


def _conditions(one: Instruction) -> str:
    words = [f"taken={one.taken.name.lower()}"] if one.taken else []
    words += [f"count={one.count.name.lower()}"] if one.count is not Register.N else []
    words += ["unless in place"] if one.unless is not None else []
    words += ["whole only"] if one.whole_only else []
    return f"  # {', '.join(words)}" if words else ""
