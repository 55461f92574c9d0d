"""CUDA backend with tiny tiles in Triton's interpreter, and disagreements with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import Model, Weights, draw_initial_weights
from dynbatch.harness.engine.backends.cuda.backend import Backend
from dynbatch.harness.engine.backends.cuda.kinds import MANY, Tile, Tiling
from dynbatch.harness.engine.backends.cuda.launching import Kernel
from dynbatch.harness.engine.backends.cuda.module import KernelModule
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.reference import run_reference
from tests.support.engine_runs import disagreements, prepared, run
from tests.support.walked_backend import PoisonedMemory

# Tiles smaller than most values; matmuls of more than two rows use the second tile.
SMALL = Tiling(
    products=((2, Tile(2, 4, 8, spread=True)), (MANY, Tile(16, 16, 16))),
    plain=Tile(8, 4, 1),
    sums=Tile(16, 16, 16),
    wide_rows=Tile(4, 2, 1),
)


TOLERANCE = 3e-5  # for float32, as in the contract of backends


class SmallTiles(Backend):
    """Backend with small tiles, and memory that reveals reads of unwritten values."""

    tiling = SMALL
    change: Callable[[str], str] = staticmethod(lambda text: text)  # modifies a kernel, for tests

    def _make_memory(self, weights: Weights) -> PoisonedMemory:
        return PoisonedMemory(weights, self._device)

    def _load_kernel(self, module: KernelModule) -> Kernel:
        return super()._load_kernel(_changed(module, type(self).change))


def _changed(module: KernelModule, change: Callable[[str], str]) -> KernelModule:
    text = change(module.text)
    return module if text == module.text else replace(module, text=text)


def wrong(
    model: Model,
    instances: Sequence[Any],
    switches: Switches | None = None,
    mode: str = "train",
    policy: str = "agenda",
    tolerances: Sequence[float] = (TOLERANCE,),
    *,
    update: bool = False,
) -> list[str]:
    """Return disagreements of one mini-batch with the reference, within the last tolerance.

    With the other tolerances something must disagree. With `update`, parameters after a step are
    compared, too.
    """
    weights = draw_initial_weights(model, 7)
    adapter = prepared(model, weights, switches, policy, mode)
    reference = run_reference(model, weights, instances, mode)
    result = run(adapter, instances, update=update)
    *too_narrow, wide = (disagreements(result, reference, tolerance) for tolerance in tolerances)
    assert all(too_narrow)
    if not update:
        return wide
    expected = {name: weights[name] - 0.1 * g for name, g in reference.gradients.items()}
    found = adapter.parameters()
    stepped = (name for name in expected if not np.allclose(found[name], expected[name], atol=1e-5))
    return [*wide, *(f"{name} behind a step" for name in stepped)]
