"""Execution of the engine in tests, and comparison of its results with the reference."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.policy import load_policy
from dynbatch.harness.contracts.system import Counters, Result, RunSettings
from dynbatch.harness.engine.backend import EVERY, Arrangement, Backend
from dynbatch.harness.engine.backends.stepwise.backend import Backend as Stepwise
from dynbatch.harness.engine.engine import Engine
from dynbatch.harness.engine.lowering.plan import STAGES, Plan, Ref
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Run
from dynbatch.harness.engine.switches import LAYOUTS, Switches
from dynbatch.harness.granularity.vertices import VertexModel
from dynbatch.harness.policies.parts.segments import schedule_in_segments
from dynbatch.harness.reference import ReferenceResult, run_reference
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.systems.on_core.vertex import Adapter
from tests.support.engine_models import example
from tests.support.fake_time import NullClock

LEARNING_RATE = 0.1
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
    "packs": {
        "layout": "pq", "fusion": False, "lazy_batching": False, "pre_gather_parameters": False
    },
    "none": {
        "lazy_batching": False, "hoisting": False, "fusion": False, "outputs": "vertices",
        "layout": "policy",
    },
}  # fmt: skip

# The same, of backends with two streams.
ON_TWO_STREAMS: dict[str, dict[str, Any]] = {
    "stream": {"hoisting": "stream"},
    "only stream": {**ONE_BY_ONE["none"], "hoisting": "stream"},
}


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
    adapter.load(instances)
    adapter.run(NullClock(), update=update)
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


class Setting:
    """Engine with a model, run mini-batch by mini-batch."""

    def __init__(
        self,
        case: str | tuple[Model, list[Any], Weights],
        switches: Switches | None = None,
        kind: type[Backend] | None = None,
        device: str = "cpu",
    ) -> None:
        self.described, self.instances, self.weights = (
            example(case) if isinstance(case, str) else case
        )
        self.model = VertexModel(self.described, deduplicate_inputs=False, outputs="stage")
        functions, output, asked = self.model.functions, self.model.output, switches or Switches()
        self.engine = Engine(functions, output, self.weights, asked, device, train=True, kind=kind)
        self.backend = self.engine.backend

    def arrange(self, mini_batch: MiniBatch) -> None:
        schedule = schedule_in_segments(load_policy("agenda"), mini_batch.graph)
        self.engine.arrange(mini_batch, schedule)

    def train(self, instances: list[Any]) -> float:
        self.arrange(self.model.mini_batch(instances))
        self.engine.forward()
        loss = self.engine.loss()
        self.engine.backward()
        return loss

    def wrong(self, instances: list[Any], tolerance: float = 3e-5) -> list[str]:
        """Train, and return disagreements with the reference at the current parameters."""
        weights = self.backend.read_weights()
        loss = self.train(instances)
        found = Result(loss, self.engine.outputs(), self.backend.gradients(), Counters())
        reference = run_reference(self.described, weights, instances, "train")
        return disagreements(found, reference, tolerance)

    def step(self, instances: list[Any], tolerance: float = 3e-5) -> list[str]:
        """Train and update, and return disagreements, also of the parameters after the update."""
        before = self.backend.read_weights()
        wrong, gradients = self.wrong(instances, tolerance), self.backend.gradients()
        self.engine.update(LEARNING_RATE)
        after = self.backend.read_weights()
        for name, weight in before.items():
            expected = weight - np.float32(LEARNING_RATE) * gradients[name]
            if not np.allclose(after[name], expected, rtol=1e-6, atol=1e-6):
                wrong.append(f"{name} after the update")
        return wrong


class CountingBackend(Stepwise):
    """Backend that counts calls and batches; calls out of order or with unknown data are errors."""

    def __init__(self, switches: Switches, device: str, threads: int) -> None:
        super().__init__(switches, device, threads)
        self.calls: Counter[str] = Counter()
        self.batches: list[tuple[str, int, int]] = []  # stage, type, position
        self.events: list[tuple[str, int, int] | None] = []  # batches, and None for each read
        self.plans: Mapping[int, Plan] = {}
        self.rows: Arrangement | None = None
        self.is_clear = False

    def load(self, weights: Weights) -> None:
        self.calls["load"] += 1
        assert not self.plans, "weights are loaded before plans are compiled"
        super().load(weights)

    def compile(self, plans: Mapping[int, Plan]) -> None:
        self.calls["compile"] += 1
        assert self.calls["load"] == 1
        assert all(plans[type_id] is plan for type_id, plan in self.plans.items())
        self.plans = dict(plans)
        super().compile(plans)

    def arrange(self, rows: Arrangement) -> None:
        self.calls["arrange"] += 1
        assert set(rows.types) <= set(self.plans), "functions are compiled before they have rows"
        for type_id, geometry in rows.types.items():
            assert {n.name for n in self.plans[type_id].nodes if n.op == "pull"} <= set(
                geometry.pulls
            )
        self.rows, self.is_clear = rows, False
        super().arrange(rows)

    def run_together(self, runs: Sequence[Run]) -> None:
        assert self.rows is not None, "rows are arranged before anything runs"
        for stage, batches in runs:
            self.calls[f"run {stage}"] += 1
            assert stage in STAGES
            assert self.is_clear or not stage.startswith("backward"), "gradients are cleared first"
            for type_id, position in batches.tolist():
                n_batches = len(self.rows.types[type_id].first_row)
                assert position == ALL_ROWS or 0 <= position < n_batches
                self.batches.append((stage, type_id, position))
                self.events.append((stage, type_id, position))
        super().run_together(runs)

    def read(self, type_id: int, ref: Ref, rows: slice = EVERY) -> NDArray[np.float32]:
        self.events.append(None)
        return super().read(type_id, ref, rows)

    def clear_gradients(self) -> None:
        self.calls["clear_gradients"] += 1
        self.is_clear = True
        super().clear_gradients()

    def update(self, learning_rate: float) -> None:
        assert self.is_clear, "there are gradients before there is an update"
        super().update(learning_rate)
