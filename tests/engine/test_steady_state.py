"""Once a mini-batch of its size was seen, forward and backward allocate nothing that grows.

Nor do kernels allocate at all.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import pkgutil
import re
import tracemalloc
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.compiler.compiled import Compiled, write_module
from harness.compiler.kinds import INT
from harness.engine import cpu_kernels
from harness.engine.backends.compiled import arguments, program
from harness.engine.backends.compiled.memory import Parameters
from harness.engine.cpu_kernels.elementwise import Group
from tests.support.elementwise_groups import text_of
from tests.support.engine_models import EXAMPLES, example
from tests.support.engine_runs import prepared, run

# Python's own: boxed numbers, tuples of a call, views of a few losses.
PYTHONS_BYTES = 16 * 2**10
N_PARAMETERS = 130  # more than flags of one array


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
    """Return a module's own functions that threads may run: those of numbers alone."""
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
    """Return which functions of others LLVM IR calls, but for LLVM's own and Python's."""
    names = set(re.findall(r'^declare .*?@"([^"]+)"', text, re.MULTILINE))
    return {name for name in names if not name.startswith(("llvm.", "Py"))}


def test_no_kernel_asks_for_memory() -> None:
    """Arrays of a kernel's own would lie in memory of its module, which is for one thread alone."""
    modules = [kernels_in(importlib.import_module(name)) for name in MODULES]
    texts = [str(write_module(functions)) for functions in modules if functions]
    assert len(texts) > 6
    for text in texts:
        assert '@"arena"' not in text
        assert declared_in(text) <= {"memcpy", "syscall"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_group_calls_anything(name: str) -> None:
    model, instances, weights = example(name)
    adapter = prepared(model, weights)
    run(adapter, instances)
    programs = adapter.engine.backend._programs.values()
    steps = [one for program in programs for own in program.instructions.values() for one in own]
    groups = [one.kernel for one in steps if isinstance(one.kernel, Group)]
    assert groups
    assert not any(declared_in(text_of(group)) for group in groups)


def test_only_written_gradients_are_stepped_and_all_are_forgotten() -> None:
    weights = {f"p{k}": np.full((k % 3 + 1, 5), float(k), np.float32) for k in range(N_PARAMETERS)}
    parameters = Parameters(weights, 2)
    flags = {name: parameters.written(name) for name in weights}
    for k, name in enumerate(weights):
        parameters.gradient(name)[:] = 2.0
        flags[name][:] = k % 2
    assert all(parameters.written(name) is flags[name] for name in weights), "none moves"
    for name in ("late", "later"):  # join when others have been stepped before
        parameters.update(0.25, [])
        parameters.values[name] = np.ones((4,), np.float32)
        parameters.written(name)[:] = 1
        parameters.gradient(name)[:] = 1.0
    for k, name in enumerate(weights):
        np.testing.assert_array_equal(parameters.values[name], weights[name] - k % 2)
    assert (parameters.values["late"] == 0.75).all()
    assert (parameters.values["later"] == 1).all()
    parameters.clear()
    assert not any(parameters.written(name).any() for name in (*weights, "late", "later"))
