"""Programs of the CPU backend: bounds checks, allocations, and the fraction of data movement."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import pkgutil
import re
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dynbatch.harness.compiler.compiled import Compiled, write_module
from dynbatch.harness.compiler.kinds import INT
from dynbatch.harness.compiler.pointers import FLOAT_BYTES
from dynbatch.harness.engine import cpu_kernels
from dynbatch.harness.engine.backends.compiled import arguments, program
from dynbatch.harness.engine.backends.compiled.arguments import Instruction
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.backends.compiled.checking import check_instruction
from dynbatch.harness.engine.backends.compiled.memory import Parameters
from dynbatch.harness.engine.cpu_kernels.context import TICKS_READABLE, Register
from dynbatch.harness.engine.cpu_kernels.elementwise import Group
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from tests.support.elementwise_groups import text_of
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import ONE_BY_ONE, NoClock, disagreements, prepared, run
from tests.support.stage_instructions import instructions_of

LARGE = 10**6
Change = Callable[[Instruction], Instruction | None]


def _backend() -> Backend:
    model, instances, weights = example("tree_lstm")
    adapter = prepared(model, weights)
    run(adapter, instances)
    return adapter.engine.backend


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
    backend = _backend()
    changed = [
        wrong for one in _instructions(backend) if (wrong := CHANGES[change](one)) is not None
    ]
    refused = 0
    for wrong in changed:
        if not wrong.operands and change.startswith("more"):
            continue
        with pytest.raises(ValueError, match=r"ends at byte|pitch|register|expected"):
            check_instruction(wrong, backend._memory)
        refused += 1
    assert refused


def test_rows_that_lie_closer_than_they_are_wide_are_refused() -> None:
    backend = _backend()
    one = next(
        one for one in _instructions(backend)
        if isinstance(one.kernel, Group) and one.operands[0].pitch
    )  # fmt: skip
    first = replace(one.operands[0], pitch=one.operands[0].pitch - FLOAT_BYTES)
    with pytest.raises(ValueError, match="expected a pitch"):
        check_instruction(replace(one, operands=(first, *one.operands[1:])), backend._memory)


# Allocations of Python itself: boxed numbers, tuples of a call, views of a few losses.
PYTHONS_BYTES = 16 * 2**10
N_PARAMETERS = 130  # more than one array of flags has


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_forward_and_backward_work_in_memory_that_is_there(threads: int) -> None:
    model, instances, weights = example("tree_lstm")
    many = list(instances) * 200
    adapter = prepared(model, weights, threads=threads)
    for _ in range(3):
        run(adapter, many)
    engine = adapter.engine
    memory = engine.backend._memory
    buffers = {key: id(array) for key, array in memory.buffers.items()}
    n_grown, n_programs = memory.n_grown, adapter.n_compilations()
    smallest = min(array.nbytes for array in memory.buffers.values() if array.nbytes)
    gc.collect()
    tracemalloc.start()
    faulthandler.dump_traceback_later(120, exit=True)
    try:
        engine.take(engine.laid_out)
        for _ in range(5):
            engine.forward()
            engine.backward()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        faulthandler.cancel_dump_traceback_later()
    assert peak < PYTHONS_BYTES
    assert sum(array.nbytes for array in memory.buffers.values()) > 20 * PYTHONS_BYTES
    assert smallest > 0
    assert memory.n_grown == n_grown
    assert adapter.n_compilations() == n_programs
    assert {key: id(array) for key, array in memory.buffers.items()} == buffers


def kernels_in(module: ModuleType) -> list[Compiled[..., Any]]:
    """Return a module's functions that threads may run: those with numbers as arguments only."""
    own = [one for one in vars(module).values() if isinstance(one, Compiled)]
    return [
        one
        for one in own
        if one.__module__ == module.__name__ and all(kind == INT for kind in one.kinds)
    ]


MODULES = [
    *(f"{cpu_kernels.__name__}.{one.name}" for one in pkgutil.iter_modules(cpu_kernels.__path__)),
    *(program.__name__, arguments.__name__),
]


def declared_in(text: str) -> set[str]:
    """Return the external functions that LLVM IR calls, except those of LLVM and Python."""
    names = set(re.findall(r'^declare .*?@"([^"]+)"', text, re.MULTILINE))
    return {name for name in names if not name.startswith(("llvm.", "Py"))}


