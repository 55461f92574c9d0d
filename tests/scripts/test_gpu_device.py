"""The script that measures a GPU: ceilings and profiles are measured on any device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dynbatch.harness.engine.backends.cuda.backend import RUNS_AHEAD, Backend
from dynbatch.harness.engine.backends.cuda.model import KERNELS
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.overrides import read_settings
from scripts import gpu_device


def test_ceilings_of_a_device_without_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_device, "PRODUCTS", ((2, 3, 4),))
    found = gpu_device.measure_ceilings("cpu", copied_bytes=2**16)
    assert json.loads(json.dumps(found)) == found
    assert found["launch_us"] is found["graph_node_us"] is None
    products = found["product_gflop_per_s"]
    assert isinstance(products, dict)
    assert list(products) == ["2x3x4"]
    assert products["2x3x4"] > 0


STREAM = ["system.options.hoisting=stream"]
OF_CHAINS = ["model=var_lstm", "dataset=ptb_fixed_synthetic", "dataset.options.steps=2"]
PROFILED = {
    "one stream": (
        ["model=tree_fc", "dataset=complete_trees", "dataset.options.n_leaves=2", "batch_size=2"],
        KERNELS,
    ),
    "two streams": (
        [*OF_CHAINS, "dataset.options.vocab_modulo=5", "batch_size=1", *STREAM],
        (*KERNELS, RUNS_AHEAD),
    ),
}


@pytest.mark.parametrize(("overrides", "programs"), PROFILED.values(), ids=PROFILED)
def test_a_profile_has_all_instructions_of_all_programs(
    monkeypatch: pytest.MonkeyPatch, overrides: list[str], programs: Sequence[str]
) -> None:
    monkeypatch.setattr(gpu_device, "N_REPEATS", 1)
    if (reason := Backend.explain_unavailable(Switches(), "cpu")) is not None:
        pytest.skip(reason)
    common = ["system=vertex", "device=cpu", "system.options.backend=cuda", "mode=train"]
    common += ["hidden_size=4", "timing.n_mini_batches=1"]
    spec = Composer().resolve_trial(read_settings([*common, *overrides]))
    found: Any = gpu_device.profile_trial(spec)
    assert json.loads(json.dumps(found)).keys() == found.keys()
    assert found["kernels"].keys() == set(programs)
    for name, kernel in found["kernels"].items():
        phases = {phase for phase, *_ in kernel["instructions"]}
        assert phases <= set(range(kernel["phases"]))
        assert len(phases) == kernel["phases"] or name == RUNS_AHEAD  # batches need not have any
        assert all(us > 0 for *_, us in kernel["instructions"])


def test_a_profile_of_another_system_is_refused() -> None:
    overrides = ["dataset=sst_synthetic", "hidden_size=4", "batch_size=2", "model=tree_lstm"]
    spec = Composer().resolve_trial(read_settings([*overrides, "system=torch_levels"]))
    with pytest.raises(ConfigError, match=r"^profile .* got system=torch_levels$"):
        gpu_device.profile_trial(spec)
