"""Descriptions of nodes: plans on a head node, and checks on each node."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.facts import Gpu, Machine
from dynbatch.harness.planning.artifacts import CUDA_BUDGET, build_choices, choose_budget
from dynbatch.harness.planning.nodes import GIB, Nodes, check_executor, check_machine, read_nodes
from dynbatch.harness.values.paths import ROOT
from tests.support.refusals import expect_refusal

GPU = Gpu("NVIDIA H200", 141 * GIB, "570.1", None, None)
NODES = Nodes("h200", n_cpus=16, memory_gib=120, gpu="H200", cpu="EPYC 9575F")
MACHINE = Machine(
    hostname="node7",
    cpu="AMD EPYC 9575F 64-Core Processor",
    n_cores=64,
    n_cpus=128,
    usable_cpus=tuple(range(16)),
    memory_bytes=128 * GIB,
    os="Linux 6.1",
    governor=None,
    turbo=None,
    gpus=(GPU,),
)


def test_a_machine_as_planned_is_taken() -> None:
    assert NODES.explain_mismatch(MACHINE) is None
    assert Nodes("any", n_cpus=16, memory_gib=1).explain_mismatch(MACHINE) is None
    # Firmware and kernel reserve some of the installed memory.
    assert NODES.explain_mismatch(replace(MACHINE, memory_bytes=119 * GIB)) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu": "Intel Xeon"}, "expected CPU EPYC 9575F, got Intel Xeon"),
        ({"usable_cpus": (0, 1)}, "expected 16 usable CPUs, got 2"),
        ({"memory_bytes": 64 * GIB}, "expected 120 GiB memory, got 64.0"),
        ({"gpus": ()}, "expected GPU H200, got none"),
        ({"gpus": (replace(GPU, name="NVIDIA A100"),)}, "expected GPU H200, got NVIDIA A100"),
    ],
)
def test_mismatched_machine_is_described(changes: dict[str, object], words: str) -> None:
    why = NODES.explain_mismatch(replace(MACHINE, **changes))  # type: ignore[arg-type]
    assert why == f"node7 is not a h200: {words}"


def test_a_head_node_plans_for_the_device_of_its_nodes() -> None:
    """The device of this machine does not matter; with a GPU, the default scale is medium."""
    with_gpu = build_choices({"nodes": {"name": "h", "n_cpus": 8, "memory_gib": 9, "gpu": "H"}}, {})
    assert (with_gpu.device, with_gpu.scale) == ("cuda", "medium")
    without = build_choices({"nodes": {"name": "h", "n_cpus": 8, "memory_gib": 9}}, {})
    assert (without.device, without.scale) == ("cpu", "smoke")


@pytest.mark.parametrize(
    ("config", "device", "budget"),
    [
        ({}, "cuda", CUDA_BUDGET),
        ({}, "cpu", None),
        ({"scale": "paper"}, "cuda", None),
        ({"nodes": {}}, "cuda", None),
        ({"records": "there"}, "cuda", None),
        ({"budget": "10m"}, "cuda", "10m"),
        ({"budget": "10m", "scale": "paper"}, "cpu", "10m"),
    ],
)
def test_the_default_scale_on_a_gpu_has_a_budget(
    config: dict[str, object], device: str, budget: str | None
) -> None:
    assert choose_budget(config, device) == budget


def test_trials_are_checked_against_node_resources(make_spec) -> None:  # type: ignore[no-untyped-def]
    check_machine(make_spec(threads=16, device="cuda"), NODES)
    with pytest.raises(ConfigError, match="jobs on h200 have 16 CPUs"):
        check_machine(make_spec(threads=17), NODES)
    with pytest.raises(ConfigError, match="h200 has no GPU"):
        check_machine(make_spec(device="cuda"), replace(NODES, gpu=None))


SMALL = {"name": "a", "n_cpus": 2, "memory_gib": 2}


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("h200", "nodes=h200 is not allowed: expected a mapping"),
        ({"name": "a", "n_cpus": 2}, "nodes has no memory_gib"),
        (SMALL | {"gpus": 1}, "nodes.gpus is unknown, did you mean gpu?"),
        (SMALL | {"name": "../a"}, "nodes.name=../a is not allowed: expected letters"),
        (SMALL | {"block": 9}, "nodes.block=9 is not allowed"),
    ],
)
def test_nodes_that_cannot_be_are_one_line(printed: object, words: str) -> None:
    with expect_refusal(words):
        read_nodes({"nodes": printed})


def test_executor_must_match_the_nodes_setting() -> None:
    check_executor(None, "local")
    check_executor(NODES, "slurm")
    with pytest.raises(ConfigError, match="set --workflow-profile profiles/slurm, or remove nodes"):
        check_executor(NODES, "local")
    with pytest.raises(ConfigError, match="the key nodes is not set"):
        check_executor(None, "slurm")


def test_nodes_of_the_profile_are_valid() -> None:
    text = (ROOT / "profiles" / "slurm" / "nodes.yaml").read_text()
    assert read_nodes(yaml.safe_load(text)) is not None
