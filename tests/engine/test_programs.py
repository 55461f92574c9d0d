"""Programs of the CPU backend: their bounds are checked when they are written, and they list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from harness.compiler.pointers import FLOAT_BYTES
from harness.engine.backends.compiled.arguments import Instruction
from harness.engine.backends.compiled.backend import Backend
from harness.engine.backends.compiled.checking import check_instruction
from harness.engine.backends.compiled.program import list_stage
from harness.engine.cpu_kernels.context import Register
from harness.engine.cpu_kernels.elementwise import Group
from harness.engine.switches import Switches
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import ONE_BY_ONE, prepared, run

LARGE = 10**6
Change = Callable[[Instruction], Instruction | None]


def _backend(name: str, switches: Switches | None = None) -> Backend:
    model, instances, weights = example(name)
    adapter = prepared(model, weights, switches)
    run(adapter, instances)
    backend = adapter.engine.backend
    assert isinstance(backend, Backend)
    return backend


def _instructions(backend: Backend) -> Iterator[Instruction]:
    for loop in backend._programs.values():
        for instructions in loop.instructions.values():
            yield from instructions


def _first_operand(**changes: int) -> Change:
    def change(one: Instruction) -> Instruction | None:
        if not one.operands:
            return None
        first = one.operands[0]
        larger = {name: getattr(first, name) + by for name, by in changes.items()}
        return replace(one, operands=(replace(first, **larger), *one.operands[1:]))

    return change


def _register(one: Instruction) -> Instruction | None:
    for k, operand in enumerate(one.operands):
        if operand.register is Register.START and operand.width:
            wrong = replace(operand, register=Register.STATE_ROW)
            return replace(one, operands=(*one.operands[:k], wrong, *one.operands[k + 1 :]))
    return None


def _of_groups(change: Change) -> Change:
    return lambda one: change(one) if isinstance(one.kernel, Group) else None


CHANGES: dict[str, Change] = {
    "an offset behind the row": _first_operand(offset=LARGE),
    "an offset before the row": _first_operand(offset=-LARGE),
    "a width beyond the row": _first_operand(width=LARGE),
    "another row's register": _register,
    "a column beyond the row": _of_groups(
        lambda one: replace(one, constants=(*one.constants[:-1], LARGE))
    ),
    "a width of a group beyond the row": _of_groups(
        lambda one: replace(one, constants=(one.constants[0] + LARGE, *one.constants[1:]))
    ),
    "an operand missing": _of_groups(lambda one: replace(one, operands=one.operands[1:])),
    "a constant missing": _of_groups(lambda one: replace(one, constants=one.constants[:-1])),
    "more operands than there is room for": lambda one: replace(one, operands=one.operands * 300),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_instruction_that_leaves_its_rows_is_refused(change: str) -> None:
    backend = _backend("tree_lstm")
    changed = [
        wrong for one in _instructions(backend) if (wrong := CHANGES[change](one)) is not None
    ]
    refused = 0
    for wrong in changed:
        if not wrong.operands and change.startswith("more"):
            continue
        with pytest.raises(ValueError, match=r"ends at byte|bytes apart|register|takes|operands"):
            check_instruction(wrong, backend._memory)
        refused += 1
    assert refused


def test_rows_that_lie_closer_than_they_are_wide_are_refused() -> None:
    backend = _backend("tree_lstm")
    one = next(
        one for one in _instructions(backend)
        if isinstance(one.kernel, Group) and one.operands[0].pitch
    )  # fmt: skip
    first = replace(one.operands[0], pitch=one.operands[0].pitch - FLOAT_BYTES)
    with pytest.raises(ValueError, match="bytes apart"):
        check_instruction(replace(one, operands=(first, *one.operands[1:])), backend._memory)


@pytest.mark.parametrize("name", EXAMPLES)
def test_instructions_of_every_model_and_switch_stay_inside_their_rows(name: str) -> None:
    for chosen in ONE_BY_ONE.values():
        if name == "passes_on" and chosen.get("outputs") == "vertices":
            continue  # its loss reads states that are not pushed
        backend = _backend(name, Switches(**chosen))
        for one in _instructions(backend):
            check_instruction(one, backend._memory)


def test_a_program_lists_one_line_an_instruction() -> None:
    backend = _backend("tree_lstm")
    for (stage, _), loop in backend._programs.items():
        lines = list(list_stage(stage, loop.instructions))
        assert len(lines) == sum(1 + len(steps) for steps in loop.instructions.values())
    listed = backend.listing()
    text = "\n".join(line for lines in listed.values() for line in lines)
    assert {"batch", "backward"} <= set(listed)
    assert "multiply_rows(" in text
    assert "tanh" in text
