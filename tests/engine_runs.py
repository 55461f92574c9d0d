"""Running the engine in tests, and comparing what it computes with the oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest

from harness.engine import fused_cpu
from harness.engine.plan import Switches
from harness.engine.reference import ReferenceResult
from harness.models.base import Model, Weights
from systems.base import Result, RunSettings
from systems.vertex_engine import Adapter

POLICIES = ("frontier", "depth", "agenda", "sufficient", "unbatched")


class NoClock:
    """A clock that only remembers which phases were marked."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def mark(self, phase: str) -> None:
        self.phases.append(phase)


def all_switches(granularity: str) -> Iterator[Switches]:
    """Every combination of the other switches."""
    flags = [field.name for field in fields(Switches) if isinstance(field.default, bool)]
    for values in itertools.product((True, False), repeat=len(flags)):
        for layout in ("read_order", "policy"):
            chosen: dict[str, Any] = dict(zip(flags, values, strict=True))
            yield Switches(granularity=granularity, layout=layout, **chosen)


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Run generated kernels as plain Python, since compiling each takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_cpu, "_load", _interpreted)
        yield


def _interpreted(source: str) -> Callable[..., None]:
    _, body = source.split("@numba.njit", 1)
    one, half = np.float32(1.0), np.float32(0.5)
    names: dict[str, Any] = {
        "math": math,
        "F": np.float32,
        "fast_exp": np.exp,
        "fast_tanh": np.tanh,
        "fast_sigmoid": lambda x: half * (one + np.tanh(half * x)),
    }
    exec(body.split("\n", 1)[1], names)
    kernel: Callable[..., None] = names["kernel"]
    return kernel


def prepared(
    model: Model,
    weights: Weights,
    switches: Switches | None = None,
    policy: str = "frontier",
    mode: str = "train",
    device: str = "cpu",
) -> Adapter:
    """Return an adapter that is ready to load mini-batches."""
    settings = RunSettings(
        mode, device, 1, 1, 0.1, 0, policy=policy, options=asdict(switches or Switches())
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
