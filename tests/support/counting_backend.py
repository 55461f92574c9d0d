"""Backend for tests that computes like torch and records its use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Weights
from dynbatch.harness.engine.backend import EVERY, Arrangement
from dynbatch.harness.engine.backends.stepwise.backend import Backend as Stepwise
from dynbatch.harness.engine.lowering.plan import STAGES, Plan, Ref
from dynbatch.harness.engine.rows.segments import ALL_ROWS, Run
from dynbatch.harness.engine.switches import Switches


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
        self.calls["read"] += 1
        self.events.append(None)
        return super().read(type_id, ref, rows)

    def clear_gradients(self) -> None:
        self.calls["clear_gradients"] += 1
        self.is_clear = True
        super().clear_gradients()

    def update(self, learning_rate: float) -> None:
        self.calls["update"] += 1
        assert self.is_clear, "there are gradients before there is an update"
        super().update(learning_rate)