def test_no_kernel_asks_for_memory() -> None:
    """Arrays of a kernel would be in memory of its module, which is for one thread only."""
    modules = [kernels_in(importlib.import_module(name)) for name in MODULES]
    texts = [str(write_module(functions)) for functions in modules if functions]
    assert len(texts) > 6
    for text in texts:
        assert '@"arena"' not in text
        assert declared_in(text) <= {"memcpy", "syscall"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_group_calls_anything(name: str) -> None:
    steps = [one for _, one in instructions_of(EXAMPLES[name][0])]
    groups = [one.kernel for one in steps if isinstance(one.kernel, Group)]
    assert groups
    assert not any(declared_in(text_of(group)) for group in groups)


def test_only_written_gradients_are_stepped_and_all_are_forgotten() -> None:
    weights = {f"p{k}": np.full((k % 3 + 1, 5), float(k), np.float32) for k in range(N_PARAMETERS)}
    parameters = Parameters(weights, 2)
    flags = {name: parameters.provide_written_flags(name) for name in weights}
    for k, name in enumerate(weights):
        parameters.provide_gradient(name)[:] = 2.0
        flags[name][:] = k % 2
    assert all(parameters.provide_written_flags(name) is flags[name] for name in weights), (
        "none moves"
    )
    for name in ("late", "later"):  # added after others have been updated
        parameters.update(0.25, [])
        parameters.values[name] = np.ones((4,), np.float32)
        parameters.provide_written_flags(name)[:] = 1
        parameters.provide_gradient(name)[:] = 1.0
    for k, name in enumerate(weights):
        np.testing.assert_array_equal(parameters.values[name], weights[name] - k % 2)
    assert (parameters.values["late"] == 0.75).all()
    assert (parameters.values["later"] == 1).all()
    parameters.clear()
    assert not any(
        parameters.provide_written_flags(name).any() for name in (*weights, "late", "later")
    )


# Names of kernels that only move data; the plans of a model have some of them.
MOVES = {"gather", "look_up", "scatter_add", "copy", "pack", "spread", "fill"}
needs_ticks = pytest.mark.skipif(not TICKS_READABLE, reason="the counter needs an x86 processor")


@needs_ticks
def test_fraction_covers_runs_since_the_last_query() -> None:
    model, instances, weights = example("tree_fc_fold")
    adapter = prepared(model, weights, Switches(profile=True), mode="infer")
    assert adapter.data_movement_fraction() is None, "nothing has run"
    found = run(adapter, instances)
    assert not disagreements(found, run_reference(model, weights, instances, "infer"))
    share = adapter.data_movement_fraction()
    assert 0 < share < 1
    assert adapter.data_movement_fraction() is None
    not_asked = prepared(model, weights, mode="infer")
    run(not_asked, instances)
    assert not_asked.data_movement_fraction() is None


@needs_ticks
def test_the_share_is_of_forward_and_backward_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fraction includes Python between stages, because it is multiplied by times that do."""
    model, instances, weights = example("tree_fc_fold")
    clock = {"ticks": 0, "inside": 0}
    adapter = prepared(model, weights)
    backend = adapter.engine.backend

    def counted(name: str) -> None:
        """Let each call of the backend's method take ten ticks."""
        real = getattr(backend, name)

        def called(*arguments: Any) -> Any:
            clock["ticks"] += 10
            clock["inside"] += 10
            return real(*arguments)

        monkeypatch.setattr(backend, name, called)

    for name in ("run_together", "defer_losses", "clear_gradients"):
        counted(name)
    monkeypatch.setattr(backend, "read_ticks", lambda: clock["ticks"])
    phases = NoClock()  # between whose marks time passes that belongs to no phase
    monkeypatch.setattr(phases, "mark", lambda _: clock.update(ticks=clock["ticks"] + 1000))
    adapter.load(instances)
    adapter.run(phases)
    assert clock["inside"] >= 40
    assert backend.tally.n_cycles == clock["inside"]
    backend.tally.n_moving_cycles = clock["inside"] // 2
    assert adapter.data_movement_fraction() == 0.5


@needs_ticks
def test_ticks_are_counted_only_for_data_movement_steps() -> None:
    moved = set[str]()
    for (model, _), chosen in product(EXAMPLES.values(), ("all", "none", "packs")):
        for _, one in instructions_of(model, Switches(**ONE_BY_ONE[chosen])):
            assert one.moves == (one.name in MOVES), one.name
            moved |= {one.name} & MOVES
    assert moved == MOVES
