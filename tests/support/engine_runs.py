"""Execution of the engine in tests, and comparison of its results with the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.system import Result, RunSettings
from dynbatch.harness.engine.switches import LAYOUTS, Switches
from dynbatch.harness.reference import ReferenceResult
from dynbatch.systems.on_core.vertex import Adapter

POLICIES = ("frontier", "depth", "agenda", "sufficient", "unbatched")

# Switches that change the execution, one at a time, and all of them.
ONE_BY_ONE: dict[str, dict[str, Any]] = {
    "all": {},
    "lazy_batching": {"lazy_batching": False},
    "hoisting": {"hoisting": False},
    "fusion": {"fusion": False},
    "gather_fusion": {"gather_fusion": False},
    "policy": {"layout": "policy"},
    "outputs": {"outputs": "vertices"},
    "shared": {"deduplicate_inputs": True},
    "pq": {"layout": "pq", "fusion": False},
    "dynet": {"layout": "dynet", "pre_gather_parameters": False, "fusion": False},
    "packs": {"layout": "pq", "lazy_batching": False, "pre_gather_parameters": False},
    "none": {
        "lazy_batching": False, "hoisting": False, "fusion": False, "outputs": "vertices",
        "layout": "policy",
    },
}  # fmt: skip


BOTH = (True, False)
# Switches of the compiled backend, with all their values. Libraries and precision have their own
# tests (test_products.py). Switch `profile` only adds counters (test_programs.py).
SWITCHES: dict[str, tuple[Any, ...]] = {
    "layout": LAYOUTS,
    "granularity": ("vertex", "operator"),
    "lazy_batching": BOTH,
    "hoisting": BOTH,
    "fusion": BOTH,
    "gather_fusion": BOTH,
    "pre_gather_parameters": BOTH,
    "deduplicate_inputs": BOTH,
    "fold_tables": BOTH,
    "share_products": BOTH,
    "outputs": ("stage", "vertices"),
    "loop": ("compiled", "python"),
}


class NoClock:
    """Clock that only stores the marked phases."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def mark(self, phase: str) -> None:
        self.phases.append(phase)

    def divide(self, shares: Mapping[str, float]) -> None:
        self.phases += shares


def all_switches(granularity: str) -> Iterator[Switches]:
    """Yield every combination of the other switches that training supports."""
    flags = [field.name for field in fields(Switches) if isinstance(field.default, bool)]
    # pre_gather_parameters: tests/vertex/test_columns.py; profile: test_programs.py
    # gather_fusion: ONE_BY_ONE
    for other in ("fold_tables", "pre_gather_parameters", "profile", "gather_fusion"):
        flags.remove(other)
    for k, values in enumerate(itertools.product((True, False), repeat=len(flags))):
        for layout, loop in itertools.product(("read_order", "policy"), ("compiled", "python")):
            if ((layout == "policy") + (loop == "python")) % 2 == k % 2:  # half of the combinations
                continue
            chosen: dict[str, Any] = dict(zip(flags, values, strict=True))
            yield Switches(granularity=granularity, layout=layout, loop=loop, **chosen)


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


def disagreements(result: Result, reference: ReferenceResult, tolerance: float = 2e-5) -> list[str]:
    """Return names of loss, outputs and gradients whose errors exceed float32 rounding."""
    pairs = {"loss": (result.loss, reference.loss), "outputs": (result.outputs, reference.outputs)}
    pairs |= {k: (result.gradients.get(k), g) for k, g in reference.gradients.items()}
    wrong = [] if set(result.gradients) == set(reference.gradients) else ["names of gradients"]
    return wrong + [name for name, (a, b) in pairs.items() if not _close(a, b, tolerance)]


def _close(found: Any, expected: Any, tolerance: float) -> bool:
    found, expected = np.asarray(found, dtype=np.float64), np.asarray(expected)
    if found.shape != expected.shape:
        return False
    scale = max(1e-3, float(np.abs(expected).max(initial=0.0)))
    return bool(np.allclose(found, expected, rtol=tolerance, atol=tolerance * scale))
