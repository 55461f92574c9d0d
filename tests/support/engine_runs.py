"""Running the engine in tests, and comparing what it computes with the oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest

from harness.contracts.model import Model, Weights
from harness.contracts.system import Result, RunSettings
from harness.engine.backends.compiled import backend as compiled_backend
from harness.engine.cpu_kernels import (
    attention_kernels,
    loss_kernels,
    memory_kernels,
    row_kernels,
    shares,
)
from harness.engine.switches import Switches
from harness.oracle import ReferenceResult
from systems.on_core.vertex import Adapter
from tests.support.interpreted_team import CONTEXT_NAMES, InterpretedTeam
from tests.support.plain_product import add_outer_arrays, multiply_arrays

POLICIES = ("frontier", "depth", "agenda", "sufficient", "unbatched")

# Switches that change what runs, one at a time, and all of them.
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "all": {},
    "lazy_batching": {"lazy_batching": False},
    "hoisting": {"hoisting": False},
    "fusion": {"fusion": False},
    "gather_fusion": {"gather_fusion": False},
    "horizontal_fusion": {"horizontal_fusion": True},
    "policy": {"layout": "policy"},
    "outputs": {"outputs": "vertices"},
    "shared": {"share_equal_inputs": True},
    "pq": {"layout": "pq", "fusion": False},
    "dynet": {"layout": "dynet", "pre_gather_parameters": False, "fusion": False},
    "packs": {"layout": "pq", "lazy_batching": False, "pre_gather_parameters": False},
    "none": {
        "lazy_batching": False, "hoisting": False, "fusion": False, "outputs": "vertices",
        "layout": "policy",
    },
}  # fmt: skip


class NoClock:
    """A clock that only remembers which phases were marked."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def mark(self, phase: str) -> None:
        self.phases.append(phase)

    def divide(self, shares: Mapping[str, float]) -> None:
        self.phases += shares


def all_switches(granularity: str) -> Iterator[Switches]:
    """Every combination of the other switches that training knows."""
    flags = [field.name for field in fields(Switches) if isinstance(field.default, bool)]
    # pre_gather_parameters: tests/vertex/test_columns.py; profile: test_moving_share.py
    # streaming, persistent: of one backend, test_streaming.py and test_persistent.py
    # gather_fusion, horizontal_fusion: ONE_BY_ONE
    of_others = ("fold_tables", "pre_gather_parameters", "profile", "streaming", "persistent")
    for other in (*of_others, "gather_fusion", "horizontal_fusion"):
        flags.remove(other)
    for k, values in enumerate(itertools.product((True, False), repeat=len(flags))):
        for layout, loop in itertools.product(("read_order", "policy"), ("compiled", "python")):
            if ((layout == "policy") + (loop == "python")) % 2 == k % 2:  # half of them each time
                continue
            chosen: dict[str, Any] = dict(zip(flags, values, strict=True))
            yield Switches(granularity=granularity, layout=layout, loop=loop, **chosen)


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Run generated code as plain Python, since compiling it takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_backend, "Team", InterpretedTeam)
        patch.setattr(compiled_backend, "load_all_generated", _all_interpreted)
        yield


def _all_interpreted(sources: Sequence[str], entry: str) -> list[Callable[..., None]]:
    return [_interpreted(source, entry) for source in sources]


def _interpreted(source: str, entry: str) -> Callable[..., None]:
    lines = source.split("@native", 1)[1].splitlines()[1:]
    one, half = np.float32(1.0), np.float32(0.5)
    names: dict[str, Any] = {
        "math": math,
        "np": np,
        "F": np.float32,
        "NO_BIAS": loss_kernels.NO_BIAS,
        "fast_exp": np.exp,
        "fast_tanh": np.tanh,
        "fast_sigmoid": lambda x: half * (one + np.tanh(half * x)),
        "multiply": multiply_arrays,
        "add_outer": add_outer_arrays,
        "ROWS": 1,  # so that threads also share what is small
        "FLOATS": 1,
        "share": shares.share.py_func,
        **CONTEXT_NAMES,
    }
    for module in (row_kernels, memory_kernels, loss_kernels, attention_kernels):
        compiled = {k: f for k, f in vars(module).items() if hasattr(f, "py_func")}
        # Those of losses and of attention call others; they are compiled once and for all.
        is_plain = module in (row_kernels, memory_kernels)
        names |= {k: f.py_func if is_plain else f for k, f in compiled.items()}
    exec("\n".join(lines), names)
    function: Callable[..., None] = names[entry]
    return function


def prepared(
    model: Model,
    weights: Weights,
    switches: Switches | None = None,
    policy: str = "frontier",
    mode: str = "train",
    device: str = "cpu",
    threads: int = 1,
) -> Adapter:
    """Return an adapter that is ready to load mini-batches."""
    settings = RunSettings(
        mode, device, threads, 1, 0.1, 0, policy=policy, options=asdict(switches or Switches())
    )
    adapter = Adapter(settings)
    adapter.prepare(model, weights)
    return adapter


def run(adapter: Adapter, instances: Sequence[Any], *, update: bool = False) -> Result:
    """Process one mini-batch."""
    adapter.load(instances)
    adapter.run(NoClock(), update=update)
    return adapter.result()


def disagreements(result: Result, oracle: ReferenceResult, tolerance: float = 2e-5) -> list[str]:
    """Names of the loss, outputs and gradients that differ by more than float32 explains."""
    pairs = {"loss": (result.loss, oracle.loss), "outputs": (result.outputs, oracle.outputs)}
    pairs |= {k: (result.gradients.get(k), g) for k, g in oracle.gradients.items()}
    wrong = [] if set(result.gradients) == set(oracle.gradients) else ["names of gradients"]
    return wrong + [name for name, (a, b) in pairs.items() if not _close(a, b, tolerance)]


def _close(found: Any, expected: Any, tolerance: float) -> bool:
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    scale = max(1e-3, float(np.abs(expected).max(initial=0.0)))
    return bool(np.allclose(found, expected, rtol=tolerance, atol=tolerance * scale))
