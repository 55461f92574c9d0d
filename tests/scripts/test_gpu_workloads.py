"""Every model that can be chosen is among the workloads that are counted, modelled and compiled."""

from __future__ import annotations

from harness.engine.backends.cuda.backend import Backend
from harness.values.places import CONF_DIR
from scripts.gpu_workloads import WORKLOADS

# Of the operators of its attention the backend has no kernels.
LEFT_TO_STEPWISE = {"berxit"}


def test_every_model_is_counted() -> None:
    assert {one.model for one in WORKLOADS} | LEFT_TO_STEPWISE == {
        path.stem for path in (CONF_DIR / "model").glob("*.yaml")
    }
    assert not LEFT_TO_STEPWISE & {one.model for one in WORKLOADS}
    assert not {"score_heads", "mix_heads"} & Backend.abilities.operators
    assert {one.mode for one in WORKLOADS} == {"train", "infer"}
