"""Programs of the CPU backend: bounds checks, allocations, data movement, and graph segments.

One call executes all segments in order, with losses in between.
"""

from __future__ import annotations

import gc
import importlib
import pkgutil
import re
import tracemalloc
from collections import Counter
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
from dynbatch.harness.contracts.model import Model, trace_functions
from dynbatch.harness.engine import cpu_kernels
from dynbatch.harness.engine.backends.compiled import arguments, program
from dynbatch.harness.engine.backends.compiled.arguments import Instruction
from dynbatch.harness.engine.backends.compiled.backend import Backend
from dynbatch.harness.engine.backends.compiled.checking import check_instruction
from dynbatch.harness.engine.backends.compiled.memory import Parameters
from dynbatch.harness.engine.backends.compiled.steps import StageWriter
from dynbatch.harness.engine.cpu_kernels.context import TICKS_READABLE, Register, Taken
from dynbatch.harness.engine.cpu_kernels.elementwise import Group
from dynbatch.harness.engine.cpu_kernels.loss_kernels import LossSums
from dynbatch.harness.engine.cpu_kernels.team import Calls
from dynbatch.harness.engine.lowering.lower import lower
from dynbatch.harness.engine.lowering.plan import STAGES
from dynbatch.harness.engine.rows.segments import ALL_ROWS
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import ONE_BY_ONE, disagreements, prepared, run
from tests.support.fake_time import NullClock
from tests.support.kernel_calls import text_of

LARGE = 10**6
Change = Callable[[Instruction], Instruction | None]


def ran(name: str, mode: str = "infer", **switches: Any) -> Adapter:
    """Return an adapter after a mini-batch of an example."""
    model, instances, weights = example(name)
    adapter = prepared(model, weights, Switches(**switches), mode=mode)
    run(adapter, instances)
    return adapter


def instructions_of(model: Model, switches: Switches) -> Iterator[tuple[str, Instruction]]:
    """Yield all instructions, each with its stage."""
    for type_id, function in enumerate(trace_functions(model).values(), 1):
        plan = lower(function, switches, Backend.abilities, train=True)
        shapes = {name: one.shape for name, one in model.parameters.items()}
        shapes |= {node.name: node.shape for node in plan.nodes if node.op == "parameter"}
        for stage in STAGES:
            for one in StageWriter(type_id, plan, stage, shapes, has_own_kernels=False).write():
                yield stage, one


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
    "rows closer than they are wide": _of_groups(
        lambda one: _first_operand(pitch=-FLOAT_BYTES)(one) if one.operands[0].pitch else None
    ),
    "more operands than there is room for": lambda one: (
        replace(one, operands=one.operands * 300) if one.operands else None
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_instruction_that_leaves_its_rows_is_refused(change: str) -> None:
    backend = ran("tree_lstm", "train").engine.backend
    loops = backend._programs.values()
    instructions = [one for loop in loops for found in loop.instructions.values() for one in found]
    changed = [wrong for one in instructions if (wrong := CHANGES[change](one)) is not None]
    assert changed
    for wrong in changed:
        with pytest.raises(ValueError, match=r"ends at byte|pitch|register|expected"):
            check_instruction(wrong, backend._memory)


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
    gc.collect()
    tracemalloc.start()
    try:
        engine.take(engine.mini_batch, engine.arrangement)
        for _ in range(5):
            engine.forward()
            engine.backward()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PYTHONS_BYTES
    assert sum(array.nbytes for array in memory.buffers.values()) > 20 * PYTHONS_BYTES
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


# Names of kernels that only move data; the plans of a model have some of them.
MOVES = {"gather", "look_up", "scatter_add", "copy", "pack", "spread", "fill"}


def test_instructions_declare_what_they_do() -> None:
    """They move data, add to gradients of children, or compute a group, which calls nothing."""
    moved = set[str]()
    for name, chosen in product(EXAMPLES, ("all", "none", "packs")):
        groups = list[Group]()
        for stage, one in instructions_of(EXAMPLES[name][0], Switches(**ONE_BY_ONE[chosen])):
            groups += [one.kernel] if isinstance(one.kernel, Group) else []
            adds = one.name == "scatter_add" or (
                isinstance(one.kernel, Group) and any(to.adds for to in one.kernel.stores)
            )
            assert (one.taken is Taken.UNLESS_APART) == adds, (name, chosen, stage, one.name)
            assert adds or not one.apart
            assert one.moves == (one.name in MOVES), one.name
            moved |= {one.name} & MOVES
        assert groups
        assert chosen != "all" or not any(declared_in(text_of(group)) for group in groups), name
    assert moved == MOVES


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
    assert ran("tree_fc_fold").data_movement_fraction() is None


@needs_ticks
def test_the_share_is_of_forward_and_backward_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fraction includes Python between stages, because it is multiplied by times that do."""
    model, instances, weights = example("tree_fc_fold")
    clock = Counter[str]()
    adapter = prepared(model, weights)
    backend = adapter.engine.backend

    def counted(name: str) -> None:
        """Let each call of the backend's method take ten ticks."""
        real = getattr(backend, name)

        def called(*arguments: Any) -> Any:
            clock["inside"] += 10
            return real(*arguments)

        monkeypatch.setattr(backend, name, called)

    for name in ("run_together", "defer_losses", "clear_gradients"):
        counted(name)
    monkeypatch.setattr(backend, "read_ticks", clock.total)
    phases = NullClock()  # between whose marks time passes that belongs to no phase
    monkeypatch.setattr(phases, "mark", lambda _: clock.update(outside=1000))
    adapter.load(instances)
    adapter.run(phases)
    assert clock["inside"] >= 40
    assert backend.tally.n_cycles == clock["inside"]
    backend.tally.n_moving_cycles = clock["inside"] // 2
    assert adapter.data_movement_fraction() == 0.5


# --- graph segments ---


@pytest.mark.parametrize("switches", [{}, {"lazy_batching": False}, {"outputs": "vertices"}])
@pytest.mark.parametrize("name", ["seq2seq", "parser"])
def test_every_segment_is_whole_before_the_next_one(
    name: str, switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = ran(name, **switches)
    backend, made = adapter.engine.backend, list[Calls]()
    team = type(backend._team)
    run_all = team.run_all
    monkeypatch.setattr(
        team, "run_all", lambda self, calls: (made.append(calls), run_all(self, calls))
    )
    adapter.engine.forward()
    (calls,) = made
    segments, found = adapter.engine.arrangement.segments, list[Any]()
    for which, first, n in calls.order.tolist():
        of_call = calls.batches[which][first : first + n].tolist()
        is_sum = isinstance(calls.callees[which], LossSums)
        found.append(("losses" if is_sum else "batches", of_call))
    expected = list[Any]()
    for one in segments:
        expected += [("batches", batches.tolist()) for _, batches in one.runs]
        expected.append(("losses", [[rows.start, rows.stop] for _, _, rows in one.losses]))
    assert len(segments) > 1
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    kept = [(kind, rows) for kind, rows in found if kind == "batches" or rows[0][0] < rows[0][1]]
    whole = [one for one in kept if one[0] == "losses"]
    assert [rows for _, rows in whole] == [rows for kind, rows in expected if kind == "losses"]
    for (_, batches), (_, asked) in zip(found, expected, strict=True):
        if asked and ALL_ROWS not in {b for _, b in asked}:
            assert batches == asked
