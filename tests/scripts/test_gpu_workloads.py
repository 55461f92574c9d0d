"""Every model that can be chosen is among the workloads that are counted, modelled and compiled."""

from __future__ import annotations

from harness.values.places import CONF_DIR
from scripts.gpu_workloads import WORKLOADS


def test_every_model_is_counted() -> None:
    assert {one.model for one in WORKLOADS} == {
        path.stem for path in (CONF_DIR / "model").glob("*.yaml")
    }
    assert {one.mode for one in WORKLOADS} == {"train", "infer"}
