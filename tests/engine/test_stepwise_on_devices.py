"""The stepwise backend on a device that is far: one copy of indices, and nobody waits for a value.

Torch's device `meta` has shapes and no values: an operator that must know a value to go on, which
is what makes a GPU's host wait, fails there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.contracts.policy import load_policy
from harness.engine.backends.stepwise import backend as stepwise
from harness.engine.engine import Engine
from harness.engine.switches import Switches
from harness.granularity.vertices import VertexModel
from harness.policies.parts.rounds import schedule_in_rounds
from tests.support.engine_models import EXAMPLES, example

VARIADIC = ("child_sum", "lattice_gru")


class Transfers(TorchDispatchMode):
    """Counts copies from the host to the device, and refuses those back."""

    def __init__(self) -> None:
        super().__init__()
        self.n_uploads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = [one.device.type for one in args if isinstance(one, torch.Tensor)]
        if isinstance(found, torch.Tensor) and given:
            assert not (found.device.type == "cpu" and "meta" in given), func
            self.n_uploads += found.device.type == "meta" and "cpu" in given
        return found


def engine_on_meta(name: str) -> tuple[Engine, VertexModel, list[Any]]:
    model, instances, weights = example(name)
    vertices = VertexModel(model, share_equal_inputs=False, outputs="stage")
    assert vertices.output is not None
    engine = Engine(
        vertices.functions,
        [vertices.output],
        weights,
        Switches(),
        "meta",
        train=True,
        kind=stepwise.Backend,
    )
    return engine, vertices, instances


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_mini_batch_is_one_upload_and_nobody_waits(name: str) -> None:
    engine, model, instances = engine_on_meta(name)
    for part in (instances, instances[:1], instances * 3):
        mini_batch = model.mini_batch(part)
        schedule = schedule_in_rounds(load_policy("frontier"), mini_batch.graph)
        with Transfers() as transfers:
            engine.arrange(mini_batch, schedule)
            assert transfers.n_uploads == 1
            engine.forward()
            engine.backward()
            engine.update(0.1)
            assert transfers.n_uploads == 1


@pytest.mark.parametrize("name", VARIADIC)
def test_edges_of_any_number_of_children_need_no_value(name: str) -> None:
    """What those before these arrays asked of every batch fails here, so that the test can."""
    counts = torch.tensor([2, 1], device="meta")
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.repeat_interleave(counts)
    engine, model, instances = engine_on_meta(name)
    mini_batch = model.mini_batch(instances)
    engine.arrange(mini_batch, schedule_in_rounds(load_policy("agenda"), mini_batch.graph))
    executors = engine.backend._executors  # type: ignore[attr-defined]
    edges = [
        executor.bound
        for type_id, executor in executors.items()
        if type_id in engine.laid_out.layout and executor.bound.geometry.n_edges
    ]
    assert edges
    for bound in edges:
        assert bound.indices.owner is not None
        assert len(bound.indices.owner) == bound.geometry.n_edges
